//! Golden cases of training steps, as bare events and with PyTorch's own optimizers.

use std::process::Command;

use crate::{shim::script, torch};

fn python_side() -> String {
    format!("{}/probes/python", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn golden_cases_hold_in_any_python() {
    let mut python = Command::new("python3");
    python.arg(script("steps.py")).env("PYTHONPATH", python_side());
    assert_eq!(torch::stdout(&python.output().unwrap()), "steps are right without torch\n");
}

#[test]
fn golden_cases_hold_for_real_optimizers() {
    let gpu = torch::machine();
    let mut python = gpu.command(torch::python());
    python.arg(script("steps.py")).arg("torch").env("PYTHONPATH", python_side());
    let printed = torch::stdout(&python.output().unwrap());
    assert!(printed.starts_with("steps are right with torch 2."), "{printed}");
}
