//! `gpuwatch export` writes every sample of a recording, and nothing else.

use crate::{
    analysis::step_time::recorded,
    commands::check::{HEALTHY, lines_of, write},
    helpers::{
        story::{counters, device, usual},
        terminal::PROGRAM,
    },
};
use gpuwatch::facts::{
    event::{Fact, Line},
    figures::Figure,
};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

#[test]
fn the_figures_of_the_process_stand_beside_its_samples() {
    let mut story = usual();
    let busy = [(Figure::SmPercent, 34)].into_iter().collect();
    story.add(Fact::Figures { pid: 4242, device: Some(device(0)), changes: busy });
    story.add(Fact::Figures { pid: 4242, device: None, changes: [(Figure::Rss, 3 << 30)].into_iter().collect() });
    story.wait(100_000).sample(0, 701, counters(20 << 30, 1 << 30)).sample(1, 701, counters(20 << 30, 1 << 30));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.jsonl.zst");
    recorded(&story, &file);
    let rows: Vec<Value> = exported(&file, "jsonl").lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let known = |it: &Value| (it["process_sm_percent"].as_u64(), it["process_rss"].as_u64());
    let last = |pid: u64| known(rows.iter().rfind(|it| it["pid"] == pid).unwrap());
    assert_eq!((last(4242), last(4243)), ((Some(34), Some(3 << 30)), (None, None)));
    assert_eq!(known(&rows[0]), (None, None), "it was unknown then");
    let header = exported(&file, "csv").lines().next().unwrap().to_owned();
    assert!(
        header.ends_with(",process_rss,process_threads,process_asleep,process_gtt,process_kfd_memory,step_us"),
        "{header}"
    );
}

pub(crate) fn exported(file: &Path, format: &str) -> String {
    let output = Command::new(PROGRAM).args(["export", "--format", format]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_table_has_one_row_with_all_values_for_each_sample() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.jsonl.zst");
    let lines = lines_of(HEALTHY, |line| {
        if let Line::Hello(it) = line {
            it.host = "=node,\"7\"\u{1b}".to_owned();
            it.rank = Some(3);
        }
    });
    write(&file, &lines);
    let samples: Vec<Value> = lines.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
    let samples: Vec<&Value> = samples.iter().filter(|it| it["type"] == "sample").collect();

    let objects: Vec<Value> = exported(&file, "jsonl").lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(objects.len(), samples.len());
    for (object, sample) in objects.iter().zip(&samples) {
        assert_eq!((&object["rank"], &object["host"]), (&Value::from(3), &Value::from("=node,\"7\"\u{1b}")));
        for (name, value) in
            sample.as_object().unwrap().iter().filter(|it| !["type", "seq", "from"].contains(&it.0.as_str()))
        {
            assert_eq!(&object[name], value, "{name}");
        }
    }

    let table = exported(&file, "csv");
    assert!(!table.chars().any(|it| it.is_control() && it != '\n'), "nothing of it moves a terminal");
    let mut rows = table.lines();
    let names: Vec<&str> = rows.next().unwrap().split(',').collect();
    let at = |name: &str| names.iter().position(|it| *it == name).unwrap();
    assert_eq!(rows.clone().count(), samples.len());
    for (row, sample) in rows.zip(&samples) {
        // The host is the one cell with a comma in it.
        let (before, rest) = row.split_once("\"'=node,").unwrap();
        let rest = rest.split_once("\",").unwrap().1;
        let cells: Vec<&str> = before.trim_end_matches(',').split(',').chain(["host"]).chain(rest.split(',')).collect();
        assert_eq!(cells.len(), names.len());
        for name in ["at_us", "step", "allocated", "reserved", "retries", "device_free", "pinned_active"] {
            let expected = sample.get(name).map_or_else(String::new, ToString::to_string);
            assert_eq!(cells[at(name)], expected, "{name}");
        }
        assert_eq!(cells[at("rank")], "3");
    }
}

#[test]
fn a_file_gets_what_standard_output_would_and_none_is_written_over() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("a.jsonl.zst"), home.path().join("a.csv"));
    write(&from, &lines_of(HEALTHY, |_| ()));
    let export = || Command::new(PROGRAM).arg("export").arg(&from).arg("-o").arg(&to).output().unwrap();
    let output = export();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(fs::read_to_string(&to).unwrap(), exported(&from, "csv"));
    let again = export();
    let printed = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(1) && printed.contains("exists already"), "{printed}");
    assert_eq!(fs::read_to_string(&to).unwrap(), exported(&from, "csv"), "the first one stays");
}
