//! The culprit on the screen: the complete answer first, then its evidence; without one, how to get it.

use super::{read_through, theme};
use crate::{
    analysis::culprit::{ADVICE, SENTENCE, hostile_sites, sites},
    helpers::story::{GIB, MIB, Story, blamed, counters, picture, styles, text, usual},
};
use gpuwatch::{
    facts::event::{
        Line,
        wire::{Bye, Hello, PROTOCOL, Refused, Sites},
    },
    model::{findings::findings, session::Session},
    screen::{
        ui::{Command, Motion, Screen, Ui},
        view,
    },
};
use ratatui::{buffer::Buffer, layout::Rect};

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (120, 40), (200, 60)];

fn of(screen: Screen) -> Ui {
    Ui { screen, ..Ui::default() }
}

fn unwrapped(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_culprit_looks_like_this_at_every_size() {
    let session = blamed(sites).session();
    for (name, ui) in [("process", of(Screen::Process)), ("alerts", of(Screen::Alerts))] {
        for (width, height) in SIZES {
            let pictures = ["dusk", "paper"].map(|it| (it, picture(&session, &ui, &theme(it), width, height)));
            insta::assert_snapshot!(format!("{name}-{width}x{height}-text"), text(&pictures[0].1));
            for (theme, picture) in pictures {
                insta::assert_snapshot!(format!("{name}-{width}x{height}-{theme}-style"), styles(&picture));
            }
        }
    }
}

#[test]
fn the_sentence_and_the_advice_are_seen_without_scrolling() {
    let session = blamed(sites).session();
    for screen in [Screen::Process, Screen::Alerts] {
        for (width, height) in [(80, 24), (120, 40), (200, 60)] {
            let shown = unwrapped(&text(&picture(&session, &of(screen), &theme("dusk"), width, height)));
            // A curve is next to the figures, so a line of them must not continue there.
            let left = if width == 200 && screen == Screen::Process {
                let narrow = picture(&session, &of(screen), &theme("dusk"), 200, 60);
                unwrapped(
                    &text(&narrow).lines().map(|it| it.chars().take(82).collect::<String>() + "\n").collect::<String>(),
                )
            } else {
                shown
            };
            assert!(left.contains(SENTENCE) && left.contains(&format!("→ {ADVICE}")), "{width}: {left}");
        }
    }
}

#[test]
fn an_alert_that_has_ended_still_names_its_line() {
    let mut story = blamed(sites);
    story.line(0, Line::Bye(Bye { reason: "exit".to_owned(), ..Bye::default() }));
    let shown = unwrapped(&text(&picture(&story.session(), &of(Screen::Alerts), &theme("dusk"), 120, 40)));
    let ended = shown.split("▸ended ").nth(1).unwrap_or_else(|| panic!("{shown}"));
    assert!(ended.contains(&format!("until its process ended {SENTENCE}")) && !ended.contains(ADVICE), "{shown}");
}

#[test]
fn the_evidence_of_a_culprit_scrolls_to_its_end() {
    let session = blamed(sites).session();
    for width in [60, 80, 120] {
        let all = read_through(&session, &of(Screen::Process), width);
        for reported in [
            "culprit · at step 690, over 8 steps",
            "▸ 41 losses.append(loss)",
            "· 40 loss = F.cross_entropy(out, target)",
            "held by list `losses` (1,204 items), global of train.py",
            "functional.py:3100 in cross_entropy() of torch",
            "train.py:40 in main() · /home/ada",
            "96 blocks (192.0 MiB) predate the capture",
            "paused the job for 128 ms in total",
        ] {
            assert!(all.contains(reported), "{width}: no {reported:?} in {all}");
        }
    }
    let nothing = blamed(|at, step| Sites { sites: Vec::new(), ..sites(at, step) }).session();
    let shown = unwrapped(&text(&picture(&nothing, &of(Screen::Process), &theme("dusk"), 80, 24)));
    assert!(shown.contains("in 8 steps no line allocated more than was freed again"), "{shown}");
}

/// A library's frames stand in one line.
#[test]
fn frames_of_a_library_are_folded() {
    let deep = |at, step| {
        let mut sites = sites(at, step);
        let frames = &mut sites.sites[1].frames;
        let library = frames[0].clone();
        frames.splice(0..1, vec![library; 5]);
        sites
    };
    let all = read_through(&blamed(deep).session(), &of(Screen::Process), 80);
    assert!(all.contains("stack 5 frames of torch train.py:40 in main()") && !all.contains("functional.py"), "{all}");
}

#[test]
fn the_alert_leads_to_the_line() {
    let session = blamed(sites).session();
    let shown = text(&picture(&session, &of(Screen::Alerts), &theme("dusk"), 80, 24));
    assert!(shown.contains("▸   41  losses.append(loss)"), "{shown}");
    for (width, height) in [(80, 16), (80, 24), (100, 30)] {
        let overview = text(&picture(&session, &Ui::default(), &theme("dusk"), width, height));
        let line = overview.lines().rev().nth(1).unwrap_or_default();
        assert!(line.contains("train.py:41") && line.contains("full in"), "{overview}");
    }
    let overview = text(&picture(&session, &Ui::default(), &theme("dusk"), 200, 60));
    assert!(overview.contains("graph-retained, train.py:41; full in"), "{overview}");
}

#[test]
fn without_a_capture_the_screen_shows_how_to_get_one_or_why_not() {
    let ready = |asked: &str| {
        let mut story = usual();
        story.events.clear();
        story.device(0, 2 * GIB, &[]).probe(0, 4242, 0, None);
        let hello = Hello { protocol: PROTOCOL, pid: 4242, sites: Some(asked.into()), ..Hello::default() };
        story.line(0, Line::Hello(hello));
        grow(&mut story);
        story
    };
    let shown = |session: &Session, screen| unwrapped(&text(&picture(session, &of(screen), &theme("dusk"), 80, 24)));
    for screen in [Screen::Process, Screen::Alerts] {
        let mut story = ready("ready");
        let unlooked = shown(&story.session(), screen);
        assert!(unlooked.contains("the line is not known yet: w finds it"), "{unlooked}");
        let readonly = Ui { no_signals: Some("readonly"), ..of(screen) };
        let unasked = unwrapped(&text(&picture(&story.session(), &readonly, &theme("dusk"), 80, 24)));
        assert!(unasked.contains("the line is not known yet: gpuwatch sites 4242"), "{unasked}");
        story.line(0, Line::Refused(Refused { reason: "no\u{1b}body may".into() }));
        let refused = shown(&story.session(), screen);
        assert!(refused.contains("the line was not found: no\\u{1b}body may"), "{refused}");
        let forbidden = shown(&ready("GPUWATCH=nosites forbids it").session(), screen);
        assert!(forbidden.contains("the line cannot be found: GPUWATCH=nosites forbids it"), "{forbidden}");
        let without = shown(&usual().session(), screen);
        assert!(!without.contains("the line is"), "a probe that knows nothing of it is not asked: {without}");
    }
}

fn grow(story: &mut Story) {
    for step in 1..=300 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 4 * MIB, GIB));
    }
}

#[test]
fn a_hostile_culprit_cannot_send_escapes_at_any_size() {
    let session = blamed(hostile_sites).session();
    let found = findings(&session);
    for screen in [Screen::Process, Screen::Alerts, Screen::Overview, Screen::Timeline] {
        for width in (0..130).step_by(9).chain([200]) {
            for (height, scroll) in [(0, 0), (3, 0), (12, 4), (24, 0), (24, 30), (60, 0)] {
                let ui = Ui { screen, scroll, ..Ui::default() };
                let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                view::paint(&mut buffer, &session, &found, &ui, &theme("dusk"), None);
                let bad = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
                assert!(!buffer.content.iter().any(|it| it.symbol().chars().any(bad)), "{screen:?} {width}x{height}");
            }
        }
    }
}

#[test]
fn the_timeline_marks_the_capture() {
    let session = blamed(sites).session();
    let mut ui = of(Screen::Timeline);
    ui.update(Command::Move(Motion::Last), &session);
    let shown = text(&picture(&session, &ui, &theme("dusk"), 120, 40));
    assert!(shown.contains("◎ train.py:41"), "{shown}");
    let row = shown.lines().find(|it| it.contains('◇') && it.contains('─')).unwrap_or_default();
    assert!(row.contains('◎'), "{shown}");
    let plain = theme("plain").in_ascii();
    assert!(text(&picture(&session, &ui, &plain, 120, 40)).contains("@ train.py:41"));
    assert!(!text(&picture(&usual().session(), &ui, &theme("dusk"), 120, 40)).contains('◎'));
}
