//! What the job does from start to end: the peak of each phase, which of them fit, and what did not run.

use super::{
    job_report::{Failure, JobReport, OnDevice, Phase, TRAINING},
    trial::Trial,
};
use crate::{
    facts::units::Bytes,
    model::fit::{Fits, Need},
};

/// The phases of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    pub(super) rows: Vec<PhaseRow>,
    /// What did not run, as far as the job's own lines show it: phase and line.
    pub(super) not_run: Vec<(String, String)>,
    /// Whether the job came to its end, and whether it did so without being led there.
    pub(super) is_whole: bool,
    pub(super) is_by_itself: bool,
    /// Optimizer steps that ran.
    pub(super) steps: u64,
}

/// One phase on the busiest device.
#[derive(Clone, Debug)]
pub(super) struct PhaseRow {
    pub(super) name: String,
    /// Where it began.
    pub(super) line: Option<String>,
    /// How often it ran.
    pub(super) count: u64,
    /// Optimizer steps before its peak.
    pub(super) step: Option<u64>,
    /// Bytes.
    pub(super) allocated: u64,
    /// Bytes, where they were more than ever before: an allocator keeps what it has reserved.
    pub(super) reserved: Option<u64>,
    /// Whether it fits on the device, where one is named.
    pub(super) fits: Option<Fits>,
}

impl Phases {
    /// Reads the phases of a process on a device.
    pub(super) fn of(account: &JobReport, device: &OnDevice) -> Self {
        let row = |phase: &Phase| {
            let (allocated, reserved) = phase.peak(device.ordinal)?;
            let (name, line, count, step) = (phase.name.clone(), phase.line.clone(), phase.count, phase.step);
            // Later, it also used what others had reserved.
            let reserved = reserved.filter(|it| *it >= allocated);
            Some(PhaseRow { name, line, count, step, allocated, reserved, fits: None })
        };
        Self {
            rows: account.phases.iter().filter_map(row).collect(),
            not_run: account.not_run.clone(),
            is_by_itself: account.whole,
            is_whole: account.ended.as_deref() == Some("exit") && account.error.is_none(),
            steps: account.steps,
        }
    }

    /// Judges each phase on a device of so many bytes. `ran_there` is whether the job ran on one of that size.
    pub(super) fn judge(&mut self, need: &Need, capacity: u64, ran_there: bool) {
        for row in &mut self.rows {
            // What was cached before can be given back.
            let (allocated, reserved) = (row.allocated, row.reserved.unwrap_or(row.allocated));
            let own = Need { allocated, reserved, outside: need.outside.clone(), capacity: None };
            row.fits = Some(if ran_there { Fits::Yes } else { own.fits(capacity) });
        }
    }

    /// Notes that the job does not fit: where no phase is certain to be why, it is the one that takes the most.
    pub(super) fn deny(&mut self) {
        if self.rows.iter().any(|it| it.fits == Some(Fits::No)) {
            return;
        }
        let doubtful = self.rows.iter_mut().filter(|it| it.fits == Some(Fits::Unknown));
        if let Some(most) = doubtful.max_by_key(|it| it.reserved.unwrap_or(it.allocated)) {
            most.fits = Some(Fits::No);
        }
    }

    /// Returns the phase that takes the most.
    pub(super) fn highest(&self) -> Option<&PhaseRow> {
        self.rows.iter().rev().max_by_key(|it| it.allocated)
    }

    /// Returns which phase does not fit although training does, as text.
    pub(super) fn culprit(&self) -> Option<String> {
        let is = |it: &PhaseRow, fits: Fits| it.fits == Some(fits);
        let training = self.rows.iter().find(|it| it.name == TRAINING).filter(|it| is(it, Fits::Yes))?;
        let worst = self.rows.iter().find(|it| is(it, Fits::No)).or_else(|| {
            let mut doubtful = self.rows.iter().filter(|it| is(it, Fits::Unknown));
            doubtful.next()
        })?;
        let words = if is(worst, Fits::No) { "does not fit" } else { "may not fit" };
        let training = Bytes(training.reserved.unwrap_or(training.allocated));
        Some(format!("{} {words}, training alone does ({training})", worst.place()))
    }
}

impl PhaseRow {
    /// Returns the phase with when and where it ran, as `evaluation after step 3 at train.py:41`.
    pub(super) fn place(&self) -> String {
        let when = self.when().map_or_else(String::new, |it| format!(" {it}"));
        let at = self.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
        format!("{}{when}{at}", self.name)
    }

    /// Returns when it ran, as text; `None` before the first step.
    pub(super) fn when(&self) -> Option<String> {
        let step = self.step.filter(|it| *it > 0 && self.name != TRAINING)?;
        Some(format!("after step {step}"))
    }
}

/// Returns what led to phases that a healthy run enters later, what failed in them and what was not seen, as text.
pub(super) fn unknown(trial: &Trial) -> Vec<String> {
    let accounts = || trial.accounts.iter().filter(|it| it.steady > 0);
    let mut all = Vec::new();
    for (line, text) in accounts().flat_map(|it| &it.entered) {
        all.push(format!("{line}: `{text}` was entered, as a later step would"));
    }
    for it in accounts().filter_map(|it| it.error.as_ref()).filter(|it| !it.is_out_of_memory()) {
        all.push(failed(it));
    }
    let is_own = |it: &JobReport| it.ended.as_deref() == Some("exit") && it.error.is_none();
    if let Some(how) = trial.ending.as_ref().filter(|_| accounts().next().is_some() && accounts().all(is_own)) {
        all.push(format!("the job ended itself after training, with {how}: what would come after that did not run"));
    }
    for (line, passes, _) in accounts().flat_map(|it| &it.unseen).filter(|it| it.2 == 0) {
        all.push(format!("the sizes of the loop at {line} after its pass {passes}: only running it tells them"));
    }
    all.extend(accounts().filter_map(ended_early));
    for (items, of) in accounts().flat_map(|it| &it.looked) {
        all.push(format!(
            "the longest items of a dataset: only {items} of {of} were looked at, because reading them is slow"
        ));
    }
    all.dedup();
    all
}

/// Returns why a process did not come to the end of what follows training, where that is for its time.
fn ended_early(it: &JobReport) -> Option<String> {
    let (why, remedy) = match it.ended.as_deref()? {
        "late" => ("had not ended after a minute", "--whole waits longer"),
        "time" => ("had not ended at the time limit", "--time-limit sets another one"),
        _ => return None,
    };
    let at = it.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
    Some(format!("what follows training {why}, and was left{at}: its peak may be incomplete; {remedy}"))
}

/// Returns which phase failed, and where, as text.
fn place(it: &Failure) -> (&str, String) {
    let at = it.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
    (it.phase.as_ref().map_or("what follows training", |it| it.0.as_str()), at)
}

/// Returns which phase failed, where, and with which error.
pub(super) fn failed(it: &Failure) -> String {
    let (phase, at) = place(it);
    let text = it.text.lines().next().unwrap_or_default();
    format!("{phase} failed here{at}, and what comes after it did not run: {} {text}", it.kind)
}

/// Returns why a phase may need more than was seen, as text.
pub(super) fn unfinished(trial: &Trial) -> Option<String> {
    // What fails after all phases that are known leaves nothing out.
    let is_within =
        |it: &&JobReport| it.error.as_ref().is_some_and(|error| error.phase.is_some()) || !it.not_run.is_empty();
    let steady = trial.accounts.iter().filter(|it| it.steady > 0).filter(is_within);
    if let Some(it) = steady.filter_map(|it| it.error.as_ref()).find(|it| !it.is_out_of_memory()) {
        let (phase, at) = place(it);
        return Some(format!("fits as far as it ran, but {phase} failed{at}"));
    }
    let loader = trial.accounts.iter().flat_map(|it| &it.unfinished).max_by_key(|it| it.1);
    if let Some((line, bytes, ran, of)) = loader {
        let bytes = Bytes(*bytes);
        return Some(format!(
            "fits as far as it ran, but at {line} memory still rose by {bytes} a batch, at batch {ran} of {of}"
        ));
    }
    let looped = trial.accounts.iter().flat_map(|it| &it.unseen).max_by_key(|it| it.2).filter(|it| it.2 > 0);
    let (line, passes, bytes) = looped?;
    let bytes = Bytes(*bytes);
    Some(format!(
        "fits as far as it ran, but at {line} memory still rose by {bytes} in each pass, after {passes} of them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_does_not_fit_has_a_phase_that_does_not() {
        let row = |reserved, fits| PhaseRow {
            name: "evaluation".to_owned(),
            line: None,
            count: 1,
            step: None,
            allocated: 1,
            reserved,
            fits: Some(fits),
        };
        let denied = |rows: &[(Option<u64>, Fits)]| {
            let rows = rows.iter().map(|it| row(it.0, it.1)).collect();
            let mut phases = Phases { rows, ..Phases::default() };
            phases.deny();
            phases.rows.iter().map(|it| it.fits.unwrap()).collect::<Vec<_>>()
        };
        let (yes, no, unknown) = (Fits::Yes, Fits::No, Fits::Unknown);
        assert_eq!(denied(&[(Some(3), yes), (Some(9), unknown), (Some(7), unknown)]), [yes, no, unknown]);
        assert_eq!(denied(&[(Some(9), unknown), (Some(7), no)]), [unknown, no]);
        assert_eq!(denied(&[(None, yes)]), [yes]);
    }
}
