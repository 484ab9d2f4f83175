//! Recordings of every format that was ever written are read for ever, those of a newer one are refused with advice,
//! and no two writers share a file.

use crate::{
    commands::check::{HEALTHY, lines_of},
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch::stdout,
    },
    recordings::writer::{own_directory, read, recorder, steps},
};
use gpuwatch::{
    facts::event::{Event, Fact, Line},
    model::analysis::cause::Cause,
    storage::{
        recording::{Closed, Entry},
        replay::{Replay, find::find},
    },
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/format-1.jsonl.zst")
}

/// Returns the contents of a recording, independent of their display.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    samples: u64,
    steps: u64,
    allocated: u64,
    peak: u64,
    marks: Vec<(String, Option<i64>)>,
    ooms: Vec<(Option<u64>, Option<u64>, usize)>,
    /// The driver's figure for used memory, and the largest process on the device.
    driver: u64,
    process: u64,
    exit: Option<i32>,
    closed: bool,
}

fn held(path: &Path) -> Held {
    let (entries, fault) = read(path);
    assert!(fault.is_none(), "{fault:?}");
    assert!(matches!(&entries[0], Entry::Header(it) if it.format == 1 && it.host.raw() == "node7"));
    let mut held = Held::default();
    for entry in entries {
        match entry {
            Entry::Event(Event { fact, .. }) => held.add(fact),
            Entry::Closed(Closed { lost, .. }) => held.closed = lost == 0,
            Entry::Header(_) | Entry::Unknown => {}
        }
    }
    held
}

impl Held {
    fn add(&mut self, fact: Fact) {
        match fact {
            Fact::Memory { reading, .. } => self.driver += reading.unwrap().used.0,
            Fact::Processes { reading, .. } => {
                let most = reading.unwrap().iter().filter_map(|it| it.used).map(|it| it.0).max();
                self.process = self.process.max(most.unwrap_or(0));
            }
            Fact::JobEnded { code, .. } => self.exit = code,
            Fact::Probe { line, .. } => match *line {
                Line::Sample(it) => {
                    self.samples += 1;
                    self.steps = self.steps.max(it.step.unwrap_or(0));
                    self.allocated += it.counters.allocated.unwrap();
                    self.peak = self.peak.max(it.counters.reserved_peak.unwrap());
                }
                Line::Mark(it) => self.marks.push((it.name, it.value)),
                Line::Oom(it) => self.ooms.push((it.step, it.tried, it.blocks.len())),
                _ => {}
            },
            _ => {}
        }
    }
}

/// These figures are never changed: who has to change them has broken the format.
#[test]
fn a_recording_of_format_1_has_the_figures_that_it_always_had() {
    let epoch = |it| ("epoch".to_owned(), Some(it));
    let oom = |step, groups| (Some(step), Some(1 << 44), groups);
    let expected = Held {
        samples: 186,
        steps: 180,
        allocated: 17_659_204_608,
        peak: 190_840_832,
        marks: vec![epoch(0), epoch(1), epoch(2)],
        ooms: vec![oom(60, 3), oom(120, 0), oom(180, 0)],
        driver: 4_229_955_584,
        process: 727_711_744,
        exit: Some(0),
        closed: true,
    };
    assert_eq!(held(&fixture()), expected);
}

#[test]
fn a_recording_of_format_1_is_replayed_judged_listed_and_exported() {
    let path = fixture();
    let replay = Replay::load(find(std::slice::from_ref(&path)).unwrap().recordings, None, |_, _| {});
    let step = replay.session().processes[0].devices[0].step;
    assert_eq!((step, replay.troubles_of_files()), (Some(180), Vec::new()));
    assert_eq!((replay.index.marks.iter().count(), replay.index.troubles.iter().count()), (3, 3));

    let verdict = Command::new(PROGRAM).args(["check", "--json"]).arg(&path).output().unwrap();
    assert_eq!(verdict.status.code(), Some(1));
    let verdict: Value = serde_json::from_slice(&verdict.stdout).unwrap();
    let found = verdict["findings"].as_array().unwrap();
    for kind in ["growth", "oom"] {
        assert!(found.iter().any(|it| it["kind"] == kind), "{verdict:#}");
    }

    let listed = Command::new(PROGRAM).args(["recordings", "--json"]).arg(path.parent().unwrap()).output().unwrap();
    let listed: Value = serde_json::from_str(&stdout(&listed)).unwrap();
    let mut listed = listed["recordings"].as_array().unwrap().iter();
    assert!(listed.any(|it| (&it["steps"], &it["exit_code"]) == (&180.into(), &0.into())));

    let table = stdout(&Command::new(PROGRAM).args(["export", "--format", "csv"]).arg(&path).output().unwrap());
    assert_eq!(table.lines().count(), 187);
}

/// The words of an error, which came as a line of their own only later in format 1.
#[test]
fn a_recording_with_an_error_message_has_the_figures_of_the_message() {
    let path = fixture().with_file_name("format-1-words.jsonl.zst");
    let expected = Held {
        samples: 12,
        steps: 3,
        allocated: 3_947_520,
        peak: 23_068_672,
        ooms: vec![(Some(3), Some(2 << 30), 2)],
        driver: 29_653_729_280,
        process: 3 << 29,
        exit: Some(0),
        closed: true,
        ..Held::default()
    };
    assert_eq!(held(&path), expected);
    let replay = Replay::load(find(std::slice::from_ref(&path)).unwrap().recordings, None, |_, _| {});
    let process = &replay.session().processes[0];
    let ooms: Vec<_> = process.ooms.iter().collect();
    let [oom] = ooms[..] else { panic!("one error: {ooms:?}") };
    let message = oom.reported.message.as_deref().unwrap();
    assert!(message.contains("Process 18360 has 1.50 GiB memory in use"), "{message}");
    let tenants: Vec<_> = oom.tenants.iter().map(|it| (it.pid, it.name.raw())).collect();
    assert_eq!((tenants, oom.figures.others), (vec![(18360, "python")], Some(3 << 29)));
    assert_eq!((oom.figures.process, oom.figures.private_pools), (Some(514 << 20), Some(0)));
    assert_eq!(oom.figures.cause(), Cause::OtherProcess);
}

#[test]
fn every_command_refuses_a_newer_format_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.zst");
    let lines = lines_of(HEALTHY, |_| {}).concat();
    fs::write(&path, lines.replace("\"format\":1", "\"format\":2")).unwrap();
    let shown = path.to_str().unwrap();
    let page = dir.path().join("a.html");
    let cases: [&[&str]; 6] = [
        &["check", shown],
        &["export", shown],
        &["diff", shown, shown],
        &["report", shown, "-o", page.to_str().unwrap()],
        &["replay", shown],
        &["recordings", dir.path().to_str().unwrap()],
    ];
    for arguments in cases {
        let output = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert!(
            printed.contains("has format 2, this gpuwatch reads up to 1: use a newer one"),
            "{arguments:?}: {printed}"
        );
        assert_eq!(output.status.success(), arguments[0] == "recordings", "{arguments:?}");
    }
    assert!(!page.exists());
}

#[test]
fn a_second_writer_of_a_file_is_refused_and_the_first_continues() {
    let dir = own_directory();
    let file = dir.path().join("night.jsonl.zst");
    let mut first = recorder(dir.path(), &["-o", file.to_str().unwrap()], dir.path());
    assert!(until(PATIENCE, || file.exists() && !read(&file).0.is_empty()));
    let second = Command::new(PROGRAM).args(["record", "--no-nvml", "-o"]).arg(&file).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let printed = String::from_utf8(second.stderr).unwrap();
    assert!(
        printed.contains("night.jsonl.zst") && printed.contains("exists already") && printed.contains("another"),
        "{printed}"
    );
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(first.wait().unwrap().success());
    let (entries, fault) = read(&file);
    assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{entries:?} {fault:?}");
    let headers = entries.iter().filter(|it| matches!(it, Entry::Header(_))).count();
    assert_eq!((headers, steps(&entries)), (1, Vec::new()));
}
