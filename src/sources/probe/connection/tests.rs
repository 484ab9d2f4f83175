//! Peers, and probes that never pause or that have ended.

use super::*;
use crate::facts::event::ProbeId;
use std::{future::poll_fn, io::Write, pin::pin, task::Poll};
use tokio::runtime;

/// All is there before the first look, so that only the reader itself can end its turn.
#[test]
fn a_probe_that_never_pauses_keeps_no_other_waiting() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let sample = |seq| format!("{{\"type\":\"sample\",\"seq\":{seq},\"at_us\":{seq},\"device\":0}}\n");
    let text: String = (1..=1000).map(sample).collect();
    theirs.write_all(text.as_bytes()).unwrap();
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let (queue, _events) = mpsc::channel(16);
        let sender = EventSender { queue, no_arguments: false };
        let mut lines = Lines::after(0, ProbeId(1), &sender);
        let mut input = BufReader::new(Input::new(Arc::new(ours)));
        let path = Foreign::new("probe");
        lines.pass_on(super::super::wire::line(r#"{"type":"live","seq":0}"#).unwrap()).await;
        {
            let mut turn = pin!(receive(&mut lines, || 256, &mut input, &path, Vec::new));
            poll_fn(|context| {
                assert!(turn.as_mut().poll(context).is_pending(), "the probe has not ended");
                Poll::Ready(())
            })
            .await;
        }
        assert!((1..500).contains(&lines.seq), "{} lines in one turn", lines.seq);
    });
}

#[test]
fn lines_of_a_probe_that_ended_before_it_was_read_are_passed_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("7.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let lines = [
        r#"{"type":"hello","protocol":1,"pid":7,"instance":"0123456789abcdef0123456789abcdef","seq":2}"#,
        r#"{"type":"sample","seq":1,"at_us":1,"device":0}"#,
        r#"{"type":"bye","seq":2,"at_us":2,"reason":"exit"}"#,
    ];
    theirs.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    drop(theirs);
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let (queue, mut events) = mpsc::channel(16);
        let (reports, _reported) = mpsc::channel(16);
        let stream = Stream { socket: Arc::new(ours), uid: rustix::process::geteuid().as_raw(), pid: None };
        let socket = Socket::at(path).unwrap();
        let job = Job { socket, stream, probes: Probes::default(), run: None, whole: true };
        job.read(EventSender { queue, no_arguments: false }, reports).await;
        let mut came = Vec::new();
        while let Some(event) = events.recv().await {
            came.push(event.fact);
        }
        let is_bye = |it: &Fact| matches!(it, Fact::Probe { line, .. } if matches!(**line, Line::Bye(_)));
        assert!(came.len() == 4 && is_bye(&came[3]), "{came:?}");
    });
}

#[test]
fn peers_of_another_user_are_refused() {
    let cases = [(1000, 1000, true), (1000, 0, true), (1000, 1001, false), (1000, OVERFLOW_UID, false)];
    for (own, uid, may) in cases.into_iter().chain([(0, 1000, true), (0, OVERFLOW_UID, false)]) {
        assert_eq!(may_talk(own, uid), may, "{own} reads {uid}");
    }
}
