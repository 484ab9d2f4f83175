//! Recordings as files: what a killed recorder leaves, what a full disk or a vanished directory does.

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch,
    },
    probe::{launch::Home, pytorch::script},
};
use gpuwatch::{
    facts::{
        event::{Event, Fact, Line},
        units::Stamp,
    },
    storage::{
        recording::{Entry, FORMAT, Fault, Header, Reader},
        sink::record::Recorder,
    },
};
use gpuwatch_probe::{Description, Probe, reading::Reading, wire::Edge};
use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

fn header() -> Header {
    Header {
        format: FORMAT,
        gpuwatch: "0".into(),
        host: "h".into(),
        started_unix_us: 1,
        monotonic_us: 2,
        name: None,
        writer: None,
    }
}

pub(crate) fn read(path: &Path) -> (Vec<Entry>, Option<Fault>) {
    read_all(File::open(path).unwrap())
}

pub(crate) fn read_all(from: impl Read) -> (Vec<Entry>, Option<Fault>) {
    let mut entries = Vec::new();
    for entry in Reader::new(from).unwrap() {
        match entry {
            Ok(it) => entries.push(it),
            Err(fault) => return (entries, Some(fault)),
        }
    }
    (entries, None)
}

pub(crate) fn steps(entries: &[Entry]) -> Vec<u64> {
    let step = |it: &Entry| match it {
        Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) => match &**line {
            Line::Sample(sample) => sample.step,
            _ => None,
        },
        _ => None,
    };
    entries.iter().filter_map(step).collect()
}

fn push(probe: &Probe, step: u64) {
    let mut reading = Reading { edge: Edge::Step, steps: step, ..Reading::default() };
    reading.put(1, step);
    probe.push(&reading).unwrap();
}

/// `gpuwatch record` on the sockets of one directory.
pub(crate) fn recorder(sockets: &Path, arguments: &[&str], state: &Path) -> Child {
    Command::new(PROGRAM)
        .args(["record", "--no-nvml"])
        .args(arguments)
        .env("GPUWATCH_SOCKET_DIR", sockets)
        .env("XDG_STATE_HOME", state)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub(crate) fn own_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

/// As after `gpuwatch env`, without any viewer.
#[test]
fn a_recorder_asks_for_the_lines_of_growth() {
    let dir = own_directory();
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("7.sock")).unwrap();
    let file = dir.path().join("night.jsonl.zst");
    let mut child = recorder(dir.path(), &["-o", file.to_str().unwrap()], dir.path());
    let (mut stream, _) = listener.accept().unwrap();
    let hello = r#"{"type":"hello","protocol":1,"probe":"fake/1","pid":7,"seq":0,"monotonic_us":1,"sites":"ready",
        "devices":[{"ordinal":0,"uuid":"GPU-1","total":4294967296}]}"#;
    let mut printed = hello.replace('\n', "") + "\n{\"type\":\"live\",\"seq\":0}\n";
    for step in 1..=200_u64 {
        let (at, bytes) = (step * 100_000, step << 22);
        let _ = writeln!(
            printed,
            "{{\"type\":\"sample\",\"seq\":{step},\"at_us\":{at},\"device\":0,\"edge\":\"step\",\"step\":{step},\
             \"allocated\":{bytes},\"reserved\":{bytes},\"blocks\":{step}}}"
        );
    }
    stream.write_all(printed.as_bytes()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut asked = String::new();
    BufReader::new(&stream).read_line(&mut asked).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(asked.starts_with("sites steps=") && asked.contains("why=growth"), "{asked:?}");
}

#[test]
fn a_recorder_that_is_killed_loses_about_a_second() {
    let dir = own_directory();
    let probe = Probe::start(Description { directories: vec![dir.path().into()], ..Description::default() }).unwrap();
    let file = dir.path().join("night.jsonl.zst");
    let mut child = recorder(dir.path(), &["-o", file.to_str().unwrap()], dir.path());
    (1..=500).for_each(|step| push(&probe, step));
    let written = until(PATIENCE, || file.exists() && steps(&read(&file).0).len() == 500);
    assert!(written, "500 steps reach the file while the recorder runs");
    // The one-second promise: what was pushed more than a flush ago is there after a kill.
    child.kill().unwrap();
    child.wait().unwrap();
    let (entries, fault) = read(&file);
    assert!(matches!(fault, Some(Fault::Cut { .. })), "the cut is reported: {fault:?}");
    assert_eq!(steps(&entries), (1..=500).collect::<Vec<_>>());
    assert!(matches!(&entries[0], Entry::Header(it) if it.format == FORMAT && !it.host.is_empty()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_recorder_that_is_asked_to_end_leaves_a_whole_file_in_the_store() {
    let dir = own_directory();
    let probe = Probe::start(Description { directories: vec![dir.path().into()], ..Description::default() }).unwrap();
    let mut child = recorder(dir.path(), &[], dir.path());
    push(&probe, 1);
    let store = dir.path().join("gpuwatch/recordings");
    let file = || fs::read_dir(&store).ok()?.flatten().next().map(|it| it.path());
    assert!(until(PATIENCE, || file().is_some_and(|it| steps(&read(&it).0) == [1])));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    let (_, fault) = read(&file().unwrap());
    assert!(fault.is_none(), "{fault:?}");
    let name = file().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.contains(&format!("_{}_record.jsonl.zst", pid.as_raw_nonzero())), "{name}");
}

#[test]
fn an_existing_file_is_never_written_over() {
    let dir = own_directory();
    let file = dir.path().join("precious");
    fs::write(&file, "mine").unwrap();
    let status = recorder(dir.path(), &["-o", file.to_str().unwrap()], dir.path()).wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

fn event(at: u64) -> Event {
    Event { at: Stamp(at), fact: Fact::Notice(format!("number {at}").as_str().into()) }
}

#[test]
fn a_full_disk_is_reported_once_and_blocks_no_one() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let refused = Recorder::start(full, &header()).err().map(|it| it.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::StorageFull), "reported before a job starts");
}

#[test]
fn a_removed_directory_is_reported_and_offers_still_return_at_once() {
    let dir = own_directory();
    let path = dir.path().join("r.jsonl.zst");
    let recorder = Recorder::start(File::create(&path).unwrap(), &header()).unwrap();
    drop(dir);
    let mut at = 0;
    let printed = until(PATIENCE, || {
        at += 1;
        recorder.offer(&event(at));
        recorder.outcome().trouble.is_some()
    });
    assert!(printed);
    let trouble = recorder.finish().trouble.unwrap();
    assert!(trouble.contains("is gone") && trouble.contains("the job continues"), "{trouble}");
}

#[test]
fn offers_do_not_wait_for_a_disk_that_takes_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    let recorder = Recorder::start(File::from(OwnedFd::from(writer)), &header()).unwrap();
    // Nothing reads: an offer that waited for the writer would wait forever.
    (0..400_000).for_each(|it| recorder.offer(&event(it)));
    assert!(recorder.outcome().lost > 0);
    drop(reader);
    assert!(recorder.finish().trouble.is_some());
}

#[test]
fn a_recording_moves_no_cursor_where_it_is_read_on_a_terminal() {
    let dir = own_directory();
    let path = dir.path().join("r.jsonl.zst");
    let nasty = "\u{7f}\u{9b}2J\u{202e}x\u{1b}训";
    let recorder = Recorder::start(File::create(&path).unwrap(), &header()).unwrap();
    recorder.offer(&Event { at: Stamp(3), fact: Fact::Notice(nasty.into()) });
    assert_eq!(recorder.finish().trouble, None);
    let text = String::from_utf8(zstd::decode_all(File::open(&path).unwrap()).unwrap()).unwrap();
    assert!(
        text.contains('训') && !text.chars().any(|it| (it.is_control() && it != '\n') || it == '\u{202e}'),
        "{text}"
    );
    let came = read(&path).0.into_iter().any(|it| match it {
        Entry::Event(Event { fact: Fact::Notice(text), .. }) => text.raw() == nasty,
        _ => false,
    });
    assert!(came, "{text}");
}

#[test]
fn many_events_come_back_in_order_and_the_lost_are_counted() {
    let dir = own_directory();
    let path = dir.path().join("r.jsonl.zst");
    let recorder = Recorder::start(File::create(&path).unwrap(), &header()).unwrap();
    let offered = 60_000;
    (0..offered).for_each(|it| recorder.offer(&event(it)));
    let outcome = recorder.finish();
    assert_eq!(outcome.trouble, None);
    let (entries, fault) = read(&path);
    assert!(fault.is_none(), "{fault:?}");
    let stamps: Vec<u64> = entries
        .iter()
        .filter_map(|it| match it {
            Entry::Event(Event { at, fact: Fact::Notice(text) }) if text.raw().starts_with("number") => Some(at.0),
            _ => None,
        })
        .collect();
    assert!(stamps.is_sorted());
    assert_eq!(stamps.len() as u64 + outcome.lost, offered);
}

#[test]
fn a_full_disk_is_reported_once_while_the_recorder_keeps_reading() {
    let dir = own_directory();
    let probe = Probe::start(Description { directories: vec![dir.path().into()], ..Description::default() }).unwrap();
    let file = dir.path().join("full.jsonl.zst");
    // A file that may not grow past 400 KiB is a full disk to its writer.
    let limited = "ulimit -f 800; trap '' XFSZ; exec \"$0\" record --no-nvml -o \"$1\"";
    let mut child = Command::new("/bin/sh")
        .args(["-c", limited, PROGRAM, file.to_str().unwrap()])
        .env("GPUWATCH_SOCKET_DIR", dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("recording to"));
    let pushing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut step = 0;
            while pushing.load(Relaxed) {
                step += 1;
                let mut reading = Reading { edge: Edge::Step, steps: step, ..Reading::default() };
                (0..16).for_each(|it| reading.put(it, step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> it));
                // Lines that the full queue drops only make the file smaller.
                let _ = probe.push(&reading);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let printed = lines.next().unwrap();
        pushing.store(false, Relaxed);
        assert!(printed.contains("the recording stopped"), "{printed}");
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(lines.next(), None, "reported once");
    let (entries, _) = read(&file);
    assert!(!steps(&entries).is_empty(), "what was written before can be read");
}

#[test]
fn a_run_records_its_own_probes_and_how_the_job_ended() {
    let dir = own_directory();
    let sockets = dir.path().join("s");
    fs::create_dir(&sockets).unwrap();
    fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).unwrap();
    let job = format!("'{PROGRAM}' demo-job --directory \"$0\" --rate 50; exit 7");
    let mut stranger = Command::new(PROGRAM)
        .args(["demo-job", "--rank", "5", "--directory"])
        .arg(&sockets)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["run", "--", "/bin/sh", "-c", &job])
        .arg(&sockets)
        .env("GPUWATCH_SOCKET_DIR", &sockets)
        .env("XDG_STATE_HOME", dir.path())
        .env("GPUWATCH_NO_NVML", "1")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let store = dir.path().join("gpuwatch/recordings");
    let file = || fs::read_dir(&store).ok()?.flatten().next().map(|it| it.path());
    let recorded = || file().is_some_and(|it| steps(&read(&it).0).len() > 250);
    assert!(until(PATIENCE, recorded), "the job's steps reach the store");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
    let (entries, fault) = read(&file().unwrap());
    assert!(fault.is_none(), "{fault:?}");
    let hellos: Vec<Option<u64>> = entries
        .iter()
        .filter_map(|it| match it {
            Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) => match &**line {
                Line::Hello(hello) => Some(hello.rank),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert!(!hellos.is_empty() && hellos.iter().all(|it| *it == Some(0)), "the stranger is not in it: {hellos:?}");
    let [.., last, Entry::Closed(closed)] = &entries[..] else { panic!("it was closed: {:?}", entries.last()) };
    assert_eq!(closed.lost, 0);
    let ended = matches!(last, Entry::Event(Event { fact: Fact::JobEnded { code: Some(7), signal: None }, .. }));
    assert!(ended, "{last:?}");
    let steps = steps(&entries);
    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>(), "from the first step, none missing");
}

#[test]
fn a_recorder_under_nohup_outlives_the_hangup() {
    let dir = own_directory();
    let probe = Probe::start(Description { directories: vec![dir.path().into()], ..Description::default() }).unwrap();
    let file = dir.path().join("night.jsonl.zst");
    let mut child = Command::new("/bin/sh")
        .args(["-c", "trap '' HUP; exec \"$0\" record --no-nvml -o \"$1\"", PROGRAM, file.to_str().unwrap()])
        .env("GPUWATCH_SOCKET_DIR", dir.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    push(&probe, 1);
    assert!(until(PATIENCE, || file.exists() && steps(&read(&file).0) == [1]));
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    push(&probe, 2);
    assert!(until(PATIENCE, || steps(&read(&file).0) == [1, 2]), "it goes on recording");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn no_secret_of_a_command_line_is_recorded_and_no_argument_where_none_is_wanted() {
    let cases = [(&["run", "--"][..], true), (&["run", "--no-arguments", "--"], false)];
    for (options, has_arguments) in test_tiers::vary!(cases, "no arguments at all") {
        let (gpu, home) = (torch::machine(), Home::new());
        let mut run = gpu.command(PROGRAM);
        run.args(options).arg(torch::python()).args([
            &script("smoke.py"),
            "--hub-token",
            "hunter2",
            "--lr",
            "0.31415927",
        ]);
        run.envs(home.variables());
        // The driver's list names processes too.
        run.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1"));
        torch::stdout(&run.output().unwrap());
        let recordings = home.0.path().join("state/gpuwatch/recordings");
        let recording = fs::read_dir(recordings).unwrap().next().unwrap().unwrap().path();
        let text = format!("{:?}", read(&recording).0);
        assert!(
            text.contains("smoke.py") == has_arguments && text.contains("0.31415927") == has_arguments,
            "{options:?}"
        );
        assert!(text.contains("python") && !text.contains("hunter2"), "{options:?}");
    }
}
