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
mod tests {
    //! Each problem is raised once it has lasted, resolved once it is gone, and not raised if it is brief.

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A healthy job: 30 of 80 GiB live, 34 reserved, one GiB of that stuck.
    fn well() -> Counters {
        Counters {
            allocated: Some(30 * GIB),
            allocated_peak: Some(50 * GIB),
            active: Some(30 * GIB),
            reserved: Some(34 * GIB),
            inactive_split: Some(GIB),
            retries: Some(0),
            device_frees: Some(0),
            device_total: Some(80 * GIB),
            ..Counters::default()
        }
    }

    /// The problems raised in this many steps.
    fn raised_in(steps: u64, at: impl Fn(u64) -> StrainReading) -> Vec<(&'static str, LatchPeriod)> {
        let seen = (1..=steps).map(|it| StrainReading { step: it, at: Stamp(it * 1000), ..at(it) });
        let state = seen.fold(Strain::default(), |state, it| step(state, &it));
        state.spells().map(|(cause, it)| (cause.id(), *it)).collect()
    }

    fn with(change: impl Fn(u64, &mut Counters)) -> impl Fn(u64) -> StrainReading {
        move |step| {
            let mut counters = well();
            change(step, &mut counters);
            StrainReading { counters, others: Some(50 * GIB), ..StrainReading::default() }
        }
    }

    /// The only one: its cause, where it was raised, and where it ended.
    fn one(raised_in: &[(&'static str, LatchPeriod)]) -> (&'static str, u64, Option<u64>) {
        let [(cause, it)] = raised_in else { panic!("{raised_in:?}") };
        (cause, it.first_alert_step, it.resolved.map(|it| it.0))
    }

    #[test]
    fn a_healthy_or_silent_job_has_no_problems() {
        assert_eq!(raised_in(5000, with(|_, _| {})), []);
        assert_eq!(raised_in(5000, |_| StrainReading::default()), []);
    }

    #[test]
    fn stuck_memory_is_raised_while_it_lasts_and_matters() {
        let stuck = |step: u64, it: &mut Counters| {
            let is_stuck = (101..400).contains(&step);
            it.reserved = Some(if is_stuck { 60 * GIB } else { 34 * GIB });
            it.allocated_peak = Some(32 * GIB);
            it.inactive_split = Some(if is_stuck { 25 * GIB } else { GIB });
        };
        assert_eq!(one(&raised_in(5000, with(stuck))), ("fragmentation", 150, Some(499)));
        let now_and_then = |step: u64, it: &mut Counters| stuck(if step % 7 < 4 { 200 } else { 1 }, it);
        assert_eq!(raised_in(5000, with(now_and_then)), []);
        // What a step uses at its peak is not stuck, even if it lies in split segments between steps.
        let full = |step: u64, it: &mut Counters| {
            stuck(step, it);
            it.allocated_peak = Some(59 * GIB);
        };
        assert_eq!(raised_in(5000, with(full)), []);
        // A peak from before segments were given back shows nothing.
        let old = |step: u64, it: &mut Counters| {
            stuck(step, it);
            it.allocated_peak = Some(61 * GIB);
        };
        assert_eq!(one(&raised_in(5000, with(old))).0, "fragmentation");
        // Half of a small cache hurts no job, and expandable segments cannot be measured.
        let small = |_, it: &mut Counters| (it.active, it.inactive_split) = (Some(GIB), Some(2 * GIB));
        assert_eq!(raised_in(5000, with(small)), []);
        assert_eq!(raised_in(5000, |step| StrainReading { expandable: true, ..with(stuck)(step) }), []);
    }

    #[test]
    fn a_device_that_is_full_and_does_not_fill_is_under_pressure() {
        let full = |_, it: &mut Counters| it.allocated_peak = Some(78 * GIB);
        let others = |seen: StrainReading| StrainReading { others: None, ..seen };
        assert_eq!(one(&raised_in(5000, |it| others(with(full)(it)))), ("pressure", 50, None));
        assert_eq!(
            raised_in(5000, |it| StrainReading { grows: true, ..others(with(full)(it)) }),
            [],
            "growth explains it"
        );
        // A neighbour leaves less.
        let with_neighbour = |_, it: &mut Counters| it.device_free = Some(17 * GIB);
        assert_eq!(one(&raised_in(5000, with(with_neighbour))), ("pressure", 50, None));
        // Around the threshold it is raised once.
        let around = |step, it: &mut Counters| it.allocated_peak = Some((75 + step % 3) * GIB);
        assert_eq!(raised_in(50_000, |it| others(with(around)(it))).len(), 1);
    }

    #[test]
    fn retries_are_raised_when_they_recur_and_end_when_they_stop() {
        let early = |step: u64, it: &mut Counters| it.retries = Some(step.min(2));
        assert_eq!(raised_in(5000, with(early)), [], "two retries of the first steps");
        let often = |step: u64, it: &mut Counters| it.retries = Some(step.min(1000) / 20);
        assert_eq!(one(&raised_in(5000, with(often))), ("thrashing", 60, Some(1300)));
        let rare = |step: u64, it: &mut Counters| it.retries = Some(step / 150);
        assert_eq!(raised_in(5000, with(rare)), []);
        // A thinned stream has one sample of eight steps, and 100 of its samples are 800 steps.
        let thinned = (1..2000).map(|it| StrainReading { step: it * 8, at: Stamp(it), ..with(|_, _| ())(it) });
        let retried = |it: StrainReading| StrainReading {
            counters: Counters { retries: Some(it.step / 200), ..it.counters },
            ..it
        };
        let state = thinned.map(retried).fold(Strain::default(), |state, it| step(state, &it));
        assert_eq!(state.spells().count(), 0);
    }

    #[test]
    fn a_cache_that_is_emptied_in_every_step_is_churn() {
        let emptied = |step: u64, it: &mut Counters| it.device_frees = Some(step * 9);
        let (cause, raised, resolved) = one(&raised_in(5000, with(emptied)));
        assert!(cause == "churn" && raised < 60 && resolved.is_none(), "{raised}");
        let evaluations = |step: u64, it: &mut Counters| it.device_frees = Some(step / 50 * 900);
        // PyTorch empties the cache before it captures a graph, whose pool grows then.
        let captures = |step: u64, it: &mut Counters| {
            emptied(step, it);
            it.private_pools = Some(step << 20);
        };
        assert_eq!(raised_in(5000, with(captures)), []);
        assert_eq!(raised_in(5000, with(evaluations)), []);
        // A history of one sample in 64 has the same information about each step.
        let strided = (1..200).map(|it| StrainReading {
            step: it * 64,
            at: Stamp(it),
            ..with(|_, counters| counters.device_frees = None)(it)
        });
        let freed = |it: StrainReading| StrainReading {
            counters: Counters { device_frees: Some(it.step / 64 * 9), ..it.counters },
            ..it
        };
        let state = strided.map(freed).fold(Strain::default(), |state, it| step(state, &it));
        assert_eq!(state.spells().count(), 0);
    }

    #[test]
    fn retries_that_give_the_cache_back_are_not_churn() {
        let flushed = |step: u64, it: &mut Counters| (it.retries, it.device_frees) = (Some(step), Some(step * 9));
        assert_eq!(one(&raised_in(5000, with(flushed))).0, "thrashing");
    }

    #[test]
    fn a_rank_that_wants_much_more_than_the_others_is_raised() {
        let fuller = |_, it: &mut Counters| it.allocated_peak = Some(70 * GIB);
        let found = raised_in(5000, with(fuller));
        assert_eq!(one(&found), ("rank-imbalance", 50, None));
        assert!((found[0].1.worst - 1.4).abs() < 1e-9);
        let tiny = |step| {
            let counters = Counters { allocated_peak: Some(2 * GIB), allocated: Some(GIB), ..well() };
            StrainReading { counters, others: Some(GIB), ..with(|_, _| {})(step) }
        };
        assert_eq!(raised_in(5000, tiny), [], "twice of little");
    }

    #[test]
    fn a_restart_resolves_everything_and_a_repeated_step_changes_nothing() {
        let seen = |step: u64, at: u64| StrainReading {
            step,
            at: Stamp(at),
            ..with(|step, it| it.device_frees = Some(step * 9))(step)
        };
        let mut state = (1..=100).map(|it| seen(it, it)).fold(Strain::default(), |state, it| step(state, &it));
        assert_eq!(step(state.clone(), &seen(100, 500)), state);
        state = step(state, &seen(1, 200));
        let spell = *state.spells().next().unwrap().1;
        assert_eq!(spell.resolved, Some((1, Stamp(200))));
    }

    #[test]
    fn hostile_counters_break_nothing() {
        let values = [None, Some(0), Some(1), Some(u64::MAX), Some(GIB)];
        let mut state = Strain::default();
        for it in 0..4000_usize {
            let pick = |salt: usize| values[(it * 31 + salt * 17 + it / 7) % values.len()];
            let all: Vec<_> = (0..Counters::NAMES.len()).map(pick).collect();
            let steps = [it as u64, u64::MAX, 0];
            let seen = StrainReading {
                step: steps[it % 5 % 3],
                at: Stamp(it as u64),
                counters: Counters::from_values(&all.try_into().unwrap()),
                others: pick(99),
                total: pick(98),
                ..StrainReading::default()
            };
            state = step(state, &seen);
        }
        assert!(state.spells().all(|(_, it)| it.worst.is_finite() && it.since_step <= it.first_alert_step));
    }
}
