//! Runs beside a job: records it and sends alerts. Whatever fails, the job continues.

/// The recorder of an attached job, a process of its own.
pub mod detached;
/// The file of a recording.
pub mod file;
/// The highest moment of a step of each process, once a run.
pub mod peak_windows;
/// Replays of a job's allocations for its findings.
pub mod replays;
/// The line that `gpuwatch run` prints when its job is over.
pub mod summary;
/// Traces of some steps, for findings of a job that is not traced.
pub mod trace_windows;

use self::{file::RecordingPlan, peak_windows::PeakWindows, replays::FindingReplays};
use crate::{
    config::{self, AlertProgramFlags, CaptureFlags, CaptureWhen, Driver, Summary},
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
            LAST_SCAN,
            delivery::{self, Delivery},
            follow,
            record::Recorder,
        },
    },
};
use anyhow::Result;
use rustix::termios::tcgetwinsize;
use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    sync::mpsc::Receiver,
    thread,
    time::Duration,
};
use tokio::{runtime::Builder, select, sync::Notify, time::timeout};

/// Limit for the first scan for probes: a hostile socket may delay it.
const FIRST_SCAN: Duration = Duration::from_secs(5);

/// How long a program may still take for an alert when the job is over: less than the job's exit waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// Records a job that `gpuwatch run` has started, until it is over.
pub fn record_job(
    started: launch::Started,
    on_alert: &AlertProgramFlags,
    plan: &RecordingPlan,
    policy: Result<Policy, config::Fault>,
    asking: CaptureFlags,
    driver: Driver,
) {
    let launch::Started { run, over, .. } = started;
    // Report failures after the job: until then standard output and error are the job's own.
    let (recorder, unrecorded) = match plan.start() {
        Ok(it) => (Some(it), None),
        Err(why) => (None, Some(format!("nothing was recorded: {why:#}"))),
    };
    let summary = plan.recording.summary;
    let hook = on_alert.hook().ok().flatten();
    let (policy, fault) = match policy {
        Ok(policy) => (policy, None),
        Err(fault) => (Policy::default(), Some(fault)),
    };
    if recorder.is_some() || unrecorded.is_some() || hook.is_some() || fault.is_some() {
        let delivery = Delivery::new(hook, None);
        let file = recorder.as_ref().and_then(|it| std::path::absolute(&it.1).ok());
        let replays = file.map(|it| FindingReplays::new(it, plan.recording.trace));
        let is_quiet = summary == Summary::Never;
        let recorder = JobRecorder {
            unrecorded,
            summary,
            is_quiet,
            fault,
            replays,
            ..JobRecorder::new(recorder, delivery, policy)
        };
        let sources = config::job_sources(&run, driver, plan.bounds.no_arguments);
        let _ = recorder.follow_job(sources, asking.sites == CaptureWhen::Auto, over);
    }
}

fn ended(how: Ended) -> Fact {
    match how {
        Ended::Code(code) => Fact::JobEnded { code: Some(code.into()), signal: None },
        Ended::Signal(signal) => Fact::JobEnded { code: None, signal: Some(signal) },
    }
}

/// Watches without a screen: records events with the alerts they raise, and starts the alert program.
pub struct JobRecorder {
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
    pub replays: Option<FindingReplays>,
    /// Traces one step of each process, where captures are taken without a request.
    peaks: Option<PeakWindows>,
    /// Called once all probes that there are have been found.
    pub begun: Option<Box<dyn FnOnce()>>,
    session: Session,
}

impl JobRecorder {
    /// Returns a recorder that summarises nothing at the end.
    pub fn new(recorder: Option<(Recorder, PathBuf)>, delivery: Delivery, policy: Policy) -> Self {
        let session = Session::default();
        Self {
            recorder,
            unrecorded: None,
            summary: Summary::Never,
            is_quiet: false,
            delivery,
            policy,
            fault: None,
            replays: None,
            peaks: None,
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
    pub fn follow(
        mut self,
        sources: sources::Options,
        is_asking: bool,
        stop: impl Future<Output = Vec<Fact>>,
        is_over: impl Fn(&Session) -> bool,
    ) -> Result<()> {
        gpuwatch_probe::socket::prepare();
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let mut sources = Sources::start(sources.recorded());
            if is_asking {
                self.delivery.ask(sources.asks.clone());
                self.peaks = self.recorder.is_some().then(|| PeakWindows::new(sources.asks.clone()));
                if let Some(it) = &mut self.replays {
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
            let columns = tcgetwinsize(io::stderr()).ok().map(|it| it.ws_col).filter(|it| *it > 0);
            let found = self.policy.findings(&self.session);
            summary::lines(&self.session, &found, file.map(summary::replay).as_deref(), columns)
        });
        let unrecorded = self.unrecorded.or_else(|| recorded?.0.fault());
        let fault = self.fault.map(|it| format!("{it} (the job ran without it)"));
        let complaints = unrecorded.into_iter().chain(fault);
        let complaints = complaints.chain(self.delivery.finish(PATIENCE));
        let is_quiet = self.is_quiet;
        for complaint in complaints.chain(summary.into_iter().flatten()).filter(|_| !is_quiet) {
            // The job is over, so its terminal is free.
            output::message(format_args!("{}", Foreign::new(complaint)));
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
        delivery::write(&self.session, &found);
        let answers = self.replays.as_mut().map(|it| it.look(&self.session, &found)).unwrap_or_default();
        let moments = self.peaks.as_mut().map(|it| it.look(&self.session, &found)).unwrap_or_default();
        let answers = answers.into_iter().map(|it| it.event(event.at));
        for it in answers.chain(moments.into_iter().map(|it| it.event(event.at))) {
            self.keep(&it);
        }
    }

    /// Folds and records an event; of an answer that it wrote beside the probe's socket itself, only the first copy.
    fn keep(&mut self, event: &Event) {
        let process = |probe| self.session.process(probe);
        let is_known = match &event.fact {
            Fact::Replayed(it) => process(it.probe).is_some_and(|process| process.has_replay(it)),
            Fact::PeakMoment(it) => process(it.probe).is_some_and(|process| process.peak.as_ref() == Some(it)),
            Fact::Advised(it) => process(it.probe).is_some_and(|process| process.advised.as_ref() == Some(it)),
            _ => false,
        };
        if is_known {
            return;
        }
        if let Some((recorder, _)) = &self.recorder {
            recorder.offer(event);
        }
        self.session.apply(event);
    }

    /// Starts the replays of what is still open, and takes the answers that are waited for.
    fn replay_last(&mut self, is_watched: bool) {
        let Some(replays) = self.replays.take() else { return };
        let found = self.policy.findings(&self.session);
        for it in replays.finish(&self.session, &found, is_watched) {
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
