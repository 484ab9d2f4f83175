//! Disks that fail: a quota, a broken disk, a file system that is mounted again or keeps nothing of what it accepted.

use crate::{
    helpers::terminal::{PATIENCE, PROGRAM, until},
    probe::pytorch::script,
    recordings::{
        full_disk::{gaps, gpuwatch, push, text},
        writer::{own_directory, read, steps},
    },
};
use gpuwatch::storage::recording::Entry;
use gpuwatch_probe::{Description, Probe};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
};
use tempfile::TempDir;

/// Builds the library whose faults a program's disk has, and returns it with what the program's environment needs.
pub(crate) fn faults(dir: &Path) -> [(&'static str, PathBuf); 3] {
    let [library, fault] = ["faults.so", "fault"].map(|it| dir.join(it));
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wall", "-Werror", "tests/it/recordings/faults.c", "-o"]).arg(&library);
    assert!(compile.status().unwrap().success());
    [("LD_PRELOAD", library), ("FAULTS", fault), ("FAULTS_IN", dir.join("disk"))]
}

/// `gpuwatch record` on a disk with faults.
struct Failing {
    dir: TempDir,
    probe: Probe,
    step: u64,
    recorder: Child,
    printed: Lines<BufReader<ChildStderr>>,
}

impl Failing {
    fn start() -> Self {
        let dir = own_directory();
        fs::create_dir(dir.path().join("disk")).unwrap();
        let mut recorder = Command::new(PROGRAM)
            .args(["record", "--no-nvml", "-o"])
            .arg(dir.path().join("disk/r.jsonl.zst"))
            .env("GPUWATCH_SOCKET_DIR", dir.path())
            .envs(faults(dir.path()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(recorder.stderr.take().unwrap()).lines();
        assert!(printed.next().unwrap().unwrap().contains("recording to"));
        let description = Description { directories: vec![dir.path().into()], ..Description::default() };
        let mut it = Self { probe: Probe::start(description).unwrap(), dir, step: 0, recorder, printed };
        it.continues();
        it
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk/r.jsonl.zst")
    }

    /// From now on the disk has this fault.
    fn fails(&self, fault: &str) {
        // At once: the library reads the old words or the new ones.
        let [beside, path] = ["beside", "fault"].map(|it| self.dir.path().join(it));
        fs::write(&beside, fault).unwrap();
        fs::rename(beside, path).unwrap();
    }

    /// From now on it has none.
    fn works(&self) {
        fs::remove_file(self.dir.path().join("fault")).unwrap();
    }

    /// Makes steps until one more than those now is in the file.
    fn continues(&mut self) {
        let before = self.step;
        assert!(until(PATIENCE, || {
            push(&self.probe, &mut self.step);
            steps(&read(&self.path()).0).last() > Some(&before)
        }));
    }

    /// Waits for a line on standard error while the job makes steps.
    fn shows(&mut self, words: &str) {
        let Self { probe, step, printed, .. } = self;
        let line = std::thread::scope(|scope| {
            let line = scope.spawn(|| printed.next().map(Result::unwrap));
            while !line.is_finished() {
                push(probe, step);
            }
            line.join().unwrap().unwrap_or_default()
        });
        assert!(line.contains(words), "{line}");
    }

    /// Ends the recorder with this exit code, and returns what is on standard error.
    fn ends(&mut self, code: i32) -> String {
        kill_process(Pid::from_child(&self.recorder), Signal::TERM).unwrap();
        let printed: Vec<String> = self.printed.by_ref().map(Result::unwrap).collect();
        let printed = printed.join("\n");
        assert_eq!(self.recorder.wait().unwrap().code(), Some(code), "{printed}");
        printed
    }

    /// Checks that the recording has all steps.
    fn is_whole(&self) {
        let (entries, fault) = read(&self.path());
        assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{fault:?}");
        assert!(gaps(&entries).is_empty());
        assert!(steps(&entries).is_sorted_by(|one, next| one + 1 == *next), "{:?}", steps(&entries));
    }

    /// Checks that it lacks some, and that `check` names them.
    fn has_a_hole(&self) {
        let (entries, fault) = read(&self.path());
        assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{fault:?}");
        let missing = gaps(&entries).first().unwrap().steps.unwrap();
        let there = steps(&entries);
        let expected = there.iter().filter(|it| !(missing.first..=missing.last).contains(*it));
        assert!(expected.eq(&there) && there.first() == Some(&1), "{missing:?}");
        assert!(there.contains(&(missing.first - 1)) && there.contains(&(missing.last + 1)), "{missing:?}");
        let checked = gpuwatch(&["check", "--fail-on", "never"], &self.path());
        assert_eq!(checked.status.code(), Some(2), "{}", text(&checked));
        assert!(text(&checked).starts_with("NOT JUDGED: steps "), "{}", text(&checked));
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

#[test]
fn a_recording_continues_after_every_error_of_its_disk() {
    for (error, words) in [
        (Errno::IO, "Input/output error"),
        (Errno::DQUOT, "Disk quota exceeded"),
        (Errno::ROFS, "Read-only file system"),
        (Errno::STALE, "its file or directory is gone"),
    ] {
        let mut it = Failing::start();
        it.fails(&format!("write {}", error.raw_os_error()));
        it.shows(&format!("the recording stopped: {words}"));
        it.works();
        it.shows("the recording continues");
        it.continues();
        it.ends(1);
        it.has_a_hole();
    }
}

#[test]
fn a_recording_continues_in_a_file_system_that_is_mounted_again() {
    let mut it = Failing::start();
    it.fails("stale");
    it.continues();
    it.works();
    it.continues();
    it.ends(0);
    it.is_whole();
}

#[test]
fn what_a_disk_accepted_and_lost_is_written_again() {
    let mut it = Failing::start();
    it.fails(&format!("sync-once {}", Errno::IO.raw_os_error()));
    // Steps until the fault was there.
    let fault = it.dir.path().join("fault");
    assert!(until(PATIENCE, || {
        push(&it.probe, &mut it.step);
        !fault.exists()
    }));
    it.continues();
    // The last sync fails too.
    it.fails(&format!("sync-once {}", Errno::DQUOT.raw_os_error()));
    assert_eq!(it.ends(0), "");
    assert!(!fault.exists());
    it.is_whole();
}

#[test]
fn a_disk_that_keeps_nothing_stops_a_recording_until_it_does() {
    let mut it = Failing::start();
    it.fails(&format!("sync {}", Errno::DQUOT.raw_os_error()));
    it.shows("the recording stopped: Disk quota exceeded");
    it.works();
    it.shows("the recording continues");
    it.continues();
    it.ends(1);
    it.has_a_hole();
}

#[test]
fn a_disk_that_does_not_keep_the_end_of_a_recording_is_named() {
    let mut it = Failing::start();
    it.fails(&format!("sync {}", Errno::IO.raw_os_error()));
    let printed = it.ends(1);
    assert!(printed.contains("Input/output error"), "{printed}");
}

/// None of the job's threads waits for it.
#[test]
fn a_recorder_syncs_the_traces_beside_its_recording() {
    let mut it = Failing::start();
    it.fails("note");
    let trace = it.dir.path().join("disk/r.trace/7_1.trace");
    fs::create_dir(trace.parent().unwrap()).unwrap();
    let notes = it.dir.path().join("fault.synced");
    let times = || {
        let notes = fs::read_to_string(&notes).unwrap_or_default();
        notes.lines().filter(|it| it.ends_with("/7_1.trace")).count()
    };
    fs::write(&trace, "begun").unwrap();
    assert!(until(PATIENCE, || times() == 1), "it is synced while the job runs");
    fs::write(&trace, "begun and ended").unwrap();
    it.ends(0);
    assert!(times() > 1, "and when it ends");
}

#[test]
fn a_trace_continues_after_every_error_of_its_disk() {
    let dir = own_directory();
    fs::create_dir(dir.path().join("disk")).unwrap();
    let mut python = Command::new("python3");
    python.arg(script("failing_disk.py")).envs(faults(dir.path()));
    let output = python.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
