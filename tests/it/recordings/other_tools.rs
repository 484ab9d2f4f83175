//! Recordings are read by tools that know nothing of gpuwatch: the real ones, from the package registry.

use crate::{
    analysis::corpus,
    benchmarks::recording::{events_of, record},
    helpers::{terminal::PROGRAM, torch, venv::Venv},
    house::tidy::root,
    recordings::formats,
};
use gpuwatch::{
    facts::event::{Event, Fact, Line},
    storage::recording::{Entry, Reader},
};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

static TOOLS: Venv = Venv {
    variable: "GPUWATCH_TOOLS_VENV",
    name: "venv-tools",
    holds: "pandas, DuckDB, zstandard and jsonschema (a download of about 60 MB)",
    packages: &[
        &["pandas==3.1.1", "numpy==2.4.6", "python-dateutil==4.0.0", "duckdb==2.0.0", "zstandard==0.25.0"],
        &["jsonschema==4.26.0", "attrs==26.1.0", "jsonschema-specifications==2025.9.1", "referencing==0.37.0"],
        &["rpds-py==2026.9.1", "typing-extensions==4.16.0"],
    ],
    above: None,
    python: OnceLock::new(),
};

/// How many samples, and what they had allocated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    samples: u64,
    allocated: u64,
}

impl Figures {
    /// As our own reader has them.
    fn of(path: &Path) -> Self {
        let mut figures = Self::default();
        for entry in Reader::new(File::open(path).unwrap()).unwrap() {
            // Drop the part after the last whole line of a cut file.
            if let Ok(Entry::Event(Event { fact: Fact::Probe { line, .. }, .. })) = entry
                && let Line::Sample(it) = *line
            {
                figures.samples += 1;
                figures.allocated += it.counters.allocated.unwrap_or(0);
            }
        }
        figures
    }

    fn parsed(json: &Value) -> Self {
        let number = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{name} in {json}"));
        Self { samples: number("samples"), allocated: number("allocated") }
    }
}

/// Three loops of the corpus one after the other, so that the recording has several frames.
fn recording(path: &Path) -> Figures {
    let mut events = Vec::new();
    for trace in corpus::traces().iter().step_by(23) {
        events.extend(corpus::read(trace));
    }
    events.sort_by_key(|it| it.at);
    record(path, &events);
    let frames = fs::read(path).unwrap().windows(4).filter(|it| *it == [0x28, 0xb5, 0x2f, 0xfd]).count();
    assert!(frames > 3, "a reader of one frame would not do: {frames}");
    let figures = Figures::of(path);
    assert_eq!(figures.samples, events.iter().filter(|it| is_sample(it)).count() as u64);
    figures
}

fn is_sample(event: &Event) -> bool {
    matches!(&event.fact, Fact::Probe { line, .. } if matches!(**line, Line::Sample(_)))
}

/// A long recording, and one with every type of line.
fn recordings(dir: &Path) -> Vec<(PathBuf, Figures)> {
    let (long, real) = (dir.join("a.jsonl.zst"), formats::fixture());
    let figures = recording(&long);
    vec![(long, figures), (real.clone(), Figures::of(&real))]
}

fn read_by_wheels(python: &Path, path: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python/tools.py");
    let reported = torch::stdout(&Command::new(python).arg(script).arg(path).output().unwrap());
    serde_json::from_str(&reported).unwrap()
}

#[test]
fn pandas_duckdb_and_zstandard_read_what_we_read() {
    test_tiers::full!("pandas, DuckDB and zstandard are downloaded");
    let python = test_tiers::needs!(TOOLS.found());
    let dir = tempfile::tempdir().unwrap();
    for (path, ours) in recordings(dir.path()) {
        let reported = read_by_wheels(&python, &path);
        for tool in ["pandas", "duckdb", "zstandard"] {
            assert_eq!(Figures::parsed(&reported[tool]), ours, "{tool}");
        }
    }
}

/// Reads the flushed part of a recording whose writer was killed: the last frame is open.
#[test]
fn pandas_and_duckdb_read_a_recording_whose_writer_was_killed() {
    test_tiers::full!("pandas, DuckDB and zstandard are downloaded");
    let python = test_tiers::needs!(TOOLS.found());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.zst");
    let flushed = record(&path, &events_of(&corpus::traces()[0], 0, 10, 900));
    let (bytes, lines) = flushed[flushed.len() / 2];
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes as u64).unwrap();
    let ours = Figures::of(&path);
    assert!(ours.samples > 400 && ours.samples < lines as u64, "{ours:?}");
    let reported = read_by_wheels(&python, &path);
    for tool in ["pandas", "duckdb"] {
        assert_eq!(Figures::parsed(&reported[tool]), ours, "{tool}");
    }
}

pub(crate) fn has(program: &str) -> Result<(), String> {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    status.map(|_| ()).map_err(|why| format!("{program}: {why}"))
}

/// Runs the commands of the documents, on machines that have both programs.
#[test]
fn zstdcat_and_jq_read_what_we_read() {
    test_tiers::needs!(has("zstdcat"));
    test_tiers::needs!(has("jq"));
    let dir = tempfile::tempdir().unwrap();
    for (path, ours) in recordings(dir.path()) {
        let mut zstdcat = Command::new("zstdcat").arg(&path).stdout(Stdio::piped()).spawn().unwrap();
        let sum = "[inputs | select(.type == \"sample\").allocated] | {samples: length, allocated: add}";
        let jq = Command::new("jq").args(["-nc", sum]).stdin(zstdcat.stdout.take().unwrap()).output().unwrap();
        assert!(zstdcat.wait().unwrap().success());
        let reported: Value = serde_json::from_str(&torch::stdout(&jq)).unwrap();
        assert_eq!(Figures::parsed(&reported), ours);
    }
}

#[test]
fn an_independent_validator_accepts_the_schemas_and_what_they_describe() {
    test_tiers::full!("jsonschema is downloaded");
    let python = test_tiers::needs!(TOOLS.found());
    let folder = root().join("docs/reference/schemas");
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.json");
    let gpuwatch = |arguments: &[&str]| {
        let done = Command::new(PROGRAM).args(arguments).arg(formats::fixture()).output().unwrap();
        serde_json::from_slice::<Value>(&done.stdout).unwrap_or_default()
    };
    gpuwatch(&["report", "-o", page.to_str().unwrap()]);
    let report = serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap();
    let wire = include_str!("../../../probes/gpuwatch-probe/tests/it/wire/golden.jsonl");
    let lines =
        wire.lines().filter(|it| !it.contains("\"unknown\"")).map(|it| ("wire", serde_json::from_str(it).unwrap()));
    let asked = lines.chain([("check", gpuwatch(&["check", "--json"])), ("report", report)]);
    let asked: Vec<String> =
        asked.map(|(schema, value)| json!({"schema": schema, "value": value}).to_string()).collect();
    let input = dir.path().join("asked.jsonl");
    fs::write(&input, asked.join("\n")).unwrap();
    let mut script = Command::new(python);
    script.arg(root().join("tests/it/python/schemas.py")).arg(folder).stdin(File::open(input).unwrap());
    assert_eq!(torch::stdout(&script.output().unwrap()).trim(), format!("checked {}", asked.len()));
}
