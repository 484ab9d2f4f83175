//! The live view in a real terminal: it starts, obeys keys, and always gives the terminal back.

use gpuwatch_probe::{
    Description, Probe,
    reading::Reading,
    wire::{Device, Edge, Hello, Oom},
};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{Read, Write},
    num::NonZeroU16,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gpuwatch");

/// A generous limit for a loaded machine; only a failing test waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until it holds; false when it never does.
pub(crate) fn until(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program in a terminal of its own.
pub(crate) struct Terminal {
    pub(crate) child: Box<dyn Child + Send + Sync>,
    seen: Arc<Mutex<Seen>>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    _home: TempDir,
}

struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    /// How many of the bytes the parser has.
    parsed: usize,
    /// The frames among those.
    frames: usize,
}

/// What begins and ends a frame.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

impl Seen {
    fn new(parser: vt100::Parser) -> Self {
        Self { parser, bytes: Vec::new(), parsed: 0, frames: 0 }
    }

    /// Takes bytes as a terminal with synchronized updates does: a frame is seen once it is complete, so a key that a
    /// test presses at the sight of something follows the whole frame.
    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let rest = &self.bytes[self.parsed..];
        let last = |order: &[u8]| rest.windows(order.len()).rposition(|it| it == order);
        let begun = last(BEGIN).filter(|begin| last(END) < Some(*begin));
        // The rest of what ends here may begin a frame.
        let cut = (1..BEGIN.len()).rev().find(|it| rest.ends_with(&BEGIN[..*it])).map(|it| rest.len() - it);
        self.parse(begun.or(cut).unwrap_or(rest.len()));
    }

    fn parse_rest(&mut self) {
        self.parse(self.bytes.len() - self.parsed);
    }

    fn parse(&mut self, count: usize) {
        let to = self.parsed + count;
        let fresh = &self.bytes[self.parsed..to];
        self.parser.process(fresh);
        self.frames += fresh.windows(END.len()).filter(|it| *it == END).count();
        self.parsed = to;
    }
}

impl Terminal {
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_sized((40, 130), arguments, environment)
    }

    pub(crate) fn start_sized(size: (u16, u16), arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_all(size, PROGRAM, arguments, environment)
    }

    pub(crate) fn start_program(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_all((40, 130), program, arguments, environment)
    }

    fn start_all(size: (u16, u16), program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let (home, master, child) = spawn(size, program, arguments, environment);
        let mut reader = master.try_clone_reader().unwrap();
        let keys = master.take_writer().unwrap();
        let [rows, columns] = [size.0, size.1].map(|it| NonZeroU16::new(it).unwrap_or(NonZeroU16::MIN));
        let seen = Arc::new(Mutex::new(Seen::new(vt100::Parser::new(rows, columns, 0))));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 16384];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                shared.lock().unwrap().take(&buffer[..read]);
            }
            // What the program did not complete is seen at its end.
            shared.lock().unwrap().parse_rest();
        });
        Self { child, seen, master, keys, _home: home }
    }

    pub(crate) fn text(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.seen.lock().unwrap().bytes.clone()
    }

    /// How many frames it has drawn.
    pub(crate) fn frames(&self) -> usize {
        self.seen.lock().unwrap().frames
    }

    fn is_alternate(&self) -> bool {
        self.seen.lock().unwrap().parser.screen().alternate_screen()
    }

    /// The colours of everything that is seen.
    pub(crate) fn inks(&self) -> Vec<vt100::Color> {
        let seen = self.seen.lock().unwrap();
        let screen = seen.parser.screen();
        let (rows, columns) = screen.size();
        let places = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        let written = places.filter_map(|(row, column)| screen.cell(row, column)).filter(|it| it.has_contents());
        written.flat_map(|it| [it.fgcolor(), it.bgcolor()]).collect()
    }

    pub(crate) fn has_mouse(&self) -> bool {
        self.seen.lock().unwrap().parser.screen().mouse_protocol_mode() != vt100::MouseProtocolMode::None
    }

    pub(crate) fn shows(&self, phrase: &str) {
        assert!(until(PATIENCE, || self.text().contains(phrase)), "no {phrase:?} on:\n{}", self.text());
    }

    pub(crate) fn hides(&self, phrase: &str) {
        assert!(until(PATIENCE, || !self.text().contains(phrase)), "{phrase:?} on:\n{}", self.text());
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        // What the program draws for the new size is not seen in the old one.
        let mut seen = self.seen.lock().unwrap();
        self.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
        if let (Some(rows), Some(cols)) = (NonZeroU16::new(rows), NonZeroU16::new(cols)) {
            seen.parser.screen_mut().set_size(rows, cols);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(&*self.child), signal).unwrap();
    }

    /// The exit code, and that the terminal was given back.
    pub(crate) fn ends(&mut self, within: Duration) -> u32 {
        let code = ends(&mut *self.child, within);
        assert!(until(PATIENCE, || !self.is_alternate()), "the alternate screen was left");
        let seen = self.seen.lock().unwrap();
        let screen = seen.parser.screen();
        assert!(!screen.hide_cursor(), "the cursor is back");
        assert!(!screen.bracketed_paste(), "pasting is as before");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "the mouse is the terminal's");
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) type Spawned = (TempDir, Box<dyn MasterPty + Send>, Box<dyn Child + Send + Sync>);

pub(crate) fn spawn(size: (u16, u16), program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Spawned {
    let home = tempfile::tempdir().unwrap();
    let pair =
        native_pty_system().openpty(PtySize { rows: size.0, cols: size.1, pixel_width: 0, pixel_height: 0 }).unwrap();
    let mut command = CommandBuilder::new(program);
    command.args(arguments);
    for name in ["NO_COLOR", "LC_ALL", "LC_CTYPE", "COLORFGBG", "STY", "GPUWATCH_NO_NVML", "GPUWATCH_CONFIG"] {
        command.env_remove(name);
    }
    let home_path = home.path().to_str().unwrap().to_owned();
    let own = [
        ("TERM", "xterm-256color"),
        ("COLORTERM", "truecolor"),
        ("LANG", "C.UTF-8"),
        // No test has to reply to the question for the background; those of `backgrounds` do.
        ("GPUWATCH_THEME", "dusk"),
        ("GPUWATCH_SOCKET_DIR", &home_path),
        ("GPUWATCH_NVML_PATH", "/nonexistent/libnvidia-ml.so.1"),
        ("XDG_STATE_HOME", &home_path),
        ("XDG_CONFIG_HOME", &home_path),
    ];
    for (name, value) in own.iter().chain(environment) {
        command.env(name, value);
    }
    let child = pair.slave.spawn_command(command).unwrap();
    (home, pair.master, child)
}

fn pid(child: &dyn Child) -> Pid {
    Pid::from_raw(i32::try_from(child.process_id().unwrap()).unwrap()).unwrap()
}

fn ends(child: &mut dyn Child, within: Duration) -> u32 {
    let mut status = None;
    let ended = until(within, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(ended, "it did not end within {within:?}");
    status.unwrap().exit_code()
}

#[test]
fn the_demo_is_drawn_obeys_keys_and_leaves_nothing_behind() {
    let mut terminal = Terminal::start(&["demo"], &[]);
    // It begins with what needs attention: the rank that leaks is not the first.
    for phrase in ["demo H200", "weights", "140.40 GiB", "memory of GPU 1", "+4.00 MiB"] {
        terminal.shows(phrase);
    }
    assert!(terminal.is_alternate());
    terminal.press("?");
    terminal.shows("this help");
    terminal.press("?");
    assert!(until(PATIENCE, || !terminal.text().contains("this help")), "{}", terminal.text());
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_frame_is_seen_once_it_is_complete() {
    let mut seen = Seen::new(vt100::Parser::new(NonZeroU16::MIN, NonZeroU16::new(20).unwrap(), 0));
    for (bytes, text) in [
        ("one", "one"),
        ("\x1b[?2026h\rtw", "one"),
        ("o\x1b[?20", "one"),
        ("26l", "two"),
        ("\x1b[?2026h\r3\x1b[?2026l\x1b[?2026h\r4", "3wo"),
        ("\x1b[?2026l", "4wo"),
        ("!\x1b[?20", "4!o"),
        ("26h\r5", "4!o"),
    ] {
        seen.take(bytes.as_bytes());
        assert_eq!(seen.parser.screen().contents(), text, "after {bytes:?}");
    }
    seen.parse_rest();
    assert_eq!(seen.parser.screen().contents(), "5!o");
}

#[test]
fn space_freezes_and_resumes_the_picture() {
    let mut terminal = Terminal::start(&["demo"], &[]);
    terminal.shows("rank");
    terminal.press(" ");
    terminal.shows("FROZEN");
    terminal.press(" ");
    assert!(until(PATIENCE, || !terminal.text().contains("FROZEN")), "{}", terminal.text());
    terminal.press("\x03");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_terminal_of_size_zero_is_drawn_without_error() {
    let mut terminal = Terminal::start(&["demo"], &[]);
    terminal.shows("rank");
    for (rows, columns) in [(1, 1), (0, 0), (0, 80), (24, 0), (2, 300), (12, 40)] {
        terminal.resize(rows, columns);
        // One key that changes nothing for good makes sure that the size was met.
        terminal.press("??");
    }
    terminal.resize(40, 130);
    terminal.shows("rank");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

/// As under `docker exec -t` and on serial lines: the terminal's size is unknown.
#[test]
fn a_terminal_of_unknown_size_is_drawn_on_and_restored() {
    let mut terminal = Terminal::start_sized((0, 0), &["--no-nvml"], &[]);
    assert!(until(PATIENCE, || terminal.is_alternate()), "{:?}", String::from_utf8_lossy(&terminal.bytes()));
    terminal.resize(24, 80);
    terminal.shows("0 devices");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_signal_ends_the_view_and_the_terminal_is_given_back() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1), (Signal::INT, 2), (Signal::QUIT, 3)] {
        let mut terminal = Terminal::start(&[], &[]);
        assert!(until(PATIENCE, || terminal.is_alternate()));
        terminal.signal(signal);
        assert_eq!(terminal.ends(PATIENCE), 128 + number);
    }
}

#[test]
fn every_signal_that_ends_the_view_gives_the_terminal_back() {
    for name in ["USR1", "USR2", "ALRM", "ABRT", "XCPU", "PROF", "RTMIN+5"] {
        let mut terminal = Terminal::start(&[], &[]);
        assert!(until(PATIENCE, || terminal.is_alternate()));
        let pid = pid(&*terminal.child).as_raw_nonzero().to_string();
        assert!(Command::new("bash").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success());
        assert!(terminal.ends(PATIENCE) > 128, "{name}");
    }
}

/// Also if SIGHUP is ignored, as under nohup, and only a failing write shows the end.
#[test]
fn a_terminal_that_is_gone_ends_the_view() {
    for start in ["exec \"$0\"", "trap '' HUP; exec \"$0\""] {
        let (_home, master, mut child) = spawn((40, 130), "/bin/sh", &["-c", start, PROGRAM], &[]);
        let mut reader = master.try_clone_reader().unwrap();
        let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&seen).contains("\x1b[?1049h") {
            let read = reader.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..read]);
        }
        drop((reader, master));
        ends(&mut *child, PATIENCE);
    }
}

/// The one that panics is this very test, started again in a terminal.
#[test]
fn a_panic_gives_the_terminal_back_before_it_is_printed() {
    if std::env::var_os("GPUWATCH_TEST_PANIC").is_some() {
        let _screen = gpuwatch::screen::term::Screen::take(true).unwrap();
        panic!("as asked");
    }
    let own = std::env::current_exe().unwrap();
    let name = "helpers::terminal::a_panic_gives_the_terminal_back_before_it_is_printed";
    let arguments = ["--exact", name, "--nocapture", "--test-threads", "1"];
    let environment = [("GPUWATCH_TEST_PANIC", "1"), ("RUST_BACKTRACE", "0")];
    let (_home, master, mut child) = spawn((40, 130), own.to_str().unwrap(), &arguments, &environment);
    let mut reader = master.try_clone_reader().unwrap();
    let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&seen).contains("test result") {
        match reader.read(&mut buffer) {
            Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
            _ => break,
        }
    }
    ends(&mut *child, PATIENCE);
    let seen = String::from_utf8_lossy(&seen).into_owned();
    let place = |phrase: &str| seen.find(phrase).unwrap_or_else(|| panic!("no {phrase:?} in {seen:?}"));
    assert!(place("\x1b[?1049h") < place("\x1b[?1049l"));
    for mode in ["\x1b[?1000l", "\x1b[?1002l", "\x1b[?1006l", "\x1b[?2004l", "\x1b[?25h"] {
        assert!(place(mode) < place("as asked"), "{mode:?} in {seen:?}");
    }
    assert!(place("\x1b[?1049l") < place("as asked"), "{seen:?}");
}

#[test]
fn without_colours_none_is_sent() {
    let mut terminal = Terminal::start(&["demo"], &[("NO_COLOR", "1")]);
    terminal.shows("rank");
    terminal.press("q");
    terminal.ends(PATIENCE);
    let sent = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    // Orders that move the cursor have numbers too.
    let orders = sent.split("\x1b[").skip(1).map(|it| it.split_at(it.find(|c: char| c.is_alphabetic()).unwrap()));
    for pen in orders.filter(|(_, rest)| rest.starts_with('m')).map(|it| it.0) {
        let is_colour =
            |it: &str| it.parse().is_ok_and(|code: u32| (30..=107).contains(&code) && ![39, 49].contains(&code));
        assert!(!pen.split(';').any(is_colour), "{pen} was sent");
    }
}

#[test]
fn a_dumb_terminal_gets_text_and_no_escape() {
    let mut terminal = Terminal::start(&["--no-nvml"], &[("TERM", "dumb")]);
    assert_eq!(terminal.ends(PATIENCE), 0);
    assert!(until(PATIENCE, || terminal.text().contains("no devices")), "{}", terminal.text());
    assert!(!terminal.bytes().contains(&0x1b));
}

#[test]
fn standard_output_that_is_not_a_terminal_gets_text() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("--no-nvml").env("GPUWATCH_SOCKET_DIR", home.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("no devices") && !text.contains('\x1b'), "{text}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("gpuwatch once"));
    // A reader that is gone is not an error.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_command_line_is_split_into_arguments() {
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["env", "--help"],
        &["demo", "--help"],
        &["record", "--help"],
        &["once", "--help"],
        &["replay", "--help"],
    ] {
        let (code, text) = run(command);
        assert_eq!(code, Some(0));
        let before = text.split("\nUsage:").next().unwrap_or_default();
        assert!(
            ["Example:\n  ", "Examples:\n  "].iter().any(|it| before.contains(it)),
            "{command:?} shows no example first:\n{text}"
        );
        assert!(!text.contains("demo-job"), "{text}");
    }
    assert_eq!(run(&["-V"]), (Some(0), format!("gpuwatch {}\n", env!("CARGO_PKG_VERSION"))));
    let (code, version) = run(&["--version"]);
    let begin = format!("gpuwatch {} (", env!("CARGO_PKG_VERSION"));
    assert!(code == Some(0) && version.starts_with(&begin) && version.contains(" build for "), "{version}");
    for wrong in [&["--nope"][..], &["once", "--interval", "5"], &["run"], &["rewind"], &["--interval", "1ms"]] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
    for incomplete in ["serve", "diff", "run"] {
        let (code, text) = run(&[incomplete]);
        let example = text.split("Example").nth(1).unwrap_or_default();
        assert!(code == Some(2) && example.contains(&format!("  gpuwatch {incomplete} ")), "{text}");
    }
    let (code, text) = run(&["--theme", "nope"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("there are dusk"), "{text}");
}

#[test]
fn control_characters_of_others_reach_no_terminal() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let nasty = "\x1b]0;owned\x07\u{9b}31m\u{202e}";
    let hello = Hello { argv: vec!["job".into(), nasty.into()], ..Hello::default() };
    let mut description = Description { hello, directories: vec![home.path().into()], ..Description::default() };
    let device =
        Device { ordinal: 0, uuid: Some(format!("GPU-{nasty}")), name: Some(nasty.into()), total: Some(1 << 30) };
    description.device(device);
    let probe = Probe::start(description).unwrap();
    let mut reading = Reading { edge: Edge::Step, steps: 1, ..Reading::default() };
    reading.put(1, 512);
    probe.push(&reading).unwrap();
    probe.mark(nasty, Some(1)).unwrap();
    probe.oom(Oom { step: Some(1), message: Some(nasty.into()), ..Oom::default() }).unwrap();
    let environment = [("GPUWATCH_SOCKET_DIR", home.path().to_str().unwrap())];
    let mut terminal = Terminal::start(&["--no-nvml"], &environment);
    terminal.shows("1 probe");
    terminal.shows("owned");
    terminal.press("\r");
    terminal.press("?");
    terminal.shows("this help");
    terminal.press("q");
    terminal.ends(PATIENCE);
    let mut command = Command::new(PROGRAM);
    command.env("GPUWATCH_SOCKET_DIR", home.path());
    let text = command.args(["once", "--no-nvml"]).output().unwrap().stdout;
    let json = command.arg("--json").output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&json).contains("owned"));
    for sent in [terminal.bytes(), text, json] {
        let sent = String::from_utf8(sent).unwrap();
        assert!(!sent.contains("\x1b]") && !sent.contains(['\x07', '\u{9b}', '\u{202e}']), "{sent:?}");
    }
}

/// A terminal that takes nothing (Ctrl-S, a stopped terminal program) blocks the write of a picture.
#[test]
fn a_signal_ends_a_view_whose_terminal_is_stuck() {
    let (_home, _master, mut child) = spawn((50, 200), PROGRAM, &["demo"], &[]);
    // Nothing reads: changing frames fill the terminal's buffer, and a write sleeps. If the kernel does not report what
    // a process waits for, some seconds have to do.
    let stat = format!("/proc/{}/wchan", child.process_id().unwrap());
    until(Duration::from_secs(4), || {
        fs::read_to_string(&stat).is_ok_and(|it| it.contains("tty") || it.contains("woken"))
    });
    kill_process(pid(&*child), Signal::TERM).unwrap();
    ends(&mut *child, PATIENCE);
}
