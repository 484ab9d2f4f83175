//! `gpuwatch whatif PID`: some steps of a running job, traced and replayed; and that the job is as it was.

mod screen;

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch::{self, Gpu},
    },
    house::schemas,
    probe::{
        launch::Home,
        pytorch::{Job, script},
    },
    screens::actions::quits,
};
use gpuwatch::facts::event::replayed::WINDOW_STEPS;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, SystemTime},
};

const HOUR: Duration = Duration::from_secs(3600);

/// A job that trains until its input ends, and its pid.
pub(crate) struct Windowed {
    pub(crate) job: Job,
    pub(crate) pid: String,
}

impl Windowed {
    pub(crate) fn start() -> Self {
        Self::start_with(&[], |_| ())
    }

    fn start_with(options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        Self::start_on(torch::machine(), "lengths", options, change)
    }

    fn start_on(gpu: Gpu, how: &str, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut job = Job::start_by(gpu, options, &[&script("windowed.py"), how], change);
        let pid = job.next()["pid"].to_string();
        Self { job, pid }
    }

    fn asked(&mut self, word: &str) -> Value {
        self.job.send(word);
        self.job.next()
    }

    /// Waits until the job's state is as wanted.
    pub(crate) fn wait(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let state = self.asked("state");
            if is_wanted(&state) {
                return state;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a file beside the socket, as a viewer that died has left it, of this age.
    fn leave(&self, name: &str, age: Duration) {
        let folder = self.job.home.variables().into_iter().find(|it| it.0 == "GPUWATCH_SOCKET_DIR").unwrap().1;
        let file = fs::File::create(folder.join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["whatif", &self.pid]).args(arguments).envs(self.job.home.variables());
        command
    }

    fn refused(&self) -> String {
        refused(&self.command(&[]).output().unwrap())
    }
}

/// The one sentence of a question that has no answer.
fn refused(output: &Output) -> String {
    let aside = String::from_utf8(output.stderr.clone()).unwrap();
    let is_one = aside.lines().count() == 1;
    assert!(output.status.code() == Some(1) && output.stdout.is_empty() && is_one, "{output:?}");
    aside
}

#[test]
fn a_running_job_is_traced_for_some_steps_and_left_as_it_was() {
    let mut it = Windowed::start();
    let kept = [format!("{}.7.trace", it.pid), "1.7.trace".to_owned(), format!("{}.x.trace", it.pid)];
    it.leave(&kept[0], Duration::ZERO);
    kept[1..].iter().for_each(|name| it.leave(name, HOUR));
    let before = it.wait(|state| state["enabled"] == false);
    let own = it.asked("own");
    // The next window removes what a viewer that died has left, and nothing else.
    it.leave(&format!("{}.8.trace", it.pid), HOUR);
    let answer = torch::stdout(&it.command(&["--steps", "30", "--json"]).output().unwrap());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    schemas::check("whatif", &answer);
    let device = &answer["devices"][0];
    let of = |figure: &str| &device[figure];
    assert_eq!(
        (of("refused"), of("complete"), of("window")),
        (&Value::Null, &json!(false), &json!(true)),
        "{answer:#}"
    );
    let best = device["candidates"][0]["settings"].as_str().unwrap();
    assert!(best.contains("expandable_segments:True"), "{answer:#}");
    let cost = of("cost");
    // Of each step, 12 layers, a kept block and what the optimizer and the backward pass need.
    assert!(cost["steps"].as_u64() >= Some(30) && cost["allocations"].as_u64() > Some(13 * 25), "{cost:#}");
    assert!(cost["snapshots"].as_u64() >= Some(1) && cost["longest_pause_us"].is_u64(), "{cost:#}");
    let text = torch::stdout(&it.command(&["--set", "", "--set", "expandable_segments:True"]).output().unwrap());
    for words in ["begins in the middle of the run", "~ ", "gpuwatch run --trace", "paused the job for at most"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The answer comes when the job has everything back. It lies beside the socket for viewers of the job.
    let mut after = it.asked("state");
    let files = after["files"].as_array_mut().unwrap();
    let all = files.len();
    files.retain(|it| !it.as_str().unwrap().ends_with(".replays"));
    assert_eq!(files.len() + 1, all);
    assert_eq!(after, before);
    let files = after["files"].as_array().unwrap();
    assert!(kept.iter().all(|name| files.contains(&json!(name))), "{files:?}");
    assert_eq!(it.asked("own"), own);
    assert_eq!(it.asked("record"), json!({}));
    let aside = it.refused();
    assert!(aside.contains("the job records its memory history itself; have it call"), "{aside}");
    assert_eq!(it.job.finish(), "");
}

#[test]
fn steps_that_end_before_the_trace_begins_are_none_of_it() {
    let mut it = Windowed::start_on(torch::machine(), "late", &[], |_| ());
    let child = it.command(&["--steps", "5", "--set", "", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let answer = torch::stdout(&child.wait_with_output().unwrap());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let device = &answer["devices"][0];
    assert!(device["refused"].is_null() && device["window"] == true, "{answer:#}");
    assert!(device["cost"]["steps"].as_u64() >= Some(5) && device["events"].as_u64() > Some(5 * 25), "{answer:#}");
    assert_eq!(it.asked("state")["enabled"], false);
    it.job.finish();
}

/// `gpuwatch whatif` of more steps than there will be, once the job is being traced.
fn begun(it: &mut Windowed) -> Child {
    let mut command = it.command(&["--steps", "1000000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    it.wait(|state| state["enabled"] == true);
    child
}

#[test]
fn without_its_viewer_a_window_ends_and_leaves_nothing() {
    let mut it = Windowed::start();
    let before = it.wait(|state| state["enabled"] == false);
    for signal in [Signal::INT, Signal::KILL] {
        let child = begun(&mut it);
        // A second viewer does not join a window that would end with the first one.
        assert!(it.refused().contains("traced for another viewer"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(!done.status.success() && done.stdout.is_empty(), "{done:?}");
        it.wait(|state| *state == before);
    }
    // A job that ends meanwhile leaves its trace, which is answered.
    let child = begun(&mut it);
    for _ in 0..40 {
        // Each answer comes after a step.
        it.asked("state");
    }
    let _home = it.job.ended();
    let done = torch::stdout(&child.wait_with_output().unwrap());
    assert!(done.contains("begins in the middle of the run"), "{done}");
}

#[test]
fn processes_that_cannot_be_traced_are_refused_with_the_next_step() {
    let mut plain = Command::new("sleep").arg("100").spawn().unwrap();
    let whatif = |pid: &str| refused(&Command::new(PROGRAM).args(["whatif", pid]).output().unwrap());
    let aside = whatif(&plain.id().to_string());
    assert!(aside.contains("no probe was found in process") && aside.contains("gpuwatch attach"), "{aside}");
    plain.kill().unwrap();
    plain.wait().unwrap();
    let aside = whatif("4294967295");
    assert!(aside.contains("neither a file, a recording nor a running process"), "{aside}");
    let own = rustix::process::geteuid().as_raw();
    if let Some(pid) = gpuwatch::sources::proc::owner(1).filter(|owner| *owner != own).map(|_| "1") {
        assert!(whatif(pid).contains("belongs to user"), "{pid}");
    }
}

/// Jobs that trace themselves, forbid it, or have no allocator to trace.
#[test]
fn jobs_that_cannot_be_traced_are_refused_with_the_next_step() {
    test_tiers::change!("three jobs");
    let cases = [
        (true, None, "gpuwatch run --trace traces it: replay its recording"),
        (false, Some(("GPUWATCH", "nosites")), "GPUWATCH=nosites forbids it"),
        (
            false,
            Some(("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")),
            "the allocator cudaMallocAsync keeps no trace;",
        ),
    ];
    for (is_traced, variable, words) in cases {
        let it = Windowed::start_with(if is_traced { &["--trace"] } else { &[] }, |command| {
            command.envs(variable);
        });
        let aside = it.refused();
        assert!(aside.contains(words), "{aside}");
        it.job.ended();
    }
}

/// The answers of replays in the recording of a job, as far as it is written.
fn answers(home: &Path) -> Vec<Value> {
    let store = fs::read_dir(home.join("state/gpuwatch/recordings")).into_iter().flatten();
    let files = store.map(|it| it.unwrap().path()).filter(|it| it.extension().is_some_and(|ending| ending == "zst"));
    let lines = files.flat_map(|it| {
        let file = fs::File::open(it).unwrap();
        BufReader::new(zstd::Decoder::new(file).unwrap()).lines().map_while(Result::ok)
    });
    let replayed = lines.filter(|it| it.contains("\"type\":\"replayed\""));
    replayed.map(|it| serde_json::from_str(&it).unwrap()).collect()
}

#[test]
fn a_fragmenting_job_is_traced_once_for_its_warning() {
    let mut it = Windowed::start_on(Gpu::new("NVIDIA A10:4000MiB:0MiB"), "stuck", &[], |_| ());
    let home = it.job.home.0.path().to_owned();
    assert!(until(4 * PATIENCE, || !answers(&home).is_empty()), "no answer");
    let state = it.wait(|state| state["enabled"] == false);
    // Its socket, and the answer for viewers.
    assert_eq!((&state["events"], state["files"].as_array().map(Vec::len)), (&json!(0), Some(2)), "{state:#}");
    let answer = answers(&home).remove(0);
    let comparison = &answer["comparison"];
    // Which of them are best depends on the steps of the window.
    let best = comparison["best"]["settings"].as_str().unwrap_or_else(|| panic!("no better settings: {answer:#}"));
    assert!(best.starts_with("expandable_segments:True"), "{answer:#}");
    assert!(comparison["window"]["steps"].as_u64() >= Some(WINDOW_STEPS), "{answer:#}");
    assert!(answer["cost"]["longest_pause_us"].is_u64() && answer["finding"].is_object(), "{answer:#}");
    let mut terminal = screen::view(&it.job.home, &[]);
    terminal.press("a");
    terminal.shows(&format!("with {best} the job reserves"));
    quits(terminal);
    let home = it.job.ended();
    let recording = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).unwrap();
    let recording = recording.map(|it| it.unwrap().path()).find(|it| it.is_file()).unwrap();
    let check = Command::new(PROGRAM).arg("check").arg(recording).envs(home.variables()).output().unwrap();
    let words = String::from_utf8(check.stdout).unwrap();
    assert!(words.contains("in a replay of") && words.contains("gpuwatch run --trace"), "{words}");
}

#[test]
fn the_recorder_of_an_attached_job_traces_it_for_its_warning() {
    test_tiers::change!("starts PyTorch again");
    let (gpu, home) = (Gpu::new("NVIDIA A10:4000MiB:0MiB"), Home::new());
    let mut command = gpu.command(torch::python());
    command.arg(script("windowed.py")).arg("stuck").envs(home.variables());
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let mut attach = gpu.command(PROGRAM);
    attach.args(["attach", "--wait", "5m"]).arg(job.id().to_string()).envs(home.variables());
    let attached = attach.output().unwrap();
    assert!(attached.status.success(), "{attached:?}");
    assert!(until(4 * PATIENCE, || !answers(home.0.path()).is_empty()), "no answer");
    let answer = answers(home.0.path()).remove(0);
    assert!(answer["comparison"]["window"]["steps"].as_u64() >= Some(WINDOW_STEPS), "{answer:#}");
    drop(job.stdin.take());
    assert!(job.wait().unwrap().success());
}
