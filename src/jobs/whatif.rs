//! `gpuwatch whatif`: what a run would have reserved with other allocator settings.
//!
//! It replays the recorded allocations through PyTorch's own caching allocator, on a simulated device: first as
//! recorded, which shows how accurate the replay is, then with each setting, and on smaller devices.
//!
//! # How a run is replayed
//!
//! `gpuwatch whatif` takes traces from a memory snapshot or from a recording (`whatif::source`). It feeds them to
//! PyTorch's own caching allocator, in the job's Python, with `simgpu` in place of the driver. `whatif::plan` is pure:
//! it converts a trace to columns of operations. An `alloc` has the requested bytes; a `free_completed` is a free, so
//! it includes delays by `record_stream`. A sequence of released segments is an `empty_cache()`, unless the request
//! right after it, with the same call stack, would have exceeded the peak of reserved memory: that is an allocation's
//! retry, which happens by itself on a device of the right size, and bounds that size. Without call stacks both
//! interpretations are tried, and the more accurate one is kept (`whatif::recorded`).
//!
//! The state before the first event is the end of the trace with all events undone (`plan::start`). The replay as
//! recorded rebuilds those segments with the live blocks in their places. Other settings start from the live blocks
//! alone, because the old layout would stay with any setting. They replay a window, before which much was reserved, six
//! times in a row, because fragmentation builds up over time.
//!
//! `replay.py` imports PyTorch once and forks a child for each replay, which reads its settings and its machine from
//! its own environment: 6 ms to start, less than 1 µs per event. `whatif::candidate` lists the replays for one setting
//! (on the requested device, without a limit, then smaller ones by bisection); `whatif::runner` keeps as many running
//! as there are processors.

/// The answer as text and as JSON.
mod answer;
/// Replays for the findings of a traced job.
pub mod background;
/// One setting's replays.
mod candidate;
/// The operations of a replay.
mod operations;
/// Converts a trace to operations.
mod plan;
/// The recorded run.
mod recorded;
/// Runs replays in processes.
mod runner;
/// A Python process that replays.
mod server;
/// Sources of allocations.
mod source;

use self::{
    candidate::{CONTEXT, Candidate},
    plan::{Plan, plan},
    recorded::Recorded,
    runner::{Faithful, Runner},
    source::Source,
};
use crate::{
    facts::text::Foreign,
    jobs::simulated,
    model::trace::{self, Action},
    storage::{
        pickle::{self, Fault},
        traces::{self, Window},
    },
};
use std::{fs, io, path::PathBuf};
use thiserror::Error;

/// The variable that holds allocator settings.
pub const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// If the replay as recorded is less accurate than this, it supports no advice.
const TRUSTED: f64 = 0.02;

/// The same for a window, which starts from a rebuilt layout of unknown age and shows only a direction.
const TRUSTED_OF_WINDOW: f64 = 0.05;

/// What to replay, and under which settings.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// A memory snapshot, or a recording with traces.
    pub source: PathBuf,
    /// Memory of the device on which the run should fit.
    pub gpu: Option<u64>,
    /// Settings to try; a default list if empty.
    pub settings: Vec<String>,
    /// The Python with the job's PyTorch.
    pub python: Option<PathBuf>,
    /// Whether the source is a window that was traced for this question; it is removed once it is read.
    pub is_window: bool,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// So much of the snapshot is read.
    Reading(pickle::Progress),
    /// So many replays are complete.
    Replayed(u64),
}

/// The results of the replays.
#[derive(Debug)]
pub struct Answer {
    /// PyTorch's version.
    version: Option<String>,
    devices: Vec<Device>,
    /// Why the source is incomplete.
    ended: Option<String>,
    /// Whether the user named the settings.
    is_named: bool,
}

/// The answer for one device.
#[derive(Debug, Default)]
struct Device {
    /// The process, of a job's trace.
    pid: Option<u32>,
    /// What the trace covers, of a window of a running job.
    window: Option<Window>,
    ordinal: u32,
    /// The recorded settings; `None` if the source lacks them.
    settings: Option<String>,
    /// Times that events of its trace were lost.
    gaps: u64,
    events: usize,
    complete: bool,
    /// The last step that was completed before its last event, if a recording shows it.
    until_step: Option<u64>,
    /// The part of the peak that was reserved before the first event.
    before: f64,
    /// Whether that is so much that the trace shows only directions.
    is_late: bool,
    /// The event at which the recorded run ran out of memory and ended.
    died_at: Option<usize>,
    /// Bytes of the device on which it was replayed, its context included; `None` if unknown.
    size: Option<u64>,
    refused: Option<String>,
    as_recorded: Option<AsRecorded>,
    candidates: Vec<Row>,
    /// Settings that this PyTorch rejects, with its error.
    unknown: Vec<(String, String)>,
}

/// The replay as recorded, compared with the recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
struct AsRecorded {
    recorded_peak: u64,
    replayed_peak: u64,
    recorded: u64,
    replayed: u64,
    segments: usize,
    segments_equal: usize,
    error: f64,
}

/// One setting's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    settings: String,
    peak_allocated: u64,
    peak_reserved: u64,
    fails_at: Option<Failure>,
    smallest: Option<u64>,
    retries: u64,
    cuda_mallocs: u64,
    synchronisations: u64,
}

/// Where a run runs out of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Failure {
    /// The event's index in the device's trace.
    event: usize,
    /// The innermost range that the program had open, or the last completed step, such as `step 12`.
    step: Option<String>,
    /// The call stack, in a line.
    line: Option<String>,
}

/// Answers a question, and reports now and then how far the answer is.
///
/// # Errors
/// Fails if the source cannot be read, if there is no PyTorch to replay on, or if a replay is interrupted.
pub fn answer(question: &Question, mut progress: impl FnMut(Progress)) -> Result<Answer, Trouble> {
    let sources = source::open(&question.source, |it| progress(Progress::Reading(it)));
    if question.is_window {
        // A window that is left behind takes space and nothing else.
        let _ = fs::remove_file(&question.source);
    }
    let sources = sources?;
    let python = question.python.as_deref().or_else(|| sources.first()?.python.as_deref());
    let mut runner = Runner::new(python, None)?;
    let mut devices = Vec::new();
    let mut replayed = |times| progress(Progress::Replayed(times));
    for source in &sources {
        for ordinal in source.ordinals() {
            devices.push(answered(source, ordinal, question, &mut runner, &mut replayed)?);
        }
    }
    let ended = sources.into_iter().find_map(|it| it.ended);
    let ended = ended.map(|it| format!("{it}; what follows is from what was read up to there"));
    Ok(Answer { version: runner.version, devices, ended, is_named: !question.settings.is_empty() })
}

fn answered(
    source: &Source,
    ordinal: u32,
    question: &Question,
    runner: &mut Runner,
    progress: &mut impl FnMut(u64),
) -> Result<Device, Trouble> {
    let trace = &source.trace;
    let settings = trace.settings.as_ref().map(|it| trace.stacks.texts.get(it.text).into_owned());
    let device = match plan(trace, ordinal, false) {
        Ok(plan) => replayed(source, plan, settings.as_deref().unwrap_or_default(), question, runner, progress)?,
        Err(why) => {
            let events = trace.devices.get(ordinal as usize).map_or(0, ExactSizeIterator::len);
            let is_idle = question.is_window && events == 0;
            let why = if is_idle { "the job allocated nothing in these steps: ask again".to_owned() } else { why };
            Device { ordinal, events, refused: Some(why), ..Device::default() }
        }
    };
    let last = trace.devices.get(ordinal as usize).and_then(|it| trace.events.get(it.end.checked_sub(1)?)?.unix_us);
    let until_step = source.steps.as_ref().zip(last).map(|(steps, at)| steps.at(at));
    Ok(Device { pid: source.pid, window: source.window, settings, gaps: source.gaps, until_step, ..device })
}

fn replayed(
    source: &Source,
    mut plan: Plan,
    settings: &str,
    question: &Question,
    runner: &mut Runner,
    progress: &mut impl FnMut(u64),
) -> Result<Device, Trouble> {
    let trace = &source.trace;
    let mut judged = faithful(&plan, settings, runner)?;
    if plan.recorded.is_ambiguous && !judged.as_ref().is_ok_and(AsRecorded::is_equal) {
        // The other interpretation of the trace may be the right one.
        if let Ok(other) = self::plan(trace, plan.device, true) {
            let again = faithful(&other, settings, runner)?;
            let rank = |it: &Result<AsRecorded, String>| it.as_ref().map(AsRecorded::rank).unwrap_or_default();
            if rank(&again) > rank(&judged) {
                (plan, judged) = (other, again);
            }
        }
    }
    let plan = &plan;
    let Recorded { peak, capacity, .. } = plan.recorded;
    let mut device = Device {
        ordinal: plan.device,
        events: plan.events,
        complete: plan.complete,
        before: plan.recorded.before(),
        is_late: plan.recorded.is_late(),
        died_at: plan.recorded.died_at,
        size: question.gpu.or_else(|| Some(capacity?.saturating_add(CONTEXT))),
        ..Device::default()
    };
    match judged {
        Err(why) => device.refused = Some(why),
        Ok(as_recorded) => {
            let trusted = if device.is_window() { TRUSTED_OF_WINDOW } else { TRUSTED };
            if as_recorded.error > trusted {
                device.refused = Some(too_far(&as_recorded, question));
            }
            device.as_recorded = Some(as_recorded);
        }
    }
    if device.refused.is_some() {
        return Ok(device);
    }
    let room = question.gpu.map(|it| it.saturating_sub(CONTEXT)).or(capacity);
    let all = if question.settings.is_empty() { candidate::tried(settings) } else { question.settings.clone() };
    let mut all: Vec<_> = all.iter().map(|it| Candidate::new(it, room, peak)).collect();
    let stored = runner.store(&plan.from_live, &format!("live-{}", plan.device))?;
    runner.run(&stored, &mut all, progress)?;
    for it in all {
        match (it.main, it.refused.clone()) {
            (Some(_), None) => device.candidates.extend(row(source, plan, &it)),
            (_, why) if !question.settings.is_empty() => {
                return Err(Trouble::Refused { settings: it.settings, why: why.unwrap_or_default() });
            }
            (_, why) => device.unknown.push((it.settings, why.unwrap_or_default())),
        }
    }
    if question.settings.is_empty() {
        let estimated = |it: &Row| candidate::is_estimated(&it.settings);
        let rank = |it: &Row| (it.fails_at.is_some(), estimated(it), it.peak_reserved, it.smallest, it.cuda_mallocs);
        device.candidates.sort_by_key(rank);
    }
    Ok(device)
}

fn row(source: &Source, plan: &Plan, it: &Candidate) -> Option<Row> {
    let main = it.main?;
    let failed = main.failed.map(|at| failure(source, plan, plan.from_live.event(at).unwrap_or(0)));
    Some(Row {
        settings: it.settings.clone(),
        peak_allocated: main.peak_allocated,
        peak_reserved: main.peak_reserved,
        fails_at: failed,
        smallest: it.smallest(),
        retries: main.retries,
        cuda_mallocs: main.cuda_mallocs,
        synchronisations: main.synchronisations,
    })
}

fn failure(source: &Source, plan: &Plan, event: usize) -> Failure {
    let trace = &source.trace;
    let first = trace.devices.get(plan.device as usize).map_or(0, |it| it.start);
    let it = trace.events.get(first + event).unwrap_or_default();
    let range = it.unix_us.and_then(|at| trace.range_at(plan.device, at));
    let step = source.steps.as_ref().zip(it.unix_us).map(|(steps, at)| format!("step {}", steps.at(at)));
    Failure {
        event,
        step: range.map(|name| trace.stacks.texts.get(name).into_owned()).or(step),
        line: (it.stack != trace::StackId::default()).then(|| trace.stacks.line(it.stack)),
    }
}

impl Answer {
    /// Returns why the snapshot is incomplete, if it is.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Returns the answer as text.
    pub fn text(&self) -> String {
        answer::text(self)
    }

    /// Returns the settings that are better than the recorded ones on the first device where some are.
    pub fn better(&self) -> Option<&str> {
        self.devices.iter().find_map(|it| it.better()).map(|it| it.settings.as_str())
    }

    /// Returns the answer as JSON, schema 1.
    pub fn json(&self) -> String {
        answer::json(self)
    }
}

impl Device {
    /// Whether the trace begins so late that it only shows tendencies.
    fn is_window(&self) -> bool {
        !self.complete && self.is_late
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Trouble {
    /// The source is a recording without traces.
    #[error("the recording holds no allocations: record the next run with `gpuwatch run --trace`")]
    Recording,
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] traces::Trouble),
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] Fault),
    /// There is no Python on the path.
    #[error("there is no `python` on the path: name the job's with --torch PYTHON")]
    NoPython,
    /// A Python cannot be started.
    #[error("{}: {why}: name the job's Python with --torch PYTHON", Foreign::new(program.to_string_lossy()))]
    Unstarted {
        /// The Python.
        program: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// A Python has no PyTorch.
    #[error("{} has no PyTorch: name the job's Python with --torch PYTHON", Foreign::new(program.to_string_lossy()))]
    NoTorch {
        /// The Python.
        program: PathBuf,
    },
    /// No machine can be simulated.
    #[error(transparent)]
    Simulated(#[from] simulated::Trouble),
    /// PyTorch cannot be imported.
    #[error("PyTorch cannot be imported on the simulated GPU: {}", Foreign::new(.0.as_str()))]
    Unusable(String),
    /// PyTorch rejects settings that the user named.
    #[error("PyTorch refuses --set {}: {}", Foreign::new(settings.as_str()), Foreign::new(why.as_str()))]
    Refused {
        /// The settings.
        settings: String,
        /// PyTorch's words.
        why: String,
    },
    /// Another process ended a replay.
    #[error("the replay was interrupted ({}); run it again", Foreign::new(.0.as_str()))]
    Interrupted(String),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Replays as recorded. The inner error is why there is no answer.
fn faithful(plan: &Plan, settings: &str, runner: &mut Runner) -> Result<Result<AsRecorded, String>, Trouble> {
    let stored = runner.store(&plan.as_recorded, &format!("recorded-{}", plan.device))?;
    let mut candidate = Candidate::new(settings, plan.recorded.capacity, plan.recorded.peak);
    Ok(runner.faithful(&stored, &mut candidate)?.and_then(|it| judged(plan, &it)))
}

/// Compares a replay with the recorded run.
fn judged(plan: &Plan, (replayed, segments): &Faithful) -> Result<AsRecorded, String> {
    let recorded = &plan.recorded;
    if let Some(at) = replayed.failed.and_then(|at| plan.as_recorded.event(at)) {
        return Err(format!(
            "the replay as recorded runs out of memory at event {} of {}, where the recorded run did not: the size of its \
             device is not known well enough",
            at + 1,
            plan.events
        ));
    }
    let off = |replayed: u64, recorded: u64| {
        let off = replayed.abs_diff(recorded) as f64;
        if recorded == 0 { off.min(1.0) } else { off / recorded as f64 }
    };
    let error = off(replayed.peak_reserved, recorded.peak).max(off(replayed.reserved, recorded.end));
    let number = |it: Action| match it {
        Action::SegmentAlloc => 0,
        Action::SegmentFree => 1,
        Action::SegmentMap => 2,
        _ => 3,
    };
    let ours = recorded.segments.iter().map(|(action, size)| size << 2 | number(*action));
    Ok(AsRecorded {
        recorded_peak: recorded.peak,
        replayed_peak: replayed.peak_reserved,
        recorded: recorded.end,
        replayed: replayed.reserved,
        segments: recorded.segments.len(),
        segments_equal: ours.zip(segments).filter(|it| it.0 == *it.1).count(),
        error,
    })
}

fn too_far(it: &AsRecorded, question: &Question) -> String {
    let other = if question.python.is_some() { "" } else { " with --torch PYTHON" };
    format!(
        "the replay as recorded is off by {:.1} %, so that it says nothing of other settings; releases of PyTorch differ: \
         replay on the job's own{other}",
        it.error * 100.0
    )
}

impl AsRecorded {
    /// Whether every segment was allocated and released as recorded.
    pub(super) fn is_equal(&self) -> bool {
        self.error == 0.0 && self.segments == self.segments_equal
    }

    /// How accurate the replay is; higher is better.
    pub(super) fn rank(&self) -> (bool, usize) {
        (self.error <= TRUSTED, self.segments_equal)
    }
}
