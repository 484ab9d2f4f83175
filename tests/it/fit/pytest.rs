//! The pytest plugin: tests of GPU memory on a simulated card, beside a suite's own tests.

use crate::{
    helpers::{
        terminal::PROGRAM,
        torch::{self, Gpu, TORCH},
        venv::Venv,
    },
    probe::launch::Home,
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// pytest, beside PyTorch.
pub(crate) static PYTEST: Venv = Venv {
    variable: "GPUWATCH_PYTEST_VENV",
    name: "venv-pytest-8",
    holds: "pytest and pytest-xdist (a download of about 3 MB)",
    packages: &[&[
        "pytest==8.4.2",
        "pytest-xdist==3.8.0",
        "execnet==2.1.2",
        "iniconfig==2.3.1",
        "packaging==26.3",
        "pluggy==1.7.0",
        "pygments==2.21.0",
    ]],
    above: Some(&TORCH),
    python: OnceLock::new(),
};

/// Makes an environment in a folder that has PyTorch and pytest, as an earlier step would have installed them; returns
/// its Python.
pub(crate) fn fresh(venv: &Path) -> PathBuf {
    const FOLDERS: &str = "import sys; print(*[it for it in sys.path if it.endswith('site-packages')], sep='\\n')";
    torch::stdout(&Command::new(PYTEST.python()).args(["-m", "venv"]).arg(venv).output().unwrap());
    let python = venv.join("bin/python");
    let folders = |of: &Path| torch::stdout(&Command::new(of).args(["-c", FOLDERS]).output().unwrap());
    fs::write(Path::new(folders(&python).trim()).join("earlier.pth"), folders(PYTEST.python())).unwrap();
    python
}

const TESTS: &str = include_str!("pytest/test_gpu.py");

/// A suite in a home of its own.
struct Suite(Home);

impl Suite {
    fn new(tests: &str) -> Self {
        let suite = Self(Home::new());
        fs::write(suite.folder().join("test_gpu.py"), tests).unwrap();
        suite
    }

    fn folder(&self) -> &Path {
        self.0.0.path()
    }

    /// Runs it; returns what it printed and its exit code.
    fn run(&self, arguments: &[&str]) -> (String, i32) {
        self.run_in(&[], arguments)
    }

    /// The same with more variables.
    fn run_in(&self, variables: &[(&'static str, OsString)], arguments: &[&str]) -> (String, i32) {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/python");
        let mut command = Command::new(PYTEST.python());
        command.args(["-m", "pytest", "-p", "gpuwatch_probe.pytest_plugin", "-p", "no:cacheprovider"]).args(arguments);
        command.env("PYTHONPATH", plugin).env("GPUWATCH_PROGRAM", PROGRAM).env("OMP_NUM_THREADS", "1");
        command.env("COLUMNS", "80").env("PYTHONDONTWRITEBYTECODE", "1").envs(self.0.variables());
        command.envs(variables.iter().cloned());
        let output = command.current_dir(self.folder()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (printed, output.status.code().unwrap())
    }
}

#[test]
fn a_suite_is_tested_on_a_simulated_card_and_failures_name_lines() {
    test_tiers::change!("pytest is downloaded");
    let suite = Suite::new(TESTS);
    let (text, code) = suite.run(&["--gpuwatch", "RTX 4090", "--tb=short", "-rs"]);
    assert_eq!(code, 1, "{text}");
    for part in [
        "3 failed, 3 passed, 1 skipped",
        "over the limit of 64.00 MiB, at test_gpu.py:",
        "lines that hold the most at the peak:",
        "self.up = nn.Linear(512, 4096)",
        "grows +512.0 KiB/step, and no growth is allowed; test_gpu.py:15 allocates what\n  stays\n",
        "test_gpu.py:24 `keep.append(out.detach())` keeps 1 block a step (512.0 KiB),",
        "through list `keep` (6 items), local of train()\n    remedy: ",
        "module up\n",
        "growth cannot be judged: 3 steps ran, and it takes 6",
        "MiB            new            0 B\n",
        "computes with values of the simulated GPU",
        "GPU memory, RTX 4090",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wide: Vec<&str> = text.lines().filter(|it| it.chars().count() > 80 && !it.starts_with("SKIPPED")).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn a_test_is_compared_with_its_baseline_also_by_several_workers() {
    test_tiers::change!("pytest is downloaded");
    let suite = Suite::new(TESTS);
    let of_one = ["--gpuwatch", "RTX 4090", "-k", "test_fits"];
    let (text, code) = suite.run(&of_one);
    assert!(code == 0 && text.contains("new: without a baseline"), "{text}");
    let (text, code) = suite.run(&[&of_one[..], &["--gpuwatch-update", "-n", "2"]].concat());
    assert_eq!(code, 0, "{text}");
    let file = suite.folder().join(".gpuwatch/baseline.json");
    let first = fs::read_to_string(&file).unwrap();
    let (text, code) = suite.run(&[&of_one[..], &["--gpuwatch-update"]].concat());
    assert!(code == 0 && fs::read_to_string(&file).unwrap() == first, "{text}");
    let (text, code) = suite.run(&[&of_one[..], &["-n", "2"]].concat());
    assert!(code == 0 && text.contains(" equal"), "{text}");
    fs::write(suite.folder().join("test_gpu.py"), TESTS.replace("4096", "5120")).unwrap();
    let (text, code) = suite.run(&of_one);
    assert_eq!(code, 1, "{text}");
    for part in ["over the budget of 0 B: allocated +", "self.up = nn.Linear(512, 5120)"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    fs::write(&file, "[]").unwrap();
    let (text, code) = suite.run(&of_one);
    assert!(code == 1 && text.contains("is no baseline of gpuwatch"), "{text}");
}

/// What a fixture of a wider scope holds, and arguments that are no sizes.
const FIXTURES: &str = "
import pytest, torch

@pytest.fixture(scope='module')
def table():
    yield torch.zeros(4 << 20, device='cuda')

@pytest.mark.gpu_memory(limit='20 MiB')
def test_uses_it(table):
    pass

@pytest.mark.gpu_memory(limit='1 MiB')
def test_uses_it_again(table):
    pass

@pytest.mark.gpu_memory(limit='1 MiB')
def test_does_not(gpu_memory):
    assert gpu_memory.peak == 0

@pytest.mark.gpu_memory(limit='lots')
def test_cannot_be_judged():
    pass
";

#[test]
fn a_fixture_counts_for_the_tests_that_use_it_and_a_refused_argument_is_named() {
    test_tiers::change!("pytest is downloaded");
    let (text, code) = Suite::new(FIXTURES).run(&["--gpuwatch", "RTX 4090", "-rA"]);
    assert_eq!(code, 1, "{text}");
    for part in [
        "FAILED test_gpu.py::test_uses_it_again",
        "peak of 16.00 MiB is 15.00 MiB over the limit of 1.00 MiB",
        "PASSED test_gpu.py::test_does_not",
        "limit=\"lots\": ",
        "2 failed, 2 passed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("lines that hold the most at the peak:\n\n"), "{text}");
}

/// A simulated card of which the plugin does not know that it is one.
#[test]
fn the_markers_use_this_machines_own_gpu_and_fail_where_it_has_none() {
    test_tiers::change!("pytest is downloaded");
    let suite = Suite::new(TESTS);
    let machine = Gpu::new("NVIDIA L4:23034MiB:400MiB").environment();
    let (text, code) = suite.run_in(&machine, &["--gpuwatch", "real", "--tb=short"]);
    assert_eq!(code, 1, "{text}");
    for part in [
        "over the limit of 64.00 MiB, at test_gpu.py:",
        "through list `keep` (",
        "GPU memory, this machine's GPU",
        // What the machine computes is the tests' own affair.
        "assert 0.0 == 3.5",
        "4 failed, 3 passed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let hidden = [&machine[..], &[("CUDA_VISIBLE_DEVICES", OsString::new())]].concat();
    let (text, code) =
        suite.run_in(&hidden, &["--gpuwatch", "real", "-k", "test_fits or test_computes or test_of_the_cpu"]);
    assert!(code == 1 && text.contains("1 passed, 1 skipped") && text.contains("1 error"), "{text}");
    assert!(text.contains("--gpuwatch real: PyTorch finds no GPU on this machine"), "{text}");
}

#[test]
fn without_its_flag_the_plugin_changes_nothing_and_a_card_that_does_not_exist_is_refused() {
    test_tiers::change!("pytest is downloaded");
    // PyTorch for CUDA is not importable here without a simulated card.
    let suite = Suite::new(
        "import pytest\n\n@pytest.mark.gpu_memory(limit='1 MiB')\ndef test_marked():\n    pass\n\n\
         def test_looks(gpu_memory):\n    raise AssertionError('it is skipped')\n",
    );
    let (text, code) = suite.run(&["--strict-markers"]);
    assert!(code == 0 && text.contains("1 passed, 1 skipped"), "{text}");
    let suite = Suite::new(TESTS);
    let (text, code) = suite.run(&["--gpuwatch", "RTX 9999999"]);
    assert!(code == 4 && text.contains("--gpuwatch: "), "{text}");
}

/// What tests leave to each other, and a fixture that another test has made.
const LEFT: &str = "
import pytest, torch
from torch import nn

KEPT = []

@pytest.fixture(scope='module')
def model():
    return nn.Linear(1024, 4096, device='cuda')

def test_leaves_something(model):
    KEPT.append(torch.zeros(32 << 20, device='cuda'))
    KEPT.append(nn.Linear(2048, 2048, device='cuda'))

def test_has_its_own(gpu_memory):
    one = torch.zeros(1 << 20, device='cuda')
    assert gpu_memory.parts == {'activations': 4 << 20}
    assert [it['line'] for it in gpu_memory.lines] == ['test_gpu.py:16']
    assert gpu_memory.before >= 144 << 20

def test_only_has_a_fixture(model, gpu_memory):
    assert gpu_memory.peak == gpu_memory.parts['weights'] == 4 * 4096 * 1025
    assert [it['module'] for it in gpu_memory.lines] == ['*']
    assert 144 << 20 <= gpu_memory.before < 146 << 20

def test_frees_what_was_left(gpu_memory):
    KEPT.clear()
    one = torch.zeros(16 << 20, device='cuda')
    assert gpu_memory.peak == gpu_memory.parts['activations'] == 64 << 20

def test_leaves_again():
    KEPT.append(torch.zeros(32 << 20, device='cuda'))

@pytest.mark.gpu_memory(limit='1 MiB')
def test_is_over(model):
    one = torch.zeros(4 << 20, device='cuda')

def test_leaves_nothing(gpu_memory):
    assert gpu_memory.peak == 0 and gpu_memory.parts == {} and gpu_memory.lines == []
";

#[test]
fn a_test_answers_for_its_own_memory_and_for_its_fixtures() {
    test_tiers::change!("pytest is downloaded");
    let (text, code) = Suite::new(LEFT).run(&["--gpuwatch", "RTX 4090", "--tb=short"]);
    assert!(code == 1 && text.contains("1 failed, 6 passed"), "{text}");
    for part in [
        "peak of 32.02 MiB is 31.02 MiB over the limit of 1.00 MiB",
        "  weights                              16.02 MiB\n",
        "  activations, inputs and outputs      16.00 MiB\n",
        "  not counted: there before the test   128.0 MiB\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("KEPT.append"), "{text}");
}

const MARKERS: &str = "
import pytest

@pytest.mark.gpu_memory(limits='2 GiB')
def test_misspelt():
    pass

@pytest.mark.gpu_memory('2 GiB')
def test_nameless():
    pass

@pytest.mark.gpu_memory(colour='red', limit='2 GiB')
def test_other():
    pass

def test_without():
    pass
";

#[test]
fn an_argument_that_a_marker_does_not_have_is_named_at_its_test() {
    test_tiers::change!("pytest is downloaded");
    let (text, code) = Suite::new(MARKERS).run(&["--gpuwatch", "RTX 4090"]);
    assert!(code == 1 && text.contains("1 passed, 3 errors"), "{text}");
    let takes = "it takes limit, growth, against and budget";
    for part in [
        format!("test_gpu.py:4: gpu_memory has no argument limits (did you mean limit?); {takes}\n"),
        format!("test_gpu.py:8: gpu_memory('2 GiB') has an argument without a name; {takes}, as in limit='2 GiB'\n"),
        format!("test_gpu.py:12: gpu_memory has no argument colour; {takes}\n"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(!text.contains("UsageError"), "{text}");
}

/// Processes of a test: with PyTorch's own start, with a tensor of the parent, and another program.
const PROCESSES: &str = "
import subprocess, sys
import torch
import torch.multiprocessing as mp

def makes(rank, count):
    assert torch.zeros(count, device='cuda').is_cuda and torch.cuda.get_device_name() == 'NVIDIA GeForce RTX 4090'

def uses(tensor):
    assert tensor.is_cuda and tensor.numel() == 1 << 20

def test_spawns():
    mp.spawn(makes, args=(1 << 20,), nprocs=1)

def test_shares():
    one = torch.zeros(1 << 20, device='cuda')
    process = mp.get_context('spawn').Process(target=uses, args=(one,))
    process.start()
    process.join()
    assert process.exitcode == 0

def test_starts_a_program():
    code = 'import os, sys, torch; torch.ones(1, device=\"cuda\"); print(\"gpuwatch_probe\" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], check=True, stdout=-1).stdout == b'False\\n'
";

#[test]
fn processes_that_a_test_starts_have_the_simulated_card_too() {
    test_tiers::change!("pytest is downloaded");
    let suite = Suite::new(PROCESSES);
    for more in [&[][..], &["-n", "2"]] {
        let (text, code) = suite.run(&[&["--gpuwatch", "RTX 4090"], more].concat());
        assert!(code == 0 && text.contains("3 passed"), "{text}");
    }
}
