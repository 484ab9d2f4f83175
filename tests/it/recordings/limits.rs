//! gpuwatch counts what exceeds its limits, and every verdict mentions it.

use crate::{
    analysis::step_time::recorded,
    commands::check::{header, judged, write},
    helpers::{
        story::{Story, counters},
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    recordings::{
        damaged::limited,
        writer::{own_directory, read},
    },
};
use gpuwatch::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Bye, Counters, Device, EXIT, Edge, Hello, Lost, PROTOCOL, Sample},
        },
        units::Stamp,
    },
    model::session::PROBES,
    storage::recording::{Closed, Entry, encode, encode_closed},
};
use serde_json::Value;
use std::{
    fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const MIB: u64 = 1 << 20;

fn line(at: u64, probe: u32, line: Line) -> String {
    let mut text = String::new();
    encode(&Event { at: Stamp(at), fact: Fact::Probe { probe: ProbeId(probe), line: Box::new(line) } }, &mut text);
    text
}

/// A recording of so many ranks, each on a device of its own, of which one leaks.
fn ranks(path: &Path, count: u32, leaks: u32, steps: u64) {
    let mut lines = vec![header()];
    let devices = |rank| vec![Device { uuid: Some(format!("GPU-{rank}")), total: Some(80 << 30), ..Device::default() }];
    for rank in 0..count {
        let hello = Hello {
            protocol: PROTOCOL,
            pid: rank + 1,
            run: Some("r".into()),
            rank: Some(rank.into()),
            ..Hello::default()
        };
        lines.push(line(1, rank, Line::Hello(Hello { devices: devices(rank), monotonic_us: 1, ..hello })));
    }
    let mut at = 1;
    for step in 1..=steps {
        at += 100_000;
        for rank in 0..count {
            let allocated = 100 * MIB + if rank == leaks { step * 4 * MIB } else { 0 };
            let counters = Counters {
                allocated: Some(allocated),
                reserved: Some(allocated + 64 * MIB),
                blocks: Some(if rank == leaks { 100 + step } else { 100 }),
                ..Counters::default()
            };
            let sample = Sample { at_us: at, edge: Edge::Step, step: Some(step), counters, ..Sample::default() };
            lines.push(line(at, rank, Line::Sample(sample)));
        }
    }
    lines.push(encode_closed(&Closed { at_us: Stamp(at), lost: 0 }));
    write(path, &lines);
}

/// A million steps of 50 µs on a busy machine: what reads them falls behind, and the job does not wait for it.
#[test]
fn a_run_whose_end_was_not_read_after_losses_is_not_judged() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.jsonl.zst");
    let check = |losses: u64, ends: bool| {
        let mut story = Story::default();
        story.device(0, 60 << 30, &[]).probe(0, 4242, 0, None);
        for step in 1..=1200 {
            story.wait(100_000).sample(0, step, counters(20 << 30, 1 << 30));
        }
        story.line(0, Line::Lost(Lost { samples: losses, ..Lost::default() }));
        if ends {
            story.line(0, Line::Bye(Bye { reason: EXIT.to_owned(), ..Bye::default() }));
        } else {
            story.add(Fact::ProbeGone { probe: ProbeId(0), why: "ended inside a line".into() });
        }
        recorded(&story, &file);
        let output = Command::new(PROGRAM).arg("check").arg(&file).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = check(12, false);
    assert!(code == 2 && text.contains("12 samples were lost, and what came after step 1,200 as well"), "{text}");
    let (code, text) = check(12, true);
    assert!(code == 0 && text.contains("12 samples were lost; figures are approximate"), "{text}");
    assert_eq!(check(0, false).0, 0, "a job that was killed");
}

#[test]
fn the_leak_of_one_rank_among_six_hundred_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ranks.jsonl.zst");
    ranks(&path, 600, 17, 40);
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, json["processes"].as_array().unwrap().len()), (1, 600), "{}", json["doubts"]);
    let found = json["findings"].as_array().unwrap();
    assert!(found.iter().any(|it| it["rank"] == 17 && it["kind"] == "growth"), "{found:?}");
    assert!(found.iter().all(|it| it["rank"] == 17), "{found:?}");
    assert_eq!(json["devices"].as_array().unwrap().len(), 600);
}

#[test]
fn a_run_with_more_ranks_than_are_watched_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ranks.jsonl.zst");
    let beyond = u32::try_from(PROBES).unwrap() + 3;
    ranks(&path, beyond, beyond - 1, 2);
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, &json["verdict"], &json["losses"]["processes"]), (2, &"unjudged".into(), &3.into()));
    let printed = "probed processes that were not watched: 3";
    assert!(json["doubts"].as_array().unwrap().iter().any(|it| it.as_str().unwrap().contains(printed)), "{json:#}");
    let shown = Command::new(PROGRAM).arg("check").arg(&path).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("NOT JUDGED") && shown.contains(printed), "{shown}");
    for name in ["r.html", "r.json"] {
        let page = dir.path().join(name);
        assert!(Command::new(PROGRAM).arg("report").arg(&path).arg("-o").arg(&page).status().unwrap().success());
        assert!(fs::read_to_string(page).unwrap().contains(printed), "{name}");
    }
    let mut terminal = Terminal::start_sized((50, 160), &["replay", path.to_str().unwrap()], &[]);
    terminal.shows("not everything is seen");
    terminal.shows(printed);
    terminal.press("q");
}

/// Sockets whose listener never answers.
fn silent(dir: &Path, count: u32) -> Vec<UnixListener> {
    (0..count).map(|it| UnixListener::bind(dir.join(format!("{it}.sock"))).unwrap()).collect()
}

/// The program with so many open files and no more.
fn with_files(count: u32, arguments: &[&str], sockets: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -n {count}; exec \"$0\" \"$@\""), PROGRAM]).args(arguments);
    command.env("GPUWATCH_SOCKET_DIR", sockets).stderr(Stdio::null());
    command
}

#[test]
fn sockets_that_cannot_be_read_are_counted_and_leave_a_recording_unjudged() {
    let dir = own_directory();
    let sockets = dir.path().join("sockets");
    fs::create_dir(&sockets).unwrap();
    fs::set_permissions(&sockets, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let _silent = silent(&sockets, 100);
    // It looks for a moment only, in which a busy machine may not have found them.
    let printed = |arguments: &[&str]| {
        let output = with_files(60, arguments, &sockets).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let is_counted = |json: &Value| json["losses"]["sockets"].as_u64() > Some(40);
    assert!(until(PATIENCE, || is_counted(&serde_json::from_str(&printed(&["once", "--no-nvml", "--json"])).unwrap())));
    let phrase = "not seen: sockets of probes that were not read: ";
    assert!(until(PATIENCE, || printed(&["once", "--no-nvml"]).contains(phrase)));

    let file: PathBuf = dir.path().join("night.jsonl.zst");
    let mut recorder =
        with_files(60, &["record", "--no-nvml", "-o", file.to_str().unwrap()], &sockets).spawn().unwrap();
    let is_unread =
        |it: &Entry| matches!(it, Entry::Event(Event { fact: Fact::Unread { count, .. }, .. }) if *count > 0);
    assert!(until(PATIENCE, || file.exists() && read(&file).0.iter().any(is_unread)));
    rustix::process::kill_process(rustix::process::Pid::from_child(&recorder), rustix::process::Signal::TERM).unwrap();
    assert!(recorder.wait().unwrap().success());
    let (code, json) = judged(&file, &[]);
    assert_eq!(code, 2);
    assert!(json["losses"]["sockets"].as_u64() > Some(40), "{json:#}");
}

#[test]
fn a_rank_whose_wire_is_not_understood_leaves_the_run_unjudged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mixed.jsonl.zst");
    ranks(&path, 2, 9, 40);
    let text = String::from_utf8(zstd::decode_all(fs::File::open(&path).unwrap()).unwrap()).unwrap();
    let newer = text.replacen("\"protocol\":1,\"probe\":\"\",\"pid\":2", "\"protocol\":7,\"probe\":\"\",\"pid\":2", 1);
    assert_ne!(newer, text);
    assert_eq!(judged(&path, &[]).0, 0);
    fs::write(&path, newer).unwrap();
    let (code, json) = judged(&path, &[]);
    let doubt = json["doubts"][0].as_str().unwrap();
    assert_eq!((code, doubt.starts_with("rank 1 (pid 2) speaks version 7 of the wire")), (2, true), "{json:#}");
}

/// Makes a line at an instant, µs.
type Make = Box<dyn Fn(u32) -> String>;

/// Each kind of text and list that a line may have, as large as lines are.
fn large() -> Vec<(&'static str, Make)> {
    let text = |bytes: usize| "x".repeat(bytes);
    let many = |item: &str, count: usize| vec![item; count].join(",");
    let (long, arguments) = (text(1_048_000), many(r#""a""#, 250_000));
    let (devices, users) = (many(r#"{"uuid":"GPU-1"}"#, 60_000), many(r#"{"pid":1,"used":1}"#, 50_000));
    let frames = many(r#"{"file":"a","function":"b"}"#, 35_000);
    let site = format!(r#"{{"file":"{0}","function":"{0}","frames":[{{"file":"{0}"}}]}}"#, text(300_000));
    let names =
        ["mark", "oom", "message", "argv", "argument", "devices", "sites", "frames", "notice", "process", "users"];
    let line = move |name: &str, at: u32| match name {
        "mark" => format!(r#"{{"type":"mark","at_us":{at},"name":"{at}{long}"}}"#),
        "oom" => format!(r#"{{"type":"oom","at_us":{at},"seq":{at},"message":"{at}{long}"}}"#),
        "message" => format!(r#"{{"type":"oom_message","at_us":{at},"seq":{at},"message":"{at}{long}"}}"#),
        "argv" => format!(r#"{{"type":"hello","from":{at},"protocol":1,"argv":[{arguments}],"monotonic_us":{at}}}"#),
        "argument" => format!(r#"{{"type":"hello","from":{at},"protocol":1,"argv":["{long}"],"monotonic_us":{at}}}"#),
        "devices" => {
            format!(r#"{{"type":"hello","from":{at},"protocol":1,"devices":[{devices}],"monotonic_us":{at}}}"#)
        }
        "sites" => format!(r#"{{"type":"sites","at_us":{at},"seq":{at},"steps":8,"sites":[{site}]}}"#),
        "frames" => {
            format!(r#"{{"type":"sites","at_us":{at},"seq":{at},"steps":8,"sites":[{{"frames":[{frames}]}}]}}"#)
        }
        "notice" => format!(r#"{{"type":"notice","at_us":{at},"text":"{at}{long}"}}"#),
        "process" => {
            format!(
                r#"{{"type":"process","at_us":{at},"pid":{at},"start_ticks":1,"argv":["{long}"],"user":"u","contained":false}}"#
            )
        }
        _ => format!(r#"{{"type":"processes","at_us":{at},"device":"GPU-{at}","processes":[{users}]}}"#),
    };
    let line = std::rc::Rc::new(line);
    let of = |name: &'static str| {
        let line = std::rc::Rc::clone(&line);
        (name, Box::new(move |at| line(name, at)) as Box<dyn Fn(u32) -> String>)
    };
    names.into_iter().map(of).collect()
}

#[test]
fn large_texts_and_lists_of_a_recording_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.jsonl.zst");
    let mut lines = vec![header()];
    for turn in 0..12 {
        for (kind, (name, line)) in (0..).zip(large()) {
            let line = line(10 + turn * 100 + kind) + "\n";
            assert!((line.len() as u64) < MIB && line.len() > 800_000, "{name}: {}", line.len());
            lines.push(line);
        }
    }
    write(&path, &lines);
    assert!(fs::metadata(&path).unwrap().len() < 100_000, "132 MB in less than 100 KB");
    drop(lines);
    let page = dir.path().join("large.html");
    for arguments in [&["check", "--json"][..], &["report", "-o", page.to_str().unwrap()]] {
        let output = limited(192, arguments, &path);
        assert!(output.status.code().is_some(), "{arguments:?}: {output:?}");
        assert!(output.stdout.len() < 16 << 20, "{arguments:?}: {} bytes", output.stdout.len());
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.len() < 16 << 20 && page.contains("bytes omitted"), "{}", page.len());
    assert_eq!(page.matches("<script").count(), 2, "nothing of a recording is markup");
}

#[test]
fn a_cut_text_shows_how_much_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mark.jsonl");
    let name = "e".repeat(1_040_000);
    fs::write(&path, format!("{{\"type\":\"mark\",\"at_us\":1,\"name\":\"{name}\"}}\n")).unwrap();
    let (entries, _) = read(&path);
    let [Entry::Event(Event { fact: Fact::Probe { line, .. }, .. })] = &entries[..] else { panic!("{entries:?}") };
    let Line::Mark(mark) = &**line else { panic!("{line:?}") };
    assert!(mark.name.ends_with("e… 1,037,952 bytes omitted") && mark.name.len() < 2200, "{}", mark.name);
}

/// Sends a hello and then each kind of large line, three times, to any viewer that connects.
fn hostile(path: &Path, pid: u32) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut viewer, _) = listener.accept().unwrap();
        let hello =
            format!(r#"{{"type":"hello","protocol":1,"pid":{pid},"monotonic_us":1,"devices":[{{"ordinal":0}}]}}"#);
        let mut send = |line: String| std::io::Write::write_all(&mut viewer, (line + "\n").as_bytes()).unwrap();
        send(hello);
        for turn in 0..3 {
            for (kind, (_, line)) in (0..).zip(large()) {
                send(line(10 + turn * 100 + kind));
            }
        }
    })
}

#[test]
fn twenty_hostile_sockets_take_little_memory_of_a_viewer() {
    let dir = own_directory();
    let jobs: Vec<_> = (0..20).map(|it| hostile(&dir.path().join(format!("{it}.sock")), it)).collect();
    let mut terminal =
        Terminal::start_sized((50, 160), &["--no-nvml"], &[("GPUWATCH_SOCKET_DIR", dir.path().to_str().unwrap())]);
    // Each ends once the viewer has read all its lines.
    for it in jobs {
        it.join().unwrap();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", terminal.child.process_id().unwrap())).unwrap();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    assert!(peak < 256 << 10, "{peak} KiB");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}
