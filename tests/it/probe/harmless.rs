//! An expensive job never notices the probe, however it ends, is interrupted and is watched.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use gpuwatch_probe::wire::{Edge, Line};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch,
    },
    probe::{
        launch::{Home, PATIENT, Terminal, talk_to_the_patient},
        pytorch::{Job, backlog, both_ways, script, to_the_end},
    },
    recordings::writer,
};

fn by_way(printed: &str) -> BTreeMap<String, Value> {
    let facts = printed.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    facts.map(|it| (it["what"].as_str().unwrap().to_owned(), it)).collect()
}

#[test]
fn a_training_job_ends_and_is_interrupted_as_without_us() {
    let with = by_way(&Job::start(&[&script("ends.py")]).finish());
    let gpu = torch::machine();
    let without = by_way(&torch::stdout(&gpu.command(torch::python()).arg(script("ends.py")).output().unwrap()));
    assert_eq!(with, without);
    let status = |way: &str| with[way]["status"].as_i64().unwrap();
    assert_eq!(["returns", "leaves_at_once", "raises", "exits_in_a_thread"].map(status), [0, 3, 1, 4]);
    assert_eq!(["is_killed", "is_interrupted", "handles_a_signal", "blocks_a_signal"].map(status), [-15, -2, 15, 0]);
    let out = |way: &str| with[way]["out"].as_str().unwrap();
    assert_eq!((out("raises"), out("is_alarmed")), ("hook the end\nat exit\n", "heard 300\n"));
    assert_eq!((out("returns").lines().last(), out("leaves_at_once")), (Some("at exit"), ""));
}

/// Three steps on the device before the patient job begins, with a probe to see them.
const TRAINED: &str = r"
import os, torch
parameter = torch.ones(4, device='cuda', requires_grad=True)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(3):
    parameter.sum().backward()
    optimizer.step()
assert os.path.exists('%s/%d.sock' % (os.environ['GPUWATCH_SOCKET_DIR'], os.getpid()))
";

#[test]
fn a_training_job_in_a_terminal_is_interrupted_stopped_and_continued() {
    let (gpu, home) = (torch::machine(), Home::new());
    let job = gpu.dir().join("job.py");
    fs::write(&job, format!("{TRAINED}{PATIENT}")).unwrap();
    let mut exports = String::new();
    for (name, value) in gpu.environment() {
        writeln!(exports, "export {name}='{}'", value.to_str().unwrap()).unwrap();
    }
    let machine = gpu.dir().join("machine.sh");
    fs::write(&machine, exports).unwrap();
    let mut terminal = Terminal::open(&home);
    terminal.send(&format!(". {}\n", machine.display()));
    terminal.until("prompt> ");
    let command = format!("$GPUWATCH_PROGRAM run -- {} {}", torch::python().display(), job.display());
    talk_to_the_patient(&mut terminal, &command);
}

/// A real viewer of one job's probes, and the file it writes.
struct Recorder {
    child: Child,
    file: PathBuf,
}

impl Recorder {
    fn start(job: &Job, file: PathBuf) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["record", "--no-nvml", "-o"]).arg(&file).env("GPUWATCH_SOCKET_DIR", &job.sockets);
        Self { child: command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), file }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn has(&self, last: u64) -> bool {
        until(PATIENCE * 2, || last_step(&self.file) == last)
    }

    /// Every step that it wrote down, once it is over.
    fn end(mut self) -> Vec<u64> {
        self.signal(Signal::TERM);
        self.child.wait().unwrap();
        let mut steps = writer::steps(&writer::read(&self.file).0);
        // Ticks, which repeat the number of the latest step.
        steps.dedup();
        steps
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_step(file: &Path) -> u64 {
    if file.exists() { writer::steps(&writer::read(file).0).last().copied().unwrap_or(0) } else { 0 }
}

/// Trains on, no more at once than a probe's queue holds; the steps that `witness` sees.
fn train(job: &mut Job, witness: &mut BufReader<UnixStream>, from: u64, to: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut last = from;
    while last < to {
        let more = (to - last).min(1000);
        last += more;
        job.send(&more.to_string());
        job.next();
        while seen.last() != Some(&last) {
            let mut line = String::new();
            witness.read_line(&mut line).unwrap();
            seen.extend(step(&serde_json::from_str(&line).unwrap()));
        }
    }
    seen
}

fn step(line: &Line) -> Option<u64> {
    let Line::Sample(it) = line else { return None };
    it.step.filter(|_| it.edge == Edge::Step)
}

#[test]
fn viewers_that_come_late_are_stopped_or_killed_change_nothing_for_others() {
    let mut job = Job::start(&[&script("watched.py")]);
    job.next();
    let mut witness = job.connect();
    let mut seen = train(&mut job, &mut witness, 0, 5000);
    let late: Vec<u64> = backlog(&mut job.connect()).iter().filter_map(step).collect();
    assert_eq!(late, (1..=5000).collect::<Vec<_>>(), "who comes after 5,000 steps sees the first");

    let files = tempfile::tempdir().unwrap();
    let start = |name: &str| Recorder::start(&job, files.path().join(name));
    let [steady, stopped, mut killed] = ["steady", "stopped", "killed"].map(start);
    assert!(steady.has(5000) && stopped.has(5000) && killed.has(5000));
    // Far more than the socket's buffers hold, so that the probe meets one that takes no more.
    stopped.signal(Signal::STOP);
    seen.extend(train(&mut job, &mut witness, 5000, 8000));
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    seen.extend(train(&mut job, &mut witness, 8000, 11_000));
    assert!(steady.has(11_000));
    assert!(last_step(&stopped.file) < 11_000, "it was stopped");
    stopped.signal(Signal::CONT);
    assert!(stopped.has(11_000), "the history had kept what it missed");
    assert_eq!(job.finish(), "");
    seen.extend(to_the_end(witness).iter().filter_map(step));
    assert_whole("the witness", &seen);
    assert_whole("the steady recorder", &steady.end());
    assert_whole("the stopped recorder", &stopped.end());
}

fn assert_whole(who: &str, seen: &[u64]) {
    let gap = seen.iter().zip(1..).find(|(seen, step)| *seen != step);
    assert!(gap.is_none() && seen.len() == 11_000, "{who} has {} steps, and not {gap:?}", seen.len());
}

/// Runs the boot file in Pythons that it does not support, and with loaders that serve many modules.
#[test]
fn the_boot_survives_odd_surroundings() {
    let home = Home::new();
    let zip = home.0.path().join("both.zip");
    let write = "import sys, zipfile; it = zipfile.ZipFile(sys.argv[1], 'w'); \
                 it.writestr('torch.py', '_C = 1'); it.writestr('other.py', '')";
    assert!(Command::new("python3").args(["-c", write]).arg(&zip).status().unwrap().success());
    // In Python 2 a finder without `find_module` breaks every import.
    let boot = format!("{}/probes/python/gpuwatch_boot/sitecustomize.py", env!("CARGO_MANIFEST_DIR"));
    let old = format!(
        "import sys; sys.version_info = (2, 7); exec(open('{boot}').read(), {{'__file__': '{boot}'}}); \
         print([type(it).__name__ for it in sys.meta_path if 'Torch' in type(it).__name__])"
    );
    let old = Command::new("python3").args(["-I", "-S", "-c", &old]).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&old.stdout).as_ref(), old.stderr.len()), ("[]\n", 0), "{old:?}");
    // The two modules share a loader, and only one of them is awaited.
    let shared = "import importlib.util; importlib.util.find_spec('torch'); import other, torch, gpuwatch_probe\n\
                  print(gpuwatch_probe._probe.torch is torch)";
    let [_, with] = both_ways(&home, &["-c", shared], |it| {
        it.env("PYTHONPATH", &zip);
    });
    assert_eq!((String::from_utf8_lossy(&with.stdout).as_ref(), with.stderr.len()), ("True\n", 0), "{with:?}");
}
