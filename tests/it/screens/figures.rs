//! A process's figures on its screen: known ones in their units, unknown ones as `–`, and only there asked for.

use super::{Screen, Ui, device, picture, text, theme, usual};
use gpuwatch::{
    facts::{
        event::{Fact, ProcessInfo},
        figures::{Figure, Figures},
    },
    model::findings::findings,
    screen::view,
    sources::focus::Focus,
};
use ratatui::{buffer::Buffer, layout::Rect};

/// The end of the process screen, as a user sees it after scrolling down.
fn end_of(story: &crate::story::Story, screen: Screen) -> String {
    let ui = Ui { screen, scroll: usize::MAX / 2, ..Ui::default() };
    text(&picture(&story.session(), &ui, &theme("dusk"), 80, 24))
}

#[test]
fn figures_of_a_process_are_on_its_screen() {
    let mut story = usual();
    let unknown = end_of(&story, Screen::Process);
    let row = |shown: &str, label: &str| shown.lines().find(|it| it.contains(label)).unwrap_or("").to_owned();
    assert!(row(&unknown, "I/O wait").contains('–') && row(&unknown, "resident").contains('–'), "{unknown}");
    let of_device = [(Figure::SmPercent, 34), (Figure::MemoryPercent, 12)];
    story.add(Fact::Figures { pid: 4242, device: Some(device(0)), changes: of_device.into_iter().collect() });
    let of_host = [(Figure::CpuPercent, 210), (Figure::Rss, 3 << 30), (Figure::Threads, 54)];
    story.add(Fact::Figures { pid: 4242, device: None, changes: of_host.into_iter().collect() });
    story.add(Fact::Process(ProcessInfo {
        pid: 4242,
        argv: vec!["python".into()],
        user: "ada".into(),
        place: Some("slurm 77".into()),
        environment: vec!["NCCL_DEBUG=INFO".into(), "CUDA_X=\u{1b}[31m".into()],
        ..ProcessInfo::default()
    }));
    let shown = end_of(&story, Screen::Process);
    for words in ["210 %", "34 %", "12 %", "3.00 GiB", "54", "ada, slurm 77", "NCCL_DEBUG=INFO"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let gone = Figures::default().since(&of_host.into_iter().collect());
    story.add(Fact::Figures { pid: 4242, device: None, changes: gone });
    assert!(!end_of(&story, Screen::Process).contains("210 %"));
}

#[test]
fn a_screen_asks_only_for_what_it_shows() {
    let session = usual().session();
    let asked = |screen| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        let ui = Ui { screen, ..Ui::default() };
        view::paint(&mut buffer, &session, &findings(&session), &ui, &theme("dusk"), None).focus
    };
    assert_eq!(asked(Screen::Process), Focus::Process(4242, device(0)));
    assert_eq!(asked(Screen::Device), Focus::Device(device(0)));
    for screen in [Screen::Overview, Screen::Timeline, Screen::Alerts] {
        assert_eq!(asked(screen), Focus::None, "{screen:?}");
    }
}
