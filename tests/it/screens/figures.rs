//! A process's figures on its screen: known ones in their units, unknown ones as `–`, and only there asked for.

use super::{Scope, Screen, Ui, device, picture, text, theme, usual};
use crate::helpers::story::{GIB, counters, one_rank};
use gpuwatch::{
    facts::{
        event::{
            DriverState, Event, Fact, Line, ProcessInfo,
            wire::{Bye, Counters},
        },
        figures::{Figure, Figures},
        units::Stamp,
    },
    model::{findings::findings, session::Session},
    screen::{
        ui::{
            order::{By, Order},
            rows::ProcessRow,
        },
        view,
    },
    sources::focus::Focus,
    storage::replay::{Position, Progress},
};
use ratatui::{buffer::Buffer, layout::Rect};

/// The end of the process screen, as a user sees it after scrolling down.
fn end_of(story: &crate::helpers::story::Story, screen: Screen) -> String {
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
    let asked_by = |ui: &Ui| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        view::paint(&mut buffer, &session, &findings(&session), ui, &theme("dusk"), None).focus
    };
    let asked = |screen| asked_by(&Ui { screen, ..Ui::default() });
    assert_eq!(asked(Screen::Process), Focus::Process(4242, device(0)));
    assert_eq!(asked(Screen::Device), Focus::Device(device(0)));
    let sorted = Ui { order: by(By::Figure(Figure::CpuPercent)), ..Ui::default() };
    assert_eq!(asked_by(&sorted), Focus::Processes(None), "the list has their column");
    assert_eq!(asked_by(&Ui { order: by(By::User), ..Ui::default() }), Focus::None, "a user is known without");
    for screen in [Screen::Overview, Screen::Timeline, Screen::Alerts] {
        assert_eq!(asked(screen), Focus::None, "{screen:?}");
    }
}

fn by(by: By) -> Order {
    Order { by, inverted: false }
}

#[test]
fn the_list_is_sorted_and_filtered_by_figures_and_shows_them_then() {
    let mut story = usual();
    let busy = |pid, index, percent, threads| {
        let changes = [(Figure::SmPercent, percent)].into_iter().collect();
        let host = [(Figure::Threads, threads)].into_iter().collect();
        [
            Fact::Figures { pid, device: Some(device(index)), changes },
            Fact::Figures { pid, device: None, changes: host },
        ]
    };
    for fact in [busy(4242, 0, 34, 5), busy(4243, 1, 61, 4)].into_iter().flatten() {
        story.add(fact);
    }
    let info = ProcessInfo { pid: 4243, argv: vec!["python".into()], user: "bob".into(), ..ProcessInfo::default() };
    let environment = vec!["NCCL_DEBUG=INFO".into()];
    story.add(Fact::Process(ProcessInfo { place: Some("slurm 77".into()), environment, ..info }));
    let session = story.session();
    let all = Ui { scope: Scope::All, focus: super::Focus::Processes, ..Ui::default() };
    let pids = |ui: &Ui| ui.rows(&session).iter().filter_map(ProcessRow::pid).collect::<Vec<_>>();
    let sorted = |order| Ui { order, ..all.clone() };
    assert_eq!(pids(&sorted(by(By::Figure(Figure::SmPercent)))), [4243, 4242, 977]);
    assert_eq!(pids(&sorted(by(By::Figure(Figure::Threads)))), [4242, 4243, 977]);
    let inverted = Order { inverted: true, ..by(By::Figure(Figure::Threads)) };
    assert_eq!(pids(&sorted(inverted)), [4243, 4242, 977], "unknown ones stay last");
    assert_eq!(pids(&sorted(by(By::User))), [977, 4243, 4242]);

    let shown = |ui: &Ui| text(&picture(&session, ui, &theme("dusk"), 80, 24));
    let by_gpu = shown(&sorted(by(By::Figure(Figure::SmPercent))));
    for words in ["by GPU ↓", "61 %", "34 %"] {
        assert!(by_gpu.contains(words), "{words}: {by_gpu}");
    }
    assert!(!shown(&all).contains("61 %"), "{}", shown(&all));
    assert!(shown(&sorted(by(By::User))).contains("bob"));
    for words in ["slurm 77", "nccl_debug=info", "user bob"] {
        let mut ui = all.clone();
        ui.filter.text = words.to_owned();
        assert_eq!(pids(&ui), [4243], "{words}");
    }
    // Its pid may be another user's by then.
    let line = Line::Bye(Bye::default());
    story.line(1, line).device(1, 1 << 30, &[]).add(Fact::ProcessGone { pid: 4243 });
    story.who(4243, &["sleep"]);
    let ended = story.session();
    let ui = sorted(by(By::User));
    let rows = text(&picture(&ended, &ui, &theme("dusk"), 80, 24));
    assert!(rows.lines().any(|it| it.contains("4243") && it.contains("bob")), "{rows}");
    assert_eq!(ui.rows(&ended).iter().filter_map(ProcessRow::pid).collect::<Vec<_>>(), [977, 4243, 4242]);
}

/// What this machine lacks says nothing about the first moments of a recording.
#[test]
fn a_replay_before_its_first_figures_goes_on() {
    let mut session = Session::default();
    session.apply(&Event { at: Stamp(0), fact: Fact::Driver(DriverState::Up { version: None }) });
    let drawn = |at: u64| {
        let position = Position { at: Stamp(at), to: Stamp(9_000_000), percent: 100, ..Position::default() };
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        let (findings, ui) = (findings(&session), Ui::default());
        view::draw_replay(&mut buffer, &session, &findings, &ui, &theme("dusk"), &Progress::At(position));
        text(&buffer)
    };
    let (early, late) = (drawn(0), drawn(9_000_000));
    assert!(early.contains("no job is known yet at this time") && !early.contains("nvidia-smi"), "{early}");
    assert!(late.contains("nvidia-smi -L"), "{late}");
}

/// A process that nearly fills its device, and does not grow, is offered what would save memory in it.
#[test]
fn the_screen_of_a_process_that_fills_its_device_has_the_command_for_advice() {
    let shown = |allocated: u64| {
        let mut story = one_rank();
        for step in 1..=80 {
            let held = Counters { allocated_peak: Some(allocated), ..counters(allocated, GIB) };
            story.wait(100_000).sample(0, step, held);
        }
        let ui = Ui { screen: Screen::Process, ..Ui::default() };
        text(&picture(&story.session(), &ui, &theme("dusk"), 120, 40))
    };
    let command = "gpuwatch fit --advise --for 4242 -- python train.py --rank";
    assert!(shown(136 * GIB).contains(command), "{}", shown(136 * GIB));
    assert!(!shown(60 * GIB).contains(command), "{}", shown(60 * GIB));
}
