//! What gpuwatch reports of programs after public reports of memory that grows, or only seems to. The table is also a
//! page of the documents.

use crate::{
    analysis::out_of_memory,
    helpers::{terminal::PROGRAM, torch},
    probe::{launch::Home, pytorch::script},
};
use serde_json::Value;
use std::{fmt::Write as _, fs, path::Path};

/// A public report, and the program of ours with its mechanism.
struct Report {
    /// The program: a function of `reports.py`, or of `errors.py`.
    name: &'static str,
    /// Where it was reported.
    seen: &'static str,
    /// What happens.
    mechanism: &'static str,
    /// The cause of the finding; `None` if there is none at all.
    found: Option<&'static str>,
    /// What the report has of it.
    words: &'static [&'static str],
}

const GROWTH: [Report; 11] = [
    Report {
        name: "streams",
        seen: "vllm 52950",
        mechanism: "each transfer makes a new stream, and the allocator's cache is kept by stream",
        found: Some("stream-caches"),
        words: &["create the streams once"],
    },
    Report {
        name: "by_hand",
        seen: "pytorch 154642",
        mechanism: "reference cycles hold tensors, and the trainer runs the collector by hand",
        found: Some("reference-cycle"),
        words: &["reports.py", "attribute `value` of Node", "a reference cycle of Node", "break the cycle"],
    },
    Report {
        name: "rarely",
        seen: "pytorch 84413",
        mechanism: "a function keeps its own output, and the collector's thresholds are high",
        found: Some("reference-cycle"),
        words: &["`ctx.answer = x * 2` keeps 3 blocks a step", "through `KeepsBackward.answer`", "break the cycle"],
    },
    Report {
        name: "adapters",
        seen: "peft 738",
        mechanism: "a branch is added for each task, and none is removed",
        found: Some("tensors-retained"),
        words: &["`self.branches[name] = network(512, 64, 512)` keeps", "`branches`, attribute of Adapted"],
    },
    Report {
        name: "states",
        seen: "torchmetrics 1461",
        mechanism: "a metric's list keeps the predictions of each step",
        found: Some("tensors-retained"),
        words: &["`self.scores.append(scores)` keeps 1 block a step (256.0 KiB)", "attribute of Curve", "`scores`"],
    },
    Report {
        name: "gradients",
        seen: "forums",
        mechanism: "a watcher keeps the gradients, which backward's own threads allocate",
        found: Some("tensors-retained"),
        words: &["append(it.grad)` keeps 2 blocks a step", "dict `history` (2 items), attribute of Watcher"],
    },
    Report {
        name: "folds",
        seen: "pytorch 104095, accelerate 84",
        mechanism: "the weights of each trial or fold stay, but not its optimizer",
        found: Some("tensors-retained"),
        words: &["`results.append(fold(", "list `results` (", "local of folds()"],
    },
    Report {
        name: "casts",
        seen: "pytorch 48049",
        mechanism: "autocast is entered once around the loop, and keeps what it casts",
        found: Some("tensors-retained"),
        words: &["held by autocast", "enter autocast once per step", "`cache_enabled=False`"],
    },
    Report {
        name: "lengths",
        seen: "pytorch 128424",
        mechanism: "a CUDA graph is captured for each new length, and each has a pool",
        found: Some("graph-pools"),
        words: &["`graphs[step] = graph, still, out` keeps", "dict `graphs` (", "fix the shapes that are captured"],
    },
    Report {
        name: "thawed",
        seen: "fastai 2946",
        mechanism: "healthy: layers are unfrozen one by one, and an average of the weights begins late",
        found: None,
        words: &[],
    },
    Report {
        name: "curriculum",
        seen: "forums",
        mechanism: "healthy: sequences get longer by plan, and then no more",
        found: None,
        words: &[],
    },
];

/// Those that end in an out-of-memory error are tested with the causes of such errors.
const ERRORS: [Report; 9] = [
    error("retry_inside", "pytorch 18853", "the retry runs within the `except` block, whose error keeps the attempt"),
    error("evaluation", "transformers 7232", "an evaluation gathers its outputs on the device"),
    error("joined", "transformers 7232", "an evaluation joins its outputs to one tensor that gets longer"),
    error("collected", "transformers 7232", "as before, outside of `no_grad`"),
    error("stairs", "transformers 15656", "something of each epoch stays, and the error comes after some epochs"),
    error("cache", "ultralytics 3983", "a job without steps keeps its results"),
    error("longer", "forums", "a sequence is longer than any before"),
    error("first", "forums", "no step has fitted yet"),
    error("weights", "forums", "the model itself does not fit"),
];

const fn error(name: &'static str, seen: &'static str, mechanism: &'static str) -> Report {
    Report { name, seen, mechanism, found: None, words: &[] }
}

/// Runs the program; returns what `check` found beyond information that is over.
fn checked(name: &str) -> (Vec<Value>, String) {
    let (gpu, home) = (torch::Gpu::new("NVIDIA RTX 4090:24564MiB:400MiB"), Home::new());
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--summary", "never", "--"]).arg(torch::python()).arg(script("reports.py")).arg(name);
    let done = command.envs(home.variables()).env_remove("GPUWATCH_NVML_PATH").output().unwrap();
    assert!(done.status.success(), "{name}: {done:?}");
    let mut files = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).unwrap().flatten();
    let file = files.find(|it| it.path().to_string_lossy().ends_with(".zst")).unwrap().path();
    let check = |arguments: &[&str]| {
        let mut command = gpu.command(PROGRAM);
        command.arg("check").args(arguments).arg(&file).envs(home.variables()).output().unwrap().stdout
    };
    let json: Value = serde_json::from_slice(&check(&["--json"])).unwrap();
    (json["findings"].as_array().unwrap().clone(), String::from_utf8(check(&[])).unwrap())
}

/// The last line names the line that keeps memory, and the command in it opens the run's recording.
#[test]
fn the_last_line_names_the_line_to_blame_and_opens_the_recording() {
    test_tiers::change!("a training");
    let (gpu, home) = (torch::Gpu::new("NVIDIA RTX 4090:24564MiB:400MiB"), Home::new());
    let gpuwatch = |arguments: &[&str]| {
        let mut command = gpu.command(PROGRAM);
        command.args(arguments).envs(home.variables()).env_remove("GPUWATCH_NVML_PATH");
        command
    };
    let mut run = gpuwatch(&["run", "--"]);
    let run = run.arg(torch::python()).arg(script("reports.py")).arg("states").output().unwrap();
    let printed = String::from_utf8(run.stderr).unwrap();
    let line =
        printed.lines().last().and_then(|it| it.strip_prefix("gpuwatch: ")).unwrap_or_else(|| panic!("{printed}"));
    let (found, command) = line.split_once(" · gpuwatch ").unwrap_or_else(|| panic!("{printed}"));
    assert!(found.starts_with("reports.py:") && found.contains(" keeps 256.0 KiB a step"), "{printed}");
    assert!(found.contains("; full after ") && line.chars().count() < 120, "{printed}");
    assert_eq!(command, "replay 1", "{printed}");

    let shot = gpu.dir().join("end.svg");
    let replay = gpuwatch(&["replay", "1", "--screenshot", shot.to_str().unwrap()]).output().unwrap();
    assert!(replay.status.success() && fs::read_to_string(&shot).unwrap().contains("reports.py"), "{replay:?}");
    let mut files = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).unwrap().flatten();
    let file = files.find(|it| it.path().to_string_lossy().ends_with(".zst")).unwrap().path();
    assert!(String::from_utf8_lossy(&replay.stderr).contains(&*file.to_string_lossy()), "{replay:?}");
}

/// Runs the program of a row, and compares what was found.
fn reported(name: &str) {
    test_tiers::change!("a training");
    let it = GROWTH.iter().find(|it| it.name == name).unwrap();
    let (found, text) = checked(name);
    let Some(cause) = it.found else {
        assert!(found.iter().all(|it| it["severity"] == "info"), "{text}");
        return;
    };
    let alone: Vec<&Value> = found.iter().filter(|it| it["follows"].is_null()).collect();
    let [first] = &alone[..] else { panic!("one finding: {text}") };
    assert_eq!(first["cause"], cause, "{text}");
    // A cache that stays bounded is information. Whether the rest is more than a warning depends on the machine's pace.
    assert_eq!(first["severity"] == "info", name == "streams", "{text}");
    for words in it.words {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
}

/// One test for each row, named as its program.
macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            reported(stringify!($name));
        })*

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

tests!(streams by_hand rarely adapters states gradients folds casts lengths thawed curriculum);

/// The page of the documents with this table.
pub(crate) fn page() -> String {
    let mut page = "# Public reports\n\nPrograms of our own with the mechanism of public reports of memory that grows, or only \
                    seems to. The suite runs each on the simulated GPU (`tests/it/analysis/public_reports.rs`, `tests/it/analysis/out_of_memory.rs`), and tests \
                    that gpuwatch reports this.\n\n| reported | what happens | [cause](causes.md) | gpuwatch reports |\n|---|---|---|---|\n"
        .to_owned();
    let causes = out_of_memory::REPORTS.map(|(name, cause, words)| (name, cause, words));
    for it in GROWTH.iter().chain(&ERRORS) {
        let known = causes.iter().find(|(name, ..)| *name == it.name);
        let (cause, words) = known.map_or((it.found, it.words), |it| (Some(it.1), it.2));
        let cause = cause.map_or_else(|| "–".to_owned(), |it| format!("`{it}`"));
        let words = if words.is_empty() { "nothing".to_owned() } else { quoted(words) };
        let _ = writeln!(page, "| {} | {} | {cause} | {words} |", it.seen, it.mechanism);
    }
    page
}

/// Pieces of a report: backticks and bars would end a cell or its text.
fn quoted(words: &[&str]) -> String {
    words.iter().map(|it| format!("“{}”", it.replace('|', "\\|"))).collect::<Vec<_>>().join(" … ")
}

/// Each row has its test.
#[test]
fn every_report_of_the_table_is_tested() {
    assert_eq!(GROWTH.map(|it| it.name), TESTED);
    for it in &ERRORS {
        assert!(out_of_memory::REPORTS.iter().any(|(name, ..)| *name == it.name), "{}", it.name);
    }
    assert!(Path::new(&script("reports.py")).exists());
}
