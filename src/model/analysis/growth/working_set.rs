//! Compares a step's peak with what it leaves behind: does memory grow because the steps do?
//!
//! Longer sentences and larger batches enlarge all memory of a step for a while. If its outputs are still alive at the
//! end, the step holds at least three times as much: the outputs of the step before, its own, and their gradient. A
//! kept tensor that is reallocated larger exists at most twice, old and new.

use super::{climb::Run, horizons::Horizons};
use serde::{Deserialize, Serialize};

/// If the peak rises this many times as far as the rest, the steps grow.
pub(super) const FURTHER: f64 = 2.25;

/// The peak must rise at least this often, and once in this many rises of the run, because lengths set a new peak now
/// and then.
const RISES: usize = 2;
const OFTEN: usize = 6;

/// The peak of live memory so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkingSet {
    peaks: Horizons,
    known: bool,
}

impl WorkingSet {
    /// Adds the peak so far; once known, every sample must have it.
    pub(super) fn push(&mut self, at: u64, peak: Option<u64>) {
        self.known = peak.is_some();
        if let Some(peak) = peak {
            self.peaks.push(at, peak as f64);
        }
    }

    /// Returns whether the peak rose with a run of a series, and further. `by_all` compares all remembered rises as
    /// well: the allocator adds up to 1 MiB to a large request, so the peak rises in leaps that a short run may miss.
    pub(super) fn explains(&self, level: usize, run: &Run, series: &Horizons, by_all: bool) -> bool {
        self.rose_further(level, run.since, series) || by_all && self.rose_further(level, 0, series)
    }

    fn rose_further(&self, level: usize, since: u64, series: &Horizons) -> bool {
        let from = since.max(self.peaks.remembered(level)).max(series.remembered(level));
        let ((left, gain), (rises, further)) = (series.gained_after(level, from), self.peaks.gained_after(level, from));
        self.known && rises >= RISES.max(left / OFTEN) && further >= FURTHER * gain
    }
}
