//! A recording of a real training job reads back as what a viewer received live from the first sample on.

use std::fs::File;

use gpuwatch::{
    facts::event::{Event, Fact, Line},
    model::{
        findings::{Kind, findings},
        session::Session,
    },
    sources::{Options, Sources, now, probe},
    storage::{
        recording::{Entry, FORMAT, Header, Reader},
        sink::record::Recorder,
    },
};
use tokio::time::{Instant, timeout_at};

use crate::{
    helpers::terminal::PATIENCE,
    probe::pytorch::{Job, script},
};

/// Watches and records at the same time, until the probe sends its bye.
fn watched(job: &mut Job, file: File) -> Session {
    let header = Header {
        format: FORMAT,
        gpuwatch: "0".into(),
        host: "h".into(),
        started_unix_us: 1,
        monotonic_us: now().0,
        name: None,
        writer: None,
    };
    let recorder = Recorder::start(file, &header).unwrap();
    let mut live = Session::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let probes =
            probe::Options { directories: vec![job.sockets.clone()], private_tmp: false, run: None, whole: false };
        let mut sources = Sources::start(Options { probes: Some(probes), ..Options::default() });
        job.go_on();
        let end = Instant::now() + PATIENCE * 3;
        let mut over = false;
        while !over {
            let event = timeout_at(end, sources.events.recv()).await.expect("the probe sends its bye").unwrap();
            over = matches!(&event.fact, Fact::Probe { line, .. } if matches!(**line, Line::Bye(_)));
            recorder.offer(&event);
            live.apply(&event);
        }
    });
    assert_eq!(recorder.finish().trouble, None);
    live
}

#[test]
fn a_recording_of_a_real_job_is_what_was_seen_live() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("real.jsonl.zst");
    let mut job = Job::start(&[&script("grows.py")]);
    job.next();
    let live = watched(&mut job, File::create_new(&path).unwrap());
    job.finish();

    let mut again = Session::default();
    for entry in Reader::new(File::open(&path).unwrap()).unwrap() {
        if let Entry::Event(event) = entry.unwrap() {
            again.apply(&event);
        }
    }
    // Seconds are not recorded: readers make their own.
    again.apply(&Event { at: live.now, fact: Fact::Second });
    assert!(again == live, "the fold of the recording differs");
    assert_eq!(findings(&again), findings(&live));

    let process = &live.processes[0];
    assert_eq!((process.devices[0].step, process.marks.iter().count(), process.ooms.iter().count()), (Some(180), 3, 3));
    let found = findings(&live).all;
    for kind in [Kind::Growth, Kind::Oom] {
        assert!(found.iter().any(|it| it.kind == kind), "{kind:?} in {found:#?}");
    }
}
