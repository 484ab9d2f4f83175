//! The time of steps: on screens at the cursor of memory, in JSON, reports and exports; steps that become slower.

use crate::{
    commands::check,
    helpers::{
        story::{GIB, Story, counters, device, picture, text},
        terminal::PROGRAM,
    },
};
use gpuwatch::{
    model::{
        alerts::{Name, Policy},
        analysis::severity::Severity,
        findings::{Finding, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Command as Key, Motion, Screen, Ui},
    },
    storage::recording::{Closed, encode, encode_closed},
};
use serde_json::Value;
use std::{path::Path, process::Command};

const MS: u64 = 1000;

/// A job whose steps take so long, one after the other.
fn job(durations: impl IntoIterator<Item = u64>) -> Story {
    let mut story = Story::default();
    story.device(0, 40 * GIB, &[(4242, 33 * GIB)]).probe(0, 4242, 0, None);
    story.sample(0, 1, counters(30 * GIB, 2 * GIB));
    for (step, us) in (2..).zip(durations) {
        story.wait(us).sample(0, step, counters(30 * GIB, 2 * GIB));
    }
    story
}

/// From step 400 on, steps take 900 ms and no longer 500; one of a hundred takes 4 s.
fn slower() -> Story {
    job((2..=800).map(|step| match step {
        _ if step % 100 == 50 => 4000 * MS,
        400.. => 900 * MS,
        _ => (500 + step % 3) * MS,
    }))
}

fn shown(story: &Story, ui: &Ui, width: u16, height: u16) -> String {
    text(&picture(&story.session(), ui, &Theme::builtin("dusk").unwrap(), width, height))
}

pub(crate) fn recorded(story: &Story, file: &Path) {
    let mut lines = vec![check::header()];
    for event in &story.events {
        let mut line = String::new();
        encode(event, &mut line);
        lines.push(line);
    }
    let at_us = story.events.last().unwrap().at;
    lines.push(encode_closed(&Closed { at_us, lost: 0 }));
    check::write(file, &lines);
}

fn printed(arguments: &[&str], file: &Path) -> String {
    let output = Command::new(PROGRAM).args(arguments).arg(file).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_process_screen_shows_how_long_steps_take_and_how_that_is_measured() {
    let ui = Ui { screen: Screen::Process, ..Ui::default() };
    let picture = shown(&slower(), &ui, 120, 60);
    for words in [
        "─ step time (host time from step to step, without synchronising the device) ─",
        " 900 ms a step  ",
        "8 outliers, the longest 4.00 s at step 750, 1.80 × as long as at the beginning",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    let row = picture.lines().find(|it| it.contains("900 ms a step  ")).unwrap();
    assert!(row.contains("▁▁▁▁") && row.contains("▆▆▆▆"), "{row}");
    assert!(!shown(&job([]), &ui, 120, 60).contains("step time"), "one boundary is no duration");
}

#[test]
fn the_timeline_shows_the_time_of_steps_at_the_cursor_of_memory() {
    let story = slower();
    let mut ui = Ui { screen: Screen::Timeline, ..Ui::default() };
    for (width, height) in [(80, 24), (120, 40)] {
        let picture = shown(&story, &ui, width, height);
        assert!(picture.contains("step time ▁"), "{picture}");
    }
    let session = story.session();
    ui.update(Key::Move(Motion::First), &session);
    assert!(shown(&story, &ui, 120, 40).contains(" ms a step, 500 ms to 502 ms"), "{}", shown(&story, &ui, 120, 40));
    ui.update(Key::Move(Motion::Last), &session);
    assert!(shown(&story, &ui, 120, 40).contains(" 900 ms a step"), "{}", shown(&story, &ui, 120, 40));
}

#[test]
fn recordings_give_the_time_of_steps_to_checks_reports_and_exports() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("slower.jsonl.zst");
    recorded(&slower(), &file);
    let checked: Value = serde_json::from_str(&printed(&["check", "--json"], &file)).unwrap();
    let pace = &checked["processes"][0]["step_time"];
    assert_eq!((&pace["latest_us"], &pace["typical_us"]), (&Value::from(900_000), &Value::from(900_000)));
    assert_eq!((&pace["outliers"], &pace["longest"]["step"]), (&Value::from(8), &Value::from(750)));

    let report: Value = serde_json::from_str(&printed(&["report", "--json", "-o", "-"], &file)).unwrap();
    let run = &report["step_time"][0];
    assert_eq!((&run["rank"], &run["device_id"]), (&Value::from(0), &Value::from(device(0).0)));
    let points = run["points"].as_array().unwrap();
    let steps: u64 = points.iter().map(|it| it[2].as_u64().unwrap()).sum();
    assert_eq!((steps, points.len() <= 256), (799, true));

    let table = printed(&["export"], &file);
    let last = |line: &str| line.rsplit(',').next().unwrap().to_owned();
    let cells: Vec<String> = table.lines().map(last).collect();
    assert_eq!([&cells[0], &cells[1], &cells[2], &cells[50]], ["step_us", "", "502000", "4000000"]);
}

#[test]
fn steps_that_become_slower_are_a_finding_with_the_step_where_they_begin() {
    let all = findings(&slower().session()).all;
    let found: Vec<&Finding> = all.iter().filter(|it| it.kind == Kind::Slowdown).collect();
    let [it] = found.as_slice() else { panic!("{all:?}") };
    assert_eq!((it.severity, it.is_active(), it.pid), (Severity::Warning, true, Some(4242)));
    assert!((398..=402).contains(&it.since_step), "{it:?}");
    assert!(it.first_alert_step < 500, "{it:?}");
    let words = it.evidence.words().join("; ");
    assert!(words.starts_with("steps take 1.") && words.contains(" ms before"), "{words}");
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    let shown = shown(&slower(), &ui, 120, 40);
    assert!(shown.contains("slowdown") && shown.contains(" ms before"), "{shown}");
    let policy = Policy { allow: vec![Name::read("slowdown").unwrap()], ..Policy::default() };
    assert!(policy.findings(&slower().session()).all.iter().all(Finding::is_allowed));
}

#[test]
fn a_slowdown_that_ends_is_resolved_and_a_small_one_is_information() {
    let story = job((2..=1200).map(|step| if (400..700).contains(&step) { 650 * MS } else { 500 * MS }));
    let all = findings(&story.session()).all;
    assert_eq!(all.iter().map(|it| (it.kind, it.severity)).collect::<Vec<_>>(), [(Kind::Slowdown, Severity::Info)]);
    assert!(all[0].resolved_step.is_some_and(|it| (700..900).contains(&it)), "{all:?}");
}

#[test]
fn steady_steps_and_larger_inputs_are_no_slowdown() {
    let steady = job((2..=800).map(|step| if step % 50 == 0 { 9000 * MS } else { (480 + step * 7 % 40) * MS }));
    assert!(findings(&steady.session()).all.is_empty());
    let mut story = Story::default();
    story.device(0, 40 * GIB, &[(4242, 33 * GIB)]).probe(0, 4242, 0, None);
    for step in 1..800 {
        let (us, peak) = if step < 400 { (500 * MS, 31 * GIB) } else { (900 * MS, 36 * GIB) };
        let peak = gpuwatch::facts::event::wire::Counters { allocated_peak: Some(peak), ..counters(30 * GIB, 2 * GIB) };
        story.wait(us).sample(0, step, peak);
    }
    assert!(findings(&story.session()).all.iter().all(|it| it.kind != Kind::Slowdown));
}
