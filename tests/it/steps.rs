//! Golden cases of training steps, as bare events and with PyTorch's own optimizers.

use std::process::Command;

use crate::{
    launch::Home,
    shim::{library, script},
    torch,
};

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
    let (gpu, home) = (torch::machine(), Home::new());
    // Watched by the library, and by PyTorch's hooks where the library cannot.
    for how in ["watch", "hooks"] {
        let mut python = gpu.command(torch::python());
        python
            .arg(script("steps.py"))
            .arg(how)
            .env("PYTHONPATH", python_side())
            .env("GPUWATCH_PROBE_SO", library(&home));
        let printed = torch::stdout(&python.output().unwrap());
        assert!(printed.starts_with("steps are right with torch 2."), "{how}: {printed}");
    }
}
