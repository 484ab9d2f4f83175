//! Hands on the real program in a real terminal: filter, order, signals, copying, and what they may not do.

use crate::{
    driver::nvml::Bench,
    helpers::{
        story::usual,
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    recordings::replay,
};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// A probed job of this test's own, and where its socket is.
pub(crate) struct Job {
    child: Child,
    directory: TempDir,
}

impl Job {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["demo-job", "--kind", "leaking", "--rate", "50", "--directory"]).arg(directory.path());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, directory }
    }

    pub(crate) fn view(&self, arguments: &[&str]) -> Terminal {
        let directory = self.directory.path().to_str().unwrap();
        let arguments: Vec<&str> = ["--no-nvml"].iter().chain(arguments).copied().collect();
        let terminal = Terminal::start(&arguments, &[("GPUWATCH_SOCKET_DIR", directory)]);
        terminal.shows("--leaking");
        terminal
    }

    fn ended_by(&mut self) -> Option<i32> {
        let mut status = None;
        until(PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|it| it.signal())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn quits(mut terminal: Terminal) {
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_job_is_signalled_after_a_question_that_names_it() {
    let mut job = Job::start();
    let mut terminal = job.view(&[]);
    terminal.press("K");
    terminal.shows(&format!("signal to pid {}", job.child.id()));
    terminal.shows("demo-job");
    // An answer other than yes means no.
    terminal.press("\r");
    terminal.shows(&format!("send TERM to pid {}?", job.child.id()));
    terminal.press("n");
    terminal.shows("as Ctrl-C does");
    terminal.press("\x1b[B\r");
    terminal.shows("send INT to pid");
    terminal.press("y");
    terminal.shows(&format!("sent INT to pid {}", job.child.id()));
    assert_eq!(job.ended_by(), Some(2));
    terminal.shows("lost");
    terminal.press("K");
    terminal.shows("the process has ended");
    terminal.press("P");
    terminal.shows(&format!("pid {} has ended", job.child.id()));
    quits(terminal);
}

#[test]
fn nothing_is_signalled_where_only_reading_is_allowed() {
    let mut job = Job::start();
    let directory = job.directory.path().to_str().unwrap().to_owned();
    for (arguments, environment) in [(&["--readonly"][..], "0"), (&[][..], "1")] {
        let arguments: Vec<&str> = ["--no-nvml"].iter().chain(arguments).copied().collect();
        let environment = [("GPUWATCH_SOCKET_DIR", directory.as_str()), ("GPUWATCH_READONLY", environment)];
        let mut terminal = Terminal::start(&arguments, &environment);
        terminal.shows("--leaking");
        terminal.press("K");
        terminal.shows("no signals are sent from here");
        terminal.press("\ry");
        quits(terminal);
    }
    let mut demo = Terminal::start(&["demo"], &[]);
    demo.shows("rank");
    demo.press("K");
    demo.shows("the demo's jobs are its own");
    quits(demo);
    assert!(job.child.try_wait().unwrap().is_none(), "the job still runs");
}

/// Asked once a minute, the driver's figure of 9 GiB would be seen long after anybody's patience.
#[test]
fn a_changed_refresh_rate_takes_effect_at_once() {
    let bench = Bench::new();
    let environment = bench.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|it| (it.0, it.1.to_str().unwrap())).collect();
    let mut terminal = Terminal::start(&["--interval", "1m"], &environment);
    terminal.shows("every 60 s");
    terminal.shows("5.00 GiB");
    bench.machine.occupy(0, bench.tenant.id(), 9 << 30).unwrap();
    for _ in 0..9 {
        terminal.press("+");
    }
    terminal.shows("devices are read every 100 ms");
    terminal.shows("9.00 GiB");
    terminal.press("-");
    terminal.shows("every 200 ms");
    quits(terminal);
}

/// It has the driver's pid: a host's, which in a container belongs to no process or to another one.
#[test]
fn a_process_that_only_the_driver_names_is_signalled_where_the_number_is_ours() {
    let mut bench = Bench::new();
    let environment = bench.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|it| (it.0, it.1.to_str().unwrap())).collect();
    let mut terminal = Terminal::start(&[], &environment);
    terminal.shows("python -c");
    terminal.press("\t\x1b[20~");
    if gpuwatch::sources::proc::in_container() {
        terminal.shows("is the host's number, and this is a container");
        assert!(bench.tenant.try_wait().unwrap().is_none());
    } else {
        terminal.shows(&format!("signal to pid {}", bench.tenant.id()));
        terminal.press("\ry");
        terminal.shows(&format!("sent TERM to pid {}", bench.tenant.id()));
        assert_eq!(bench.tenant.wait().unwrap().signal(), Some(15));
    }
    quits(terminal);
}

/// Every screen, smaller and larger and back, and the terminal is as it was however it ends.
#[test]
fn storms_of_sizes_on_every_screen_leave_the_terminal_whole() {
    let sizes = [(12, 40), (1, 1), (60, 200), (0, 0), (24, 80), (2, 300), (40, 13), (40, 130)];
    for (end, code) in [(None, 0), (Some(Signal::TERM), 143), (Some(Signal::HUP), 129)] {
        let mut terminal = Terminal::start(&["demo"], &[]);
        terminal.shows("rank");
        // Device, process and timeline from the inside out, alerts, help, a filter, and the overview.
        for keys in ["\r", "\r", "\r", "+++", "x", "a", "?", "?", "/x", "\x15", "\r", "p", "s", "T", "2"] {
            terminal.press(keys);
            for (rows, columns) in sizes {
                terminal.resize(rows, columns);
            }
        }
        // crossterm takes one of what comes at once, a size or keys: those wait for the next key then.
        let is_there = until(PATIENCE, || {
            terminal.press("\x0c");
            terminal.text().contains("processes on all devices by allocated")
        });
        assert!(is_there, "{}", terminal.text());
        match end {
            None => terminal.press("q"),
            Some(signal) => terminal.signal(signal),
        }
        assert_eq!(terminal.ends(PATIENCE), code);
    }
}

#[test]
fn a_replay_offers_the_same_effects_and_sends_no_signals() {
    let home = tempfile::tempdir().unwrap();
    let file = replay::file(home.path(), "run", &replay::lines(&usual().events), 4096, false);
    let mut terminal = Terminal::start(&["replay", file.to_str().unwrap()], &[]);
    terminal.shows("rank 0");
    terminal.press("K");
    terminal.shows("these processes belong to a recording");
    terminal.press("p/977\r");
    terminal.shows("/977 hides 2");
    terminal.press("T");
    terminal.shows("theme paper");
    terminal.press("f");
    terminal.shows("▶");
    quits(terminal);
}

/// As with a shell's job control: the terminal belongs to the shell until the job continues, and is then redrawn
/// completely.
#[test]
fn a_view_can_be_suspended_and_resumed() {
    let script = format!("{PROGRAM} demo; echo and the shell goes on; fg; echo ended by $?");
    let mut terminal = Terminal::start_program("/bin/sh", &["-m", "-c", &script], &[]);
    terminal.shows("4 probes");
    terminal.press("\x1a");
    // Back at once, as the shell resumes it.
    terminal.shows("4 probes");
    let sent = || String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(until(PATIENCE, || sent().matches("\x1b[?1049h").count() == 2), "{}", sent());
    assert!(sent().contains("and the shell goes on"));
    assert!(terminal.has_mouse());
    terminal.shows("rank");
    terminal.press("q");
    terminal.shows("ended by 0");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

/// Returns a click as xterm sends it (SGR), at column and row from 1.
fn click(terminal: &mut Terminal, phrase: &str) {
    let text = terminal.text();
    let place = text.lines().enumerate().find_map(|(row, line)| {
        let before = line.split_once(phrase)?.0;
        Some((before.chars().count() + 1, row + 1))
    });
    let (column, row) = place.unwrap_or_else(|| panic!("no {phrase:?} on:\n{text}"));
    terminal.press(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
}

#[test]
fn clicks_select_and_open_unless_the_terminal_keeps_the_mouse() {
    let mut terminal = Terminal::start(&["demo"], &[]);
    terminal.shows("4 devices  4 probes");
    // The screen lists the device of the fragmenting job or that of the leaking one; click that one.
    let (device, job) = if terminal.text().contains("   2 ") { (2, "--fragmenting") } else { (1, "--leaking") };
    click(&mut terminal, &format!("   {device} "));
    terminal.shows(&format!("memory of GPU {device}"));
    click(&mut terminal, "? help");
    terminal.shows("this help");
    click(&mut terminal, "this help");
    assert!(until(PATIENCE, || !terminal.text().contains("this help")));
    // A picture is read here as it comes, row by row: the last line is of the one without help by now.
    terminal.shows("q quit  ? help");
    click(&mut terminal, job);
    terminal.shows("q quit  ? help");
    click(&mut terminal, "q quit");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let without = Terminal::start(&["demo", "--no-mouse"], &[]);
    without.shows("4 probes");
    assert!(!without.has_mouse());
    quits(without);
}

#[test]
fn every_listed_key_has_the_effect_of_its_row_in_the_table() {
    let mut terminal = Terminal::start(&["demo"], &[]);
    terminal.shows("rank");
    assert!(terminal.has_mouse());
    terminal.press("p");
    terminal.shows("processes on all devices");
    terminal.press("/leak");
    terminal.shows("/leak█");
    terminal.press("\r");
    terminal.shows("/leak hides");
    terminal.press("n");
    terminal.press("c");
    terminal.shows("copied");
    // train.py --leaking '(demo)', in base64.
    let copied = b"\x1b]52;c;dHJhaW4ucHkgLS1sZWFraW5nICcoZGVtbykn\x1b\\";
    assert!(terminal.bytes().windows(copied.len()).any(|it| it == copied));
    terminal.press("\x1b");
    assert!(until(PATIENCE, || !terminal.text().contains("hides")), "{}", terminal.text());
    terminal.press("s");
    terminal.shows("by allocated ↓");
    terminal.press("i");
    terminal.shows("by allocated ↑");
    terminal.press("T");
    terminal.shows("theme paper");
    terminal.press("-");
    terminal.shows("devices are read every 200 ms");
    terminal.press("+");
    terminal.shows("devices are read every 100 ms");
    terminal.press("z");
    terminal.shows("z: no such key · ? help");
    terminal.press("\x0c");
    terminal.shows("processes on all devices");
    quits(terminal);
}
