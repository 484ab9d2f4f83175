//! What has a place on a screen: rungs that hold something, the remedy of the selected one, the selected row's mark,
//! words for what is blank.

use super::theme;
use crate::helpers::story::{GIB, MIB, Story, counters, device, picture, text, usual};
use gpuwatch::{
    facts::{
        event::{
            DeviceMemory, Fact, Line,
            wire::{Counters, Edge, Parts, Sample},
        },
        units::Bytes,
    },
    model::{analysis::ladder::Gap, findings::findings, session::Session},
    screen::{
        ui::{Command, Focus, Motion, Request, Screen, Ui, mouse::Mouse},
        view,
    },
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (120, 40), (200, 60)];

fn shown(session: &Session, ui: &Ui, (width, height): (u16, u16)) -> String {
    text(&picture(session, ui, &theme("dusk"), width, height))
}

fn unwrapped(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands to the left of the curve, where that is beside the ladder.
fn left_of_the_curve(picture: &str) -> String {
    let titles = picture.lines().find(|it| it.starts_with("─ memory of")).unwrap();
    let edge = titles.split_once("─  ─").map_or(usize::MAX, |(ladder, _)| ladder.chars().count() + 1);
    picture.lines().map(|it| it.chars().take(edge).collect::<String>() + "\n").collect()
}

#[test]
fn on_a_wide_screen_every_remedy_is_whole() {
    let session = usual().session();
    for width in [200, 240] {
        let left = left_of_the_curve(&shown(&session, &Ui::default(), (width, 50)));
        let remedies: Vec<&str> = left.lines().filter(|it| it.contains('→')).collect();
        assert!(remedies.len() > 3 && left.contains("or fewer different sizes"), "{left}");
        assert!(!left.contains('…'), "{left}");
    }
    let narrow = left_of_the_curve(&shown(&session, &Ui::default(), (170, 50)));
    assert!(narrow.contains('…') && narrow.lines().all(|it| it.chars().count() <= 102), "{narrow}");
}

/// It is what one copies, so that it is whole, and its rung is seen to be selected.
#[test]
fn the_remedy_of_the_selected_rung_is_whole_and_is_copied() {
    let session = usual().session();
    for size in SIZES {
        let mut ui = Ui::default();
        ui.update(Command::PreviousBox, &session);
        assert_eq!(ui.focus, Focus::Ladder);
        // The largest that something can be done about, before anybody chose.
        assert!(unwrapped(&shown(&session, &ui, size)).contains("▸▒ releasable"), "{}", shown(&session, &ui, size));
        ui.update(Command::Move(Motion::First), &session);
        let mut seen = Vec::new();
        for _ in 0..Gap::ALL.len() {
            let picture = shown(&session, &ui, size);
            let row =
                picture.lines().find_map(|it| it.split_once('▸')?.1.split_whitespace().nth(1)).unwrap_or_default();
            let name = Gap::ALL
                .iter()
                .map(|it| it.row())
                .find(|it| it.name == row)
                .unwrap_or_else(|| panic!("{row}\n{picture}"));
            // At the right may stand the curve.
            let left = left_of_the_curve(&picture);
            let whole = if name.remedy.is_empty() { name.cause } else { name.remedy };
            let dense = |it: &str| it.split_whitespace().collect::<String>();
            assert!(dense(&left).contains(&dense(whole)), "{size:?} {row}\n{picture}");
            ui.update(Command::Copy, &session);
            let copied = ui.request.take();
            let remedy = Some(name.remedy).filter(|it| !it.is_empty());
            assert_eq!(copied, remedy.map(|it| Request::Copy(it.to_owned())), "{row}");
            seen.push(name.gap);
            ui.update(Command::Move(Motion::Down), &session);
        }
        seen.dedup();
        assert!(seen.len() >= 9, "{seen:?}");
        assert!(seen.contains(&Gap::Stuck) && !seen.contains(&Gap::Unattributed), "{seen:?}");
    }
}

/// What grows is small beside the rest, and the list has room for three rungs.
#[test]
fn the_rung_that_an_alert_is_about_is_listed_on_a_small_terminal() {
    let drawn = |growing: &str| {
        let mut story = Story::default();
        story.probe(0, 42, 0, None);
        for step in 1..=60 {
            let more = |of: &str| if growing == of { step * 4 * MIB } else { 0 };
            let (weights, optimizer, retained) = (GIB / 2, GIB / 4 + more("optimizer"), GIB + more("retained"));
            let own = counters(weights + optimizer + retained, 30 * GIB);
            let held = own.reserved.unwrap() + GIB + more("non-torch");
            let parts = (step % 4 == 0).then_some(Parts { weights, gradients: 0, optimizer, retained });
            let (at_us, edge) = (story.now, Edge::Step);
            let sample = Sample { at_us, edge, step: Some(step), counters: own, parts, ..Sample::default() };
            story.line(0, Line::Sample(sample)).device(0, held + 40 * GIB, &[(42, held), (977, 40 * GIB)]);
            story.wait(1_000_000);
        }
        shown(&story.session(), &Ui::default(), (40, 12))
    };
    for name in ["retained", "optimizer", "non-torch"] {
        let picture = drawn(name);
        assert!(picture.contains("more") && picture.contains(&format!(" {name} ")), "{name}\n{picture}");
    }
}

#[test]
fn a_click_on_a_rung_selects_it() {
    let (session, mut ui) = (usual().session(), Ui::default());
    let found = findings(&session);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    let regions = view::draw(&mut buffer, &session, &found, &ui, &theme("dusk")).regions;
    let picture = shown(&session, &ui, (80, 24));
    let row = picture.lines().position(|it| it.contains("▚ stuck")).unwrap();
    ui.mouse(Mouse::Press(Position::new(6, u16::try_from(row).unwrap())), &regions, &session);
    assert_eq!((ui.focus, ui.gap), (Focus::Ladder, Some(Gap::Stuck)));
    let picture = unwrapped(&shown(&session, &ui, (80, 24)));
    assert!(
        picture.contains("→ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or fewer different sizes"),
        "{picture}"
    );
}

/// One that comes and goes keeps its row, so that nothing below it jumps.
#[test]
fn rungs_of_no_bytes_fold_away_unless_they_held_something() {
    let session = usual().session();
    for size in SIZES {
        for screen in [Screen::Overview, Screen::Device] {
            let picture = shown(&session, &Ui { screen, ..Ui::default() }, size);
            let rows = picture.lines().filter(|it| it.contains("unattributed") && it.contains("0 %")).count();
            assert_eq!(rows, 0, "{picture}");
        }
    }
    let device_screen = Ui { screen: Screen::Device, ..Ui::default() };
    assert!(shown(&session, &device_screen, (120, 40)).contains("   0 B: unattributed"));
    let mut story = Story::default();
    story.device(0, 40 * GIB, &[(4242, 39 * GIB)]).probe(0, 4242, 0, None);
    let pending = counters(20 * GIB, GIB);
    let settled = Counters { active: pending.allocated, requested: pending.allocated, ..pending };
    story.wait(100_000).sample(0, 1, settled);
    let mut ui = Ui::default();
    let mut see = |story: &Story| {
        let session = story.session();
        ui.attend(&session, &findings(&session));
        shown(&session, &ui, (80, 24))
    };
    assert!(!see(&story).contains(" pending"), "{}", see(&story));
    story.wait(100_000).sample(0, 2, pending);
    assert!(see(&story).contains("▞ pending       64.00 MiB"), "{}", see(&story));
    story.wait(100_000).sample(0, 3, settled);
    assert!(see(&story).contains("▞ pending             0 B"), "{}", see(&story));
}

/// The boxes above the list are about one process of it, wherever the arrows are.
#[test]
fn the_selected_process_has_its_mark() {
    let session = usual().session();
    for size in [(80, 24), (120, 40), (200, 60)] {
        for focus in [Focus::Devices, Focus::Processes] {
            let picture = shown(&session, &Ui { focus, ..Ui::default() }, size);
            let marked: Vec<&str> = picture.lines().filter(|it| it.starts_with('▸')).collect();
            assert!(matches!(marked.as_slice(), [one] if one.contains(" 4242 ")), "{marked:?}\n{picture}");
        }
        let second = Ui { focus: Focus::Processes, row: 1, ..Ui::default() };
        let picture = shown(&session, &second, size);
        assert!(picture.lines().any(|it| it.starts_with('▸') && it.contains(" 977 ")), "{picture}");
    }
}

/// Memory outside of the allocator is unknown before the driver's first reading: the blank part shows why.
#[test]
fn the_blank_part_of_a_timeline_shows_why() {
    let mut story = Story::default();
    story.add(Fact::Device(gpuwatch::facts::event::DeviceInfo {
        id: device(0),
        index: 0,
        name: "NVIDIA H200".into(),
        parent: None,
        maker: gpuwatch::facts::maker::Maker::Nvidia,
    }));
    story.probe(0, 4242, 0, None);
    for step in 1..=400 {
        story.wait(100_000).sample(0, step, counters(20 * GIB, GIB));
        if step >= 200 {
            let used = Bytes(30 * GIB);
            let free = Bytes(110 * GIB);
            let reading = Ok(DeviceMemory { total: Bytes(140 * GIB), used, free, reserved: None, unified: None });
            story.add(Fact::Memory { device: device(0), reading });
        }
    }
    let session = story.session();
    let ui = Ui { screen: Screen::Timeline, ..Ui::default() };
    for size in SIZES {
        let picture = shown(&session, &ui, size);
        let left: String = picture.lines().map(|it| it.chars().skip(12).take(24).collect::<String>() + "\n").collect();
        assert!(unwrapped(&left).contains("no driver readings yet"), "{size:?}\n{picture}");
    }
    let known = shown(&usual().session(), &ui, (40, 12));
    assert!(!known.contains("no driver readings yet"), "{known}");
}

/// How what is used comes about is worth less than the name of another rung.
#[test]
fn no_name_under_the_ladder_is_left_out_for_a_longer_one() {
    let mut story = Story::default();
    story.device(0, 77 * GIB, &[(4242, 68 * GIB), (977, 9 * GIB)]).probe(0, 4242, 0, None);
    story.wait(100_000).sample(0, 1, counters(52 * GIB, 15 * GIB));
    story.device(0, 77 * GIB, &[(4242, 68 * GIB), (977, 9 * GIB)]);
    let ui = Ui { screen: Screen::Device, ..Ui::default() };
    for (size, used) in [((80, 24), "used + reserve"), ((200, 60), "77.50 GiB = 77.00 GiB used + 512.0 MiB reserve")] {
        let picture = shown(&story.session(), &ui, size);
        for phrase in [used, "52.00 GiB allocated", "67.06 GiB reserved"] {
            assert!(picture.contains(phrase), "no {phrase:?}\n{picture}");
        }
    }
}

/// The unprobed job of another user is listed for what it holds.
#[test]
fn the_bytes_of_a_process_without_a_probe_stay_where_there_is_little_room() {
    for size in [(80, 24), (100, 30)] {
        let shown = shown(&usual().session(), &Ui::default(), size);
        let row = shown.lines().find(|it| it.contains(" 977 ")).unwrap_or_default();
        assert!(row.contains("9.00 GiB"), "{shown}");
    }
}

#[test]
fn every_device_of_a_large_node_has_a_cell() {
    for (count, size) in [(8, (80, 24)), (16, (80, 24)), (16, (120, 40)), (16, (200, 60))] {
        let mut story = Story::default();
        for index in 0..count {
            story.device(index, GIB, &[]);
        }
        let shown = shown(&story.session(), &Ui::default(), size);
        let is_cell = |index: u32| shown.contains(&format!(" {index}  1 %"));
        let is_row = |index: u32| shown.contains(&format!("{index}   1.00 GiB"));
        assert!((0..count).all(|it| is_cell(it) || is_row(it)), "{shown}");
        assert!(!shown.contains(" more"), "{shown}");
    }
}
