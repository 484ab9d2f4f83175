//! The PyTorch that the tests share, and simulated machines for it to train on.

use crate::helpers::venv::Venv;
use simgpu::Machine;
use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};
use tempfile::TempDir;

/// PyTorch's CUDA wheel.
pub(crate) static TORCH: Venv = Venv {
    variable: "GPUWATCH_TEST_VENV",
    name: "venv-torch-2.15.0",
    holds: "PyTorch 2.15.0 (a download of about 600 MB)",
    // Its wheel finds NVIDIA's runtime before any other of that name, and nothing of it may be used here.
    packages: &[&["torch==2.15.0", "nvidia-cuda-runtime==13.2.86"], BESIDE],
    above: None,
    python: OnceLock::new(),
};

/// PyTorch's requirements that are not NVIDIA's.
pub(crate) const BESIDE: &[&str] = &[
    "filelock==4.2.11",
    "fsspec==2026.9.0",
    "jinja2==3.1.6",
    "markupsafe==3.0.4",
    "mpmath==1.3.0",
    "networkx==3.6.1",
    "numpy==2.4.6",
    "setuptools==84.2.1",
    "sympy==1.14.0",
    "typing-extensions==4.16.0",
];

/// The machine that tests use by default.
pub(crate) const H200: &str = "NVIDIA H200:143771MiB:615MiB";

/// The Python with PyTorch.
pub(crate) fn python() -> PathBuf {
    TORCH.python().to_owned()
}

/// The directory of an environment's packages.
fn site_packages(python: &Path) -> PathBuf {
    let lib = python.parent().and_then(Path::parent).unwrap().join("lib");
    let folders = fs::read_dir(lib).unwrap().map(|entry| entry.unwrap().path().join("site-packages"));
    folders.into_iter().find(|folder| folder.join("torch").is_dir()).unwrap()
}

/// A machine with one H200.
pub(crate) fn machine() -> Gpu {
    Gpu::new(H200)
}

/// Runs a script on a machine of its own, and gives what it wrote to stdout.
pub(crate) fn run(script: &str) -> String {
    stdout(&machine().script(script).output().unwrap())
}

/// Returns a program's stdout; if it failed, fails the test with its output.
pub(crate) fn stdout(done: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}\n{out}\n{err}", done.status);
    out.into_owned()
}

/// A simulated machine in a directory of its own, which goes with it.
pub(crate) struct Gpu {
    /// The simulated machine: devices, the memory of each process, faults.
    pub(crate) machine: Machine,
    dir: TempDir,
}

impl Gpu {
    /// A machine with the devices of a list such as `H200`.
    pub(crate) fn new(devices: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { machine: Machine::new(devices, dir.path()).unwrap(), dir }
    }

    /// The machine's directory: room for the test's files too.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the environment in which a program finds this machine's devices, and ends at an unreviewed call.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let strict = [("SIMGPU_STRICT", "1".into())];
        let machine = self.machine.environment(libraries()).into_iter().chain(self.machine.preload(libraries()));
        machine.chain(strict).collect()
    }

    /// A program that finds this machine's devices.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment()).current_dir(self.dir()).env_remove("CUDA_VISIBLE_DEVICES");
        // The tests run beside each other, and what is computed on the host is next to nothing.
        command.env("OMP_NUM_THREADS", "1");
        command
    }

    /// Python with a script, in a file of its own so that forked and spawned children find it too.
    pub(crate) fn script(&self, script: &str) -> Command {
        self.script_with(&python(), script)
    }

    /// The same of another Python that has the PyTorch of the tests.
    pub(crate) fn script_with(&self, python: &Path, script: &str) -> Command {
        let path = self.dir().join("script.py");
        fs::write(&path, script).unwrap();
        let mut command = self.command(python);
        command.arg(path);
        command
    }
}

/// The libraries that the shared PyTorch finds instead of CUDA's.
pub(crate) fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let torch = site_packages(&python()).join("torch");
        simgpu::prepared(&torch, &target()).unwrap()
    })
}

/// The build directory.
pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
}
