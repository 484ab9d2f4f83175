//! The output of other commands for a snapshot: tables, stacks, a trace, a comparison.

use super::{as_json, pickle, snapshot};
use crate::helpers::{terminal::PROGRAM, torch};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

const MIB: u64 = 1 << 20;

/// A snapshot of a job that keeps more and more in one line, before and after.
fn both() -> torch::Gpu {
    let gpu = torch::machine();
    torch::stdout(&gpu.script(include_str!("grows.py")).output().unwrap());
    gpu
}

fn gpuwatch(arguments: &[&str], files: &[&Path]) -> (String, String, Option<i32>) {
    let output = Command::new(PROGRAM).args(arguments).args(files).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn exported(format: &str, more: &[&str], file: &Path) -> String {
    let (printed, troubles, code) = gpuwatch(&[&["export", "--format", format], more].concat(), &[file]);
    assert_eq!((troubles.as_str(), code), ("", Some(0)), "{format}");
    printed
}

#[test]
fn stacks_add_up_to_what_is_live_and_name_the_line() {
    let gpu = both();
    let file = gpu.dir().join("after.pickle");
    let device = &as_json(&file, &[])["devices"][0];
    let weights = |text: &str| -> Vec<(String, u64)> {
        text.lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(at, it)| (at.to_owned(), it.parse().unwrap()))
            .collect()
    };
    let live = weights(&exported("folded", &[], &file));
    assert_eq!(live.iter().map(|it| it.1).sum::<u64>(), device["allocated"].as_u64().unwrap());
    let kept = live.iter().find(|it| it.0.ends_with(" keep")).unwrap();
    assert!(kept.0.starts_with("GPU 0;") && kept.0.contains(" <module>;") && kept.1 == 9 * 3 * MIB, "{kept:?}");
    let peak = weights(&exported("folded", &["--at", "peak"], &file));
    assert!(peak.iter().any(|it| it.0.ends_with(" work") && it.1 == 64 * MIB), "{peak:?}");
    assert_eq!(peak.iter().map(|it| it.1).sum::<u64>(), device["peak"]["requested"].as_u64().unwrap());

    let scope: Value = serde_json::from_str(&exported("speedscope", &[], &file)).unwrap();
    let frames = scope["shared"]["frames"].as_array().unwrap();
    for (profile, folded) in scope["profiles"].as_array().unwrap().iter().zip([&live, &peak]) {
        let sum = |name: &str| profile[name].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("weights"), folded.iter().map(|it| it.1).sum::<u64>(), "{profile}");
        assert_eq!(profile["endValue"], sum("weights"), "{profile}");
        let places = profile["samples"].as_array().unwrap().iter().flat_map(|sample| sample.as_array().unwrap());
        assert!(places.map(|place| place.as_u64().unwrap()).all(|place| place < frames.len() as u64));
    }
    assert_eq!(scope["profiles"].as_array().unwrap().len(), 2);
}

#[test]
fn a_trace_for_perfetto_ends_at_what_is_live_and_reserved() {
    let gpu = both();
    let file = gpu.dir().join("after.pickle");
    let trace: Value = serde_json::from_str(&exported("perfetto", &[], &file)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let counters: Vec<&Value> = events.iter().filter(|it| it["ph"] == "C").collect();
    let times: Vec<u64> = counters.iter().map(|it| it["ts"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && counters.len() > 10, "{times:?}");
    let device = &as_json(&file, &[])["devices"][0];
    let last = &counters.last().unwrap()["args"];
    assert_eq!((&last["live"], &last["reserved"]), (&device["requested"], &device["reserved"]));
    let most = counters.iter().map(|it| it["args"]["live"].as_u64().unwrap()).max();
    assert_eq!(most, device["peak"]["requested"].as_u64());
}

#[test]
fn tables_have_a_row_for_each_block_and_for_each_event() {
    let gpu = both();
    let file = gpu.dir().join("after.pickle");
    let device = &as_json(&file, &[])["devices"][0];
    let blocks = exported("csv", &[], &file);
    let mut table = csv::Reader::from_reader(blocks.as_bytes());
    let names = table.headers().unwrap().clone();
    let column = |name: &str| names.iter().position(|it| it == name).unwrap();
    let (size, state, stack) = (column("size"), column("state"), column("stack"));
    let live: Vec<_> = table.records().map(Result::unwrap).filter(|row| &row[state] == "live").collect();
    assert_eq!(live.iter().map(|row| row[size].parse::<u64>().unwrap()).sum::<u64>(), device["allocated"]);
    assert_eq!(live.iter().filter(|row| row[stack].ends_with(" keep")).count(), 9);
    let events = exported("jsonl", &["--table", "events"], &file);
    let rows: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len() as u64, device["events"].as_u64().unwrap());
    let is_kept = |row: &&Value| row["action"] == "alloc" && row["stack"].as_str().unwrap().ends_with(" keep");
    assert_eq!(rows.iter().filter(is_kept).count(), 9);
}

#[test]
fn two_snapshots_are_compared_by_stack() {
    let gpu = both();
    let [before, after] = ["before.pickle", "after.pickle"].map(|name| gpu.dir().join(name));
    let (text, troubles, code) = gpuwatch(&["diff"], &[&before, &after]);
    assert_eq!((troubles.as_str(), code), ("", Some(1)), "{text}");
    let grown = text.lines().skip_while(|line| !line.contains("by call stack")).nth(1).unwrap();
    assert!(grown.contains("+21.00 MiB") && grown.contains("2 → 9 blocks") && grown.contains(" keep"), "{text}");
    let json: Value = serde_json::from_str(&gpuwatch(&["diff", "--json"], &[&before, &after]).0).unwrap();
    let [a, b] = [&before, &after].map(|file| as_json(file, &[])["devices"][0]["allocated"].clone());
    let device = &json["devices"][0];
    assert_eq!(
        (&json["verdict"], &device["figures"]["allocated"]),
        (&"fail".into(), &serde_json::json!({"a": a, "b": b}))
    );
    assert_eq!(device["stacks"][0]["blocks"], serde_json::json!({"a": 2, "b": 9}));
    // The other way round, less is needed.
    assert_eq!(gpuwatch(&["diff"], &[&after, &before]).2, Some(0));
    let (page, _, code) = gpuwatch(&["diff", "-o", "-"], &[&before, &after]);
    assert_eq!(code, Some(1), "{page}");
    assert!(page.starts_with("<!doctype html>") && page.contains("live blocks that differ, by call stack"), "{page}");
    assert_eq!(gpuwatch(&["diff"], &[&after, &after]).0.matches("the same live blocks").count(), 1);
}

#[test]
fn an_impossible_export_is_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.pickle");
    fs::write(&file, pickle(4, &snapshot(4, 2))).unwrap();
    for command in ["replay", "check"] {
        let (printed, troubles, _) = gpuwatch(&[command], &[&file]);
        assert!(
            format!("{printed}{troubles}").contains("`gpuwatch snapshot FILE` shows it"),
            "{command}: {printed}{troubles}"
        );
    }
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let recording = fs::read_dir(recording).unwrap().flatten().map(|it| it.path());
    let recording = recording.filter(|it| it.to_string_lossy().ends_with(".jsonl.zst")).min().unwrap();
    let (_, troubles, code) = gpuwatch(&["export", "--format", "folded"], &[&recording]);
    assert!(code == Some(1) && troubles.contains("_dump_snapshot"), "{troubles}");
    let (_, troubles, code) = gpuwatch(&["diff"], &[&file, &recording]);
    assert!(code == Some(2) && troubles.contains("compare two snapshots, or two recordings"), "{troubles}");
    // A snapshot that is cut is compared with nothing.
    let cut = dir.path().join("cut.pickle");
    let bytes = fs::read(&file).unwrap();
    fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let (_, troubles, code) = gpuwatch(&["diff"], &[&file, &cut]);
    assert!(code == Some(2) && troubles.contains("cut.pickle: the file ends at byte"), "{troubles}");
}
