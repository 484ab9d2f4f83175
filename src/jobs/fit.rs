//! `gpuwatch fit`: whether a job fits on a GPU that is not there.
//!
//! The job runs unchanged under `gpuwatch run`, with `simgpu` in the driver's place, first on a device with more room
//! than any job wants. The probe ends it after some optimizer steps and leaves an account of each process
//! (`probes/python/gpuwatch_probe/_fit.py`): the allocator's peaks by step, a memory snapshot of the whole run, the
//! lines that read values from the device, the calls that are not simulated. [`model::fit`](crate::model::fit) adds
//! what lies outside the allocator. Where that leaves a doubt, the job runs again on a device of the size that was
//! asked for, once with the most and once with the least that lies outside: an allocator that is short of memory gives
//! its cache back before it fails.

/// Passes a request to end on to the job.
pub mod stop;

/// Measures what techniques save.
pub mod advise;
/// Writes what differs from a baseline.
pub mod comparison_text;
/// Reads the account of a process.
mod job_report;
/// Writes JSON.
mod json;
/// Judges devices.
mod judge;
/// The peak of a run.
mod peak;
/// What the job does from start to end, and the peak of each part.
mod phases;
/// Tests under pytest.
pub mod pytest;
/// Ranks of which some are absent.
mod ranks;
/// Runs the job on a simulated machine.
mod trial;
/// Lines that read values, and what depends on them.
mod values;
/// Searches the largest value that fits.
mod vary;
/// Writes text.
mod verdict_text;

pub use ranks::{Nodes, Ranks};
pub use vary::Vary;

use self::{
    judge::Judged,
    peak::Peak,
    phases::Phases,
    ranks::{ClusterPlan, Enough, Present},
    trial::{Bench, Trial},
};
use crate::{
    facts::{
        event::ending,
        text::Foreign,
        units::{Bytes, counted},
    },
    jobs::simulated::{self, Scratch},
    model::fit::{Baseline, Budget, Comparison, Device, Fits, Table, baseline::Growth, comparison},
};
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::PathBuf,
    process::{Child, Command, Stdio},
};
use thiserror::Error;

/// What to judge: devices, and the limits of the run that is measured.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The devices to judge; empty stands for every known card.
    pub devices: Vec<Device>,
    /// Steps to run; `None` runs until the peak is steady.
    pub steps: Option<u32>,
    /// How long the job continues by itself before it is led out of its training loop.
    pub alone: Alone,
    /// Seconds that one run of the job takes at most.
    pub seconds: u64,
    /// What was measured on real GPUs.
    pub tables: Vec<Table>,
    /// A value to vary.
    pub vary: Option<Vary>,
    /// Which ranks run, where some are absent.
    pub ranks: Option<Ranks>,
    /// Bytes of each machine's own memory.
    pub host: Option<u64>,
    /// The job and its arguments.
    pub command: Vec<OsString>,
    /// The file to record the job into, instead of a new one among the recordings.
    pub recording: Option<PathBuf>,
}

/// How long a job continues by itself, once the peak of its steps is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alone {
    /// Not at all.
    No,
    /// For so many allocations as small jobs need for their whole run.
    #[default]
    Usual,
    /// For a part of the time limit.
    Long,
}

impl Alone {
    /// Returns its name in the job's environment; `None` for the usual.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::No => Some("no"),
            Self::Usual => None,
            Self::Long => Some("long"),
        }
    }
}

/// Whether the job fits on each device, and what the run showed.
#[derive(Debug, Default)]
pub struct Answer {
    /// Whether the user named devices.
    is_named: bool,
    devices: Vec<Judged>,
    /// The peak, of the first device's architecture.
    peak: Option<Peak>,
    /// What the job does from start to end.
    phases: Phases,
    /// Unknowns, in words.
    unknown: Vec<String>,
    /// Why there is no verdict at all, in words.
    why: Option<String>,
    /// Whether the job failed after it had read values.
    is_after_reads: bool,
    /// The smallest known card that is enough.
    smallest: Option<Device>,
    /// The steps for which that card is enough, where the job grows in each of them; 0 where nobody knows how many it
    /// makes.
    lasts: u64,
    /// Whether the job may need more than was seen.
    is_doubted: bool,
    varied: Option<vary::Varied>,
    /// The ranks, where some are absent.
    plan: Option<ClusterPlan>,
    /// What each step adds, where the job grows in each step.
    growth: Option<Growth>,
}

/// Answers a question. `progress` gets what is done next, in words.
///
/// # Errors
/// When no machine can be simulated for the job, or when it cannot be started.
pub fn answer(question: &Question, mut progress: impl FnMut(&str)) -> Result<Answer, Trouble> {
    Ok(answered(&mut Bench::new(question)?, question, &mut progress)?.0)
}

/// Answers a question, and returns the runs without a limit beside it, the one of the first device first. The bench
/// then has the varied value that the answer is of.
fn answered(
    bench: &mut Bench,
    question: &Question,
    progress: &mut impl FnMut(&str),
) -> Result<(Answer, Vec<Trial>), Trouble> {
    let enough = enough(bench, question, progress)?;
    let varied = match &question.vary {
        Some(vary) => Some(vary.search(bench, question, progress)?),
        None => None,
    };
    if let Some(it) = &varied {
        bench.set(it.shown());
    }
    let (mut answer, trials) = bench.judged(question, progress)?;
    answer.unknown.splice(0..0, question.devices.iter().filter_map(|it| it.taken.clone()));
    answer.varied = varied;
    if let (Some(plan), Some((found, why))) = (&mut answer.plan, enough) {
        plan.enough = Some(found);
        answer.unknown.extend(why);
    }
    if let Some(plan) = &mut answer.plan {
        plan.host_limit = question.host;
    }
    Ok((answer, trials))
}

/// Finds the smallest number of machines that is enough, where that is asked for, with which the bench then runs; else
/// the largest one.
fn enough(
    bench: &mut Bench,
    question: &Question,
    progress: &mut impl FnMut(&str),
) -> Result<Option<(Enough, Option<String>)>, Trouble> {
    let Some(ranks) = question.ranks.as_ref().filter(|it| it.nodes.is_range()) else { return Ok(None) };
    let is_slurm = bench.present.as_ref().is_some_and(|it| it.is_slurm);
    let set = |bench: &mut Bench, nodes| bench.present = Some(Present::new(ranks, nodes, is_slurm));
    let (found, why) = ranks::smallest(ranks.nodes, |nodes| {
        set(bench, nodes);
        progress(&format!("with {}", counted(u64::from(nodes), "machine")));
        Ok::<_, Trouble>(vary::runs_on_all(bench, question, progress)?.map(|(runs, _)| runs))
    })?;
    set(bench, found.unwrap_or_else(|| ranks.nodes.most()));
    Ok(Some((Enough { nodes: ranks.nodes, found }, why)))
}

impl Answer {
    /// Returns whether the job fits on every requested device; without one, on any known card.
    pub fn fits(&self) -> Fits {
        if let Some(it) = self.varied.as_ref().filter(|it| it.largest.is_none()) {
            return if it.why.is_some() { Fits::Unknown } else { Fits::No };
        }
        let all = self.devices.iter().map(|it| it.fits).chain(self.plan.as_ref().and_then(ClusterPlan::host_fits));
        if self.is_named {
            all.reduce(Fits::and).unwrap_or(Fits::Unknown)
        } else {
            all.fold(Fits::Unknown, |sum, it| if it == Fits::Yes { it } else { sum })
        }
    }

    /// Returns the answer in words.
    pub fn text(&self) -> String {
        verdict_text::answer(self)
    }

    /// Returns the answer as JSON, schema 1.
    pub fn json(&self) -> String {
        json::answer(self)
    }

    /// Compares the answer with an earlier one.
    pub fn against(&self, baseline: &Baseline, budget: Budget) -> Comparison {
        let now = Baseline::parse(&self.json());
        let now = now.unwrap_or_else(|e| Baseline { unknown: vec![format!("the answer {e}")], ..Baseline::default() });
        comparison::compare(baseline, &now, budget)
    }

    /// Whether it has a peak, with which a later answer can be compared.
    pub fn has_peak(&self) -> bool {
        self.peak.is_some()
    }
}

/// An error of `gpuwatch fit`.
#[derive(Debug, Error)]
pub enum Trouble {
    /// No Python of the command has PyTorch.
    #[error(
        "{}; activate the environment that has it, or name its Python, as in gpuwatch fit -- .venv/bin/python train.py",
        Foreign::new(.0.as_str())
    )]
    NoTorch(String),
    /// No machine can be simulated.
    #[error(transparent)]
    Simulated(#[from] simulated::Trouble),
    /// A GPU cannot be measured.
    #[error("cannot measure a GPU: {}", Foreign::new(.0.as_str()))]
    Unmeasured(String),
    /// Each value of what is varied needs the same, and the command has no place for it.
    #[error(
        "{0} changes nothing: the job wants {1} with each of {2} values; write {{{0}}} in the command where the value \
         belongs"
    )]
    Unvaried(String, Bytes, usize),
    /// The command has a place for another name than the one that is varied.
    #[error("the command has {{{1}}}, and --vary names {0}: give both the same name")]
    OtherPlace(String, String),
    /// The job was interrupted.
    #[error("the job was {}", ending(None, Some(*.0)).unwrap_or_default())]
    Interrupted(i32),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What measures.
const CALIBRATION: &str = include_str!("fit/calibrate.py");

/// The Python where none is named.
const PYTHON: &str = "python3";

/// Measures on a real GPU what lies outside the allocator, with a Python that has the job's PyTorch, and returns a
/// table as JSON. `command` begins with the job's Python, or is empty.
///
/// # Errors
/// When there is no such Python, PyTorch, GPU or NVML, each in a sentence.
pub fn calibrate(command: &[OsString]) -> Result<String, Trouble> {
    let python = command.first().map_or(OsStr::new(PYTHON), OsString::as_os_str);
    let scratch = Scratch::new("calibrate")?;
    let script = scratch.path().join("calibrate.py");
    fs::write(&script, CALIBRATION)?;
    let mut program = Command::new(python);
    program.arg(script).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let done = program.spawn().and_then(|it| stop::wait(it, Child::wait_with_output));
    let done = done.map_err(|e| Trouble::Unmeasured(format!("{}: {e}", python.to_string_lossy())))?;
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().rfind(|it| !it.trim().is_empty()).map(str::to_owned)
    };
    if let Some(signal) = stop::asked() {
        return Err(Trouble::Interrupted(signal));
    }
    if !done.status.success() {
        return Err(Trouble::Unmeasured(last(&done.stderr).unwrap_or_else(|| done.status.to_string())));
    }
    let table = last(&done.stdout).unwrap_or_default();
    Table::parse(&table).map_err(Trouble::Unmeasured)?;
    Ok(table + "\n")
}
