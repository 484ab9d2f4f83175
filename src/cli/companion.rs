//! Runs beside a job of `gpuwatch run`: records it and sends alerts. Whatever fails, the job continues.

use super::record::{keep, start};
use crate::{
    config::{self, Asking, Driver, Keep, OnAlert, Recording, Summary, When},
    facts::{
        event::{Ask, Event, Fact},
        text::{self, Foreign},
    },
    jobs::launch::{self, job::Ended},
    model::{
        alerts::{self, Captures, Edges, News, Policy},
        analysis::severity::Severity,
        findings::Findings,
        session::Session,
    },
    sources::{self, Sources},
    storage::{
        output,
        recording::encode_alert,
        sink::{follow::follow, hook::Hook, record::Recorder},
    },
};
use anyhow::{Context, Result};
use std::{
    path::{Path, PathBuf},
    sync::mpsc::Receiver,
    thread,
    time::Duration,
};

/// Bytes of a path that are shown.
const PATH_MAX: usize = 4096;

/// How long a program may still take for an alert when the job is over: less than the job's exit waits for us.
const PATIENCE: Duration = Duration::from_secs(2);

/// Until the job is over.
pub(super) fn companion(
    started: launch::Started,
    on_alert: &OnAlert,
    (bounds, recording): (&Keep, &Recording),
    policy: Result<Policy, config::Fault>,
    asking: Asking,
    driver: Driver,
) {
    let launch::Started { run, over, .. } = started;
    // Report failures after the job: until then standard output and error are the job's own.
    let (recorder, unrecorded) = match start_recording(&run, bounds, recording) {
        Ok(it) => (Some(it), None),
        Err(why) => (None, Some(format!("nothing was recorded: {why:#}"))),
    };
    let summary = recording.summary;
    let hook = on_alert.hook().ok().flatten();
    let (policy, fault) = match policy {
        Ok(policy) => (policy, None),
        Err(fault) => (Policy::default(), Some(fault)),
    };
    if recorder.is_some() || unrecorded.is_some() || hook.is_some() || fault.is_some() {
        let (session, edges, news) = Default::default();
        let captures = (asking.sites == When::Auto).then(Captures::default);
        let asks = Vec::new();
        let no_arguments = bounds.no_arguments;
        let watch = Watch { recorder, unrecorded, summary, hook, policy, fault, session, edges, news, captures, asks };
        let _ = watch.follow_job(config::job_sources(&run, driver, no_arguments), over);
    }
}

fn start_recording(run: &str, bounds: &Keep, recording: &Recording) -> Result<(Recorder, PathBuf)> {
    let name = recording.name.as_deref();
    let (path, file) = match &recording.output {
        Some(path) => {
            let file = output::open_new(path).with_context(|| format!("cannot make {}", path.display()))?;
            (path.clone(), file)
        }
        None => keep(name.unwrap_or(run), bounds)?,
    };
    Ok((start(&path, file, name)?, path))
}

/// What was found in a job, and how to look at it again: `1 critical, 2 info · gpuwatch replay FILE`.
fn summed_up(session: &Session, found: &Findings, file: Option<&Path>) -> String {
    let count = |it: Severity| Some((alerts::open(session, found, it), it)).filter(|found| found.0 > 0);
    let counts: Vec<String> = [Severity::Critical, Severity::Warning, Severity::Info]
        .into_iter()
        .filter_map(count)
        .map(|(count, severity)| format!("{count} {}", severity.name()))
        .collect();
    let what = match (counts.is_empty(), session.processes.is_empty()) {
        (false, _) => counts.join(", "),
        (true, false) => "no alerts".to_owned(),
        (true, true) => "no process was probed".to_owned(),
    };
    let replay = file.map(|it| {
        let path = it.to_string_lossy();
        format!(" · {}", text::command(["gpuwatch", "replay", &path].into_iter(), PATH_MAX))
    });
    what + &replay.unwrap_or_default()
}

fn ended(how: Ended) -> Fact {
    match how {
        Ended::Code(code) => Fact::JobEnded { code: Some(code.into()), signal: None },
        Ended::Signal(signal) => Fact::JobEnded { code: None, signal: Some(signal) },
    }
}

/// Watches without a screen: records events with the alerts they raise, and starts the alert program.
struct Watch {
    /// The recorder, and its file.
    recorder: Option<(Recorder, PathBuf)>,
    /// Why there is none.
    unrecorded: Option<String>,
    /// When what was found is summed up at the end.
    summary: Summary,
    hook: Option<Hook>,
    policy: Policy,
    /// Why there is no policy of the user's.
    fault: Option<config::Fault>,
    session: Session,
    edges: Edges,
    news: News,
    /// Which jobs are asked for the lines that allocate what grows; `None`: no one is.
    captures: Option<Captures>,
    /// What is to be asked.
    asks: Vec<Ask>,
}

impl Watch {
    fn follow_job(mut self, sources: sources::Options, over: Receiver<Ended>) -> Result<()> {
        let (tell, told) = tokio::sync::oneshot::channel();
        thread::Builder::new().name("over".into()).spawn(move || tell.send(over.recv().ok()))?;
        gpuwatch_probe::socket::prepare();
        super::runtime()?.block_on(async {
            let mut sources = Sources::start(sources);
            let stop = async { told.await.ok().flatten().map(ended).into_iter().collect() };
            let asks = sources.asks.clone();
            let hear = |event: &Event| {
                self.hear(event);
                for ask in self.asks.drain(..) {
                    // A queue that is full holds the same question.
                    let _ = asks.try_send(ask);
                }
            };
            follow(&mut sources, stop, hear).await;
        });
        // The reason of the job's end is sent too.
        self.tell();
        let is_summed_up = match self.summary {
            Summary::Auto => !self.session.processes.is_empty(),
            Summary::Always => true,
            Summary::Never => false,
        };
        let recorded = self.recorder.map(|(recorder, file)| (recorder.finish(), file));
        let summary = is_summed_up.then(|| {
            // What was not written to its end may be gone.
            let file = recorded.as_ref().filter(|it| it.0.trouble.is_none()).map(|it| it.1.as_path());
            summed_up(&self.session, &self.policy.findings(&self.session), file)
        });
        let unrecorded = self.unrecorded.or_else(|| recorded?.0.fault());
        let fault = self.fault.map(|it| format!("{it} (the job ran without it)"));
        let complaints = unrecorded.into_iter().chain(fault);
        let complaints = complaints.chain(self.hook.and_then(|it| it.finish(PATIENCE).complaint()));
        for complaint in complaints.chain(summary) {
            // The job is over, and its terminal is free.
            super::say(format_args!("{}", Foreign::new(complaint)));
        }
        Ok(())
    }

    fn hear(&mut self, event: &Event) {
        if let Some((recorder, _)) = &self.recorder {
            recorder.offer(event);
        }
        self.session.apply(event);
        if event.fact == Fact::Second {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let found = self.policy.findings(&self.session);
        if let Some((recorder, _)) = &self.recorder {
            for (edge, it) in self.edges.at(&found) {
                recorder.offer_line(encode_alert(self.session.now, edge, it.json()));
            }
        }
        if let Some(captures) = &mut self.captures {
            self.asks.extend(captures.at(&self.session, &found));
        }
        if let Some(hook) = &mut self.hook {
            for message in self.news.at(&self.session, &found) {
                hook.offer(message);
            }
        }
    }
}
