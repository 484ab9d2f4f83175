//! Recorders that the kernel kills: in the middle of a write, when they sync, and for the memory of their control
//! group. The job runs on to its own end, and `check` says what its recording lacks.

use crate::{
    helpers::{
        control_group::Group,
        terminal::{PATIENCE, PROGRAM, until},
    },
    recordings::{
        failing_disk::faults,
        full_disk::text,
        writer::{own_directory, read, steps},
    },
};
use gpuwatch::storage::recording::Fault;
use gpuwatch_probe::wire::limits::grouped;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};
use tempfile::TempDir;

/// Steps that are recorded before the recorder is killed.
const STEPS: usize = 150;

/// The exit code of the job.
const CODE: i32 = 7;

/// The job: makes steps until its input ends, and then leaves its exit code in a file.
const JOB: &str = r#""$GPUWATCH" demo-job --directory "$GPUWATCH_SOCKET_DIR" --rate 200; echo 7 > "$CODE"; exit 7"#;

/// A job, and the gpuwatch that records it.
struct Recorded {
    dir: TempDir,
    recorder: Child,
    /// The job, unless the recorder started it.
    job: Option<Child>,
    /// While this is open, the job continues.
    input: Option<ChildStdin>,
}

impl Recorded {
    /// Starts a job, and `gpuwatch record` by this command line, to which its own is added.
    fn beside(launcher: &[String]) -> Self {
        let dir = own_directory();
        fs::create_dir(dir.path().join("disk")).unwrap();
        let mut job = Command::new("/bin/sh");
        job.args(["-c", JOB]).envs(variables(dir.path())).stdin(Stdio::piped());
        let mut job = job.spawn().unwrap();
        let input = job.stdin.take();
        let own = [PROGRAM, "record", "--no-nvml", "-o"].map(ToOwned::to_owned);
        let line: Vec<String> = launcher.iter().cloned().chain(own).collect();
        let mut recorder = Command::new(&line[0]);
        recorder.args(&line[1..]).arg(dir.path().join("disk/r.jsonl.zst"));
        recorder.envs(variables(dir.path())).envs(faults(dir.path())).stderr(Stdio::piped());
        let mut recorder = recorder.spawn().unwrap();
        let mut printed = BufReader::new(recorder.stderr.take().unwrap()).lines();
        assert!(printed.next().unwrap().unwrap().contains("recording to"));
        Self { dir, recorder, job: Some(job), input }
    }

    /// Starts a job by `gpuwatch run`.
    fn by_run() -> Self {
        let dir = own_directory();
        fs::create_dir(dir.path().join("disk")).unwrap();
        let mut recorder = Command::new(PROGRAM);
        recorder.args(["run", "-o"]).arg(dir.path().join("disk/r.jsonl.zst")).args(["--", "/bin/sh", "-c", JOB]);
        recorder.envs(variables(dir.path())).envs(faults(dir.path())).stdin(Stdio::piped());
        let mut recorder = recorder.spawn().unwrap();
        let input = recorder.stdin.take();
        Self { dir, recorder, job: None, input }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("disk/r.jsonl.zst")
    }

    fn steps(&self) -> Vec<u64> {
        if self.file().exists() { steps(&read(&self.file()).0) } else { Vec::new() }
    }

    /// Kills the recorder once it has recorded some steps; checks job, recording and verdict.
    fn end_killed(mut self, kill: impl FnOnce(&Path)) {
        assert!(until(PATIENCE, || self.steps().len() >= STEPS), "{} steps", self.steps().len());
        let before = self.steps().len();
        kill(self.dir.path());
        assert_eq!(self.recorder.wait().unwrap().signal(), Some(libc::SIGKILL));
        // All that was synced is there, and nothing is missing in between.
        let (entries, fault) = read(&self.file());
        assert!(matches!(fault, None | Some(Fault::Cut { .. })), "{fault:?}");
        let kept = steps(&entries);
        assert!(kept.len() >= before && kept == (1..=kept.len() as u64).collect::<Vec<_>>(), "{kept:?}");
        let checked = Command::new(PROGRAM).args(["check", "--fail-on", "never"]).arg(self.file()).output().unwrap();
        let verdict = text(&checked);
        let missing = format!("what came after step {} is missing: its writer was killed", grouped(kept.len() as u64));
        assert_eq!(checked.status.code(), Some(2), "{verdict}");
        assert!(verdict.starts_with("NOT JUDGED") && verdict.contains(&missing), "{verdict}");
        // The job makes its steps, and ends when it wants to, with its own exit code.
        let code = self.dir.path().join("code");
        assert!(!code.exists());
        drop(self.input.take());
        if let Some(job) = &mut self.job {
            assert_eq!(job.wait().unwrap().code(), Some(CODE));
        }
        assert!(until(PATIENCE, || fs::read_to_string(&code).is_ok_and(|it| it == format!("{CODE}\n"))));
    }
}

fn variables(dir: &Path) -> [(&'static str, PathBuf); 5] {
    let state = dir.join("state");
    let [sockets, code] = [dir.to_owned(), dir.join("code")];
    [
        ("GPUWATCH_SOCKET_DIR", sockets),
        ("XDG_STATE_HOME", state),
        ("GPUWATCH_NO_NVML", "1".into()),
        ("GPUWATCH", PROGRAM.into()),
        ("CODE", code),
    ]
}

/// Makes the recorder be killed at its next call of this kind.
fn at_next(fault: &'static str) -> impl FnOnce(&Path) {
    move |dir| {
        // At once: the library reads nothing or all of it.
        fs::write(dir.join("beside"), fault).unwrap();
        fs::rename(dir.join("beside"), dir.join("fault")).unwrap();
    }
}

#[test]
fn a_recorder_that_is_killed_within_a_write_leaves_job_and_recording_as_they_are() {
    for fault in ["kill", "kill-sync"] {
        Recorded::beside(&[]).end_killed(at_next(fault));
        Recorded::by_run().end_killed(at_next(fault));
    }
}

/// Takes more memory than the group has left, until the kernel has killed there.
fn fill(group: &Group) {
    group.limit(group.used() + (4 << 20));
    let hog = "kept = bytearray()\nwhile len(kept) < 64 << 20: kept += b'x' * (1 << 20)";
    let line: Vec<String> = group.launcher(false).into_iter().chain(["python3", "-c", hog].map(String::from)).collect();
    let _ = Command::new(&line[0]).args(&line[1..]).status().unwrap();
}

#[test]
fn a_recorder_that_its_control_group_kills_leaves_job_and_recording_as_they_are() {
    let group = match Group::new() {
        Ok(it) => it,
        Err(why) => test_tiers::skip!("{why}; a recorder killed within a write is tried in any case"),
    };
    Recorded::beside(&group.launcher(true)).end_killed(|_| fill(&group));
    assert!(group.kills() > 0);
}
