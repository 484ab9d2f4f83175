//! The machine, gpuwatch with a home of its own, and jobs that are spoken to line by line.

use crate::results::Row;
use gpuwatch::{
    facts::event::{Fact, Line},
    storage::recording::{Entry, Reader},
};
use serde_json::Value;
use std::{
    env,
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io::{BufRead, BufReader, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The time within which a probe reports what happened.
const PATIENCE: Duration = Duration::from_secs(20);

/// A machine with a driver that answers.
pub(crate) struct Bench {
    pub(crate) gpu: String,
    pub(crate) driver: String,
    /// The release of PyTorch, where there is one that finds the GPU.
    pub(crate) torch: Option<String>,
    home: TempDir,
}

impl Bench {
    /// Reads the driver through gpuwatch itself; fails with the reason if there is nothing to confirm.
    pub(crate) fn new() -> Result<Self, String> {
        let mut bench =
            Self { gpu: String::new(), driver: String::new(), torch: None, home: tempfile::tempdir().unwrap() };
        let once = bench.once();
        let driver = &once["driver"];
        let Some(device) = once["devices"].as_array().and_then(|it| it.first()).filter(|_| driver["state"] == "up")
        else {
            let why = driver["why"].as_str().unwrap_or("it lists no device");
            return Err(format!("no NVIDIA GPU: {why}"));
        };
        device["name"].as_str().unwrap_or("GPU").clone_into(&mut bench.gpu);
        driver["version"].as_str().unwrap_or("of an unknown version").clone_into(&mut bench.driver);
        bench.torch = bench.found_torch();
        Ok(bench)
    }

    /// A program that shares gpuwatch's places.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let home = self.home.path();
        let mut command = Command::new(program);
        command.env("HOME", home).env("XDG_STATE_HOME", home.join("state")).env("XDG_CACHE_HOME", home.join("cache"));
        command.env("GPUWATCH_SOCKET_DIR", self.sockets()).env("XDG_CONFIG_HOME", home.join("config"));
        command
    }

    fn sockets(&self) -> PathBuf {
        let dir = self.home.path().join("sockets");
        if !dir.is_dir() {
            DirBuilder::new().mode(0o700).create(&dir).unwrap();
        }
        dir
    }

    /// gpuwatch itself.
    pub(crate) fn program() -> PathBuf {
        env!("CARGO_BIN_EXE_gpuwatch").into()
    }

    /// gpuwatch with arguments.
    pub(crate) fn gpuwatch(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(Self::program());
        command.args(arguments);
        command
    }

    /// Returns the output of `gpuwatch once --json`.
    pub(crate) fn once(&self) -> Value {
        json(&self.gpuwatch(&["once", "--json"]).output().unwrap())
    }

    /// The Python that has PyTorch.
    pub(crate) fn python() -> PathBuf {
        env::var_os("GPUWATCH_GPU_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
    }

    fn found_torch(&self) -> Option<String> {
        let ask = "import torch; torch.zeros(1, device='cuda'); print('PyTorch', torch.__version__)";
        let done = self.command(Self::python()).args(["-c", ask]).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// Why no layer with PyTorch can be tried.
    pub(crate) fn needs_torch(&self) -> Result<(), String> {
        let why = || format!("{} has no PyTorch that finds the GPU", Self::python().display());
        self.torch.as_ref().map(|_| ()).ok_or_else(why)
    }

    /// Whether Python has a module.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        let ask = format!("import importlib.util as it; assert it.find_spec({name:?})");
        self.command(Self::python()).args(["-c", &ask]).output().is_ok_and(|it| it.status.success())
    }

    /// The same; records what cannot be tried without it.
    pub(crate) fn has_or_skips(&self, name: &str, what: &str) -> bool {
        let has = self.has_module(name);
        if !has {
            test_tiers::record(&format!("gpu: {what}"), &format!("{} has no {name}", Self::python().display()));
        }
        has
    }

    /// `gpuwatch run` with Python and a script of the repository.
    pub(crate) fn run_python(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = self.gpuwatch(&["run", "--"]);
        command.arg(Self::python()).arg(script).args(arguments);
        command
    }

    /// A folder of its own in the home.
    pub(crate) fn folder(&self) -> PathBuf {
        tempfile::Builder::new().tempdir_in(self.home.path()).unwrap().keep()
    }

    /// A path in its home.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `gpuwatch run` that records into a file, with Python and its arguments.
    pub(crate) fn recorded_to(&self, file: &Path, arguments: &[&str]) -> Command {
        let mut command = self.gpuwatch(&["run", "--output"]);
        command.arg(file).arg("--").arg(Self::python()).args(arguments);
        command
    }

    /// The newest recording.
    pub(crate) fn recording(&self) -> PathBuf {
        let dir = self.home.path().join("state/gpuwatch/recordings");
        let files = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
        files.max_by_key(|it| fs::metadata(it).unwrap().modified().unwrap()).expect("a recording")
    }

    /// Returns what its probe reported.
    pub(crate) fn recorded(&self) -> Vec<Line> {
        let reader = Reader::new(File::open(self.recording()).unwrap()).unwrap();
        let lines = reader.filter_map(|entry| match entry {
            Ok(Entry::Event(event)) => Some(event.fact),
            _ => None,
        });
        lines.filter_map(|fact| if let Fact::Probe { line, .. } = fact { Some(*line) } else { None }).collect()
    }

    /// Returns the output of `gpuwatch check --json` for it, whatever the verdict.
    pub(crate) fn checked(&self) -> Value {
        self.checked_file(&self.recording())
    }

    /// The same of another recording.
    pub(crate) fn checked_file(&self, file: &Path) -> Value {
        let done = self.gpuwatch(&["check", "--json"]).arg(file).output().unwrap();
        serde_json::from_slice(&done.stdout).unwrap_or_else(|why| panic!("{why}: {done:?}"))
    }
}

/// Returns a program's output as JSON; fails the layer if the program fails.
pub(crate) fn json(done: &Output) -> Value {
    serde_json::from_str(&text(done)).unwrap_or_else(|why| panic!("{why}: {done:?}"))
}

/// Returns a program's output; fails the layer if the program fails.
pub(crate) fn text(done: &Output) -> String {
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A job that waits for a line of input wherever the test inspects it.
pub(crate) struct Job {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Job {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next line; nothing at its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"))
    }

    /// Compares with a report of a process's probe on its device, until all rows hold; what happened since its latest
    /// step is in its next tick.
    pub(crate) fn compared(bench: &Bench, pid: u32, rows: impl Fn(&Value, &Value) -> Vec<Row>) -> Vec<Row> {
        let end = Instant::now() + PATIENCE;
        loop {
            let once = bench.once();
            let probes = once["probes"].as_array().unwrap();
            let probe = probes.iter().find(|it| it["own_pid"] == pid);
            let rows = probe.map_or_else(Vec::new, |it| rows(&it["devices"][0], &once));
            if (!rows.is_empty() && rows.iter().all(|it| it.holds)) || Instant::now() > end {
                assert!(!rows.is_empty(), "no probe of {pid} in {once:#}");
                return rows;
            }
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.send("");
    }

    /// Sends a line, and returns its answer.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.json()
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Closes its input and waits for its end.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success(), "the job failed");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Confirms several things at once: their names, and what confirms them. One that fails has a row that shows why.
pub(crate) fn together(work: impl IntoIterator<Item = (String, impl FnOnce() -> Vec<Row> + Send)>) -> Vec<Row> {
    thread::scope(|scope| {
        let begun: Vec<_> = work.into_iter().map(|(name, it)| (name, scope.spawn(it))).collect();
        begun
            .into_iter()
            .flat_map(|(name, it)| it.join().unwrap_or_else(|why| vec![Row::failed(&name, &*why)]))
            .collect()
    })
}
