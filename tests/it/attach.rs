//! `gpuwatch attach` and `gpuwatch detach` on real jobs: the probe comes and goes, and the job stays as it was.

mod at_once;
mod ending;
mod hostile;
mod killed;
mod late;
mod pythons;
mod ranks;
mod recorded;
mod rounds;
mod screen;

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch,
    },
    house::schemas,
    probe::{
        launch::Home,
        pytorch::{script, sockets},
    },
};
use gpuwatch_probe::wire::{Edge, Line, Sample};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    iter,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

/// How often a request is made of a job that does not answer in time.
const TRIES: usize = 50;

/// A job that was started without gpuwatch.
struct Job {
    child: Child,
    out: BufReader<ChildStdout>,
    home: Home,
    pid: u32,
    /// Its first line.
    first: Value,
    gpu: torch::Gpu,
}

impl Job {
    fn start() -> Self {
        let gpu = torch::machine();
        let mut command = gpu.command(torch::python());
        command.arg(script("attached.py"));
        Self::start_as(gpu, command)
    }

    fn start_as(gpu: torch::Gpu, mut command: Command) -> Self {
        let home = Home::new();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.envs(home.variables()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut job = Self { pid: child.id(), child, out, home, first: Value::Null, gpu };
        job.first = job.next();
        assert_eq!(job.first["what"], "ready");
        job
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn send(&mut self, command: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Makes the job inspect itself after a step; it then waits for the next command.
    fn inspect(&mut self) -> Value {
        self.send("look");
        self.next()
    }

    /// Runs the command; once more where a busy machine kept the job from answering in time, which leaves it as it was.
    fn gpuwatch(&self, arguments: &[&str]) -> Output {
        let run = || {
            let mut command = self.gpu.command(PROGRAM);
            command.args(arguments).arg(self.pid.to_string()).envs(self.home.variables()).output().unwrap()
        };
        let in_time = |it: &Output| !String::from_utf8_lossy(&it.stderr).contains("it did not answer within");
        iter::repeat_with(run).take(TRIES).find(in_time).expect("the job answers at some time")
    }

    fn attach(&self) {
        expect(&self.gpuwatch(&["attach", "--no-record", "--wait", "5m"]), 0, "the probe runs");
    }

    fn detach(&self) {
        expect(&self.gpuwatch(&["detach", "--wait", "5m"]), 0, "the probe has ended");
    }

    fn sockets(&self) -> usize {
        sockets(&self.home.0.path().join("sockets")).len()
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let all = sockets(&self.home.0.path().join("sockets"));
        let [path] = &all[..] else { panic!("one probe was expected: {all:?}") };
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }

    /// Lets the job end; it must not have seen anything.
    fn end(self) {
        self.end_keeping_home();
    }

    /// The same; its files stay as long as what is returned.
    fn end_keeping_home(mut self) -> Home {
        self.send("end");
        let last = self.next();
        let mut aside = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut aside).unwrap();
        assert!(self.child.wait().unwrap().success() && aside.is_empty(), "{aside}");
        let seen = ["what", "named", "modules", "same_path", "alive"].map(|it| last[it].clone());
        let none = serde_json::json!([]);
        assert_eq!(seen, ["end".into(), none.clone(), none, true.into(), 1.into()], "{last}");
        self.home
    }
}

fn expect(output: &Output, code: i32, phrase: &str) {
    let printed = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned()).concat();
    assert!(output.status.code() == Some(code) && printed.contains(phrase), "{}: {printed}", output.status);
}

/// The row of a step.
fn row(probe: &mut BufReader<UnixStream>, step: u64) -> Sample {
    let mut text = String::new();
    loop {
        text.clear();
        assert!(probe.read_line(&mut text).unwrap() > 0, "the probe ended");
        match serde_json::from_str(&text).unwrap() {
            Line::Sample(it) if it.edge == Edge::Step && it.step == Some(step) => return it,
            _ => {}
        }
    }
}

/// Attaches, compares the probe's figures with those of the job itself, and detaches.
fn counts_as_pytorch_does(job: &mut Job) {
    job.attach();
    let mut probe = job.connect();
    let mut hello = String::new();
    probe.read_line(&mut hello).unwrap();
    let Line::Hello(hello) = serde_json::from_str(&hello).unwrap() else { panic!("{hello}") };
    assert!(hello.attached_us > hello.start_us, "{hello:?}");
    assert_eq!(hello.pid, job.pid);
    let inspect = job.inspect();
    // The optimizer has counted from the job's first step on.
    let counters = row(&mut probe, inspect["steps"].as_u64().unwrap()).counters;
    let stats = [counters.allocated, counters.reserved, counters.allocated_peak].map(Option::unwrap);
    assert_eq!(inspect["stats"], serde_json::json!(stats));
    job.send("go on");
    job.detach();
    assert_eq!(job.sockets(), 0);
}

#[test]
fn a_running_job_gets_a_probe_that_counts_as_pytorch_does_and_loses_it_without_a_trace() {
    let mut job = Job::start();
    for _ in 0..3 {
        counts_as_pytorch_does(&mut job);
    }
    // The thread that ended the probe is about to end itself.
    let mut inspect = job.inspect();
    assert!(until(PATIENCE, || {
        job.send("go on");
        inspect = job.inspect();
        inspect["threads"] == job.first["threads"]
    }));
    assert_eq!(inspect["descriptors"], job.first["descriptors"]);
    job.send("go on");
    let left: Vec<_> = std::fs::read_dir(job.home.0.path().join("cache/gpuwatch")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the probe's own files stay: {left:?}");
    expect(&job.gpuwatch(&["detach"]), 2, "has no probe");
    job.end();
}

/// Of a job without a probe, `once` names the command that gives it one, and that command does.
#[test]
fn what_follows_from_a_job_without_a_probe_is_to_attach() {
    let job = Job::start();
    let printed = |arguments: &[&str]| {
        let mut command = job.gpu.command(PROGRAM);
        command.args(arguments).envs(job.home.variables());
        command.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1")).output().unwrap()
    };
    let once = || -> Value {
        let output = printed(&["once", "--json"]);
        let once = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        schemas::check("once", &once);
        once
    };
    let before = once();
    let command = format!("gpuwatch attach {}", job.pid);
    assert_eq!(before["next"].as_array().map(Vec::len), Some(1), "{before:#}");
    assert_eq!(before["next"][0]["command"], command, "{before:#}");
    let text = torch::stdout(&printed(&["once"]));
    assert!(text.contains(&format!("    this would give it one:\n    {command}\n")), "{text}");
    job.attach();
    let after = once();
    assert_eq!(after["next"][0]["command"], format!("gpuwatch peak {}", job.pid), "{after:#}");
    assert!(!after["next"].to_string().contains("attach"), "{after:#}");
    job.detach();
    job.end();
}

#[test]
fn a_main_thread_that_is_in_a_long_call_is_asked_once_and_answers_later() {
    let mut job = Job::start();
    job.send("wait");
    assert_eq!(job.next()["what"], "wait");
    for _ in 0..2 {
        expect(&job.gpuwatch(&["attach", "--no-record", "--wait", "200ms"]), 3, "has not returned to Python yet");
    }
    assert_eq!(job.sockets(), 0);
    job.send("go on");
    assert!(until(PATIENCE, || job.sockets() == 1), "the probe starts late");
    expect(&job.gpuwatch(&["attach"]), 2, "has a probe already");
    job.detach();
    job.end();
}

/// A tracer that holds the process until its standard input ends: with `PTRACE_SEIZE`, or stopped by `PTRACE_ATTACH`
/// as a debugger does.
const TRACER: &str = "import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True); \
    libc.ptrace.argtypes = [ctypes.c_long] * 4; how, pid = int(sys.argv[1]), int(sys.argv[2]); \
    held = libc.ptrace(how, pid, 0, 0); how == 16 and os.waitpid(pid, 0); print(held, flush=True); sys.stdin.read(); \
    how == 16 and libc.ptrace(17, pid, 0, 0)";

#[test]
fn unattachable_processes_are_left_as_they_are_with_a_reason() {
    let job = Job::start();
    let refused = |arguments: &[&str], phrase: &str| expect(&job.gpuwatch(arguments), 2, phrase);

    for how in [libc::PTRACE_SEIZE, libc::PTRACE_ATTACH] {
        let mut tracer = Command::new("python3");
        tracer
            .args(["-c", TRACER, &how.to_string(), &job.pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut tracer = tracer.spawn().unwrap();
        let mut printed = String::new();
        BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut printed).unwrap();
        assert_eq!(printed.trim(), "0", "the tracer holds it");
        refused(&["attach"], &format!("is traced by process {}", tracer.id()));
        drop(tracer.stdin.take());
        tracer.wait().unwrap();
    }

    let mut ended = Command::new("true").spawn().unwrap();
    assert!(until(PATIENCE, || crate::attach::state(ended.id()) == Some('Z')));
    let output = Command::new(PROGRAM).args(["attach", &ended.id().to_string()]).output().unwrap();
    expect(&output, 2, "has ended: it is listed until its parent waits for it");
    ended.wait().unwrap();

    let pid = rustix::process::Pid::from_child(&job.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let is_stopped = || crate::attach::state(job.pid) == Some('T');
    assert!(until(PATIENCE, is_stopped));
    refused(&["attach"], &format!("kill -CONT {}", job.pid));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(until(PATIENCE, || !is_stopped()));

    if rustix::process::geteuid().is_root() {
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", PROGRAM, "attach", &job.pid.to_string()]);
        expect(&other.output().unwrap(), 2, "belongs to root: only root and root may attach to it");
    } else {
        test_tiers::leave_out!("only root can act as another user");
    }

    expect(&job.gpuwatch(&["attach", "--dry-run"]), 0, "queue a call in Python");
    assert_eq!(job.sockets(), 0, "a dry run does nothing");
    job.end();
}

#[test]
fn a_probe_that_cannot_start_says_which_folder_is_wrong() {
    let job = Job::start();
    let file = job.gpu.dir().join("file");
    std::fs::write(&file, "").unwrap();
    for (folder, reason) in [(Path::new("/proc/1"), "its mode is 0"), (&file, "it is not a directory")] {
        let mut command = job.gpu.command(PROGRAM);
        command.args(["attach", "--no-record", "--wait", "5m", &job.pid.to_string()]).envs(job.home.variables());
        let output = command.env("GPUWATCH_SOCKET_DIR", folder).output().unwrap();
        expect(
            &output,
            2,
            &format!("its socket cannot be made: no directory for the socket ({}: {reason}", folder.display()),
        );
    }
    job.end();
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn other_programs_than_pytorch_jobs_are_refused_with_advice() {
    let home = Home::new();
    let cases: [(&[&str], &str); 2] = [
        (&["sleep", "1000"], "does not run CPython"),
        (&["python3", "-c", "print('ready', flush=True); import time; time.sleep(1000)"], "has not loaded PyTorch"),
    ];
    for (program, phrase) in cases {
        let mut child = Command::new(program[0]).args(&program[1..]).stdout(Stdio::piped()).spawn().unwrap();
        if program[0] == "python3" {
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        }
        let mut command = Command::new(PROGRAM);
        let output = command.args(["attach", &child.id().to_string()]).envs(home.variables()).output().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        expect(&output, 2, phrase);
        let mut command = Command::new(PROGRAM);
        let output = command.args(["attach", &child.id().to_string()]).envs(home.variables()).output().unwrap();
        expect(&output, 2, "there is no process");
    }
}

#[test]
fn options_that_keep_the_probe_out_do_not_keep_it_out_later() {
    test_tiers::change!("starts PyTorch three times");
    for option in ["-I", "-E", "-S"] {
        let gpu = torch::machine();
        let mut command = gpu.command(torch::python());
        let site = site_packages(&torch::python());
        if option == "-S" {
            let run =
                format!("import sys; sys.path.insert(0, {site:?}); exec(open({:?}).read())", script("attached.py"));
            command.args([option, "-c", &run]);
        } else {
            command.arg(option).arg(script("attached.py"));
        }
        let mut job = Job::start_as(gpu, command);
        counts_as_pytorch_does(&mut job);
        job.end();
    }
}

fn site_packages(python: &Path) -> String {
    let folder = "import sysconfig; print(sysconfig.get_path('purelib'))";
    torch::stdout(&Command::new(python).args(["-c", folder]).output().unwrap()).trim().to_owned()
}

#[test]
fn growth_gets_a_culprit_after_the_attachment() {
    test_tiers::change!("waits for a capture");
    let mut job = Job::start();
    job.attach();
    job.send("grow");
    let mut command = job.gpu.command(PROGRAM);
    command.args(["sites", &job.pid.to_string(), "--json"]).envs(job.home.variables());
    let printed = torch::stdout(&command.output().unwrap());
    assert!(printed.contains("keep.append(y.detach())"), "{printed}");
    job.end();
}

#[test]
fn a_job_in_other_namespaces_gets_its_files_and_keeps_none() {
    crate::probe::containers::needs_unshare!(["-rpfm", "--mount-proc"]);
    let gpu = torch::machine();
    let mut command = gpu.command("unshare");
    command.args(["-rpfm", "--mount-proc"]).arg(torch::python()).arg(script("attached.py"));
    let mut job = Job::start_as(gpu, command);
    assert_eq!(job.first["pid"], 1);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", job.pid)).unwrap();
    job.pid = children.trim().parse().unwrap();
    job.attach();
    assert_eq!(job.sockets(), 1);
    let files = || {
        let all = std::fs::read_dir(format!("/proc/{}/root/tmp", job.pid)).unwrap().flatten();
        let name = "gpuwatch-attach-1-";
        all.filter(|it| it.file_name().to_string_lossy().starts_with(name)).count()
    };
    assert_eq!(files(), 0);
    job.detach();
    assert_eq!((files(), job.sockets()), (0, 0));
    job.end();
}
