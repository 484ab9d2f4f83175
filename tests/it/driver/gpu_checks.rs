//! Runs `tests/gpu` on a simulated GPU, so that its results on a real one can be trusted.

use crate::{
    helpers::{terminal::PROGRAM, torch},
    probe::pytorch::script,
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// The layers, except for those that measure costs, and those whose programs other tests run: frameworks, replays,
/// fits.
const LAYERS: [&str; 8] = ["NVML", "C probe", "cudarc", "counters", "leak", "out of memory", "attached", "kinds"];

#[test]
fn the_checks_for_a_real_gpu_pass_on_a_simulated_one() {
    test_tiers::full!("it builds an example and trains");
    let gpu = torch::machine();
    let (bin, results) = (gpu.dir().join("bin"), gpu.dir().join("results"));
    fs::create_dir(&bin).unwrap();
    let smi = bin.join("nvidia-smi");
    fs::write(&smi, format!("#!/bin/sh\nexec python3 {} \"$@\"\n", script("smi.py"))).unwrap();
    fs::set_permissions(&smi, fs::Permissions::from_mode(0o755)).unwrap();
    let mut cargo = gpu.command(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["test", "--quiet", "--test", "gpu", "--target-dir"]);
    cargo.arg(torch::target()).arg("--").args(LAYERS);
    cargo.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    cargo.env("GPUWATCH_GPU_PYTHON", torch::python()).env("GPUWATCH_GPU_RESULTS", &results);
    let printed = torch::stdout(&cargo.output().unwrap());
    let file = fs::read_dir(&results).unwrap().next().expect("a table").unwrap().path();
    let table = fs::read_to_string(file).unwrap();
    assert!(printed.contains(&table), "{printed}");
    for layer in LAYERS {
        let mut rows = table.lines().filter(|it| it.starts_with('|') && it.contains(layer)).peekable();
        assert!(rows.peek().is_some(), "{layer} was not tried:\n{printed}");
        assert!(rows.all(|it| it.ends_with("| yes |")), "{table}");
    }
}

/// A training that kept an H200 at its power limit, beside viewers that came and went (`tests/gpu/viewers.rs`).
#[test]
fn the_recording_of_a_busy_h200_raises_nothing() {
    let recording =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/results/2026-11-26-nvidia-h200-busy.jsonl.zst");
    let checked = Command::new(PROGRAM).args(["check", "--json", "--fail-on", "info"]).arg(recording).output().unwrap();
    let verdict: Value = serde_json::from_str(&torch::stdout(&checked)).unwrap();
    assert_eq!((&verdict["steps"], &verdict["findings"]), (&3409.into(), &serde_json::json!([])), "{verdict:#}");
}
