//! The box that shows whether memory grows: what is plotted, what is flat, the fitted line ahead of what grows.

use crate::helpers::story::{GIB, MIB, Story, counters, device, picture, text};
use gpuwatch::{
    facts::{
        event::{
            Fact, Line, ProcessUse,
            wire::{Bye, Counters, EXIT, Edge, Sample},
        },
        units::{self, Bytes},
    },
    model::{analysis::episode::Resource, findings::findings},
    screen::{
        theme::{ColorDepth, Theme},
        ui::{Screen, Ui},
    },
};

const DASHES: [char; 4] = ['⣀', '⠤', '⠒', '⠉'];

#[test]
fn a_device_that_is_soon_full_shows_where_on_every_screen_with_room() {
    let session = filling().session();
    for (width, height) in [(80, 24), (120, 40)] {
        let shown = text(&picture(&session, &Ui::default(), &dusk(), width, height));
        insta::assert_snapshot!(format!("filling-{width}x{height}"), shown);
    }
    let plain = Theme::builtin("plain").unwrap().at(ColorDepth::None).in_ascii();
    let ascii = text(&picture(&session, &Ui::default(), &plain, 80, 24));
    assert!(ascii.is_ascii());
    insta::assert_snapshot!("filling-ascii", ascii);
    let full = 700 + findings(&session).all[0].full_in_steps.unwrap();
    for width in 1..220 {
        for height in [9, 12, 16, 20, 24, 33, 40, 60] {
            let shown = text(&picture(&session, &Ui::default(), &dusk(), width, height));
            let warned = shown.contains("full at ");
            assert_eq!(warned, shown.contains(&format!(" full at step {full}\n")), "{width}x{height}\n{shown}");
            assert!(warned || height < 24 || !(80..160).contains(&width), "{width}x{height}\n{shown}");
        }
    }
}

#[test]
fn a_small_screen_a_far_end_and_an_ended_job_have_no_forecast() {
    let small = text(&picture(&filling().session(), &Ui::default(), &dusk(), 40, 12));
    assert!(small.contains("▇█\n") && !small.contains("full at") && !small.contains(DASHES), "{small}");
    let far = filling_from(20 * GIB);
    let mut ended = filling();
    ended.line(0, Line::Bye(Bye { reason: EXIT.to_owned(), ..Bye::default() }));
    for (story, phrase) in [(far, "full in 26"), (ended, "ended")] {
        let shown = text(&picture(&story.session(), &Ui::default(), &dusk(), 120, 40));
        assert!(shown.contains(phrase) && !shown.contains("full at"), "{shown}");
        assert!(shown.lines().all(|it| !it.ends_with(DASHES)), "{shown}");
    }
}

/// Every screen, also the smallest, shows what the user came for.
#[test]
fn every_screen_shows_the_forecast() {
    let session = filling().session();
    let end = units::duration(findings(&session).all[0].full_in_us.unwrap());
    for screen in [Screen::Overview, Screen::Device, Screen::Process, Screen::Timeline] {
        for (width, height) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
            let shown = text(&picture(&session, &Ui { screen, ..Ui::default() }, &dusk(), width, height));
            assert!(shown.contains("full in") && shown.contains(&end), "{screen:?} {width}x{height}\n{shown}");
        }
    }
    for width in 60..200 {
        let shown = text(&picture(&session, &Ui::default(), &dusk(), width, 40));
        let warned: Vec<&str> = shown.lines().filter(|it| it.starts_with(" warning")).collect();
        assert!(width < 90 || !warned.is_empty(), "{width}: {shown}");
        assert!(warned.iter().all(|it| !it.contains("full") || it.ends_with(&end)), "{width}: {shown}");
    }
}

/// A flat curve is a thin line, growth is filled, and the fitted line continues from its end: no dash is inside the
/// bars, whatever the series.
#[test]
fn a_flat_curve_is_a_line_and_a_growing_one_is_filled() {
    for (jitter, left) in [(0, 9), (40 * MIB, 9), (300 * MIB, 9), (0, 100)] {
        let mut story = Story::default();
        story.device(0, (139 - left) * GIB, &[]).probe(0, 4242, 0, None);
        for step in 1..=900_u64 {
            let noise = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let grown = step.saturating_sub(300) * 8 * MIB;
            story.wait(100_000).sample(0, step, counters(20 * GIB + grown + noise * jitter / (1 << 32), GIB));
        }
        let shown = text(&picture(&story.session(), &Ui::default(), &dusk(), 120, 40));
        let columns = columns(&shown);
        let bars: Vec<usize> = (0..columns.len()).filter(|it| columns[*it].contains(&'█')).collect();
        let (first, last) = (bars[0], bars[bars.len() - 1]);
        let is_thin =
            |it: &Vec<char>| it.iter().all(|cell| " ⡇⣀⠤⠒⠉".contains(*cell)) && it.iter().any(|cell| *cell != ' ');
        assert!(first > 15 && columns[..first - 10].iter().all(is_thin), "{jitter}\n{shown}");
        let is_dashed = |it: &Vec<char>| it.iter().any(|cell| DASHES.contains(cell));
        assert!(!columns[first..=last].iter().any(is_dashed), "{jitter}\n{shown}");
        let ahead = columns[last + 1..].iter().filter(|it| is_dashed(it)).count();
        assert_eq!(ahead > 5, left == 9, "{jitter}\n{shown}");
    }
}

/// The chart of a steady job shows at once that nothing grows: a line, one cell high.
#[test]
fn a_flat_curve_is_one_thin_line_on_an_axis_that_is_marked_as_cut() {
    let mut story = Story::default();
    story.device(0, 30 * GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=300 {
        story.wait(100_000).sample(0, step, counters(20 * GIB, GIB));
    }
    let session = story.session();
    for (width, height) in [(80, 24), (120, 40)] {
        let shown = text(&picture(&session, &Ui::default(), &dusk(), width, height));
        let columns = columns(&shown);
        let cells: Vec<Vec<char>> =
            columns.iter().map(|it| it.iter().filter(|cell| **cell != ' ').copied().collect()).collect();
        assert!(cells.iter().filter(|it| !it.is_empty()).count() > 10, "{width}\n{shown}");
        assert!(cells.iter().all(|it| it.is_empty() || (it.len() == 1 && DASHES.contains(&it[0]))), "{width}\n{shown}");
        assert!(shown.contains('⋮'), "{width}\n{shown}");
    }
    let mono = Theme::builtin("mono").unwrap().at(ColorDepth::None).in_ascii();
    let ascii = text(&picture(&session, &Ui::default(), &mono, 80, 24));
    assert!(ascii.contains(&"'".repeat(20)) && ascii.contains("GiB:"), "{ascii}");
}

/// The cells of the curve of allocated memory, column by column, right of its axis.
fn columns(shown: &str) -> Vec<Vec<char>> {
    let rows: Vec<Vec<char>> = shown.lines().map(|it| it.chars().collect()).collect();
    let is_title = |it: &Vec<char>| it.iter().collect::<String>().starts_with("─ allocated · rank 0");
    let first = rows.iter().position(is_title).expect(shown);
    let last = (first + 1..rows.len()).find(|it| rows[*it].first() == Some(&'─')).unwrap_or(rows.len());
    let (width, scale) = (rows[first].len(), if rows[first].len() > 33 { 13 } else { 1 });
    let at = |row: usize, column: usize| rows[row].get(column).copied().unwrap_or(' ');
    (scale..width).map(|column| (first + 1..last).map(|row| at(row, column)).collect()).collect()
}

#[test]
fn the_growing_figure_is_plotted() {
    for (resource, top) in [
        (Resource::Allocated, "29.20 GiB"),
        (Resource::Reserved, "32.47 GiB"),
        (Resource::Driver, "9.20 GiB"),
        (Resource::Pinned, "9.20 GiB"),
        (Resource::Host, "9.20 GiB"),
    ] {
        let mut story = Story::default();
        story.device(0, 40 * GIB, &[]).probe(0, 4242, 0, None);
        for step in 1..=900 {
            story.wait(100_000);
            let of = |it: Resource| if it == resource { step * 8 * MIB + 2 * GIB + 172 * MIB } else { 2 * GIB };
            let all = Counters {
                pinned_reserved: Some(of(Resource::Pinned)),
                rss: Some(of(Resource::Host)),
                ..counters(20 * GIB + of(Resource::Allocated), 1234 * MIB + of(Resource::Reserved))
            };
            story.sample(0, step, all);
            let used = Some(Bytes(all.reserved.unwrap() + of(Resource::Driver)));
            let list = vec![ProcessUse { pid: 4242, used }];
            story.add(Fact::Processes { device: device(0), reading: Ok(list) });
            // The sample after a reading shows how much the allocator had then.
            story.sample(0, step, all);
        }
        let shown = text(&picture(&story.session(), &Ui::default(), &dusk(), 120, 40));
        let name = resource.name();
        let title = shown.lines().position(|it| it.starts_with(&format!("─ {name} · rank 0 ─"))).expect(&shown);
        let row = |at: usize| shown.lines().nth(at).unwrap_or_default();
        assert!(row(title).contains(" +8.00 MiB/step since step "), "{name}: {shown}");
        assert!(row(title + 1).starts_with(&format!("{top:>12} ")), "{name}: {shown}");
        assert!(row(title + 1).ends_with('█'), "{name}: {shown}");
    }
}

/// What lies outside the allocator is judged later; until then, what rises is not called flat.
#[test]
fn host_memory_that_rises_is_not_called_flat() {
    let row = |more: u64| {
        let mut story = Story::default();
        story.device(0, 40 * GIB, &[]).probe(0, 4242, 0, None);
        for step in 1..=60 {
            let rss = Some(2 * GIB + step * more);
            story.wait(100_000).sample(0, step, Counters { rss, ..counters(20 * GIB, GIB) });
        }
        let ui = Ui { screen: Screen::Process, ..Ui::default() };
        let shown = text(&picture(&story.session(), &ui, &dusk(), 120, 40));
        shown.lines().find(|it| it.starts_with(" host  ")).expect(&shown).to_owned()
    };
    let (rising, level) = (row(64 * MIB), row(0));
    assert!(rising.contains(" rises ") && level.contains(" flat "), "{rising}\n{level}");
}

/// A server counts no steps: its curve is over the seconds.
#[test]
fn a_job_without_steps_has_a_curve_too() {
    let mut story = Story::default();
    story.device(0, 135 * GIB, &[]).probe(0, 4242, 0, None);
    for second in 0..2000 {
        let counters = counters(20 * GIB + second * MIB, GIB);
        let at_us = story.wait(1_000_000).now;
        story.line(0, Line::Sample(Sample { at_us, edge: Edge::Tick, counters, ..Sample::default() }));
    }
    let shown = text(&picture(&story.session(), &Ui::default(), &dusk(), 120, 40));
    assert!(shown.contains("growing +1.00 MiB/s since second") && shown.contains("full at second 5"), "{shown}");
}

#[test]
fn a_count_that_begins_again_is_a_curve_of_its_own() {
    let mut story = Story::default();
    story.device(0, GIB, &[]).probe(0, 4242, 0, None);
    for step in (1..=700).chain(1..=50) {
        story.wait(100_000).sample(0, step, counters(20 * GIB, GIB));
    }
    let session = story.session();
    let curve = session.processes[0].devices[0].growth.curve(Resource::Allocated);
    assert_eq!(curve.and_then(gpuwatch::model::analysis::curve::Curve::ends), Some((1, 50)));
}

/// The allocated memory of a job is flat while its reserved memory is stuck, or fills up again after a release.
#[test]
fn the_chart_shows_what_is_reserved_where_that_is_the_trouble() {
    let shown = |cached: &dyn Fn(u64) -> u64, stuck: u64| {
        let mut story = Story::default();
        story.device(0, 100 * GIB, &[]).probe(0, 4242, 0, None);
        for step in 1..=900_u64 {
            let own = counters(20 * GIB, cached(step));
            let own = Counters { inactive_split: own.inactive_split.map(|it| it * stuck), ..own };
            story.wait(100_000).sample(0, step, own);
        }
        text(&picture(&story.session(), &Ui::default(), &dusk(), 120, 40))
    };
    let stuck = shown(&|_| 16 * GIB, 3);
    assert!(stuck.contains("─ reserved · ") && !stuck.contains("─ allocated · "), "{stuck}");
    // It was released at step 600, and fills up by 20 MiB every two steps.
    let again = shown(&|step| 8 * GIB + (step + 400) % 1000 / 2 * 20 * MIB, 1);
    assert!(again.contains("─ reserved · ") && again.contains("rises, no growth found"), "{again}");
    assert!(again.contains(" rises ") && !again.contains("flat"), "{again}");
    let level = shown(&|_| 8 * GIB, 1);
    assert!(level.contains("─ allocated · ") && level.contains(" flat "), "{level}");
}

/// Both ends of an axis are in the unit of its highest value.
#[test]
fn an_axis_has_one_unit() {
    let mut story = Story::default();
    story.device(0, 100 * GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=400_u64 {
        let own = Counters { allocated: Some(if step < 9 { 4 * MIB } else { 2 * GIB }), ..Counters::default() };
        story.wait(100_000).sample(0, step, own);
    }
    let shown = text(&picture(&story.session(), &Ui::default(), &dusk(), 120, 40));
    assert!(shown.contains(" 2.00 GiB ") && shown.contains(" 0.004 GiB⋮") && !shown.contains("MiB⋮"), "{shown}");
}

/// 4 MiB a step on a device with 5.5 GiB left, and 1 GiB in the cache.
fn filling() -> Story {
    filling_from(120 * GIB)
}

/// A job that allocates so much at first, and more and more.
fn filling_from(first: u64) -> Story {
    let mut story = Story::default();
    story.device(0, first + 14 * GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=700 {
        story.wait(1_000_000).sample(0, step, counters(first + step * 4 * MIB, GIB));
    }
    story
}

fn dusk() -> Theme {
    Theme::builtin("dusk").unwrap()
}
