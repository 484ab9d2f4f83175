//! Sources of allocations: a memory snapshot, a process's trace, or a recording with the traces of its processes.

use super::Trouble;
use crate::{
    facts::{
        event::{
            Line, ProbeId,
            wire::{Edge, Hello, Sample},
        },
        units::Stamp,
    },
    model::trace::{Action, Trace},
    storage::{
        pickle::{self, Progress, Reading},
        replay::find,
        traces::{self, Traced, Window},
    },
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The allocations of one process.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) trace: Trace,
    /// The process, if known.
    pub(super) pid: Option<u32>,
    /// Its Python, if known and still there.
    pub(super) python: Option<PathBuf>,
    /// How many times events were lost.
    pub(super) gaps: u64,
    /// What it covers, of a window of a running job.
    pub(super) window: Option<Window>,
    /// Why it is incomplete.
    pub(super) ended: Option<String>,
    /// Its steps, if a recording has them.
    pub(super) steps: Option<Steps>,
    /// CPU time of the job that writing the trace took, in µs.
    pub(super) cpu_us: u64,
}

impl Source {
    /// Returns the devices to answer for: those with a trace, or, if there is none, all of them.
    pub(super) fn ordinals(&self) -> Vec<u32> {
        let (trace, all) = (&self.trace, self.trace.ordinals());
        let is_traced = |it: &u32| {
            let events = trace.devices.get(*it as usize).cloned().unwrap_or_default();
            trace.events.actions(events).contains(&Action::Alloc)
        };
        let traced: Vec<u32> = all.iter().copied().filter(is_traced).collect();
        if traced.is_empty() { all } else { traced }
    }
}

/// Opens what a path names; `report` gets how much of a snapshot is read.
///
/// # Errors
/// Fails if it cannot be read, or holds no allocations.
pub(super) fn open(path: &Path, report: impl FnMut(Progress)) -> Result<Vec<Source>, Trouble> {
    let name = path.to_string_lossy();
    if traces::is_named(path) && path.is_file() {
        return Ok(vec![traced(path)?]);
    }
    if !name.contains(".jsonl") {
        let Reading { trace, ended, .. } = pickle::open_with(path, report)?;
        return Ok(vec![Source { trace, ended: ended.map(|it| it.to_string()), ..Source::default() }]);
    }
    let files = traces::files(path);
    if files.is_empty() {
        return Err(Trouble::Recording);
    }
    let mut steps = read(path);
    let of_process = |it: &PathBuf| {
        let source = traced(it)?;
        let steps = source.pid.and_then(|pid| steps.remove(&pid));
        Ok(Source { steps, ..source })
    };
    files.iter().map(of_process).collect()
}

/// Opens the trace of a process.
pub(super) fn traced(path: &Path) -> Result<Source, Trouble> {
    let Traced { pid, python, trace, gaps, ended, window, cpu_us, .. } = traces::read(path)?;
    let ended = ended.map(|why| format!("the trace of process {pid} ends early: {why}"));
    let python = Some(python).filter(|it| it.exists());
    Ok(Source { trace, pid: Some(pid), python, gaps, window, ended, steps: None, cpu_us })
}

/// The completed steps of a process, with their times in µs of Unix time.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(Vec<(u64, u64)>);

impl Steps {
    /// Returns the last step that was completed by then; 0 before the first.
    pub(super) fn at(&self, unix_us: u64) -> u64 {
        let done = self.0.partition_point(|it| it.0 <= unix_us);
        done.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |it| it.1)
    }

    fn push(&mut self, unix_us: u64, step: u64) {
        let is_next = self.0.last().is_none_or(|last| unix_us >= last.0 && step != last.1);
        if is_next {
            self.0.push((unix_us, step));
        }
    }
}

/// Reads the steps of a recording's processes, by the pid that each reports; nothing if it cannot be read.
pub(super) fn read(recording: &Path) -> BTreeMap<u32, Steps> {
    let Ok(found) = find::find(&[recording.to_owned()]) else { return BTreeMap::new() };
    let recordings = found.recordings;
    let mut all: BTreeMap<ProbeId, (u32, Steps)> = BTreeMap::new();
    let mut cursor = recordings.play();
    while let Some((_, event)) = cursor.next_by(Stamp(u64::MAX)) {
        match event.line() {
            Some((probe, Line::Hello(Hello { pid, .. }))) => all.entry(probe).or_default().0 = *pid,
            Some((probe, Line::Sample(Sample { edge: Edge::Step | Edge::Call, step: Some(step), at_us, .. }))) => {
                if let Some(unix_us) = recordings.unix_us(Stamp(*at_us)) {
                    all.entry(probe).or_default().1.push(unix_us, *step);
                }
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_the_step_that_was_completed_before_it() {
        let mut steps = Steps::default();
        assert_eq!(steps.at(5), 0);
        // The second device of a process repeats its steps.
        for (at, step) in [(10, 1), (11, 1), (20, 2), (19, 3)] {
            steps.push(at, step);
        }
        assert_eq!([9, 10, 19, 20, 99].map(|it| steps.at(it)), [0, 1, 1, 2, 2]);
    }
}
