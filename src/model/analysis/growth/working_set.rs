//! What a step holds at its highest, against what it leaves behind: whether memory grows because the steps do.
//!
//! Longer sentences and larger batches enlarge all that a step holds for a while. Where its outputs are still alive at the
//! end, the step holds at least three times as much: the outputs of the step before, its own, and their gradient. A
//! tensor that is kept and made anew with some more in it is there twice at most, old and new.

use super::{climb::Run, horizons::Horizons};
use serde::{Deserialize, Serialize};

/// A highest that rises so many times as far as what is left behind is the step's own growth.
const FURTHER: f64 = 2.25;

/// It rises so many times at least, and once in so many rises of the run: lengths make a new highest now and then.
const RISES: usize = 2;
const OFTEN: usize = 6;

/// The highest that was ever allocated, as the job goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkingSet {
    peaks: Horizons,
    known: bool,
}

impl WorkingSet {
    /// Takes the highest so far; it is expected with every sample once it was known.
    pub(super) fn push(&mut self, at: u64, peak: Option<u64>) {
        self.known = peak.is_some();
        if let Some(peak) = peak {
            self.peaks.push(at, peak as f64);
        }
    }

    /// Whether the highest rose with a run of a series, and further.
    pub(super) fn explains(&self, level: usize, run: &Run, series: &Horizons) -> bool {
        let from = run.since.max(self.peaks.remembered(level)).max(series.remembered(level));
        let ((left, gain), (rises, further)) = (series.gained_after(level, from), self.peaks.gained_after(level, from));
        self.known && rises >= RISES.max(left / OFTEN) && further >= FURTHER * gain
    }
}
