//! Output and input of commands: they report a failed write, `-` is standard output, and no FIFO blocks them.

use crate::{
    commands::check::{HEALTHY, lines_of, write},
    helpers::terminal::{PATIENCE, PROGRAM, until},
    probe::launch::Home,
    recordings::writer::{read, read_all},
};
use gpuwatch::{
    facts::event::{DriverState, Event, Fact},
    storage::recording::Entry,
};
use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::{Pid, Signal, kill_process},
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

/// A home with one recording.
struct Place {
    home: Home,
    recording: PathBuf,
}

impl Place {
    fn new() -> Self {
        let home = Home::new();
        let recording = home.0.path().join("a.jsonl.zst");
        write(&recording, &lines_of(HEALTHY, |_| ()));
        Self { home, recording }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(self.home.variables()).env("GPUWATCH_CONFIG", "/dev/null").stdin(Stdio::null());
        command
    }

    fn gpuwatch(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(PROGRAM);
        command.args(arguments.iter().map(|it| if *it == "FILE" { self.recording.to_str().unwrap() } else { it }));
        command
    }

    fn fifo(&self) -> String {
        let path = self.home.0.path().join("fifo");
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Every command that answers on standard output, and its exit code when it cannot.
const ANSWERS: &[(&[&str], i32)] = &[
    (&["--help"], 1),
    (&["--version"], 1),
    (&["help", "run"], 1),
    (&["help", "--help"], 1),
    (&["help", "-h"], 1),
    (&["env"], 1),
    (&["env", "--shell", "fish"], 1),
    (&["once"], 1),
    (&["once", "--json"], 1),
    (&[], 1),
    (&["doctor"], 1),
    (&["doctor", "--json"], 1),
    (&["explain"], 1),
    (&["explain", "fragmentation"], 1),
    (&["generate", "config"], 1),
    (&["generate", "completions", "zsh"], 1),
    (&["generate", "man"], 1),
    (&["recordings", "."], 1),
    (&["recordings", "--json", "."], 1),
    (&["export", "FILE"], 1),
    (&["export", "--format", "jsonl", "FILE"], 1),
    (&["report", "FILE", "-o", "-"], 1),
    (&["record", "--no-nvml", "-o", "-"], 1),
    (&["demo", "--screenshot", "-"], 1),
    (&["check", "FILE"], 2),
    (&["diff", "FILE", "FILE"], 2),
    (&["diff", "FILE", "FILE", "-o", "-"], 2),
    (&["export", "FILE", "-o", "-"], 1),
];

fn printed(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_of_every_command() {
    let place = Place::new();
    for &(arguments, code) in ANSWERS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = place.gpuwatch(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(printed(&output).contains("No space left on device"), "{arguments:?}: {output:?}");

        let mut closed = place.command("/bin/sh");
        let closed = closed.args(["-c", "exec \"$@\" >&-", "sh", PROGRAM]).args(place.gpuwatch(arguments).get_args());
        let output = closed.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(printed(&output).contains("standard output: it is closed"), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let place = Place::new();
    for (arguments, _) in ANSWERS.iter().filter(|it| it.0.first() != Some(&"record") && it.0.first() != Some(&"doctor"))
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.gpuwatch(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        assert!(!printed(&output).contains("pipe"), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_dash_means_standard_output() {
    let place = Place::new();
    let written = |arguments: &[&str]| {
        let output = place.gpuwatch(arguments).current_dir(place.home.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!place.home.0.path().join("-").exists(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(written(&["report", "FILE", "-o", "-"]).starts_with("<!doctype html>"));
    assert!(written(&["diff", "FILE", "FILE", "-o", "-"]).starts_with("<!doctype html>"));
    assert!(written(&["export", "FILE", "-o", "-"]).starts_with("unix_us,"));
    let json: serde_json::Value = serde_json::from_str(&written(&["report", "FILE", "--json", "-o", "-"])).unwrap();
    assert_eq!(json["schema"], 1);
    assert!(written(&["demo", "--screenshot", "-"]).starts_with("<svg"));

    let child = place
        .gpuwatch(&["record", "--no-nvml", "--output", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let status = format!("/proc/{}/status", child.id());
    let catches = |signal: Signal| {
        let status = fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|it| it.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
    };
    assert!(until(PATIENCE, || catches(Signal::USR1)));
    kill_process(pid, Signal::USR1).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (entries, fault) = read_all(&output.stdout[..]);
    assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{entries:?}");
}

#[test]
fn a_recording_comes_from_a_process_substitution() {
    let place = Place::new();
    let judged = |script: &str| {
        let mut command = place.command("bash");
        command.args(["-c", script, PROGRAM]).arg(&place.recording).output().unwrap()
    };
    let plain = place.gpuwatch(&["check", "FILE"]).output().unwrap();
    for script in ["\"$0\" check <(cat \"$1\")", "\"$0\" check <(zstd -dcq \"$1\" || cat \"$1\")"] {
        let output = judged(script);
        assert_eq!(output.status.code(), Some(0), "{script}: {output:?}");
        assert_eq!(output.stdout.len(), plain.stdout.len(), "{output:?}");
    }
    let config = judged("\"$0\" check --config <(echo '[alerts]'; echo 'allow = [7]') \"$1\"");
    assert_eq!(config.status.code(), Some(2), "{config:?}");
    assert!(printed(&config).contains(":2: alerts.allow"), "{config:?}");
}

#[test]
fn a_fifo_without_a_writer_is_reported() {
    let place = Place::new();
    let fifo = place.fifo();
    let cases = [
        (&["check", &fifo][..], 2),
        (&["export", &fifo], 1),
        (&["recordings", "--config", &fifo], 2),
        (&["demo", "--theme", &fifo, "--screenshot", "-"], 2),
        // A job runs, whatever is wrong with the config.
        (&["run", "--config", &fifo, "--", "true"], 0),
    ];
    // Each waits a second for a writer: all at the same time.
    let start = |arguments: &[&str]| {
        place.gpuwatch(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started = cases.map(|(arguments, code)| (arguments, code, start(arguments)));
    for (arguments, code, child) in started {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        let all = printed(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(all.contains("it is a FIFO, and no process writes to it"), "{arguments:?}: {output:?}");
    }
}

/// Returns the driver's state in the only recording of a home; `None` as long as it has none.
fn driver(home: &Path) -> Option<DriverState> {
    let file = fs::read_dir(home.join("state/gpuwatch/recordings")).ok()?.flatten().next()?.path();
    read(&file).0.into_iter().find_map(|it| match it {
        Entry::Event(Event { fact: Fact::Driver(state), .. }) => Some(state),
        _ => None,
    })
}

#[test]
fn run_reads_switches_as_other_commands_do() {
    let cases = [
        ("False", "", false),
        ("NO", "", false),
        ("0", "", false),
        ("", "", false),
        ("True", "", true),
        ("1", "", true),
        ("unset", "[driver]\nno-nvml = true", true),
        ("False", "[driver]\nno-nvml = true", false),
    ];
    thread::scope(|scope| {
        for (variable, config, is_off) in cases {
            scope.spawn(move || {
                let place = Place::new();
                let home = place.home.0.path();
                fs::write(home.join("c.toml"), config).unwrap();
                let mut command = place.gpuwatch(&["run", "--", "cat"]);
                command.env("GPUWATCH_CONFIG", home.join("c.toml")).env_remove("GPUWATCH_NO_NVML");
                if variable != "unset" {
                    command.env("GPUWATCH_NO_NVML", variable);
                }
                let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
                assert!(until(PATIENCE, || driver(home).is_some()), "{variable:?} {config:?}");
                drop(child.stdin.take());
                assert!(child.wait().unwrap().success());
                assert_eq!(driver(home) == Some(DriverState::Off), is_off, "{variable:?} {config:?}");
            });
        }
    });
}

#[test]
fn an_incomplete_write_leaves_no_file() {
    let place = Place::new();
    let limited = |bytes: u64, arguments: &[&str]| {
        // Python ignores the signal, and what it starts would.
        let script = "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); \
                      resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])";
        let mut command = place.command("python3");
        command.args(["-c", script, &bytes.to_string(), PROGRAM]).args(place.gpuwatch(arguments).get_args());
        let output = command.current_dir(place.home.0.path()).output().unwrap();
        assert!(printed(&output).contains("File too large"), "{arguments:?}: {output:?}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    };
    limited(1000, &["report", "FILE", "-o", "r.html"]);
    limited(1000, &["demo", "--screenshot", "s.svg"]);
    limited(0, &["record", "--no-nvml", "-o", "r.zst"]);
    limited(0, &["record", "--no-nvml"]);
    let home = place.home.0.path();
    for name in ["r.html", "s.svg", "r.zst"] {
        assert!(!home.join(name).exists(), "{name}");
    }
    assert_eq!(fs::read_dir(home.join("state/gpuwatch/recordings")).unwrap().count(), 0);
}

#[test]
fn a_job_without_a_place_for_its_socket_runs_with_a_warning() {
    let place = Place::new();
    let with = |arguments: &[&str]| {
        place.gpuwatch(arguments).env("GPUWATCH_SOCKET_DIR", "/proc/version/none").output().unwrap()
    };
    let output = with(&["run", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(printed(&output).contains("no place for a socket (/proc/version/none: "), "{output:?}");
    let output = with(&["doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("fail  sockets     /proc/version/none is not used: "), "{text}");
}

#[test]
fn a_missing_recording_is_reported() {
    let place = Place::new();
    for (arguments, code) in [(&["check"][..], 2), (&["export"], 1), (&["report", "-o", "-"], 1)] {
        let output = place.gpuwatch(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let all = printed(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(all.contains("there is no recording yet in ") && all.contains("gpuwatch run -- CMD"), "{output:?}");
    }
}

/// As where a shell expands `*` in a folder of others.
#[test]
fn errors_in_a_command_line_show_arguments_without_control_characters() {
    let place = Place::new();
    let hostile = "\u{1b}]0;x\u{7}\u{202e}\u{9b}2J";
    let [option, value] = [format!("-{hostile}"), format!("--steps={hostile}")];
    for arguments in [["check", &option], ["check", &format!("--{hostile}")], [hostile, "x"], ["export", &value]] {
        let output = place.command(PROGRAM).args(arguments).env("CLICOLOR_FORCE", "1").output().unwrap();
        let shown = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{shown:?}");
        assert!(shown.contains("error:") && !shown.contains(['\u{7}', '\u{202e}', '\u{9b}']), "{shown:?}");
    }
}
