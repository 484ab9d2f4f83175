//! Clocks that jump ahead, as after a machine slept, or are set back; and holes of days in a recording.

use crate::{
    commands::check::{ACTIVATIONS, HEALTHY, SCALARS, judged, lines_of, write},
    helpers::terminal::PROGRAM,
};
use gpuwatch::{
    facts::{
        event::{Event, Fact, Gap, Line, Steps, WritingProcess},
        units::Stamp,
    },
    storage::{
        recording::{FORMAT, Header, encode, encode_header},
        replay::find::find,
    },
};
use serde_json::Value;
use std::{path::Path, process::Command};

const DAY_US: i64 = 24 * 3600 * 1_000_000;

/// The middle of the recorded runs.
const MIDDLE: u64 = 100;

/// Moves what comes after the middle of a run.
fn moved(line: &mut Line, by_us: i64) {
    let is_later = matches!(line, Line::Sample(it) if it.step > Some(MIDDLE));
    if is_later || matches!(line, Line::Bye(_)) {
        line.stamps_mut().for_each(|it| *it = it.saturating_add_signed(by_us));
    }
}

fn verdict(path: &Path, lines: &[String]) -> (i32, u64, Vec<String>) {
    write(path, lines);
    let (code, json) = judged(path, &[]);
    let findings = json["findings"].as_array().unwrap().iter().map(|it| it["kind"].to_string());
    (code, json["steps"].as_u64().unwrap(), findings.collect())
}

#[test]
fn a_clock_that_jumps_ahead_changes_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.zst");
    for trace in [HEALTHY, SCALARS] {
        let plain = verdict(&path, &lines_of(trace, |_| ()));
        for by_us in [3600 * 1_000_000, 3 * DAY_US, 3650 * DAY_US] {
            assert_eq!(verdict(&path, &lines_of(trace, |line| moved(line, by_us))), plain, "{trace} by {by_us} µs");
        }
    }
}

/// Moves what comes up to the middle of a run, so that the clock is set back there.
fn ahead(line: &mut Line, by_us: u64) {
    let is_later = matches!(line, Line::Sample(it) if it.step > Some(MIDDLE));
    if !is_later && !matches!(line, Line::Bye(_)) {
        line.stamps_mut().for_each(|it| *it = it.saturating_add(by_us));
    }
}

#[test]
fn a_clock_that_is_set_back_hides_no_step_and_no_peak() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.zst");
    let seen = |trace: &str, by_us: u64| {
        write(&path, &lines_of(trace, |line| ahead(line, by_us)));
        let (code, json) = judged(&path, &[]);
        let findings: Vec<Value> = json["findings"].as_array().unwrap().iter().map(|it| it["kind"].clone()).collect();
        (code, json["steps"].clone(), findings, json["devices"][0]["peak"].clone(), json["doubts"].clone())
    };
    for trace in [HEALTHY, SCALARS, ACTIVATIONS] {
        let plain = seen(trace, 0);
        for by_us in [2_000_000, 3600 * 1_000_000, u64::MAX] {
            assert_eq!(seen(trace, by_us), plain, "{trace} by {by_us} µs");
        }
    }
}

/// A header of this wall clock, and a boot of the machine.
fn header(started_unix_us: u64, monotonic_us: u64, boot: &str) -> String {
    let writer = Some(WritingProcess { boot_id: boot.to_owned(), pid_namespace: 1, pid: 7, start_ticks: 1 });
    let gpuwatch = "0".to_owned();
    encode_header(&Header {
        format: FORMAT,
        gpuwatch,
        host: "h".into(),
        started_unix_us,
        monotonic_us,
        name: None,
        writer,
    })
}

#[test]
fn a_wall_clock_that_is_set_between_two_recorders_of_a_boot_moves_no_event() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["a.jsonl.zst", "b.jsonl.zst"].map(|it| dir.path().join(it));
    let hour: i64 = 3600 * 1_000_000;
    let wall: u64 = 1_795_214_453_000_000;
    let mut lines = lines_of(HEALTHY, |_| ());
    let ends = |lines: &[String], boot: &str, set_by: i64| {
        for (path, wall, boot) in [(&one, wall, "1"), (&other, wall.saturating_add_signed(set_by), boot)] {
            let first = header(wall, 0, boot);
            write(path, &[&[first], &lines[1..]].concat());
        }
        let mut cursor = find(&[one.clone(), other.clone()]).unwrap().recordings.play();
        let mut last = Stamp(0);
        while let Some((at, _)) = cursor.next_by(Stamp(u64::MAX)) {
            last = last.max(at);
        }
        last.0
    };
    lines.pop();
    let plain = ends(&lines, "1", 0);
    assert_eq!([-hour, hour].map(|it| ends(&lines, "1", it)), [plain; 2]);
    assert_eq!(ends(&lines, "2", hour), plain + 3600 * 1_000_000, "clocks of two boots are unrelated");
}

#[test]
fn no_command_trusts_a_clock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.zst");
    let file = path.to_str().unwrap();
    let lines = lines_of(SCALARS, |line| ahead(line, 3600 * 1_000_000));
    let directory = dir.path().to_str().unwrap();
    let cases = test_tiers::vary!(
        [(u64::MAX, u64::MAX), (0, 0), (u64::MAX, 0), (1, u64::MAX), (253_402_300_800_000_000, 0)],
        "other clocks"
    );
    for (wall, monotonic) in cases {
        write(&path, &[&[header(wall, monotonic, "1")], &lines[1..]].concat());
        for arguments in [
            &["check", file][..],
            &["check", file, "--json"],
            &["export", file],
            &["report", file, "-o", "-"],
            &["report", file, "--json", "-o", "-"],
            &["diff", file, file],
            &["recordings", directory],
            &["recordings", directory, "--json"],
            &["replay", file, "--screenshot", "-"],
            &["replay", file, "--screenshot", "-", "--screen", "timeline"],
            &["replay", file, "--screenshot", "-", "--screen", "process"],
        ] {
            let output = Command::new(PROGRAM).args(arguments).env("GPUWATCH_CONFIG", "/dev/null").output().unwrap();
            assert!(output.status.success(), "{arguments:?} with {wall} and {monotonic}: {output:?}");
        }
    }
}

#[test]
fn a_hole_of_a_day_is_not_judged_and_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.zst");
    let mut lines = lines_of(HEALTHY, |line| moved(line, DAY_US));
    let is_later = |it: &String| it.contains(&format!("\"step\":{}", MIDDLE + 1));
    let place = lines.iter().position(is_later).unwrap();
    let gap = |at: u64| {
        let steps = Some(Steps { first: MIDDLE + 1, last: 41_000 });
        let gap = Gap { until_us: Stamp(at + 1), lost: 9, steps, why: "No space \u{1b}[2J left".into() };
        let mut text = String::new();
        encode(&Event { at: Stamp(at), fact: Fact::Gap(gap) }, &mut text);
        text
    };
    lines.insert(place, gap(1));
    let (code, _, findings) = verdict(&path, &lines);
    assert_eq!((code, findings), (2, Vec::new()));
    // However many there are, little is kept and listed.
    lines.splice(place..place, (0..5000).map(gap));
    let (_, json) = judged(&path, &[]);
    assert_eq!(json["losses"]["gaps"].as_array().unwrap().len(), 1);
    write(&path, &lines);
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, json["losses"]["gaps"].as_array().unwrap().len()), (2, 16));
    assert!(json["doubts"][0].as_str().unwrap().starts_with("steps 101–41,000 are missing"), "{}", json["doubts"]);
}
