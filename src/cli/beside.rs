//! What is done beside a job of `gpuwatch run`: it is recorded, and alerts are told. Whatever fails, the job goes on.

use super::record::{keep, start};
use crate::{
    alerts::{Edges, Looks, News, Policy},
    config::{self, Asking, Driver, Keep, OnAlert, When},
    event::{Ask, Event, Fact},
    launch::{self, job::Ended},
    recording::encode_alert,
    session::Session,
    sink::{follow::follow, hook::Hook, record::Recorder},
    source::{self, Sources},
    text::Foreign,
};
use anyhow::Result;
use std::{sync::mpsc::Receiver, thread, time::Duration};

/// How long a program may still take for an alert when the job is over: less than the job's exit waits for us.
const PATIENCE: Duration = Duration::from_secs(2);

/// Until the job is over.
pub(super) fn beside(
    started: launch::Started,
    on_alert: &OnAlert,
    bounds: &Keep,
    policy: Result<Policy, config::Fault>,
    asking: Asking,
    driver: Driver,
) {
    let launch::Started { run, over, .. } = started;
    // What fails is said when the job is over: until then standard output and error are its own.
    let (recorder, unrecorded) = match start_recording(&run, bounds) {
        Ok(recorder) => (Some(recorder), None),
        Err(why) => (None, Some(format!("nothing was recorded: {why:#}"))),
    };
    let hook = on_alert.hook().ok().flatten();
    let (policy, fault) = match policy {
        Ok(policy) => (policy, None),
        Err(fault) => (Policy::default(), Some(fault)),
    };
    if recorder.is_some() || unrecorded.is_some() || hook.is_some() || fault.is_some() {
        let (session, edges, news) = Default::default();
        let looks = (asking.sites == When::Auto).then(Looks::default);
        let asks = Vec::new();
        let no_arguments = bounds.no_arguments;
        let watch = Watch { recorder, unrecorded, hook, policy, fault, session, edges, news, looks, asks };
        let _ = watch.follow_job(config::job_sources(&run, driver, no_arguments), over);
    }
}

fn start_recording(run: &str, bounds: &Keep) -> Result<Recorder> {
    let (path, file) = keep(run, bounds)?;
    Ok(start(&path, file)?)
}

fn ended(how: Ended) -> Fact {
    match how {
        Ended::Code(code) => Fact::JobEnded { code: Some(code.into()), signal: None },
        Ended::Signal(signal) => Fact::JobEnded { code: None, signal: Some(signal) },
    }
}

/// Watches where nobody looks: what happens is recorded with the alerts it raises, and a program is told of them.
struct Watch {
    recorder: Option<Recorder>,
    /// Why there is none.
    unrecorded: Option<String>,
    hook: Option<Hook>,
    policy: Policy,
    /// Why there is no policy of the user's.
    fault: Option<config::Fault>,
    session: Session,
    edges: Edges,
    news: News,
    /// Which jobs are asked for the lines that allocate what grows; `None`: no one is.
    looks: Option<Looks>,
    /// What is to be asked.
    asks: Vec<Ask>,
}

impl Watch {
    fn follow_job(mut self, sources: source::Options, over: Receiver<Ended>) -> Result<()> {
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
        // What ended the job is told too.
        self.tell();
        let recorded = self.recorder.map(Recorder::finish);
        let unrecorded = self.unrecorded.or_else(|| recorded?.fault());
        let fault = self.fault.map(|it| format!("{it} (the job ran without it)"));
        let complaints = unrecorded.into_iter().chain(fault);
        for complaint in complaints.chain(self.hook.and_then(|it| it.finish(PATIENCE).complaint())) {
            // The job is over, and its terminal is free.
            super::say(format_args!("{}", Foreign::new(complaint)));
        }
        Ok(())
    }

    fn hear(&mut self, event: &Event) {
        if let Some(recorder) = &self.recorder {
            recorder.offer(event);
        }
        self.session.apply(event);
        if event.fact == Fact::Second {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let found = self.policy.findings(&self.session);
        if let Some(recorder) = &self.recorder {
            for (edge, it) in self.edges.at(&found) {
                recorder.offer_line(encode_alert(self.session.now, edge, it.json()));
            }
        }
        if let Some(looks) = &mut self.looks {
            self.asks.extend(looks.at(&self.session, &found));
        }
        if let Some(hook) = &mut self.hook {
            for message in self.news.at(&self.session, &found) {
                hook.offer(message);
            }
        }
    }
}
