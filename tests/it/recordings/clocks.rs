//! Clocks that jump ahead, as after a machine slept, and holes of days in a recording.

use crate::commands::check::{HEALTHY, SCALARS, judged, lines_of, write};
use gpuwatch::{
    facts::{
        event::{Event, Fact, Gap, Line, Steps},
        units::Stamp,
    },
    storage::recording::encode,
};
use std::path::Path;

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
