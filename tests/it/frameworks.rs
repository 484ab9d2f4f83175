//! Frameworks on PyTorch, used as their users use them: healthy jobs raise no alarm, and of each leak the line that makes the
//! tensors, the line that keeps them and their holder are named.
//!
//! ```text
//! GPUWATCH_TESTS=full cargo test --test it frameworks::
//! ```
//!
//! `GPUWATCH_FRAMEWORKS_VENV` names an environment that has them and the suite's PyTorch.

use crate::{
    launch::Home,
    pty::PROGRAM,
    shim::script,
    torch::{self, Gpu, TORCH},
    venv::Venv,
};
use serde_json::Value;
use std::{fs, path::Path, sync::OnceLock};

static FRAMEWORKS: Venv = Venv {
    variable: "GPUWATCH_FRAMEWORKS_VENV",
    name: "venv-frameworks",
    holds: "transformers, Lightning, timm, diffusers and others (a download of about 250 MB)",
    packages: &[&[include_str!("python/frameworks/requirements.txt")]],
    above: Some(&TORCH),
    python: OnceLock::new(),
};

fn path(file: &str) -> String {
    script(&format!("frameworks/{file}"))
}

/// Runs a function of a script as a probed job, and gives what `check` says of it.
fn judged(python: &Path, file: &str, name: &str) -> Value {
    // Small, so that leaks of tiny models matter.
    let (gpu, home) = (Gpu::new("NVIDIA A10:6GiB:256MiB"), Home::new());
    let mut run = gpu.command(PROGRAM);
    run.args(["run", "--"]).arg(python).args([&path(file), name]).envs(home.variables());
    // How soon the device is full says whether a leak matters.
    run.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1"));
    // Nothing is asked of the network.
    run.env("HF_HUB_OFFLINE", "1").env("HF_HOME", home.0.path()).env("TOKENIZERS_PARALLELISM", "false");
    torch::stdout(&run.output().unwrap());
    let mut check = gpu.command(PROGRAM);
    let output = check.args(["check", "--json"]).envs(home.variables()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn check_healthy(said: &Value, steps: u64) {
    assert_eq!(said["steps"], steps, "{said:#}");
    assert_eq!(said["findings"].as_array().map(Vec::len), Some(0), "{said:#}");
}

/// The culprit of the growth of live memory is at the lines that the script marks, and held so.
fn check_leak(said: &Value, file: &str, name: &str, holder: &str) {
    let findings = said["findings"].as_array().unwrap();
    let found = findings.iter().find(|it| it["kind"] == "growth" && it["resource"] == "allocated");
    let culprit = &found.unwrap_or_else(|| panic!("no growth: {said:#}"))["culprit"];
    let text = fs::read_to_string(path(file)).unwrap();
    let line = |mark: &str| text.lines().position(|it| is_marked(it, mark, name)).map(|it| it as u64 + 1);
    for (mark, at) in [("made", culprit), ("kept", &culprit["kept"])] {
        assert_eq!(at["line"].as_u64(), line(mark), "{mark}: {culprit:#}");
        assert!(at["file"].as_str().is_none_or(|it| it.ends_with(file)), "{mark}: {culprit:#}");
    }
    assert!(culprit["holders"].to_string().contains(holder), "{holder}: {culprit:#}");
}

/// `# made: NAME`, or `# made, kept: NAME` where it is one line.
fn is_marked(line: &str, mark: &str, name: &str) -> bool {
    let marks = line.split_once("  # ").and_then(|(_, it)| it.split_once(": "));
    marks.is_some_and(|(marks, of)| of == name && marks.split(", ").any(|it| it == mark))
}

macro_rules! healthy {
    ($($test:ident: $file:literal $name:literal, $steps:literal steps;)+) => {$(
        #[test]
        fn $test() {
            test_tiers::full!("frameworks on PyTorch");
            let python = test_tiers::needs!(FRAMEWORKS.found());
            check_healthy(&judged(&python, $file, $name), $steps);
        }
    )+};
}

macro_rules! leaks {
    ($($test:ident: $file:literal $name:literal, held by $holder:literal;)+) => {$(
        #[test]
        fn $test() {
            test_tiers::full!("frameworks on PyTorch");
            let python = test_tiers::needs!(FRAMEWORKS.found());
            check_leak(&judged(&python, $file, $name), $file, $name, $holder);
        }
    )+};
}

healthy! {
    a_trainer_that_accumulates_evaluates_and_saves_raises_no_alarm: "trainer.py" "healthy_trainer", 120 steps;
    eight_trainers_in_one_process_make_320_steps: "trainer.py" "eight_trainers", 320 steps;
    lightning_with_accumulation_validation_and_checkpoints_raises_no_alarm: "modules.py" "healthy_lightning", 96 steps;
    a_lightning_gan_with_optimizers_of_its_own_raises_no_alarm: "modules.py" "healthy_gan", 192 steps;
    timm_with_averaged_weights_and_mixed_precision_raises_no_alarm: "modules.py" "healthy_timm", 60 steps;
    a_diffusion_model_raises_no_alarm: "modules.py" "healthy_diffusers", 60 steps;
}

leaks! {
    a_callback_that_keeps_tensors_is_named: "trainer.py" "callback", held by "weights";
    a_trainer_that_keeps_logits_is_named: "trainer.py" "subclass", held by "logits";
    a_metric_that_is_never_reset_is_named: "modules.py" "metric", held by "auroc";
}
