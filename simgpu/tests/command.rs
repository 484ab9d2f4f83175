//! The command `simgpu`, without PyTorch.

#![expect(clippy::unwrap_used, reason = "a test reports a failure by a panic")]

use simgpu::Machine;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

fn simgpu(dir: &Path, arguments: &[&str]) -> (bool, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_simgpu"))
        .args(arguments)
        .current_dir(dir)
        .env("SIMGPU_DIR", dir)
        .env_remove("SIMGPU_DEVICES")
        .output()
        .unwrap();
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[test]
fn status_shows_the_devices_and_who_uses_them() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::new("NVIDIA H200:143771MiB:615MiB", dir.path()).unwrap();
    let me = std::process::id();
    machine.occupy(0, me, 3 << 30).unwrap();
    let (done, out) = simgpu(dir.path(), &["status"]);
    assert!(done, "{out}");
    let expected = "GPU-51a60000-0000-4000-8000-000000000000  NVIDIA H200  3072 of 143771 MiB";
    assert_eq!(out, format!("{expected}\n  pid {me}  3072 MiB\n"));
    machine.occupy(0, me, 0).unwrap();
    assert_eq!(simgpu(dir.path(), &["status"]).1, format!("{}\n", expected.replace("3072 of", "0 of")));
}

#[test]
fn nvml_is_prepared_without_torch_and_a_folder_without_torch_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (done, out) = simgpu(dir.path(), &["prepare", "--out", "lib"]);
    assert!(done && dir.path().join("lib/libnvidia-ml.so.1").is_file(), "{out}");
    let (done, out) = simgpu(dir.path(), &["prepare", "--torch", "nowhere"]);
    assert!(!done && out.contains("nowhere"), "{out}");
    let (done, out) = simgpu(dir.path(), &["run", "--torch", "nowhere", "--", "true"]);
    assert!(!done && out.contains("nowhere"), "{out}");
}

/// The machine of a user has neither a compiler nor a linker.
#[test]
fn libraries_are_made_without_any_other_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut simgpu = Command::new(env!("CARGO_BIN_EXE_simgpu"));
    let done = simgpu.args(["prepare", "--out", "lib"]).current_dir(&dir).env("PATH", "").output().unwrap();
    assert!(done.status.success() && dir.path().join("lib/libcuda.so.1").is_file(), "{done:?}");
}

#[test]
fn a_launcher_is_run_with_the_torch_of_the_python_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let python = program("python3", "#!/bin/sh\necho /the/torch/of/this/one\n");
    let torchrun = program("torchrun", &format!("#!{python}\n"));
    for command in [
        vec![torchrun.as_str(), "train.py"],
        vec!["nice", torchrun.as_str(), "train.py"],
        vec![python.as_str(), "train.py"],
    ] {
        let (done, out) = simgpu(dir.path(), &[&["run", "--"], command.as_slice()].concat());
        assert!(!done && out.contains("/the/torch/of/this/one"), "{command:?}: {out}");
    }
}
