//! The files in `fleet/ci`: the script of the memory gate runs fit and tests as it would in CI.

/// The steps of the services.
mod steps;

use super::{Asked, pytest::PYTEST};
use crate::helpers::{terminal::PROGRAM, torch};
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

fn ci(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet/ci").join(name)
}

/// A repository in CI, with gpuwatch on its path.
struct Pipeline(Asked);

impl Pipeline {
    fn new() -> Self {
        let asked = Asked::new(include_str!("against/lm.py"));
        let bin = asked.home.0.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(PROGRAM, bin.join("gpuwatch")).unwrap();
        Self(asked)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.home.0.path().join(name)
    }

    fn run(&self, python: &Path, tests: &str) -> (String, i32) {
        let mut gate = Command::new(ci("gpuwatch-gate.sh"));
        let paths = [self.path("bin"), python.parent().unwrap().to_owned()].into_iter();
        let paths = env::join_paths(paths.chain(env::split_paths(&env::var_os("PATH").unwrap()))).unwrap();
        gate.env("PATH", paths).env("GPUWATCH_GPU", "RTX 4090").env("GPUWATCH_COMMAND", "python train.py");
        gate.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/python"));
        gate.env("GPUWATCH_PROGRAM", PROGRAM).env("GPUWATCH_TESTS", tests).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = gate.envs(self.0.home.variables()).current_dir(self.0.home.0.path()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (printed, output.status.code().unwrap())
    }

    fn comment(&self) -> String {
        fs::read_to_string(self.path("gpuwatch-results/comment.md")).unwrap()
    }
}

#[test]
fn the_gate_makes_a_baseline_passes_and_fails_with_a_comment() {
    test_tiers::full!("three runs of fit, and pytest is downloaded");
    let pipeline = Pipeline::new();
    let (text, code) = pipeline.run(&torch::python(), "");
    assert!(code == 0 && pipeline.comment().contains("no baseline yet"), "{text}");
    fs::create_dir(pipeline.path(".gpuwatch")).unwrap();
    fs::rename(pipeline.path("gpuwatch-results/now.json"), pipeline.path(".gpuwatch/main.json")).unwrap();
    fs::write(pipeline.path("test_gpu.py"), include_str!("pytest/test_gpu.py")).unwrap();
    // The same PyTorch, with pytest beside it.
    let (text, code) = pipeline.run(PYTEST.python(), "-p gpuwatch_probe.pytest_plugin -k test_of_the_cpu");
    assert!(code == 0 && pipeline.comment().contains("✅ GPU memory tests"), "{text}");
    let script = pipeline.path("train.py");
    let source = fs::read_to_string(&script).unwrap().replace("lr=1e-3)", "lr=1e-3, amsgrad=True)");
    fs::write(&script, source).unwrap();
    let (text, code) = pipeline.run(PYTEST.python(), "-p gpuwatch_probe.pytest_plugin -k is_over_its_limit");
    let comment = pipeline.comment();
    assert_eq!(code, 1, "{text}");
    for part in ["❌ GPU memory: over the budget of ", "amsgrad=True", "❌ GPU memory tests"] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
}

/// What the action and the template pass to the script is what it reads.
#[test]
fn the_action_and_the_template_name_the_variables_of_the_script() {
    let read = |name: &str| fs::read_to_string(ci(name)).unwrap();
    let script = read("gpuwatch-gate.sh");
    for name in ["action.yml", "gitlab.yml"] {
        let text = read(name);
        let words = text.split(|it: char| !it.is_ascii_uppercase() && it != '_').collect::<Vec<_>>();
        let own = words.iter().filter(|it| it.starts_with("GPUWATCH_") && **it != "GPUWATCH_INSTALL");
        let unknown: Vec<_> = own.filter(|it| !script.contains(**it)).collect();
        assert!(unknown.is_empty() && text.contains("gpuwatch-gate.sh"), "{name}: {unknown:?}");
    }
}
