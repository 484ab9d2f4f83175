//! Sources of allocations: a memory snapshot, a process's trace, or a recording with the traces of its processes.

use super::{
    Trouble,
    steps::{self, Steps},
};
use crate::{
    model::trace::{Action, Trace},
    storage::{
        pickle::{self, Progress, Reading},
        traces::{self, Traced, Window},
    },
};
use std::path::{Path, PathBuf};

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
    let mut steps = steps::read(path);
    let of_process = |it: &PathBuf| {
        let source = traced(it)?;
        let steps = source.pid.and_then(|pid| steps.remove(&pid));
        Ok(Source { steps, ..source })
    };
    files.iter().map(of_process).collect()
}

/// Opens the trace of a process.
pub(super) fn traced(path: &Path) -> Result<Source, Trouble> {
    let Traced { pid, python, trace, gaps, ended, window, cpu_us } = traces::read(path)?;
    let ended = ended.map(|why| format!("the trace of process {pid} ends early: {why}"));
    let python = Some(python).filter(|it| it.exists());
    Ok(Source { trace, pid: Some(pid), python, gaps, window, ended, steps: None, cpu_us })
}
