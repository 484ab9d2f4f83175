//! gpuwatch's report of an out-of-memory error of real PyTorch; the job gets exactly the same error as without a probe.

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch::{self, Gpu},
    },
    house::schemas,
    probe::{
        holders::pythons,
        launch::Home,
        pytorch::{is_quiet, script},
    },
    recordings::writer::read,
    screens::demo::children,
};
use gpuwatch::{
    facts::event::{Event, Fact, Line},
    model::findings::{Kind, findings},
    storage::{
        recording::Entry,
        replay::{Replay, find::find},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

const GIB: u64 = 1 << 30;

/// A machine with 4 GiB, of which this process, a stranger to the job, has so much.
pub(crate) fn machine(strangers: u64) -> Gpu {
    let gpu = Gpu::new("NVIDIA A10:4GiB:256MiB");
    if strangers > 0 {
        gpu.machine.occupy(0, std::process::id(), strangers).unwrap();
    }
    gpu
}

/// The results of a job on a machine of its own.
struct Outcome {
    home: Home,
    gpu: Gpu,
    /// Its report of the error.
    error: Value,
    /// The CPU time of its thread, in s.
    took: f64,
    /// The CPU time of a thousand more errors, in s.
    again: f64,
}

impl Outcome {
    fn recording(&self) -> PathBuf {
        recording(&self.home).unwrap()
    }

    fn gpuwatch(&self, arguments: &[&str]) -> String {
        let mut command = self.gpu.command(PROGRAM);
        let done = command.args(arguments).arg(self.recording()).envs(self.home.variables()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    /// Returns what `check` reports about the errors, in order of time.
    fn judged(&self) -> Vec<Value> {
        let json: Value = serde_json::from_str(&self.gpuwatch(&["check", "--json"])).unwrap();
        json["findings"].as_array().unwrap().iter().filter(|it| it["kind"] == "oom").cloned().collect()
    }
}

/// Whether the process has ended, also before it is reaped.
fn is_over(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn recording(home: &Home) -> Option<PathBuf> {
    let store = home.0.path().join("state/gpuwatch/recordings");
    fs::read_dir(store).ok()?.flatten().map(|it| it.path()).find(|it| it.to_string_lossy().ends_with(".zst"))
}

/// Whether the driver's list with the job's own process in it was recorded.
fn is_listed(home: &Home, others: usize) -> bool {
    let Some(file) = recording(home) else { return false };
    read(&file).0.iter().any(|it| match it {
        Entry::Event(Event { fact: Fact::Processes { reading: Ok(list), .. }, .. }) => list.len() == others + 1,
        _ => false,
    })
}

fn run(how: &str, strangers: u64, is_watched: bool) -> Outcome {
    let (gpu, home) = (machine(strangers), Home::new());
    let mut command = if is_watched { gpu.command(PROGRAM) } else { gpu.command(torch::python()) };
    if is_watched {
        command.args(["run", "--"]).arg(torch::python());
    }
    command.arg(script("oom.py")).args([how, "wait"]).envs(home.variables()).env_remove("GPUWATCH_NVML_PATH");
    if how == "stream-ordered" {
        command.env("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync");
    }
    let (error, figures) = talk(command, |_| {
        assert!(!is_watched || until(PATIENCE, || is_listed(&home, usize::from(strangers > 0))), "{how}: no list");
    });
    let [took, again] = ["took", "again"].map(|it| figures[it].as_f64().unwrap());
    Outcome { home, gpu, error, took, again }
}

/// Starts it and lets it fail; `before` is called with the command when it is ready for that.
fn talk(mut command: Command, before: impl FnOnce(&Child)) -> (Value, Value) {
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(job.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    if line.contains("ready") {
        before(&job);
        writeln!(job.stdin.take().unwrap()).unwrap();
    }
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    let done = job.wait_with_output().unwrap();
    let aside = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{line}{rest}{aside}");
    let (figures, others): (Vec<&str>, Vec<&str>) = aside.lines().partition(|it| it.starts_with('{'));
    assert!(is_quiet(&others.join("\n")), "{aside}");
    let figures = figures.concat();
    (serde_json::from_str(&rest).unwrap(), serde_json::from_str(&figures).unwrap())
}

/// Runs the job with and without gpuwatch; the job must not notice a difference.
fn both(how: &str, strangers: u64) -> (Outcome, Outcome) {
    let (watched, alone) = (run(how, strangers, true), run(how, strangers, false));
    assert_eq!(watched.error, alone.error, "{how}");
    (watched, alone)
}

/// Returns the number of errors in the recording, and their messages.
fn recorded(home: &Home) -> (usize, Vec<String>) {
    let (entries, fault) = read(&recording(home).unwrap());
    assert!(fault.is_none(), "{fault:?}");
    errors_of(entries)
}

/// The number of errors, and their messages.
fn errors_of(entries: Vec<Entry>) -> (usize, Vec<String>) {
    let (mut errors, mut messages) = (0, Vec::new());
    for entry in entries {
        let Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) = entry else { continue };
        match *line {
            Line::Oom(_) => errors += 1,
            Line::OomMessage(it) => messages.push(it.message),
            _ => {}
        }
    }
    (errors, messages)
}

fn sent_bye(home: &Home) -> bool {
    read(&recording(home).unwrap()).0.iter().any(|it| match it {
        Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) => matches!(**line, Line::Bye(_)),
        _ => false,
    })
}

fn account(finding: &Value) -> String {
    finding["account"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// With every Python of the machine.
#[test]
fn a_search_has_the_size_that_fitted() {
    for python in pythons() {
        let mut command = Command::new(&python);
        command.arg(script("size_search.py")).env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
        assert_eq!(torch::stdout(&command.output().unwrap()), "sizes are right\n", "{}", python.display());
    }
}

#[test]
fn every_output_reports_the_other_processes_on_the_device() {
    test_tiers::change!("starts PyTorch twice more for another cause");
    let (it, _) = both("tenant", 3 * GIB);
    let [found] = &it.judged()[..] else { panic!("one error") };
    assert_eq!(found["cause"], "other-process", "{found:#}");
    let message = account(found);
    let stranger = format!("other processes had 3.00 GiB of the device: pid {}", std::process::id());
    assert!(message.contains("2.00 GiB was asked for") && message.contains(&stranger), "{message}");
    assert!(message.contains("3.00 GiB of the device"), "{message}");
    let text = it.gpuwatch(&["check"]);
    assert!(message.lines().all(|line| text.contains(line)), "{text}");

    let page = it.home.0.path().join("run.json");
    it.gpuwatch(&["report", "-o", page.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap();
    schemas::check("report", &report);
    schemas::check_recording(&it.recording());
    let oom = &report["ooms"][0];
    assert_eq!((&oom["tried"], &oom["tenants"][0]["used"]), (&(2 * GIB).into(), &(3 * GIB).into()), "{oom:#}");
    assert_eq!(oom["account"], found["account"]);
    assert_eq!(oom["message"], it.error["words"]);
    assert!(oom["blocks"].as_array().is_some_and(|it| !it.is_empty()), "{oom:#}");

    let recordings = find(&[it.recording()]).unwrap().recordings;
    let replay = Replay::load(recordings, None, |_, _| {});
    let replayed = findings(replay.session()).all;
    let alert = replayed.iter().find(|it| it.kind == Kind::Oom).unwrap();
    assert_eq!(alert.account.join("\n"), message, "a replay reports the same");
}

#[test]
fn the_jobs_limit_is_reported() {
    test_tiers::change!("starts PyTorch twice more for another cause");
    let (it, _) = both("limit", 0);
    let [found] = &it.judged()[..] else { panic!("one error") };
    let message = account(found);
    assert!(message.contains("the device had room, but the job may take at most 384.0 MiB"), "{message}");
    assert!(message.contains("no other process had memory on the device"), "{message}");
}

#[test]
fn the_fragmented_memory_is_reported() {
    test_tiers::change!("starts PyTorch twice more for another cause");
    let (it, _) = both("holes", 0);
    let [found] = &it.judged()[..] else { panic!("one error") };
    let message = account(found);
    assert_eq!(found["cause"], "fragmentation", "{message}");
    assert!(message.contains("unused") && message.contains("its largest free block had 15.0"), "{message}");
    assert!(
        message.contains("in split segments") && message.contains("live blocks, by size: 150 × 5.00 MiB"),
        "{message}"
    );
}

/// A job may catch the error and try again for as long as it likes.
#[test]
fn a_thousand_errors_take_little_time_and_memory() {
    test_tiers::change!("starts PyTorch twice for what a late recorder shows too");
    let (it, alone) = both("retries", 3 * GIB);
    let each = (it.again - alone.again) / 1000.0;
    println!("an error takes {:.0} µs more, of {:.0} µs", each * 1e6, alone.again * 1e3);
    assert!(!test_tiers::is_benchmark() || each < 0.001, "{each} s");
    assert!(it.judged().len() <= 16);
    let size = fs::metadata(it.recording()).unwrap().len();
    assert!(size < 256 << 10, "{size} bytes");
    let (errors, messages) = recorded(&it.home);
    assert_eq!(errors, 1001, "each is recorded");
    assert_eq!(messages.len(), 1001, "and so are its messages");
    assert!(messages.iter().all(|message| it.error["words"] == **message));
    assert!(sent_bye(&it.home), "errors without end leave room for what comes after them");
}

/// The recorder can be as late as it likes: what its socket does not take waits in the spill.
#[test]
fn a_suspended_recorder_misses_none_of_a_thousand_errors() {
    test_tiers::change!("a recorder that continues while the job runs has the harder task");
    let (gpu, home) = (machine(3 * GIB), Home::new());
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--"]).arg(torch::python()).arg(script("oom.py")).args(["retries", "wait"]);
    command.envs(home.variables()).env_remove("GPUWATCH_NVML_PATH");
    let mut waker = None;
    talk(command, |run| {
        assert!(until(PATIENCE, || is_listed(&home, 1)));
        let (recorder, jobs) = (Pid::from_child(run), children(run.id()));
        kill_process(recorder, Signal::STOP).unwrap();
        waker = Some(thread::spawn(move || {
            let has_ended = until(PATIENCE, || jobs.iter().all(|it| is_over(*it)));
            kill_process(recorder, Signal::CONT).unwrap();
            has_ended
        }));
    });
    assert!(waker.unwrap().join().unwrap(), "the job ended while nobody recorded");
    assert_eq!(recorded(&home).0, 1001);
}

/// A recorder that continues while the job runs receives later errors through the socket, and takes from the spill what
/// the probe forgot.
#[test]
fn a_late_recorder_misses_none_of_a_thousand_errors() {
    let (gpu, home) = (machine(3 * GIB), Home::new());
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--"]).arg(torch::python()).arg(script("oom.py")).args(["retries", "wait", "linger"]);
    command.envs(home.variables()).env_remove("GPUWATCH_NVML_PATH");
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(job.stdout.take().unwrap()).lines();
    let mut typed = job.stdin.take().unwrap();
    printed.next().unwrap().unwrap();
    assert!(until(PATIENCE, || is_listed(&home, 1)));
    let recorder = Pid::from_child(&job);
    kill_process(recorder, Signal::STOP).unwrap();
    writeln!(typed).unwrap();
    assert!(printed.next().unwrap().unwrap().contains("words"), "it has failed a thousand times");
    kill_process(recorder, Signal::CONT).unwrap();
    let so_far = || errors_of(read(&recording(&home).unwrap()).0).0;
    assert!(until(PATIENCE, || so_far() == 1001), "{} errors while the job runs", so_far());
    writeln!(typed).unwrap();
    assert!(job.wait().unwrap().success());
    let (errors, messages) = recorded(&home);
    assert_eq!((errors, messages.len()), (1001, 1001));
}

/// PyTorch formats its message after it has called the probe; whenever that is, the job gets the same one.
#[test]
fn the_error_message_is_recorded_without_effect_on_the_job() {
    for how in test_tiers::vary!(["backward", "thread", "python"], "other ways of PyTorch to format it") {
        let (it, _) = both(how, 3 * GIB);
        let message = it.error["words"].as_str().unwrap();
        assert_eq!(recorded(&it.home), (1, vec![message.to_owned()]), "{how}");
        assert_eq!(it.judged().len(), 1, "{how}: it is one error");
        assert!(message.contains("Tried to allocate"), "{message}");
    }
}

/// The stream-ordered backend calls no observer: its error's words are all that there is, and they name the figures.
#[test]
fn an_error_of_the_stream_ordered_backend_is_read_from_its_message() {
    test_tiers::change!("another backend of the allocator");
    let [mut watched, mut alone] = [true, false].map(|is_watched| run("stream-ordered", 3 * GIB, is_watched));
    // Its class has a member more, for as long as the job runs.
    let classes = [&mut watched, &mut alone].map(|it| it.error.as_object_mut().unwrap().remove("class").unwrap());
    assert_ne!(classes[0], classes[1]);
    assert_eq!(watched.error, alone.error);
    assert_eq!(recorded(&watched.home), (1, Vec::new()), "the words come with it");
    let [finding] = &watched.judged()[..] else { panic!("it is one error") };
    let account = account(finding);
    assert_eq!(finding["evidence"]["others"], 3.0 * GIB as f64, "{finding}");
    assert_eq!(finding["evidence"]["allowed"], Value::Null, "a limit that is none: {finding}");
    assert!(account.starts_with("the request came from oom.py:"), "the error is made where the line runs: {account}");
    // PyTorch 2.9 cuts its words short, before all that they would name.
    if watched.error["words"] == "Allocation on device " {
        assert_eq!(finding["evidence"]["tried"], Value::Null, "{finding}");
    } else {
        assert_eq!(finding["evidence"]["tried"], 2.0 * GIB as f64, "{finding}");
        let message = "2.00 GiB was asked for, 224.0 MiB of the device's 3.75 GiB was free";
        assert!(account.contains(message), "{account}");
    }
}

#[test]
fn an_uncaught_error_is_recorded_with_its_message() {
    let [alone, watched] = [false, true].map(|is_watched| {
        let (gpu, home) = (machine(3 * GIB), Home::new());
        let mut command = if is_watched { gpu.command(PROGRAM) } else { gpu.command(torch::python()) };
        if is_watched {
            command.args(["run", "--summary", "never", "--"]).arg(torch::python());
        }
        let done = command.arg(script("oom.py")).arg("uncaught").envs(home.variables()).output().unwrap();
        (done, home)
    });
    // No error has a thread's number in the kernel.
    assert_eq!(watched.0, alone.0);
    let printed = String::from_utf8(alone.0.stderr).unwrap();
    let (errors, messages) = recorded(&watched.1);
    assert_eq!((errors, messages.len(), printed.matches("Tried to allocate 2.00 GiB").count()), (2, 2, 2), "{printed}");
    assert!(messages.iter().all(|it| printed.contains(it)), "{messages:?}");
}

#[test]
fn an_account_of_very_many_blocks_is_whole() {
    test_tiers::change!("starts PyTorch twice more for a number");
    let (it, alone) = both("many", 3 * GIB);
    println!("an account of 90,000 blocks takes {:.0} ms", (it.took - alone.took) * 1e3);
    let more = it.took - alone.took;
    assert!(!test_tiers::is_benchmark() || more < 1.0, "{more} s more than {} s without us", alone.took);
    let message = account(&it.judged()[0]);
    assert!(message.contains("× 512 B"), "{message}");
}
