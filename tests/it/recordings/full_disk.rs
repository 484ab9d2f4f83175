//! Disks that are full, and have room again: what a recording lacks of the time between.

use crate::{
    helpers::terminal::{PATIENCE, PROGRAM, until},
    probe::containers::can,
    recordings::writer::{own_directory, read, steps},
};
use gpuwatch::{
    facts::event::{Event, Fact, Gap},
    storage::recording::Entry,
};
use gpuwatch_probe::{Description, Probe, reading::Reading, wire::Edge};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Lines, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
};
use tempfile::TempDir;

/// `gpuwatch record` on a small disk of its own, and a probe whose figures do not compress.
struct OnSmallDisk {
    dir: TempDir,
    probe: Probe,
    step: u64,
    recorder: Child,
    printed: Lines<BufReader<ChildStderr>>,
}

impl OnSmallDisk {
    /// Starts the recorder; `before` runs in the shell that mounts the disk, `$1` is its folder.
    fn start(before: &str) -> Self {
        let dir = own_directory();
        let disk = dir.path().join("disk");
        fs::create_dir(&disk).unwrap();
        // The way to a machine, which is this one.
        let there = dir.path().join("there");
        fs::write(&there, format!("#!/bin/sh\nexec '{PROGRAM}' stream\n")).unwrap();
        fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("mount -t tmpfs -o size=1m,mode=700 none \"$1\" && {before}");
        let mut recorder = Command::new("unshare")
            .args(["--mount", "/bin/sh", "-c", &script, PROGRAM])
            .arg(&disk)
            .env("GPUWATCH_SOCKET_DIR", dir.path())
            .env("GPUWATCH_NO_NVML", "1")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = BufReader::new(recorder.stderr.take().unwrap()).lines();
        let description = Description { directories: vec![dir.path().into()], ..Description::default() };
        Self { probe: Probe::start(description).unwrap(), dir, step: 0, recorder, printed }
    }

    /// Returns the next line on standard error, while the job makes steps.
    fn shows(&mut self, words: &str) -> String {
        let Self { probe, step, printed, .. } = self;
        let is_read = std::sync::atomic::AtomicBool::new(false);
        let line = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_read.load(std::sync::atomic::Ordering::Relaxed) {
                    push(probe, step);
                }
            });
            let line = printed.next().map(Result::unwrap);
            is_read.store(true, std::sync::atomic::Ordering::Relaxed);
            line.unwrap_or_default()
        });
        assert!(line.contains(words), "{line}");
        line
    }

    /// The disk, as it is seen from outside.
    fn disk(&self) -> PathBuf {
        let inside = self.dir.path().join("disk");
        Path::new(&format!("/proc/{}/root", self.recorder.id())).join(inside.strip_prefix("/").unwrap())
    }

    fn fill(&self) {
        let mut file = File::create(self.disk().join("others")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.disk().join("others")).unwrap();
    }

    fn steps(&self) -> Vec<u64> {
        steps(&read(&self.disk().join("r.jsonl.zst")).0)
    }

    /// Makes steps until one more than those now is in the file.
    fn continues(&mut self) {
        let before = self.step;
        assert!(until(PATIENCE, || {
            push(&self.probe, &mut self.step);
            self.steps().last() > Some(&before)
        }));
    }

    /// Ends the recorder, and returns its recording: the disk goes with it.
    fn end(&mut self) -> PathBuf {
        let disk = File::open(self.disk().join("r.jsonl.zst")).unwrap();
        kill_process(Pid::from_child(&self.recorder), Signal::TERM).unwrap();
        assert_eq!(self.recorder.wait().unwrap().code(), Some(1), "the recording is incomplete");
        let kept = self.dir.path().join("kept.jsonl.zst");
        std::io::copy(&mut &disk, &mut File::create(&kept).unwrap()).unwrap();
        kept
    }
}

impl Drop for OnSmallDisk {
    fn drop(&mut self) {
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

/// The lines of a step in all counters.
pub(crate) fn push(probe: &Probe, step: &mut u64) {
    *step += 1;
    let mut reading = Reading { edge: Edge::Step, steps: *step, ..Reading::default() };
    (0..16).for_each(|it| reading.put(it, step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> it));
    // What a full queue drops is another loss, which the probe counts.
    let _ = probe.push(&reading);
    std::thread::sleep(std::time::Duration::from_micros(300));
}

/// Skips the test where no disk can be mounted.
macro_rules! needs_mount {
    () => {
        if !can(&["--mount"]) {
            test_tiers::skip!("`unshare --mount` is refused");
        }
    };
}

pub(crate) fn gaps(entries: &[Entry]) -> Vec<&Gap> {
    fn gap(it: &Entry) -> Option<&Gap> {
        if let Entry::Event(Event { fact: Fact::Gap(gap), .. }) = it { Some(gap) } else { None }
    }
    entries.iter().filter_map(gap).collect()
}

pub(crate) fn gpuwatch(arguments: &[&str], path: &Path) -> Output {
    Command::new(PROGRAM).args(arguments).arg(path).env("GPUWATCH_NO_NVML", "1").output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const RECORD: &str = "exec \"$0\" record --no-nvml -o \"$1/r.jsonl.zst\"";

#[test]
fn a_recording_continues_after_a_full_disk_and_every_command_names_the_missing_steps() {
    needs_mount!();
    let mut it = OnSmallDisk::start(RECORD);
    it.shows("recording to");
    it.continues();
    it.fill();
    it.shows("the recording stopped: No space left on device");
    it.free();
    it.shows("the recording continues");
    it.continues();
    let path = it.end();
    let (entries, fault) = read(&path);
    assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{fault:?}");
    let (steps, gap) = (steps(&entries), *gaps(&entries).first().unwrap());
    let missing = gap.steps.unwrap();
    assert!(missing.last > missing.first, "{missing:?}");
    let is_missing = |step: &u64| (missing.first..=missing.last).contains(step);
    assert!(!steps.iter().any(is_missing), "what is missing is not there");
    assert!(steps.iter().any(|it| *it < missing.first) && steps.iter().any(|it| *it > missing.last));
    assert!(gap.lost > missing.last - missing.first, "{gap:?}");
    // A reader of other programs sees whole frames.
    assert!(zstd::decode_all(File::open(&path).unwrap()).is_ok());
    let checked = gpuwatch(&["check", "--fail-on", "never"], &path);
    assert_eq!(checked.status.code(), Some(2), "{}", text(&checked));
    assert!(text(&checked).starts_with("NOT JUDGED: steps "), "{}", text(&checked));
    for command in [
        ["check", "--fail-on", "never"].as_slice(),
        &["export"],
        &["report", "-o", "-"],
        &["report", "--json", "-o", "-"],
    ] {
        let output = gpuwatch(command, &path);
        assert!(text(&output).contains(" are missing"), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = gpuwatch(&["recordings"], path.parent().unwrap());
    assert!(text(&listed).contains(" are missing"), "{}", text(&listed));
}

#[test]
fn a_disk_that_stays_full_has_room_for_the_end_of_a_recording() {
    needs_mount!();
    let mut it = OnSmallDisk::start(RECORD);
    it.shows("recording to");
    it.continues();
    it.fill();
    it.shows("the recording stopped: No space left on device");
    let last = it.steps().last().copied().unwrap();
    let path = it.end();
    let (entries, fault) = read(&path);
    assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{fault:?}");
    let missing = gaps(&entries).first().unwrap().steps.unwrap();
    assert_eq!(missing.first, last + 1);
    let checked = gpuwatch(&["check", "--fail-on", "never"], &path);
    assert!(checked.status.code() == Some(2), "{}", text(&checked));
    assert!(text(&checked).contains("NOT JUDGED: steps "), "{}", text(&checked));
}

#[test]
fn a_removed_recording_begins_again_and_names_what_it_lacks() {
    needs_mount!();
    let mut it = OnSmallDisk::start(RECORD);
    it.shows("recording to");
    it.continues();
    fs::remove_file(it.disk().join("r.jsonl.zst")).unwrap();
    it.shows("the recording stopped: its file or directory is gone");
    it.shows("the recording continues");
    it.continues();
    let path = it.end();
    let (entries, fault) = read(&path);
    assert!(fault.is_none() && matches!(entries.first(), Some(Entry::Header(_))), "{fault:?}");
    assert_eq!(gaps(&entries).first().unwrap().steps.unwrap().first, 1);
    let checked = text(&gpuwatch(&["check", "--fail-on", "never"], &path));
    assert!(checked.starts_with("NOT JUDGED: steps 1–") && checked.contains("1 probed process"), "{checked}");
}

#[test]
fn a_replaced_recording_is_left_alone() {
    needs_mount!();
    let mut it = OnSmallDisk::start(RECORD);
    it.shows("recording to");
    it.continues();
    let path = it.disk().join("r.jsonl.zst");
    fs::write(it.disk().join("mine"), "mine").unwrap();
    fs::rename(it.disk().join("mine"), &path).unwrap();
    it.shows("the recording stopped: its file or directory is gone");
    let kept = it.end();
    assert_eq!(fs::read_to_string(kept).unwrap(), "mine");
}

#[test]
fn a_recording_of_several_machines_continues_after_a_full_disk() {
    needs_mount!();
    let stream = "exec \"$0\" record --hosts .a,..,../../b --transport \"$1/../there\" -o \"$1/d\"";
    // Names of hosts are names of files that no listing hides, and stay in the directory.
    let names = ["host.a.jsonl.zst", "host...jsonl.zst", "host..-..-b.jsonl.zst"];
    let entries = |it: &OnSmallDisk, name: &str| {
        let path = it.disk().join("d").join(name);
        if path.exists() { read(&path).0 } else { Vec::new() }
    };
    let mut it = OnSmallDisk::start(stream);
    it.shows("recording 3 machines");
    assert!(until(PATIENCE, || {
        push(&it.probe, &mut it.step);
        names.iter().all(|name| !steps(&entries(&it, name)).is_empty())
    }));
    it.fill();
    it.shows("stopped: No space left on device");
    it.free();
    assert!(until(PATIENCE, || {
        push(&it.probe, &mut it.step);
        names.iter().any(|name| !gaps(&entries(&it, name)).is_empty())
    }));
    let copy = it.dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(it.disk().join("d")).unwrap().flatten() {
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let checked = gpuwatch(&["check", "--fail-on", "never"], &copy);
    assert_eq!(checked.status.code(), Some(2), "{}", text(&checked));
    assert!(text(&checked).contains("steps ") && text(&checked).contains(" are missing"), "{}", text(&checked));
}

#[test]
fn a_recording_begins_once_a_disk_has_room_for_its_first_byte() {
    needs_mount!();
    let fill = "dd if=/dev/zero of=\"$1/others\" bs=4k 2>/dev/null";
    let job = "echo running >&2; exec sleep 1000";
    let run = format!("{fill}; exec \"$0\" run -o \"$1/r.jsonl.zst\" --summary always -- /bin/sh -c '{job}'");
    let mut it = OnSmallDisk::start(&run);
    it.shows("running");
    it.free();
    let path = it.disk().join("r.jsonl.zst");
    assert!(until(PATIENCE, || path.exists() && !read(&path).0.is_empty()), "the recording begins");
    kill_process(Pid::from_child(&it.recorder), Signal::TERM).unwrap();
    it.recorder.wait().unwrap();
}
