//! Kills the job, gpuwatch or both, fills the disk, removes the recordings' directory; and checks the remaining files.
//!
//! In each case the job never notices, everything up to the last second can be read, and losses are reported.

use crate::{
    helpers::terminal::{PATIENCE, PROGRAM, until},
    recordings::writer::{own_directory, read, recorder, steps},
};
use gpuwatch::{
    facts::event::{Event, Fact},
    storage::recording::{Entry, Fault},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
};
use tempfile::TempDir;

/// A simulated rank under `gpuwatch run`.
struct Run {
    dir: TempDir,
    launcher: Child,
    job: Pid,
    /// While this is open, the job continues.
    input: Option<ChildStdin>,
}

impl Run {
    /// Starts one in a shell that runs `before`; the job makes this many steps per second.
    fn start(before: &str, rate: u32) -> Self {
        let dir = own_directory();
        // The job prints its own pid, and ends when its standard input does.
        let job = format!("echo $$; exec '{PROGRAM}' demo-job --directory \"$0\" --rate {rate}");
        let start = format!("{before}; exec '{PROGRAM}' run -- /bin/sh -c \"$0\" \"$1\"");
        let mut launcher = Command::new("/bin/sh")
            .args(["-c", &start, &job])
            .arg(dir.path())
            .env("GPUWATCH_SOCKET_DIR", dir.path())
            .env("XDG_STATE_HOME", dir.path().join("state"))
            .env("GPUWATCH_NO_NVML", "1")
            .env("GPUWATCH_SUMMARY", "auto")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(launcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let job = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        // `wait` closes the child's input first.
        let input = launcher.stdin.take();
        Self { dir, launcher, job, input }
    }

    /// Whether anybody is connected to the probe, by the kernel's list of sockets.
    fn is_read(&self) -> bool {
        let folder = self.dir.path().to_string_lossy().into_owned();
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let mut own = sockets.lines().filter(|it| it.contains(&folder));
        own.any(|it| it.split_whitespace().nth(5) == Some("03"))
    }

    fn file(&self) -> Option<PathBuf> {
        fs::read_dir(self.dir.path().join("state/gpuwatch/recordings")).ok()?.flatten().next().map(|it| it.path())
    }

    fn steps(&self) -> Vec<u64> {
        self.file().map(|it| steps(&read(&it).0)).unwrap_or_default()
    }

    /// Waits until this many steps are in the file.
    fn until(&self, least: usize) {
        assert!(until(PATIENCE, || self.steps().len() >= least), "{} of {least} steps", self.steps().len());
    }

    /// Lets the job end by itself, and returns gpuwatch's output.
    fn end(&mut self) -> String {
        self.input = None;
        assert_eq!(self.launcher.wait().unwrap().code(), Some(0), "the job's own exit code");
        fs::read_to_string(self.dir.path().join("stderr")).unwrap()
    }

    fn check(&self) -> String {
        let done = Command::new(PROGRAM).arg("check").arg(self.file().unwrap()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    fn is_running(&self) -> bool {
        test_kill_process(self.job).is_ok()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = kill_process(self.job, Signal::KILL);
        let _ = self.launcher.wait();
    }
}

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
}

/// From the first step on, none missing.
fn assert_whole(steps: &[u64]) {
    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_job_that_is_killed_is_recorded_to_its_last_step() {
    let mut it = Run::start(":", 100);
    it.until(150);
    kill(it.job);
    assert_eq!(it.launcher.wait().unwrap().signal(), Some(9), "run dies as its job did");
    let (entries, fault) = read(&it.file().unwrap());
    assert!(fault.is_none(), "{fault:?}");
    assert_whole(&it.steps());
    let printed = |fact: fn(&Fact) -> bool| {
        entries.iter().any(|it| matches!(it, Entry::Event(Event { fact: of, .. }) if fact(of)))
    };
    assert!(printed(|it| matches!(it, Fact::JobEnded { code: None, signal: Some(9) })));
    assert!(printed(|it| matches!(it, Fact::ProbeGone { .. })), "its probe sent no bye");
    assert!(it.check().contains("the command was killed by SIGKILL"), "{}", it.check());
}

#[test]
fn a_job_survives_gpuwatch_and_its_recording_lacks_at_most_a_second() {
    let mut it = Run::start(":", 100);
    it.until(150);
    kill(Pid::from_child(&it.launcher));
    it.launcher.wait().unwrap();
    let kept = it.steps();
    assert_whole(&kept);
    let (_, fault) = read(&it.file().unwrap());
    assert!(matches!(fault, None | Some(Fault::Cut { .. })), "{fault:?}");
    let text = it.check();
    assert!(text.contains("note: ") && text.contains(" steps, 1 probed process"), "the end is reported: {text}");
    assert!(it.is_running(), "the job never notices");

    // The next recorder gets the whole run from the job itself.
    let file = it.dir.path().join("later.jsonl.zst");
    let mut later = recorder(it.dir.path(), &["-o", file.to_str().unwrap()], it.dir.path());
    assert!(until(PATIENCE, || file.exists() && steps(&read(&file).0).len() > kept.len()));
    assert_whole(&steps(&read(&file).0));
    kill_process(Pid::from_child(&later), Signal::INT).unwrap();
    assert!(later.wait().unwrap().success());
}

#[test]
fn a_recording_survives_the_kill_of_job_and_gpuwatch_up_to_the_last_second() {
    let mut it = Run::start(":", 100);
    it.until(150);
    let before = it.steps().len();
    kill(Pid::from_child(&it.launcher));
    kill(it.job);
    it.launcher.wait().unwrap();
    let kept = it.steps();
    assert!(kept.len() >= before);
    assert_whole(&kept);
    assert!(it.check().contains("note: "), "{}", it.check());
}

#[test]
fn a_full_disk_does_not_disturb_the_job_and_the_loss_is_reported_at_its_end() {
    // A file that may not grow past 16 KiB is a full disk to its writer.
    let mut it = Run::start("ulimit -f 32; trap '' XFSZ", 500);
    let limit = 16 << 10;
    let is_full = || it.file().is_some_and(|it| fs::metadata(it).unwrap().len() >= limit);
    assert!(until(PATIENCE, is_full), "the file fills up");
    let full = it.steps();
    assert!(it.is_running());
    let printed = it.end();
    assert!(printed.contains("the recording stopped") && printed.lines().count() == 2, "{printed}");
    assert!(full.len() > 50, "{}", full.len());
    assert_whole(&full);
}

#[test]
fn removed_recordings_do_not_disturb_the_job_and_are_reported() {
    let mut it = Run::start(":", 100);
    it.until(50);
    fs::remove_dir_all(it.dir.path().join("state")).unwrap();
    assert!(it.is_running());
    let printed = it.end();
    assert!(printed.contains("is gone") && printed.lines().count() == 2, "{printed}");
}

#[test]
fn a_job_runs_without_a_recording_and_the_reason_is_reported() {
    let mut it = Run::start("mkdir -p \"$1\" && : > \"$1/state\"", 100);
    // A job that ends before gpuwatch has seen its probe has no line about alerts.
    assert!(until(PATIENCE, || it.is_read()));
    let printed = it.end();
    assert!(printed.contains("nothing was recorded: ") && printed.lines().count() == 2, "{printed}");
}
