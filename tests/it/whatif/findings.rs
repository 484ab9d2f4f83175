//! What a replay under other allocator settings shows for a finding: one fact, on every screen and in every report.

use crate::{
    commands::check::{header, write},
    helpers::{
        story::{GIB, Story, counters, picture, text},
        terminal::PROGRAM,
    },
};
use gpuwatch::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId, Replayed,
            replayed::{Comparison, Cost, Failure, Outcome},
            wire::{Counters, Oom},
        },
        units::Stamp,
    },
    model::{
        alerts::{Replays, replays_at_end},
        findings::{Finding, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
    storage::{
        recording::{Closed, encode, encode_closed},
        sink::writing::append,
    },
};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

const BETTER: &str =
    "with expandable_segments:True the run fits and reserves 51.00 GiB at its peak; now it runs out of memory";
const EXPORT: &str = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";

/// Fragments for so long that there is a finding, and runs out of memory.
pub(crate) fn fragmenting() -> Story {
    let mut story = Story::default();
    story.device(0, 139 * GIB, &[]).probe(0, 4242, 0, None);
    let stuck = Counters { inactive_split: Some(50 * GIB), ..counters(30 * GIB, 60 * GIB) };
    for step in 1..100 {
        story.wait(1_000_000).sample(0, step, stuck).add(Fact::Second);
    }
    let at_us = story.now;
    let oom = Oom { at_us, step: Some(99), tried: Some(9 * GIB), device_free: Some(GIB), ..Oom::default() };
    story.line(0, Line::Oom(oom));
    story
}

fn found(story: &Story, kind: Kind) -> Finding {
    let all = findings(&story.session()).all;
    all.iter().find(|it| it.kind == kind).unwrap_or_else(|| panic!("{all:?}")).clone()
}

fn outcome(settings: &str, gib: u64, fails: Option<Failure>) -> Outcome {
    Outcome { settings: settings.into(), peak_reserved: gib * GIB, fails_at: fails, ..Outcome::default() }
}

fn compared() -> Comparison {
    let failure = Failure { event: 6, step: Some("step 99".into()), line: None };
    Comparison {
        events: 900,
        until_step: Some(99),
        device_bytes: Some(140 * GIB),
        current: outcome("", 98, Some(failure)),
        best: Some(outcome("expandable_segments:True", 51, None)),
        tried: 9,
        ..Comparison::default()
    }
}

fn answer(story: &mut Story, kind: Kind, result: Result<Comparison, &str>) {
    let finding = Some(found(story, kind).about());
    let cost = Cost { cpu_us: Some(3_200_000), trace_bytes: Some(1 << 20), ..Cost::default() };
    let result = result.map(Box::new).map_err(Into::into);
    story.add(Fact::Replayed(Box::new(Replayed { probe: ProbeId(0), device: 0, finding, result, cost })));
}

/// Writes the story as a recording.
pub(crate) fn recorded(story: &Story, path: &Path) {
    let mut lines = vec![header()];
    lines.extend(story.events.iter().map(|it| {
        let mut line = String::new();
        encode(it, &mut line);
        line
    }));
    lines.push(encode_closed(&Closed { at_us: Stamp(story.now), lost: 0 }));
    write(path, &lines);
}

/// `gpuwatch check` on the story as a recording: as text, and as JSON.
fn checked(story: &Story) -> (String, Value) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.jsonl.zst");
    recorded(story, &path);
    check(&path)
}

pub(crate) fn check(path: &Path) -> (String, Value) {
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("check").args(arguments).arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    (run(&[]), serde_json::from_str(&run(&["--json"])).unwrap())
}

#[test]
fn the_best_settings_are_on_every_screen_and_in_every_report() {
    let mut story = fragmenting();
    answer(&mut story, Kind::Fragmentation, Ok(compared()));
    answer(&mut story, Kind::Oom, Ok(compared()));
    let it = found(&story, Kind::Oom);
    assert!(it.account.contains(&"`expandable_segments:True` would have fit".to_owned()), "{it:#?}");
    let cost = "cost: 1.00 MiB of trace; 3.2 s of CPU time for the replays";
    let (words, json) = checked(&story);
    for expected in [BETTER, EXPORT, "memory runs out at event 7, step 99", cost, "would have fit"] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    let replays: Vec<_> = json["findings"].as_array().unwrap().iter().map(|it| &it["replay"]).collect();
    let best = |it: &&&Value| it["comparison"]["best"]["peak_reserved"] == 51 * GIB;
    assert_eq!(replays.iter().filter(best).count(), 2, "{json:#}");
    let theme = Theme::builtin("dusk").unwrap();
    for screen in [Screen::Alerts, Screen::Process] {
        let ui = Ui { screen, ..Ui::default() };
        let shown = text(&picture(&story.session(), &ui, &theme, 160, 60));
        let joined = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(EXPORT) && joined.contains("reserves 51.00 GiB at its peak"), "{screen:?}\n{shown}");
    }
}

#[test]
fn a_later_fault_does_not_hide_an_answer_and_another_finding_gets_none() {
    let mut story = fragmenting();
    answer(&mut story, Kind::Fragmentation, Ok(compared()));
    answer(&mut story, Kind::Fragmentation, Err("it took \u{1b}[1m too long"));
    let words = found(&story, Kind::Fragmentation).replay_words();
    assert_eq!(words[..2], [BETTER, EXPORT]);
    let oom = found(&story, Kind::Oom);
    assert!(oom.replay_words().is_empty() && !oom.account.concat().contains("would have fit"), "{oom:#?}");
    answer(&mut story, Kind::Oom, Err("it took \u{1b}[1m too long"));
    let words = "no replay under other allocator settings: it took \\u{1b}[1m too long";
    assert_eq!(found(&story, Kind::Oom).replay_words(), [words]);
    assert!(checked(&story).0.contains(words));
}

#[test]
fn an_error_that_no_settings_avoid_claims_nothing() {
    let mut story = fragmenting();
    answer(&mut story, Kind::Oom, Ok(Comparison { best: None, ..compared() }));
    let it = found(&story, Kind::Oom);
    assert!(!it.account.concat().contains("would have fit"), "{it:#?}");
    assert_eq!(it.replay_words()[0], "the run fits under none of 9 settings that were replayed");
    // More than the device has: nothing can help, so that nothing is replayed.
    assert!(it.may_need_other_settings());
    let tried = Some(200 * GIB);
    story.line(0, Line::Oom(Oom { at_us: story.now + 1, step: Some(99), tried, ..Oom::default() }));
    let all = findings(&story.session()).all;
    let of_all = all.iter().filter(|it| it.kind == Kind::Oom).filter(|it| it.may_need_other_settings());
    assert_eq!(of_all.count(), 0, "{all:#?}");
}

/// A job ends before its replays do.
#[test]
fn an_answer_is_appended_to_a_closed_recording() {
    let mut story = fragmenting();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.jsonl.zst");
    recorded(&story, &path);
    let before = fs::read(&path).unwrap();
    answer(&mut story, Kind::Fragmentation, Ok(compared()));
    append(&path, &story.events[story.events.len() - 1..]).unwrap();
    let (words, json) = check(&path);
    assert!(words.contains(BETTER) && json["end_recorded"] == true, "{words}");
    // While the answer is being written, the recording is as it was.
    let after = fs::read(&path).unwrap();
    fs::write(&path, &after[..after.len() - 5]).unwrap();
    let (words, json) = check(&path);
    assert!(!words.contains(BETTER) && json["end_recorded"] == true, "{words}");
    assert_eq!(after[..before.len()], before);
    fs::remove_file(&path).unwrap();
    assert!(append(&path, &[] as &[Event]).is_err() && !path.exists(), "nothing is made again");
}

/// The job was killed together with gpuwatch.
#[test]
fn a_traced_run_without_an_answer_names_the_command() {
    let story = fragmenting();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.jsonl.zst");
    recorded(&story, &path);
    assert!(!check(&path).0.contains("gpuwatch whatif"), "it is not traced");
    fs::create_dir(home.path().join("run.trace")).unwrap();
    let hello = story.session().process(ProbeId(0)).and_then(|it| it.hello.clone()).unwrap();
    fs::write(home.path().join(format!("run.trace/{}_1.trace", hello.pid)), "").unwrap();
    let words = check(&path).0;
    assert!(words.contains(&format!("`gpuwatch whatif {}`", path.display())), "{words}");
}

#[test]
fn one_replay_serves_all_findings_of_a_process_and_each_counts_once() {
    let story = fragmenting();
    let (session, mut replays) = (story.session(), Replays::default());
    let found = findings(&session);
    let due = replays.due(&session, &found);
    let kinds: Vec<_> = due.iter().map(|it| it.about.kind.raw()).collect();
    assert_eq!(kinds, ["oom", "fragmentation"]);
    replays.begin(&due);
    assert!(replays.due(&session, &found).is_empty());
    assert_eq!(replays_at_end(&session, &found), due);
}
