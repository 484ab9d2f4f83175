//! Replays for the findings of a traced job, in a process of its own: `gpuwatch run --trace` starts it in the
//! background.

use super::{
    Answer, Device, Failure, Question, Row, Trouble, answered,
    runner::Runner,
    source::{self, Source, Steps},
};
use crate::{
    facts::{
        event::{
            ProbeId, Replayed,
            replayed::{self, About, Comparison, Cost, Outcome, Window},
        },
        text::Foreign,
        units::{Stamp, whole},
    },
    model::{findings::Kind, trace::Action},
    sources::proc::Stat,
    storage::traces,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
};

/// How far the trace's time of an error may be from the probe's, in µs.
const SAME_ERROR_US: u64 = 10_000_000;

/// Replays that run at the same time: the job has the other processors.
const AT_ONCE: usize = 1;

/// What to replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The recording with the traces.
    pub recording: PathBuf,
    /// The findings to replay for.
    pub findings: Vec<Wanted>,
    /// Set once the job is over: the answers are appended to the recording, at this time.
    pub append_at: Option<Stamp>,
}

/// A finding to replay for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The probe of its process.
    pub probe: ProbeId,
    /// The pid that the process reports.
    pub pid: u32,
    /// The process's own ordinal of the device.
    pub device: u32,
    /// The finding.
    pub about: About,
    /// When gpuwatch raised it, µs of Unix time.
    pub raised_unix_us: u64,
    /// The file for viewers of the process, beside the probe's socket.
    pub answers: Option<PathBuf>,
}

impl Wanted {
    /// Returns that there is no answer, and why.
    pub fn refused(&self, why: impl Into<String>) -> Replayed {
        self.answered(Err(why.into()), Cost::default())
    }

    fn answered(&self, result: Result<Comparison, String>, cost: Cost) -> Replayed {
        let finding = Some(self.about.clone());
        let result = result.map(Box::new).map_err(Foreign::new);
        Replayed { probe: self.probe, device: self.device, finding, result, cost }
    }
}

impl Answer {
    /// Returns what viewers of the job show, a part for each device. They know the probe.
    pub fn replayed(&self) -> Vec<Replayed> {
        let result = |it: &Device| compared(it).map(Box::new).map_err(Foreign::new);
        let of_device = |it: &Device| {
            let (paused_us, longest_pause_us) = it.window.map(|window| (window.paused_us, window.longest_us)).unzip();
            let cost = Cost { cpu_us: cpu_us(), paused_us, longest_pause_us, ..Cost::default() };
            Replayed { probe: ProbeId(0), device: it.ordinal, finding: None, result: result(it), cost }
        };
        self.devices.iter().map(of_device).collect()
    }
}

/// Replays each process once for all of its findings.
pub fn respond(request: &Request) -> Vec<Replayed> {
    let mut steps = source::read(&request.recording);
    let mut processes: BTreeMap<u32, Vec<&Wanted>> = BTreeMap::new();
    for it in &request.findings {
        processes.entry(it.pid).or_default().push(it);
    }
    let mut all = Vec::new();
    for (pid, wanted) in processes {
        let before = cpu_us();
        let replayed = replay(&request.recording, pid, steps.remove(&pid), &wanted);
        let cpu_us = cpu_us().zip(before).map(|(after, before)| after.saturating_sub(before));
        match replayed {
            Ok(answers) => all.extend(answers.into_iter().map(|mut it| {
                it.cost.cpu_us = cpu_us;
                it
            })),
            Err(why) => all.extend(wanted.iter().map(|it| it.refused(why.to_string()))),
        }
    }
    all
}

fn replay(recording: &Path, pid: u32, steps: Option<Steps>, wanted: &[&Wanted]) -> Result<Vec<Replayed>, Trouble> {
    let Some(file) = traces::newest(recording, pid) else { return Err(Trouble::Recording) };
    let source = Source { steps, ..source::traced(&file)? };
    let trace_bytes = fs::metadata(&file).ok().map(|it| it.len());
    let (paused_us, longest_pause_us) = source.window.map(|it| (it.paused_us, it.longest_us)).unzip();
    let trace_cpu_us = Some(source.cpu_us);
    let cost = Cost { trace_bytes, trace_cpu_us, paused_us, longest_pause_us, ..Cost::default() };
    let mut runner = Runner::new(source.python.as_deref(), Some(AT_ONCE))?;
    let mut devices: BTreeMap<u32, Device> = BTreeMap::new();
    let mut all = Vec::new();
    for it in wanted {
        if it.about.kind.raw() == Kind::Oom.name() && !has_error(&source, it) {
            let why = source.ended.as_deref().unwrap_or("events are missing");
            all.push(it.answered(Err(format!("the trace does not contain the error ({why})")), cost));
            continue;
        }
        let device = match devices.entry(it.device) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                place.insert(answered(&source, it.device, &Question::default(), &mut runner, &mut |_| ())?)
            }
        };
        all.push(it.answered(compared(device), cost));
    }
    Ok(all)
}

/// Whether the trace has the error of a finding.
fn has_error(source: &Source, wanted: &Wanted) -> bool {
    let range = source.trace.devices.get(wanted.device as usize).cloned().unwrap_or_default();
    let mut errors = source.trace.events.range(range).filter(|it| it.action == Action::Oom);
    errors.any(|it| it.unix_us.is_some_and(|at| at.abs_diff(wanted.raised_unix_us) <= SAME_ERROR_US))
}

fn compared(device: &Device) -> Result<Comparison, String> {
    if let Some(why) = &device.refused {
        return Err(why.clone());
    }
    let own = device.own().ok_or("PyTorch accepts the settings of the run no more")?;
    let error = device.as_recorded.as_ref().map_or(0.0, |it| it.error);
    Ok(Comparison {
        window: device.is_window().then(|| Window { steps: device.window.map(|it| it.steps) }),
        events: device.events as u64,
        until_step: device.until_step,
        device_bytes: device.size,
        error_ppm: whole(error * 1e6),
        current: outcome(own),
        // Of a run that ended in an error, only a part was replayed.
        best: device
            .better()
            .map(|it| Outcome { smallest_device: it.smallest.filter(|_| device.died_at.is_none()), ..outcome(it) }),
        tried: device.candidates.len() as u64,
    })
}

fn outcome(it: &Row) -> Outcome {
    let failure = |it: &Failure| replayed::Failure {
        event: it.event as u64,
        step: it.step.as_deref().map(Foreign::new),
        line: it.line.as_deref().map(Foreign::new),
    };
    Outcome {
        settings: Foreign::new(it.settings.as_str()),
        peak_allocated: it.peak_allocated,
        peak_reserved: it.peak_reserved,
        fails_at: it.fails_at.as_ref().map(failure),
        smallest_device: it.smallest,
        retries: it.retries,
        cuda_mallocs: it.cuda_mallocs,
        synchronisations: it.synchronisations,
    }
}

/// Returns the CPU time of this process and of its ended children, in µs.
fn cpu_us() -> Option<u64> {
    let stat = Stat::of(std::process::id())?;
    let ticks = stat.cpu + stat.children_cpu;
    Some(ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_compared_with_the_runs_own_settings() {
        let row =
            |settings: &str, peak_reserved| Row { settings: settings.to_owned(), peak_reserved, ..Row::default() };
        let candidates = vec![row("expandable_segments:True", 50), row("", 90), row("backend:cudaMallocAsync", 10)];
        let device = Device { events: 7, until_step: Some(3), candidates, ..Device::default() };
        let it = compared(&device).unwrap();
        let best = it.best.as_ref().map(|best| (best.settings.raw(), best.peak_reserved));
        assert_eq!((best, it.current.peak_reserved, it.tried), (Some(("expandable_segments:True", 50)), 90, 3));
        assert_eq!((it.events, it.until_step, it.window), (7, Some(3), None));
        let none = Device { candidates: vec![row("", 90)], ..Device::default() };
        assert_eq!(compared(&none).unwrap().best, None);
        let refused = Device { refused: Some("it is off".to_owned()), ..Device::default() };
        assert_eq!(compared(&refused), Err("it is off".to_owned()));
        assert!(compared(&Device::default()).is_err() && cpu_us().is_some());
    }
}
