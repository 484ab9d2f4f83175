//! Runs next to a job: records it and sends alerts. Whatever fails, the job continues.

use super::{
    advisor::Advisor,
    record::{header, keep, start, writer},
    summary,
};
use crate::{
    config::{self, Asking, Driver, Keep, OnAlert, Recording, Summary, When},
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::Stamp,
    },
    jobs::launch::{self, job::Ended},
    model::{alerts::Policy, findings::Finding, session::Session},
    sources::{self, Sources},
    storage::{
        output,
        recording::encode_alert,
        sink::{
            delivery::Delivery,
            figures,
            follow::{LAST_SCAN, follow},
            record::Recorder,
            store::Writer,
        },
        traces,
    },
};
use anyhow::{Context, Result};
use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    sync::mpsc::Receiver,
    thread,
    time::Duration,
};
use tokio::{select, sync::Notify, time::timeout};

/// Limit for the first scan for probes: a hostile socket may delay it.
const FIRST_SCAN: Duration = Duration::from_secs(5);

/// How long a program may still take for an alert when the job is over: less than the job's exit waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a job is recorded.
pub(super) struct Place {
    writer: Writer,
    bounds: Keep,
    recording: Recording,
}

impl Place {
    /// Returns the place of a run's recording; nothing is made there yet.
    pub(super) fn new(run: &str, bounds: Keep, recording: Recording) -> Self {
        Self { writer: writer(recording.naming.name.as_deref().unwrap_or(run)), bounds, recording }
    }

    /// Returns how the job is started.
    pub(super) fn options(&self, run: String) -> launch::Options {
        let Self { writer, bounds, recording } = self;
        let file = recording.naming.output.clone().or_else(|| Some(bounds.store()?.path(writer)));
        // The job may change its directory.
        let folder = file.filter(|_| recording.trace).and_then(|it| std::path::absolute(traces::folder(&it)).ok());
        let trace = folder.map(|folder| launch::Trace { folder, bytes: recording.trace_bytes });
        let is_quiet = recording.summary == Summary::Never;
        launch::Options { run, no_arguments: bounds.no_arguments, trace, is_quiet }
    }

    /// Returns whether command lines are recorded without arguments.
    pub(super) fn no_arguments(&self) -> bool {
        self.bounds.no_arguments
    }

    /// Starts the recorder, and returns its file. If the disk is full, the recording begins once it has room.
    pub(super) fn start(&self) -> Result<(Recorder, PathBuf)> {
        self.start_now().or_else(|why| {
            let full = why.chain().filter_map(|it| Some(it.downcast_ref::<io::Error>()?.kind()));
            let is_full = full.into_iter().any(|it| {
                matches!(it, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
            });
            let Recording { naming, .. } = &self.recording;
            let path = naming.output.clone().or_else(|| Some(self.bounds.store()?.path(&self.writer)));
            match path.filter(|_| is_full) {
                Some(path) => Ok((Recorder::planned(path.clone(), &header(naming.name.as_deref()))?, path)),
                None => Err(why),
            }
        })
    }

    fn start_now(&self) -> Result<(Recorder, PathBuf)> {
        let (path, file) = match &self.recording.naming.output {
            Some(path) => {
                let file = output::open_new(path).with_context(|| format!("cannot make {}", path.display()))?;
                (path.clone(), file)
            }
            None => keep(&self.writer, &self.bounds)?,
        };
        Ok((start(&path, file, self.recording.naming.name.as_deref())?, path))
    }
}

/// Runs until the job is over.
pub(super) fn companion(
    started: launch::Started,
    on_alert: &OnAlert,
    place: &Place,
    policy: Result<Policy, config::Fault>,
    asking: Asking,
    driver: Driver,
) {
    let launch::Started { run, over, .. } = started;
    // Report failures after the job: until then standard output and error are the job's own.
    let (recorder, unrecorded) = match place.start() {
        Ok(it) => (Some(it), None),
        Err(why) => (None, Some(format!("nothing was recorded: {why:#}"))),
    };
    let summary = place.recording.summary;
    let hook = on_alert.hook().ok().flatten();
    let (policy, fault) = match policy {
        Ok(policy) => (policy, None),
        Err(fault) => (Policy::default(), Some(fault)),
    };
    if recorder.is_some() || unrecorded.is_some() || hook.is_some() || fault.is_some() {
        let delivery = Delivery::new(hook, None);
        let file = recorder.as_ref().and_then(|it| std::path::absolute(&it.1).ok());
        let advisor = file.map(|it| Advisor::new(it, place.recording.trace));
        let is_quiet = summary == Summary::Never;
        let watch = Watch { unrecorded, summary, is_quiet, fault, advisor, ..Watch::new(recorder, delivery, policy) };
        let sources = config::job_sources(&run, driver, place.bounds.no_arguments);
        let _ = watch.follow_job(sources, asking.sites == When::Auto, over);
    }
}

fn ended(how: Ended) -> Fact {
    match how {
        Ended::Code(code) => Fact::JobEnded { code: Some(code.into()), signal: None },
        Ended::Signal(signal) => Fact::JobEnded { code: None, signal: Some(signal) },
    }
}

/// Watches without a screen: records events with the alerts they raise, and starts the alert program.
pub(super) struct Watch {
    /// The recorder, and its file.
    recorder: Option<(Recorder, PathBuf)>,
    /// Why there is no recorder.
    unrecorded: Option<String>,
    /// When to summarise the findings at the end.
    summary: Summary,
    /// Nothing is printed at the end, not even what went wrong.
    is_quiet: bool,
    delivery: Delivery,
    policy: Policy,
    /// Why the user's policy is unknown.
    fault: Option<config::Fault>,
    /// Replays the job's allocations.
    pub(super) advisor: Option<Advisor>,
    /// Called once all probes that there are have been found.
    pub(super) begun: Option<Box<dyn FnOnce()>>,
    session: Session,
}

impl Watch {
    /// Creates a watch that summarises nothing.
    pub(super) fn new(recorder: Option<(Recorder, PathBuf)>, delivery: Delivery, policy: Policy) -> Self {
        let session = Session::default();
        Self {
            recorder,
            unrecorded: None,
            summary: Summary::Never,
            is_quiet: false,
            delivery,
            policy,
            fault: None,
            advisor: None,
            begun: None,
            session,
        }
    }

    fn follow_job(self, sources: sources::Options, is_asking: bool, over: Receiver<Ended>) -> Result<()> {
        let (sender, stopped) = tokio::sync::oneshot::channel();
        thread::Builder::new().name("over".into()).spawn(move || sender.send(over.recv().ok()))?;
        let stop = async { stopped.await.ok().flatten().map(ended).into_iter().collect() };
        self.follow(sources, is_asking, stop, |_| false)
    }

    /// Follows the sources until `stop` completes with the last facts, or `is_over` holds, which it checks each second.
    pub(super) fn follow(
        mut self,
        sources: sources::Options,
        is_asking: bool,
        stop: impl Future<Output = Vec<Fact>>,
        is_over: impl Fn(&Session) -> bool,
    ) -> Result<()> {
        gpuwatch_probe::socket::prepare();
        super::runtime()?.block_on(async {
            let mut sources = Sources::start(sources.recorded());
            if is_asking {
                self.delivery.ask(sources.asks.clone());
                if let Some(it) = &mut self.advisor {
                    it.request_windows(sources.asks.clone());
                }
            }
            let over = Notify::new();
            let (begun, scan) = (self.begun.take(), sources.last_scan());
            let stop = async {
                if let Some(begun) = begun {
                    let _ = timeout(FIRST_SCAN, scan).await;
                    begun();
                }
                select! {
                    last = stop => last,
                    () = over.notified() => Vec::new(),
                }
            };
            let receive = |event: &Event| {
                self.receive(event);
                if event.fact == Fact::Second && is_over(&self.session) {
                    over.notify_one();
                }
            };
            follow(&mut sources, stop, LAST_SCAN, receive).await;
        });
        self.deliver_last();
        let is_summed_up = match self.summary {
            Summary::Auto => !self.session.processes.is_empty(),
            Summary::Always => true,
            Summary::Never => false,
        };
        let recorded = self.recorder.take().map(|(recorder, file)| (recorder.finish(), file));
        let is_whole = recorded.as_ref().is_some_and(|it| it.0.trouble.is_none());
        if is_whole {
            self.replay_last(is_summed_up && io::stderr().is_terminal());
        }
        let summary = is_summed_up.then(|| {
            // An incomplete file may be gone.
            let file = recorded.as_ref().filter(|it| it.0.trouble.is_none()).map(|it| it.1.as_path());
            summary::line(&self.session, &self.policy.findings(&self.session), file.map(summary::replay).as_deref())
        });
        let unrecorded = self.unrecorded.or_else(|| recorded?.0.fault());
        let fault = self.fault.map(|it| format!("{it} (the job ran without it)"));
        let complaints = unrecorded.into_iter().chain(fault);
        let complaints = complaints.chain(self.delivery.finish(PATIENCE));
        let is_quiet = self.is_quiet;
        for complaint in complaints.chain(summary).filter(|_| !is_quiet) {
            // The job is over, so its terminal is free.
            super::print_message(format_args!("{}", Foreign::new(complaint)));
        }
        Ok(())
    }

    fn receive(&mut self, event: &Event) {
        self.keep(event);
        if event.fact != Fact::Second {
            return;
        }
        let found = self.policy.findings(&self.session);
        let recorder = self.recorder.as_ref();
        self.delivery.deliver(&self.session, &found, |edge, it| keep_alert(recorder, event.at, edge, it));
        figures::write(&self.session, &found);
        let answers = self.advisor.as_mut().map(|it| it.look(&self.session, &found)).unwrap_or_default();
        for it in answers {
            self.keep(&it.event(event.at));
        }
    }

    /// Folds and records an event; of an answer that it wrote beside the probe's socket itself, only the first copy.
    fn keep(&mut self, event: &Event) {
        if let Fact::Replayed(it) = &event.fact
            && self.session.process(it.probe).is_some_and(|process| process.has_replay(it))
        {
            return;
        }
        if let Some((recorder, _)) = &self.recorder {
            recorder.offer(event);
        }
        self.session.apply(event);
    }

    /// Starts the replays of what is still open, and takes the answers that are waited for.
    fn replay_last(&mut self, is_watched: bool) {
        let Some(advisor) = self.advisor.take() else { return };
        let found = self.policy.findings(&self.session);
        for it in advisor.finish(&self.session, &found, is_watched) {
            self.session.apply(&it.event(self.session.now));
        }
    }

    /// Delivers what the job's end raised.
    fn deliver_last(&mut self) {
        let found = self.policy.findings(&self.session);
        let (recorder, now) = (self.recorder.as_ref(), self.session.now);
        self.delivery.deliver(&self.session, &found, |edge, it| keep_alert(recorder, now, edge, it));
    }
}

/// Records that an alert was raised or resolved.
fn keep_alert(recorder: Option<&(Recorder, PathBuf)>, now: Stamp, edge: &'static str, finding: &Finding) {
    if let Some((recorder, _)) = recorder {
        recorder.offer_line(now, encode_alert(now, edge, finding.json()));
    }
}
