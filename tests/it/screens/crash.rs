//! A terminal after a crash, and a terminal of absurd size.

use crate::helpers::terminal::{PATIENCE, PROGRAM, Terminal, spawn, until};
use rustix::process::Signal;
use std::{
    fs,
    hint::black_box,
    io::{Read, Write},
    process::Command,
};

/// What a terminal needs to be as it was before.
const GIVEN_BACK: [&str; 7] =
    ["\x1b[?2026l", "\x1b[?1000l", "\x1b[?1002l", "\x1b[?1006l", "\x1b[?2004l", "\x1b[?1049l", "\x1b[?25h"];

#[expect(unconditional_recursion, reason = "it overflows the stack")]
fn overflow(depth: u64) -> u64 {
    let room = black_box([depth; 64]);
    overflow(depth + 1) + room[0]
}

/// Ends this process in one of the ways that neither run a destructor nor panic.
fn crash(how: &str) {
    match how {
        "abort" => std::process::abort(),
        "memory" => drop(black_box(Vec::<u8>::with_capacity(black_box(isize::MAX.unsigned_abs())))),
        _ => drop(black_box(overflow(0))),
    }
}

/// The one that crashes is this very test, started again in a terminal.
#[test]
fn a_crash_gives_the_terminal_back() {
    if let Ok(how) = std::env::var("GPUWATCH_TEST_CRASH") {
        let _screen = gpuwatch::screen::term::Screen::take(true).unwrap();
        crash(&how);
    }
    let own = std::env::current_exe().unwrap();
    let arguments =
        ["--exact", "screens::crash::a_crash_gives_the_terminal_back", "--nocapture", "--test-threads", "1"];
    for how in ["abort", "memory", "overflow"] {
        let before = spawn((40, 130), "true", &[], &[]).1.get_termios().unwrap();
        let environment = [("GPUWATCH_TEST_CRASH", how)];
        let (_home, master, mut child) = spawn((40, 130), own.to_str().unwrap(), &arguments, &environment);
        let mut reader = master.try_clone_reader().unwrap();
        let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&seen).contains("\x1b[?25h") {
            match reader.read(&mut buffer) {
                Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
                _ => break,
            }
        }
        let status = child.wait().unwrap();
        assert!(status.signal().is_some_and(|it| it.contains("Abort")), "{how}: {status:?}");
        let seen = String::from_utf8_lossy(&seen).into_owned();
        let taken = seen.find("\x1b[?1049h").unwrap_or_else(|| panic!("{how}: never taken: {seen:?}"));
        for mode in GIVEN_BACK {
            assert!(seen.get(taken..).is_some_and(|after| after.contains(mode)), "{how}: no {mode:?} in {seen:?}");
        }
        let after = master.get_termios().unwrap();
        assert_eq!(
            (after.local_flags, after.input_flags, after.output_flags),
            (before.local_flags, before.input_flags, before.output_flags)
        );
    }
}

#[test]
fn a_fault_signal_gives_the_terminal_back() {
    for signal in [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE] {
        let mut terminal = Terminal::start(&["--no-nvml"], &[]);
        terminal.shows("0 devices");
        terminal.signal(signal);
        assert_ne!(terminal.ends(PATIENCE), 0, "{signal:?}");
    }
}

/// A killed program restores nothing; the next one works in that terminal, and leaves it as a user needs it.
#[test]
fn the_next_start_repairs_the_terminal_of_a_killed_one() {
    let script = "\"$0\" --no-nvml; echo was-killed; \"$0\" --no-nvml; stty -a; echo all-done";
    let mut terminal = Terminal::start_program("/bin/sh", &["-c", script, PROGRAM], &[]);
    terminal.shows("0 devices");
    let shell = terminal.child.process_id().unwrap();
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    assert!(Command::new("kill").args(["-9", children.trim()]).status().unwrap().success());
    let after = |terminal: &Terminal, mark: &str| {
        let seen = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        seen.rsplit_once(mark).map(|it| it.1.to_owned()).unwrap_or_default()
    };
    // Its first frame is complete.
    assert!(until(PATIENCE, || after(&terminal, "was-killed").contains("\x1b[?2026l")), "{}", terminal.text());
    terminal.shows("0 devices");
    terminal.press("q");
    assert!(until(PATIENCE, || after(&terminal, "was-killed").contains("all-done")), "{}", terminal.text());
    let settings = after(&terminal, "was-killed");
    let words: Vec<&str> = settings.split_whitespace().collect();
    for mode in ["icanon", "isig", "echo", "icrnl", "opost", "onlcr"] {
        assert!(words.contains(&mode), "no {mode:?} in {settings:?}");
    }
    assert!(GIVEN_BACK.iter().all(|it| settings.contains(it)), "{settings:?}");
    terminal.ends(PATIENCE);
}

/// The most memory that a process has used, in MiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn a_terminal_of_any_size_is_drawn_on_in_bounded_memory() {
    for size in [(20_000, 20_000), (u16::MAX, u16::MAX), (1, u16::MAX), (u16::MAX, 1), (u16::MAX, 80)] {
        let (_home, master, mut child) = spawn(size, PROGRAM, &["demo"], &[]);
        let mut reader = master.try_clone_reader().unwrap();
        let mut keys = master.take_writer().unwrap();
        let (mut seen, mut buffer) = (Vec::new(), [0; 16384]);
        let mut read_until = |holds: &dyn Fn(&str) -> bool| {
            while !holds(&String::from_utf8_lossy(&seen)) {
                match reader.read(&mut buffer) {
                    Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
            String::from_utf8_lossy(&seen).into_owned()
        };
        // The second frame has what the first one changed.
        read_until(&|it| it.matches("\x1b[?2026l").count() >= 2);
        let used = peak(child.process_id().unwrap());
        assert!(used < 256, "{size:?}: {used} MiB");
        keys.write_all(b"q").unwrap();
        let seen = read_until(&|it| it.contains("\x1b[?1049l"));
        assert!(child.wait().unwrap().success(), "{size:?}");
        for place in seen.split("\x1b[").skip(1).filter_map(|it| it.split_once('H')) {
            let numbers: Vec<u16> = place.0.split(';').filter_map(|it| it.parse().ok()).collect();
            assert!(
                numbers.first().is_none_or(|it| *it <= 500) && numbers.get(1).is_none_or(|it| *it <= 1000),
                "{numbers:?}"
            );
        }
    }
}
