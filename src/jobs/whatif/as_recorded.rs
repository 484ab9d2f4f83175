//! The replay as recorded: run, compared with the recorded run, and why it is not accurate enough.

use super::{
    AsRecorded, Question, TRUSTED, Trouble,
    candidate::Candidate,
    plan::Plan,
    runner::{Faithful, Runner},
};
use crate::model::trace::Action;

/// Replays as recorded. The inner error is why there is no answer.
pub(super) fn faithful(
    plan: &Plan,
    settings: &str,
    runner: &mut Runner,
) -> Result<Result<AsRecorded, String>, Trouble> {
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

pub(super) fn too_far(it: &AsRecorded, question: &Question) -> String {
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
