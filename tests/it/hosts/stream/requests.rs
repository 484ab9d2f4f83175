//! What a stream does on request, one line each on its standard input.

use super::streaming_with;
use crate::{
    helpers::terminal::{PATIENCE, until},
    probe::launch::Home,
};
use gpuwatch::{
    facts::remote::{Answer, KINDS, Kind, Outcome, REQUEST_MAX},
    sources::system::{runs_since, start_ticks},
    storage::stream::{Entry, decode},
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
        process::ExitStatusExt,
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

/// A stream, and what it answers.
struct Asked {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Asked {
    fn start(home: &Home, arguments: &[&str]) -> (Self, Option<Vec<Kind>>) {
        let (child, mut out) = streaming_with(home, arguments);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let Ok(Entry::Header(header)) = decode(line.trim_end()) else { panic!("{line}") };
        (Self { child, out }, header.requests)
    }

    fn send(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// Its next answer to a request.
    fn answer(&mut self) -> Answer {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended without an answer");
            if let Ok(Entry::Answer(answer)) = decode(line.trim_end()) {
                return answer;
            }
        }
    }

    fn refusal(&mut self, id: u64, line: &str) -> String {
        self.send(line);
        let answer = self.answer();
        let Outcome::Error(why) = answer.outcome else { panic!("{answer:?}") };
        assert_eq!(answer.id, id, "{why}");
        why.to_string()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn hold(id: u64, pid: u32, start_ticks: u64) -> String {
    format!(r#"{{"id":{id},"type":"hold","pid":{pid},"start_ticks":{start_ticks},"vouched":true}}"#)
}

#[test]
fn a_stream_signals_the_held_process_and_no_other() {
    let home = Home::new();
    let (mut stream, kinds) = Asked::start(&home, &[]);
    assert_eq!(kinds.as_deref(), Some(&KINDS[..]));
    let mut job = Command::new("sleep").arg("1000").spawn().unwrap();
    let (pid, started) = (job.id(), start_ticks(job.id()).unwrap());
    for line in ["", "kill it", "{\"type\":\"hold\"}", &"x".repeat(3 * REQUEST_MAX), "\u{1b}]0;x\u{7}"] {
        stream.send(line);
    }
    assert!(stream.refusal(1, r#"{"id":1,"type":"dance"}"#).contains("no such request"));
    let signal = |id: u64, held: u64| format!(r#"{{"id":{id},"type":"signal","held":{held},"signal":"term"}}"#);
    assert!(stream.refusal(2, &signal(2, 2)).contains("not selected"), "none is held");
    assert!(stream.refusal(3, &hold(3, pid, started - 1)).contains("is another process by now"));
    stream.send(&hold(4, pid, started));
    let answer = stream.answer();
    let Outcome::Held(info) = &answer.outcome else { panic!("{answer:?}") };
    assert_eq!((answer.id, info.pid, info.start_ticks), (4, pid, started));
    assert!(stream.refusal(5, &signal(5, 3)).contains("not selected"), "another request holds it");
    assert!(job.try_wait().unwrap().is_none());
    stream.send(&signal(6, 4));
    assert_eq!(
        stream.answer(),
        Answer { id: 6, outcome: Outcome::Text(format!("sent TERM to pid {pid}").as_str().into()) }
    );
    assert_eq!(job.wait().unwrap().signal(), Some(15));
    assert!(stream.refusal(7, &signal(7, 4)).contains("was not sent"));
}

#[test]
fn a_request_before_the_end_of_input_is_carried_out() {
    let home = Home::new();
    let (mut stream, _) = Asked::start(&home, &[]);
    stream.send(&hold(1, std::process::id(), start_ticks(std::process::id()).unwrap()));
    drop(stream.child.stdin.take());
    assert!(matches!(stream.answer().outcome, Outcome::Held(_)));
}

#[test]
fn a_command_line_is_described_without_its_secrets() {
    let home = Home::new();
    let (mut stream, _) = Asked::start(&home, &[]);
    let mut job = Command::new("sh");
    job.args(["-c", "read x", "sh", "--token", "hunter2"]).stdin(Stdio::piped());
    let mut job = job.spawn().unwrap();
    // It has its own command line once it runs `sh`.
    let line = || fs::read_to_string(format!("/proc/{}/cmdline", job.id())).unwrap();
    assert!(until(PATIENCE, || line().contains("hunter2")));
    stream.send(&hold(1, job.id(), start_ticks(job.id()).unwrap()));
    let mut text = String::new();
    while !text.contains("\"answer\"") {
        text.clear();
        stream.out.read_line(&mut text).unwrap();
    }
    assert!(text.contains("--token") && !text.contains("hunter2"), "{text}");
    drop(job.stdin.take());
    job.wait().unwrap();
}

#[test]
fn a_read_only_stream_refuses_every_request() {
    let home = Home::new();
    let (mut stream, kinds) = Asked::start(&home, &["--readonly"]);
    assert_eq!(kinds, Some(Vec::new()));
    let own = std::process::id();
    assert!(stream.refusal(1, &hold(1, own, start_ticks(own).unwrap())).contains("--readonly"));
    // So does one whose config has it.
    fs::create_dir_all(home.0.path().join("config/gpuwatch")).unwrap();
    fs::write(home.0.path().join("config/gpuwatch/config.toml"), "[view]\nreadonly = true\n").unwrap();
    let (_stream, kinds) = Asked::start(&home, &[]);
    assert_eq!(kinds, Some(Vec::new()));
}

#[test]
fn a_probe_is_started_by_the_same_command_as_on_one_machine() {
    let home = Home::new();
    let (mut stream, _) = Asked::start(&home, &[]);
    let mut job = Command::new("sleep").arg("1000").spawn().unwrap();
    stream.send(&hold(1, job.id(), start_ticks(job.id()).unwrap()));
    assert!(matches!(stream.answer().outcome, Outcome::Held(_)));
    stream.send(r#"{"id":2,"type":"start","held":1,"start":"probe"}"#);
    let Answer { id: 2, outcome: Outcome::Text(words) } = stream.answer() else { panic!("another answer") };
    assert!(words.to_string().contains("does not run CPython"), "{words}");
    // Nothing is started at a process that has ended since, also while its parent has not noticed.
    stream.send(&hold(3, job.id(), start_ticks(job.id()).unwrap()));
    assert!(matches!(stream.answer().outcome, Outcome::Held(_)));
    job.kill().unwrap();
    assert!(until(PATIENCE, || runs_since(job.id()).is_none()));
    let why = stream.refusal(4, r#"{"id":4,"type":"start","held":3,"start":"probe"}"#);
    assert_eq!(why, format!("no probe was started: pid {} has ended", job.id()));
    job.wait().unwrap();
}

#[test]
fn a_capture_reaches_the_probe_of_the_process_that_was_shown() {
    let home = Home::new();
    let probe = Captured::new(&home.0.path().join("sockets"));
    let (mut stream, _) = Asked::start(&home, &[]);
    let mut probe = probe.greet();
    let mut line = String::new();
    while !line.contains("\"hello\"") {
        line.clear();
        stream.out.read_line(&mut line).unwrap();
    }
    let from = line.split("\"from\":").nth(1).unwrap().split([',', '}']).next().unwrap();
    let capture = |id: u64, pid: u32| format!(r#"{{"id":{id},"type":"capture","pid":{pid},"probe":{from},"steps":8}}"#);
    assert!(stream.refusal(1, &capture(1, 8)).contains("no probe any more"));
    stream.send(&capture(2, 7));
    assert_eq!(stream.answer(), Answer { id: 2, outcome: Outcome::Done });
    assert_eq!(probe.request(), "sites steps=8\n");
}

/// A probe that takes requests for captures.
pub(super) struct Captured(UnixListener);

/// The same with a viewer.
pub(super) struct Greeted(BufReader<UnixStream>);

impl Captured {
    pub(super) fn new(sockets: &Path) -> Self {
        fs::create_dir_all(sockets).unwrap();
        fs::set_permissions(sockets, fs::Permissions::from_mode(0o700)).unwrap();
        Self(UnixListener::bind(sockets.join("7.sock")).unwrap())
    }

    pub(super) fn greet(self) -> Greeted {
        let (mut viewer, _) = self.0.accept().unwrap();
        let lines = concat!(
            r#"{"type":"hello","protocol":1,"probe":"fake/1","pid":7,"seq":0,"monotonic_us":1,"sites":"ready","#,
            r#""devices":[{"ordinal":0,"uuid":"GPU-1","total":4294967296}]}"#,
            "\n{\"type\":\"live\",\"seq\":0}\n",
            r#"{"type":"sample","seq":1,"at_us":1,"device":0,"edge":"step","step":1,"allocated":9,"reserved":9}"#,
            "\n"
        );
        viewer.write_all(lines.as_bytes()).unwrap();
        viewer.set_read_timeout(Some(PATIENCE)).unwrap();
        Greeted(BufReader::new(viewer))
    }
}

impl Greeted {
    pub(super) fn request(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}
