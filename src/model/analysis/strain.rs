//! Problems other than growth: fragmentation, pressure, retries, churn, imbalance. One observation at a time.
//!
//! `analysis::strain` watches, on the same axis as growth, stuck memory, how full the device is, retries, segments
//! released in every step, and how a rank compares with the others of its run. `session::contexts` watches the devices
//! on which the driver lists a process that does not train there. Each is an `analysis::latch` with two thresholds and
//! two waits, counted in observations and not in frames, so a replay reports the same as the live view. A spell is
//! raised once, resolved once, and each further one has to last twice as long.

use super::{
    cause::Cause,
    fragmentation,
    latch::{Band, Latch, LatchPeriod, Patience},
};
use crate::facts::{event::wire::Counters, units::Stamp};
use serde::{Deserialize, Serialize};

/// Waits for conditions that hold nearly always.
const LASTING: Patience = Patience { on: 50, off: 100 };

/// Waits for conditions that are counted over a stretch of their own.
const AT_ONCE: Patience = Patience { on: 1, off: 1 };

/// Stuck share of reserved memory.
const STUCK: (f64, f64) = (0.30, 0.20);

/// Share of the available memory that the process wants.
const FULL: (f64, f64) = (0.95, 0.90);

/// Ratio to the median of the other ranks.
const FULLER: (f64, f64) = (1.30, 1.15);

/// Bytes below this share of the device do not matter.
const MATTERS: f64 = 0.05;

/// Bytes that matter where the device's total is unknown.
const MATTERS_BYTES: f64 = (1_u64 << 30) as f64;

/// This many observations with retries, within that many steps, cannot be an accident of the first steps; the condition
/// ends after [`RETRIES_GONE`] steps without any. A thinned stream has fewer observations than steps.
const RETRIES: usize = 3;
const RETRIES_WITHIN: u64 = 100;
const RETRIES_GONE: u64 = 300;

/// Share of the latest steps that released segments to the driver.
const CHURN: (f64, f64) = (0.80, 0.30);

/// Weight of one observation in that share.
const FADING: f64 = 0.05;

/// Average segments released per step that make it one of those.
const A_SEGMENT: f64 = 0.9;

/// An observation at the end of a step; without steps, at a tick.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StrainReading {
    /// Completed steps, or seconds for a job without steps.
    pub step: u64,
    /// When.
    pub at: Stamp,
    /// The latest counters.
    pub counters: Counters,
    /// The device's total, if the counters lack it.
    pub total: Option<u64>,
    /// Whether expandable segments are on.
    pub expandable: bool,
    /// Whether live memory grows, which explains why the device fills up.
    pub grows: bool,
    /// What the other ranks of the run want of their devices, the median; `None` without others.
    pub others: Option<u64>,
}

/// The state of the watch and the problems it found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Strain {
    fragmentation: Latch,
    pressure: Latch,
    thrashing: Latch,
    churn: Latch,
    imbalance: Latch,
    last: Option<Last>,
    /// Steps of the latest observations with retries.
    retried: Vec<u64>,
    /// Share of the latest steps that released segments.
    freeing: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Last {
    step: u64,
    retries: Option<u64>,
    device_frees: Option<u64>,
    private_pools: Option<u64>,
}

/// Applies one more observation. A repeated step changes nothing; a falling one is a restart, which resolves
/// everything.
#[must_use]
pub fn step(mut state: Strain, seen: &StrainReading) -> Strain {
    match state.last {
        Some(last) if seen.step == last.step => return state,
        Some(last) if seen.step < last.step => state.restart(seen),
        _ => {}
    }
    state.wanted(seen);
    state.stuck(seen);
    state.counted(seen);
    let Counters { retries, device_frees, private_pools, .. } = seen.counters;
    // Without graphs there are no pools.
    let private_pools = Some(private_pools.unwrap_or(0));
    state.last = Some(Last { step: seen.step, retries, device_frees, private_pools });
    state
}

/// Returns the most that a process wants of its device: the peak of live allocations.
pub fn wanted(counters: &Counters) -> Option<u64> {
    counters.allocated.max(counters.allocated_peak)
}

impl Strain {
    /// Returns the problems: cause, time, and highest measure (a share; a ratio for imbalance; a count for retries).
    pub fn spells(&self) -> impl Iterator<Item = (Cause, &LatchPeriod)> {
        [
            (Cause::Fragmentation, &self.fragmentation),
            (Cause::Pressure, &self.pressure),
            (Cause::Thrashing, &self.thrashing),
            (Cause::Churn, &self.churn),
            (Cause::RankImbalance, &self.imbalance),
        ]
        .into_iter()
        .flat_map(|(cause, latch)| latch.spells().iter().map(move |it| (cause, it)))
    }

    fn restart(&mut self, seen: &StrainReading) {
        let all =
            [&mut self.fragmentation, &mut self.pressure, &mut self.thrashing, &mut self.churn, &mut self.imbalance];
        for it in all {
            it.end(seen.step, seen.at);
        }
        self.last = None;
        self.retried.clear();
        self.freeing = 0.0;
    }

    fn stuck(&mut self, seen: &StrainReading) {
        let it = &seen.counters;
        let gauge = fragmentation::fragmentation(it, seen.expandable);
        let Some((share, stuck)) = gauge.stuck_share().zip(it.inactive_split) else { return };
        // What a step uses at its peak is stuck between steps alone. A peak above what is reserved now is an old one.
        let idle = it.reserved.zip(it.allocated_peak).and_then(|(reserved, peak)| reserved.checked_sub(peak));
        let unused = idle.unwrap_or(stuck).min(stuck);
        let (share, stuck) = (share * unused as f64 / stuck.max(1) as f64, unused);
        let matters = stuck as f64 >= least(seen);
        let band = match Band::of(share, STUCK.0, STUCK.1) {
            Band::High if !matters => Band::Between,
            _ if (stuck as f64) < 0.5 * least(seen) => Band::Low,
            it => it,
        };
        self.fragmentation.step(LASTING, (band, share), seen.step, seen.at);
    }

    fn wanted(&mut self, seen: &StrainReading) {
        let Some(wanted) = wanted(&seen.counters).map(|it| it as f64) else { return };
        let it = &seen.counters;
        let within_reach = it.device_free.zip(it.reserved).map(|(free, own)| free.saturating_add(own));
        let total = it.device_total.or(seen.total);
        let limit = [within_reach, total].into_iter().flatten().min().filter(|it| *it > 0);
        if let Some(limit) = limit {
            let share = wanted / limit as f64;
            let band = match Band::of(share, FULL.0, FULL.1) {
                Band::High if seen.grows => Band::Between,
                it => it,
            };
            self.pressure.step(LASTING, (band, share), seen.step, seen.at);
        }
        if let Some(others) = seen.others.filter(|it| *it > 0).map(|it| it as f64) {
            let ratio = wanted / others;
            let band = match Band::of(ratio, FULLER.0, FULLER.1) {
                Band::High if wanted - others < least(seen) => Band::Between,
                it => it,
            };
            self.imbalance.step(LASTING, (band, ratio), seen.step, seen.at);
        }
    }

    /// Reads the allocator's cumulative counters for the steps since the last observation.
    fn counted(&mut self, seen: &StrainReading) {
        let Some(last) = self.last else { return };
        let since = |new: Option<u64>, old: Option<u64>| new?.checked_sub(old?);
        let retries = since(seen.counters.retries, last.retries);
        if let Some(retries) = retries {
            if retries > 0 {
                if self.retried.len() == RETRIES {
                    self.retried.remove(0);
                }
                self.retried.push(seen.step);
            }
            // A restart clears the list, so no step in it is later.
            let among = self.retried.iter().filter(|it| seen.step - **it < RETRIES_WITHIN).count();
            let gone = self.retried.last().is_none_or(|it| seen.step - *it >= RETRIES_GONE);
            let band = match among {
                _ if gone => Band::Low,
                RETRIES.. => Band::High,
                _ => Band::Between,
            };
            self.thrashing.step(AT_ONCE, (band, among as f64), seen.step, seen.at);
        }
        if let Some(frees) = since(seen.counters.device_frees, last.device_frees) {
            // A retry releases the whole cache, which is another cause, and so does PyTorch before it captures a graph.
            let captured = since(seen.counters.private_pools, last.private_pools).is_some_and(|it| it > 0);
            let freed =
                retries.unwrap_or(0) == 0 && !captured && frees as f64 >= A_SEGMENT * (seen.step - last.step) as f64;
            self.freeing += FADING * (f64::from(u8::from(freed)) - self.freeing);
            let band = Band::of(self.freeing, CHURN.0, CHURN.1);
            self.churn.step(AT_ONCE, (band, self.freeing), seen.step, seen.at);
        }
    }
}

/// Returns whether a rank that wants this much needs more attention than the median of its run.
pub fn is_uneven(wanted: u64, median: u64, total: Option<u64>) -> bool {
    let matters = total.map_or(MATTERS_BYTES, |it| MATTERS * it as f64);
    median > 0 && wanted as f64 / median as f64 >= FULLER.0 && wanted.saturating_sub(median) as f64 >= matters
}

/// Bytes that matter on the device.
fn least(seen: &StrainReading) -> f64 {
    seen.counters.device_total.or(seen.total).map_or(MATTERS_BYTES, |it| MATTERS * it as f64)
}

#[cfg(test)]
mod tests;
