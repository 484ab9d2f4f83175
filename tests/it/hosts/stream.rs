//! `gpuwatch stream`: a machine's events as lines, thinned, for as long as a reader holds both ends.

mod alerts;
mod cluster;
mod hosts;
mod played;
mod recorded;
mod requests;

use crate::{
    helpers::{
        story::{GIB, MIB, Story, counters},
        terminal::PROGRAM,
    },
    probe::launch::Home,
};
use gpuwatch::{
    model::{
        findings::{Kind, findings},
        session::Session,
    },
    sources::thinner::{STREAM_US, Thinner},
    storage::{
        recording::{Entry, FORMAT, Reader},
        stream,
    },
};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A rank with a probe, which ends with this value.
pub(crate) struct Rank {
    child: Child,
}

impl Rank {
    /// Starts one with a demo's flags; its socket goes to the home's directory.
    fn start(home: &Home, flags: &[&str]) -> Self {
        Self::start_in(home.0.path().join("sockets").to_str().unwrap(), flags, &[])
    }

    /// The same with its socket in this directory.
    pub(crate) fn start_in(directory: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["demo-job", "--directory", directory]).args(flags).envs(variables.iter().copied());
        Self { child: command.stdin(Stdio::piped()).spawn().unwrap() }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn streaming(home: &Home) -> (Child, BufReader<ChildStdout>) {
    streaming_with(home, &[])
}

fn streaming_with(home: &Home, arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(PROGRAM);
    command.args(["stream", "--no-nvml"]).args(arguments).envs(home.variables());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

#[test]
fn a_stream_is_a_recording_that_begins_with_its_version_and_ends_with_its_input() {
    let home = Home::new();
    let _rank = Rank::start(&home, &["--rate", "200"]);
    let (mut child, mut out) = streaming(&home);
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    let Ok(stream::Entry::Header(header)) = stream::decode(text.trim_end()) else { panic!("{text}") };
    assert_eq!((header.recording.format, header.recording.gpuwatch.as_str()), (FORMAT, env!("CARGO_PKG_VERSION")));
    // Samples arrive, the reader learns that it has one of several, and the clocks follow.
    for wanted in ["\"type\":\"sample\"", "\"type\":\"beat\"", "\"type\":\"history\""] {
        while !text.lines().any(|it| it.contains(wanted)) {
            assert!(out.read_line(&mut text).unwrap() > 0, "{wanted}");
        }
    }
    drop(child.stdin.take());
    out.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let entries: Result<Vec<Entry>, _> = Reader::new(text.as_bytes()).unwrap().collect();
    assert!(matches!(entries.unwrap().last(), Some(Entry::Closed(_))));
}

#[test]
fn a_stream_ends_when_no_process_reads_it() {
    let home = Home::new();
    let (mut child, out) = streaming(&home);
    drop(out);
    assert!(child.wait().unwrap().success());
}

/// A rank that keeps 1 MiB more after each of 200 steps a second, and one whose memory alternates.
fn fast() -> Story {
    let mut story = Story::default();
    story.device(0, 90 * GIB, &[]).probe(0, 4240, 0, None).device(1, 60 * GIB, &[]).probe(1, 4241, 1, None);
    for step in 1..12_000 {
        story.wait(5_000).sample(0, step, counters(20 * GIB + step * MIB, GIB));
        story.sample(1, step, counters(20 * GIB + step % 7 * 64 * MIB, GIB));
    }
    story
}

#[test]
fn a_thinned_stream_has_the_same_findings_in_a_fiftieth_of_the_samples() {
    let story = fast();
    let (mut thinner, mut session, mut samples) = (Thinner::new(STREAM_US), Session::default(), 0);
    for event in &story.events {
        thinner.take(event.clone(), &mut |it| {
            samples += usize::from(it.sample().is_some());
            session.apply(&it);
        });
    }
    let all = story.events.iter().filter(|it| it.sample().is_some()).count();
    assert!(samples * 49 < all, "{samples} of {all}");
    let found = |session: &Session| {
        let growth = findings(session).all.into_iter().filter(|it| it.kind == Kind::Growth && it.follows.is_none());
        growth.map(|it| (it.probe, it.resource, it.cause, it.bytes_per_step.unwrap())).collect::<Vec<_>>()
    };
    let (whole, thin) = (found(&story.session()), found(&session));
    assert!(!whole.is_empty());
    assert_eq!(whole.len(), thin.len(), "{whole:?} {thin:?}");
    for (whole, thin) in whole.iter().zip(&thin) {
        assert_eq!((whole.0, whole.1, whole.2), (thin.0, thin.1, thin.2));
        assert!((thin.3 / whole.3 - 1.0).abs() < 0.05, "{whole:?} {thin:?}");
    }
}
