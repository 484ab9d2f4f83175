//! What is done beside a job of `gpuwatch run`: it is recorded, and alerts are told. Whatever fails, the job goes on.

use super::record::{header, keep};
use crate::{
    alerts::News,
    config::{self, OnAlert},
    event::{Event, Fact},
    findings::findings,
    launch::{self, job::Ended},
    session::Session,
    sink::{
        follow::follow,
        hook::{Hook, Outcome},
        record::Recorder,
    },
    source::Sources,
    text::Foreign,
};
use anyhow::Result;
use std::{sync::mpsc::Receiver, thread, time::Duration};

/// How long a program may still take for an alert when the job is over: less than the job's exit waits for us.
const PATIENCE: Duration = Duration::from_secs(2);

/// Until the job is over.
pub(super) fn beside(started: launch::Started, on_alert: &OnAlert) {
    let launch::Started { run, over, .. } = started;
    // There is no place to say what fails: standard output and error are the job's.
    let recorder = start_recording(&run).ok();
    let alarm = on_alert.hook().ok().flatten().map(Alarm::new);
    if recorder.is_some() || alarm.is_some() {
        let _ = follow_job(&run, over, recorder, alarm);
    }
}

fn start_recording(run: &str) -> Result<Recorder> {
    let (_, file) = keep(run)?;
    Ok(Recorder::start(file, &header())?)
}

fn follow_job(run: &str, over: Receiver<Ended>, recorder: Option<Recorder>, mut alarm: Option<Alarm>) -> Result<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    thread::Builder::new().name("over".into()).spawn(move || tell.send(over.recv().ok()))?;
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(config::job_sources(run));
        let stop = async { told.await.ok().flatten().map(ended).into_iter().collect() };
        let hear = |event: &Event| {
            if let Some(recorder) = &recorder {
                recorder.offer(event);
            }
            if let Some(alarm) = &mut alarm {
                alarm.hear(event);
            }
        };
        follow(&mut sources, stop, hear).await;
    });
    recorder.map(Recorder::finish);
    if let Some(complaint) = alarm.map(Alarm::finish).and_then(|it| it.complaint()) {
        // The job is over, and its terminal is free.
        super::say(format_args!("{}", Foreign::new(complaint)));
    }
    Ok(())
}

fn ended(how: Ended) -> Fact {
    match how {
        Ended::Code(code) => Fact::JobEnded { code: Some(code.into()), signal: None },
        Ended::Signal(signal) => Fact::JobEnded { code: None, signal: Some(signal) },
    }
}

/// Watches for alerts where nobody looks.
struct Alarm {
    session: Session,
    news: News,
    hook: Hook,
}

impl Alarm {
    fn new(hook: Hook) -> Self {
        Self { session: Session::default(), news: News::default(), hook }
    }

    fn hear(&mut self, event: &Event) {
        self.session.apply(event);
        if event.fact == Fact::Second {
            self.tell();
        }
    }

    fn tell(&mut self) {
        for message in self.news.at(&self.session, &findings(&self.session)) {
            self.hook.offer(message);
        }
    }

    /// What ended the job is told too.
    fn finish(mut self) -> Outcome {
        self.tell();
        self.hook.finish(PATIENCE)
    }
}
