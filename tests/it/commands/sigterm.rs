//! Signals and a reader that is gone end every command, whatever it waits for, and leave no child behind.

use crate::{
    commands::check::{HEALTHY, lines_of, write},
    helpers::{
        terminal::{PROGRAM, Terminal, until},
        torch,
    },
    probe::launch::Home,
};
use gpuwatch_probe::{Description, Probe, wire::Hello};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Longer than a command needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What shows that a command has come to where it waits.
#[derive(Clone, Copy, Debug)]
enum Waits {
    /// Its answer does not fit into the pipe, which nothing reads.
    ForItsReader,
    /// It has written a line on standard error.
    AfterMessage,
    /// It has written a line on standard output.
    AfterLine,
    /// A child runs that never ends.
    ForAChild,
    /// It reads standard input, to which nothing is written.
    ForInput,
    /// It has the terminal, and has drawn this.
    OnTerminal(&'static str),
}

use Waits::{AfterLine, AfterMessage, ForAChild, ForInput, ForItsReader, OnTerminal};

/// A signal ended it.
const KILLED: i32 = -15;

/// Every command in a state that lasts, and how SIGTERM ends it. Words in capitals stand for what a [`Place`] has.
const LONG: &[(&[&str], Waits, i32)] = &[
    (&[], OnTerminal("gpuwatch"), 143),
    (&["--hosts", "a,b", "--transport", "SLEEPS", "--theme", "mono"], OnTerminal("connecting"), 143),
    (&["run", "--", "/bin/sh", "-c", "echo started >&2; exec sleep 1000"], AfterMessage, KILLED),
    (&["attach", "PYTHON", "--wait", "5m"], ForItsReader, KILLED),
    (&["detach", "PYTHON"], ForItsReader, KILLED),
    (&["env"], ForItsReader, KILLED),
    (&["demo"], OnTerminal("demo"), 143),
    (&["record", "--no-nvml", "-o", "NEW"], AfterMessage, 0),
    (&["record", "--no-nvml", "-o", "-"], ForItsReader, KILLED),
    (&["record", "--hosts", ".x,..,../../x", "--transport", "SLEEPS", "-o", "NEW"], ForAChild, 0),
    (&["record", "--hosts", ".x,..,../../x", "--transport", "STREAM", "-o", "NEW"], ForAChild, 0),
    (&["replay", "FILE"], OnTerminal("Space play"), 143),
    (&["check", "-"], ForInput, KILLED),
    (&["check", "FILE"], ForItsReader, KILLED),
    (&["sites", "OWN", "--timeout", "5m"], AfterMessage, KILLED),
    (&["snapshot", "SNAPSHOT", "--text"], ForItsReader, KILLED),
    (&["whatif", "SNAPSHOT", "--torch", "TORCH"], ForAChild, KILLED),
    (&["peak", "PYTHON"], ForItsReader, KILLED),
    (&["fit", "--gpu", "16GiB", "--", "TORCH", "-c", "import time; time.sleep(1000)"], ForAChild, KILLED),
    (&["recordings", "."], ForItsReader, KILLED),
    (&["export", "-"], ForInput, KILLED),
    (&["export", "FILE"], ForItsReader, KILLED),
    (&["report", "FILE", "-o", "-"], ForItsReader, KILLED),
    (&["diff", "FILE", "FILE"], ForItsReader, KILLED),
    (&["once"], ForItsReader, KILLED),
    (&["once", "--hosts", "a,b", "--transport", "SLEEPS"], ForAChild, KILLED),
    (&["serve", "--metrics", "127.0.0.1:0"], AfterMessage, 0),
    (&["stream"], AfterLine, KILLED),
    (&["mcp"], ForInput, 143),
    (&["explain"], ForItsReader, KILLED),
    (&["generate", "config"], ForItsReader, KILLED),
    (&["doctor"], ForItsReader, KILLED),
    (&["replay-job"], ForInput, KILLED),
    (&["demo-job", "--directory", "SOCKETS", "--rate", "10"], ForInput, KILLED),
];

/// Finds what a command has left behind.
const MARK: &str = "GPUWATCH_TEST_MARK";

/// Files and processes that the commands name.
struct Place {
    home: Home,
    python: Child,
    _probe: Probe,
}

impl Place {
    fn new() -> Self {
        let home = Home::new();
        let path = home.0.path();
        let sockets = path.join("sockets");
        fs::create_dir(&sockets).unwrap();
        fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).unwrap();
        write(&path.join("a.jsonl.zst"), &lines_of(HEALTHY, |_| ()));
        for (name, text) in [("sleeps", "exec sleep 1000"), ("stream", "exec '{}' stream --no-nvml")] {
            let script = path.join(name);
            fs::write(&script, format!("#!/bin/sh\n{}\n", text.replace("{}", PROGRAM))).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::copy("tests/it/whatif/h200.pickle.gz", path.join("h200.pickle.gz")).unwrap();
        let python = Command::new("python3").args(["-c", "input()"]).stdin(Stdio::piped()).spawn().unwrap();
        let hello = Hello { sites: Some("ready".to_owned()), ..Hello::default() };
        let probe = Probe::start(Description { hello, directories: vec![sockets], ..Description::default() }).unwrap();
        Self { home, python, _probe: probe }
    }

    fn word(&self, word: &str, number: usize) -> String {
        let within = |name: &str| self.home.0.path().join(name).to_str().unwrap().to_owned();
        match word {
            "FILE" => within("a.jsonl.zst"),
            "SNAPSHOT" => within("h200.pickle.gz"),
            "SLEEPS" => within("sleeps"),
            "TORCH" => torch::python().to_str().unwrap().to_owned(),
            "STREAM" => within("stream"),
            "SOCKETS" => within("sockets"),
            "NEW" => within(&format!("new-{number}")),
            "PYTHON" => self.python.id().to_string(),
            "OWN" => std::process::id().to_string(),
            _ => word.to_owned(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}

/// The names of all commands: those that the help lists, and the hidden ones.
fn commands() -> BTreeSet<String> {
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (list, _) = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap();
    let name =
        |it: &str| it.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split(' ').next().map(str::to_owned);
    let listed = list.lines().filter_map(name).filter(|it| it != "help");
    listed.chain(["replay-job", "demo-job"].map(str::to_owned)).collect()
}

/// The processes that a command has started, and which have not ended: it gives its environment to them.
fn left(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let has_mark = |it: &Path| {
        let of = fs::read(it.join("environ")).unwrap_or_default();
        of.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let all = fs::read_dir("/proc").unwrap().flatten().map(|it| it.path()).filter(|it| has_mark(it));
    all.map(|it| fs::read_to_string(it.join("cmdline")).unwrap_or_default().replace('\0', " ")).collect()
}

/// Whether a thread of a process is in this call.
fn is_in(pid: u32, calls: &[&str]) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut in_calls = tasks.filter_map(|it| fs::read_to_string(it.path().join("syscall")).ok());
    in_calls.any(|it| calls.iter().any(|call| it.starts_with(call)))
}

/// Numbers and first arguments of calls, as the kernel shows them on x86-64: `write` and `writev`; `read`, `poll` and
/// `splice`. A command may have a descriptor of its own for the stream.
const WRITES: [&str; 6] = ["1 0x1 ", "1 0x2 ", "1 0x3 ", "1 0x4 ", "20 0x1 ", "20 0x2 "];
const READS: [&str; 5] = ["0 0x0 ", "0 0x3 ", "0 0x4 ", "7 0x", "275 0x0 "];

/// How a command ends on a signal that ends it with a code on SIGTERM.
fn end_of(signal: Signal, waits: Waits, of_term: i32) -> End {
    let code = match (of_term, waits) {
        (0, _) => 0,
        (143, OnTerminal(_)) => 128 + signal.as_raw(),
        (code, _) if signal == Signal::TERM => code,
        _ => -signal.as_raw(),
    };
    End { signal, code }
}

fn ends(place: &Place, number: usize, arguments: &[&str], waits: Waits, end: End) -> Result<(), String> {
    let End { signal, code } = end;
    let words: Vec<String> = arguments.iter().map(|it| place.word(it, number)).collect();
    let mark = number.to_string();
    let variables = place.home.variables().map(|(name, path)| (name, path.to_str().unwrap().to_owned()));
    if let OnTerminal(phrase) = waits {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let own: Vec<(&str, &str)> =
            variables.iter().map(|it| (it.0, it.1.as_str())).chain([(MARK, mark.as_str())]).collect();
        let mut terminal = Terminal::start(&words, &own);
        terminal.shows(phrase);
        terminal.signal(signal);
        let ended = i32::try_from(terminal.ends(PATIENCE)).unwrap();
        let _ = until(PATIENCE, || left(&mark).is_empty());
        return verdict(arguments, (ended, code), &mark);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args(&words)
        .envs(variables)
        .env("GPUWATCH_NO_NVML", "1")
        .env("GPUWATCH_CONFIG", "/dev/null")
        .env(MARK, &mark);
    command.current_dir(place.home.0.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if matches!(waits, ForItsReader) || words.last().is_some_and(|it| it == "-") && matches!(waits, AfterMessage) {
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
        while rustix::io::write(&writer, &[0]).is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).unwrap();
        command.stdout(writer.try_clone().unwrap());
        if matches!(waits, ForItsReader) {
            command.stderr(writer.try_clone().unwrap());
        }
    }
    drop(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let pid = child.id();
    let mut line = String::new();
    let is_there = match waits {
        ForItsReader => until(PATIENCE, || is_in(pid, &WRITES)),
        ForInput => until(PATIENCE, || is_in(pid, &READS) || (arguments[0] == "demo-job")),
        AfterMessage => BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap() > 0,
        AfterLine => BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap() > 0,
        ForAChild => until(PATIENCE, || left(&mark).len() > 1),
        OnTerminal(_) => true,
    };
    let is_running = child.try_wait().unwrap().is_none();
    if !is_there || !is_running {
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        return Err(format!(
            "{arguments:?} does not wait {waits:?}: {line}{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let has_ended = until(PATIENCE, || child.try_wait().unwrap().is_some());
    if !has_ended {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    drop(reader);
    let _ = until(PATIENCE, || left(&mark).is_empty());
    if !has_ended {
        return Err(format!("{arguments:?} does not end on {signal:?}"));
    }
    verdict(arguments, (status.code().unwrap_or_else(|| -status.signal().unwrap()), code), &mark)
}

fn verdict(arguments: &[&str], (ended, code): (i32, i32), mark: &str) -> Result<(), String> {
    let left = left(mark);
    if !left.is_empty() {
        return Err(format!("{arguments:?} leaves {left:?}"));
    }
    if ended == code { Ok(()) } else { Err(format!("{arguments:?} ends with {ended} and not {code}")) }
}

/// A signal, and the code of a command that it ends.
#[derive(Clone, Copy)]
struct End {
    signal: Signal,
    code: i32,
}

#[test]
fn signals_end_every_command_and_its_children() {
    let place = Place::new();
    let tested: BTreeSet<String> = LONG.iter().filter_map(|it| it.0.first()).map(|it| (*it).to_owned()).collect();
    let missing: Vec<_> = commands().into_iter().filter(|it| !tested.contains(it)).collect();
    assert!(missing.is_empty(), "a command needs a state that lasts: {missing:?}");
    // A hangup comes when the connection to a terminal ends.
    let signals = test_tiers::vary!([Signal::TERM, Signal::HUP, Signal::INT], "other signals");
    let cases = signals.flat_map(|signal| LONG.iter().map(move |it| (signal, it))).enumerate();
    let faults: Vec<String> = cases
        .filter_map(|(number, (signal, (arguments, waits, of_term)))| {
            let ended = ends(&place, number, arguments, *waits, end_of(signal, *waits, *of_term));
            ended.err().map(|why| format!("{signal:?}: {why}"))
        })
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// As `| head -1`: what writes for as long as it is left alone ends with its reader.
#[test]
fn a_reader_that_is_gone_ends_what_writes_without_end() {
    let place = Place::new();
    for (number, arguments) in [&["stream"][..], &["record", "--no-nvml", "-o", "-"]].into_iter().enumerate() {
        let mark = format!("reader-{number}");
        let variables = place.home.variables();
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(variables).env("GPUWATCH_SOCKET_DIR", place.home.0.path().join("sockets"));
        command.env("GPUWATCH_NO_NVML", "1").env(MARK, &mark).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let has_ended = until(PATIENCE, || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        child.wait().unwrap();
        assert!(has_ended && until(PATIENCE, || left(&mark).is_empty()), "{arguments:?} writes to nobody");
    }
}
