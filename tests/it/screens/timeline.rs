//! The timeline: the cursor shows the figures of the samples, at any zoom and on either axis.

use super::theme;
use crate::helpers::story::{GIB, MIB, Story, counters, device, picture, text, usual};
use gpuwatch::{
    facts::{
        event::{
            Fact, Line, ProcessUse,
            wire::{Bye, Counters, Device, Edge, Hello, Oom, PROTOCOL, Sample},
        },
        units::Bytes,
    },
    model::session::{Session, timeline::Level},
    screen::{
        theme::ColorDepth,
        ui::{Chart, Command, Motion, Screen, Ui, timeline_range::XAxis},
    },
};

fn timeline() -> Ui {
    Ui { screen: Screen::Timeline, ..Ui::default() }
}

fn shown(session: &Session, ui: &Ui) -> String {
    text(&picture(session, ui, &theme("dusk"), 120, 40))
}

#[test]
fn the_cursor_shows_every_rung_of_its_step() {
    let session = usual().session();
    let mut ui = timeline();
    for _ in 0..12 {
        ui.update(Command::Chart(Chart::Plus), &session);
    }
    ui.update(Command::Move(Motion::Left), &session);
    let (_, on) = ui.process(&session).unwrap();
    let step = ui.timeline.under_cursor(on).unwrap().step.unwrap();
    assert!((650..700).contains(&step), "{step}");
    let allocated = 36 * GIB + step * 4 * MIB;
    let picture = shown(&session, &ui);
    let size = |bytes: u64| match bytes {
        _ if bytes >= GIB => format!("{:.2} GiB", bytes as f64 / GIB as f64),
        _ => Bytes(bytes).to_string(),
    };
    // Rounding is the requested memory's difference to active memory: 150 MiB; pending are 64 MiB, stuck 7 of 21 GiB.
    for (name, bytes) in [
        ("wanted", allocated - 150 * MIB),
        ("rounding", 150 * MIB),
        ("pending", 64 * MIB),
        ("stuck", 7 * GIB),
        ("releasable", 14 * GIB),
        ("non-torch", 3 * GIB),
        ("others", 9 * GIB),
    ] {
        let line = picture.lines().find(|it| it.contains(&format!(" {name} "))).unwrap_or_default();
        assert!(line.contains(&format!(" {} ", size(bytes))), "{name} {}: {line}\n{picture}", size(bytes));
    }
    assert!(picture.contains(&format!("step {step} · ")), "{picture}");
}

/// Whatever rungs the edge of used memory runs through, memory that only grows is never drawn as if it fell.
#[test]
fn a_chart_of_growing_memory_has_no_holes() {
    let mut story = Story::default();
    story.device(0, 100 * GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=400 {
        let held = step * 200 * MIB;
        let own =
            Counters { allocated: Some(held / 3), active: Some(held / 3), reserved: Some(held), ..Counters::default() };
        story.wait(100_000).sample(0, step, Counters { inactive_split: Some(held / 3), ..own });
    }
    let shown = shown(&story.session(), &timeline());
    let rows: Vec<Vec<char>> = shown
        .lines()
        .skip(4)
        .take_while(|it| !it.contains("step time"))
        .map(|it| it.chars().skip(12).take(60).collect())
        .collect();
    let filled = |column: usize| rows.iter().filter(|it| !matches!(it.get(column), Some(' ' | '·'))).count();
    let all: Vec<usize> = (0..60).map(filled).collect();
    assert!(all[0] < 3 && all[59] > 10 && all.windows(2).all(|it| it[0] <= it[1]), "{all:?}\n{shown}");
}

#[test]
fn zooming_stays_at_the_cursor_and_turning_at_its_time() {
    let session = usual().session();
    let mut ui = timeline();
    let span = |ui: &Ui| ui.timeline.span(ui.process(&session).unwrap().1).unwrap();
    for _ in 0..4 {
        ui.update(Command::Move(Motion::PageUp), &session);
    }
    let here = span(&ui).cursor;
    for _ in 0..40 {
        ui.update(Command::Chart(Chart::Plus), &session);
        let it = span(&ui);
        assert!(it.from <= here && here <= it.to && it.cursor == here && it.to - it.from >= 16, "{it:?}");
    }
    ui.update(Command::Chart(Chart::Axis), &session);
    assert_eq!(span(&ui).axis, XAxis::Time);
    let at = ui.timeline.under_cursor(ui.process(&session).unwrap().1).unwrap();
    assert!(at.step.unwrap().abs_diff(here) <= 2, "{at:?}");
    ui.update(Command::Chart(Chart::Reset), &session);
    assert_eq!((span(&ui).from, span(&ui).to), span(&ui).whole);
    for command in [
        Command::Move(Motion::Left),
        Command::Move(Motion::First),
        Command::Move(Motion::Left),
        Command::Move(Motion::PageUp),
        Command::Chart(Chart::Minus),
        Command::Move(Motion::Right),
    ] {
        ui.update(command, &session);
        let it = span(&ui);
        assert!(it.whole.0 <= it.from && it.from <= it.cursor && it.cursor <= it.to && it.to <= it.whole.1, "{it:?}");
    }
    ui.update(Command::Move(Motion::Last), &session);
    assert_eq!((ui.timeline.cursor, span(&ui).cursor), (None, span(&ui).whole.1));
}

#[test]
fn one_step_of_many_is_seen() {
    let mut story = Story::default();
    story.device(0, GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=20_000 {
        let spike = if step == 7_777 { 60 * GIB } else { 0 };
        story.wait(10_000).sample(0, step, counters(20 * GIB + spike, GIB));
    }
    let session = story.session();
    let tall = |picture: &str| {
        let row = picture.lines().nth(22).unwrap_or_default().chars();
        row.filter(|it| *it == '█').count()
    };
    assert_eq!(tall(&shown(&session, &timeline())), 1, "{}", shown(&session, &timeline()));
}

/// A young run has fewer steps than a wide terminal has columns.
#[test]
fn few_steps_fill_all_columns_of_the_chart() {
    let mut story = Story::default();
    story.device(0, 100 * GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=20 {
        story.wait(100_000).sample(0, step, counters(90 * GIB, GIB));
    }
    let session = story.session();
    for zoom in 0..2 {
        let mut ui = timeline();
        ui.timeline.zoom = zoom;
        let shown = shown(&session, &ui);
        let row = shown.lines().find(|it| it.starts_with("      0 GiB ")).unwrap();
        assert!(row.chars().skip(12).take(60).all(|it| it == '█'), "{shown}");
    }
}

/// A job goes on while nothing is known of it: these steps are blank, also where another probe follows within seconds.
#[test]
fn steps_that_nobody_saw_are_blank() {
    for is_attached_again in [false, true] {
        let mut story = Story::default();
        // Of the same process, by its number and its start.
        let hello = || {
            let devices = vec![Device { uuid: Some(device(0).0), ..Device::default() }];
            let start_us = Some(1_000_000);
            Line::Hello(Hello { protocol: PROTOCOL, pid: 4242, start_us, devices, ..Hello::default() })
        };
        story.device(0, 30 * GIB, &[(4242, 22 * GIB)]).probe(0, 4242, 0, None).line(0, hello());
        for step in 1..=100 {
            story.wait(100_000).sample(0, step, counters(20 * GIB + step * 10 * MIB, GIB));
        }
        if is_attached_again {
            story.line(0, Line::Bye(Bye { at_us: story.now, reason: "detached".to_owned(), ..Bye::default() }));
            story.wait(2_000_000).probe(1, 4242, 0, None).line(1, hello());
        } else {
            story.wait(30_000_000);
        }
        for step in 400..=500 {
            let own = counters(20 * GIB + step * 10 * MIB, GIB);
            story.wait(100_000).sample(u32::from(is_attached_again), step, own);
        }
        let shown = shown(&story.session(), &timeline());
        let row = shown.lines().find(|it| it.starts_with("      0 GiB ")).unwrap();
        let drawn: Vec<bool> = row.chars().skip(12).take(69).map(|it| it == '█').collect();
        let blank = drawn.iter().filter(|it| !**it).count();
        assert!(drawn[5] && drawn[65] && !drawn[20] && !drawn[40] && (35..45).contains(&blank), "{shown}");
    }
}

/// The step that failed is the one after the last that was seen.
#[test]
fn an_error_in_the_last_step_is_drawn() {
    let mut story = usual();
    let oom = Oom { at_us: story.now + 50_000, step: Some(701), tried: Some(GIB), ..Oom::default() };
    story.wait(60_000).line(0, Line::Oom(oom));
    for axis in [XAxis::Steps, XAxis::Time] {
        for zoom in [0, 2, 5] {
            let mut ui = timeline();
            (ui.timeline.axis, ui.timeline.zoom) = (axis, zoom);
            let picture = shown(&story.session(), &ui);
            let is_row = |it: &&str| it.starts_with("            ") && it.contains('✕');
            let row = picture.lines().find(is_row).unwrap_or_else(|| panic!("{axis:?} {zoom}: {picture}"));
            assert!(row.chars().take(90).any(|it| it == '✕'), "{axis:?} {zoom}: {picture}");
        }
    }
}

#[test]
fn marks_and_alerts_are_drawn_at_their_steps_and_named() {
    let session = usual().session();
    let picture = shown(&session, &timeline());
    let is_row = |it: &&str| it.starts_with("            ") && it.chars().take(81).any(|c| c == '◇');
    let row: String = picture.lines().find(is_row).unwrap_or_default().chars().take(81).collect();
    let place = |sign: char| row.chars().skip(12).position(|it| it == sign).map(|it| it * 700 / 69);
    assert!(place('◆').is_some_and(|it| (20..120).contains(&it)), "{row}");
    assert!(row.chars().filter(|it| *it == '◇').count() == 2 && row.contains('─'), "{row}");
    for phrase in ["◆ growth of allocated +4.00 MiB/step", "◇ evaluation", "◇ epoch 3"] {
        assert!(picture.contains(phrase), "{phrase}\n{picture}");
    }
}

/// Before the driver's first reading, memory outside of the allocator is neither used nor free.
#[test]
fn figures_that_were_unknown_then_are_left_blank() {
    let session = usual().session();
    let picture = shown(&session, &timeline());
    let first: Vec<char> = picture.lines().nth(4).unwrap_or_default().chars().skip(12).take(69).collect();
    assert_eq!((first.first(), first.last()), (Some(&' '), Some(&'·')), "{picture}");
    let mut ui = timeline();
    ui.update(Command::Move(Motion::First), &session);
    let (_, on) = ui.process(&session).unwrap();
    assert_eq!(ui.timeline.under_cursor(on).unwrap().last.get(Level::Used), None);
    let free = shown(&session, &ui);
    let free = free.lines().find(|it| it.contains(" free ")).unwrap_or_default();
    assert!(free.contains('–'), "{free}");
}

/// A server counts no steps: its timeline is in time, whatever was asked for, and ends where the driver's word does.
#[test]
fn a_job_without_steps_is_counted_in_time() {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).probe(0, 4242, 0, None);
    for second in 0..400 {
        let at_us = story.wait(1_000_000).now;
        let counters = counters(20 * GIB + second * MIB, GIB);
        story.line(0, Line::Sample(Sample { at_us, edge: Edge::Tick, counters, ..Sample::default() }));
        let list = vec![ProcessUse { pid: 4242, used: Some(Bytes(counters.reserved.unwrap() + GIB)) }];
        story.add(Fact::Processes { device: device(0), reading: Ok(list) });
    }
    let picture = shown(&story.session(), &timeline());
    assert!(picture.contains("0:00:00 – 0:06:39 · the whole run") && picture.contains("non-torch"), "{picture}");
}

#[test]
fn only_what_moves_is_drawn_where_that_was_asked_for() {
    let session = usual().session();
    let mut ui = timeline();
    ui.update(Command::Chart(Chart::Scale), &session);
    let picture = shown(&session, &ui);
    assert!(picture.lines().nth(3).unwrap_or_default().starts_with("  59.80 GiB"), "{picture}");
    let plain = theme("plain").at(ColorDepth::None).in_ascii();
    let ascii = text(&crate::helpers::story::picture(&session, &ui, &plain, 80, 24));
    assert!(ascii.is_ascii(), "{ascii}");
}
