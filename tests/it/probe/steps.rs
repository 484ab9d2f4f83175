//! Golden cases of training steps, as bare events and with PyTorch's own optimizers.

use std::process::Command;

use crate::{
    helpers::torch,
    probe::{
        holders::pythons_of_all_builds,
        launch::Home,
        pytorch::{library, script},
    },
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

/// The library writes into function objects, whose layout differs between releases.
#[test]
fn functions_are_watched_in_every_python() {
    let (home, pythons) = (Home::new(), pythons_of_all_builds());
    assert!(!pythons.is_empty());
    for python in pythons {
        let mut command = Command::new(&python);
        command.arg(script("watch.py")).env("PYTHONPATH", python_side()).env("GPUWATCH_PROBE_SO", library(&home));
        let printed = torch::stdout(&command.output().unwrap());
        assert_eq!(printed, "watched\n", "{}", python.display());
    }
}
