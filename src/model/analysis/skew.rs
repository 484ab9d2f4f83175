//! Ranks that are slower than the others of their run.
//!
//! Two signs, from the host's stamps at step boundaries, which gpuwatch compares among the ranks of one host:
//!
//! - **Longer steps.** Ranks that do not wait for each other in every step differ in the duration of their steps.
//! - **Arriving last with a device that rests.** In a synchronous run one slow rank makes the steps of all ranks
//!   longer. The hosts of the other ranks run ahead as far as their queues allow, so a rank with a slow host
//!   reaches the same step later than they do. The delay does not measure the loss: a rank that is slower by a
//!   twentieth lags by the whole queue in the end, and a rank that alone waits for its device (`loss.item()` for a
//!   progress bar) lags as much and slows down nothing. The loss shows in its device, which rests while the others'
//!   kernels wait for it.
//!
//! What host time cannot show: a rank whose device is slow while its host runs ahead like the others, or a slow host in
//! a job that waits for the device in every step, which makes all ranks reach the boundary together. The device's own
//! findings (`super::hardware`) belong to the picture.
//!
//! One observation takes at least 8 steps of each rank and 10 s; it rests on medians, so that single long steps of one
//! rank (checkpoints, logging) do not count.

use super::{
    curve::Curve,
    latch::{Band, Latch, LatchPeriod, Patience},
};
use crate::facts::units::{self, Stamp};
use crate::model::statistics::lower_median_f64;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Boundaries kept per rank, and the fewest new ones of an observation.
const RECENT: usize = 64;
const STEPS: usize = 8;

/// The shortest time between two observations, in µs.
pub const EVERY_US: u64 = 10_000_000;

/// Observations before it is raised and before it is resolved.
const LASTING: Patience = Patience { on: 6, off: 6 };

/// Ratio of the duration of a step to the ranks' median, and the least difference in µs.
const SLOWER: (f64, f64) = (1.20, 1.10);
const SLOWER_US: f64 = 2_000.0;

/// From this ratio on, the steps of a rank count as longer than those of the others.
pub const LONGER: f64 = SLOWER.1;

/// Share of time in which the device rests while the others' median is busy.
const RESTS: (f64, f64) = (0.15, 0.08);

/// The least delay in usual steps, and in µs.
const LATER: f64 = 0.05;
const LATER_US: f64 = 2_000.0;

/// Devices whose kernels wait for another rank are at least this busy.
const WAITS: f64 = 0.90;

/// The fewest and the most readings of utilisation for a median.
const READINGS: (usize, usize) = (5, 64);

/// Ranks that wait for each other are at most this many steps apart.
const TOGETHER: f64 = 2.0;

/// One rank against the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The median duration of its steps over that of the ranks.
    pub slower: f64,
    /// The median time by which it reaches a step after the ranks' median, in µs; `None` without common steps.
    pub later_us: Option<f64>,
    /// The ranks' median duration of a step, in µs.
    pub usual_us: f64,
    /// The median share of time in which its device was busy, and the ranks' median; `None` if one is unknown.
    pub busy: Option<(f64, f64)>,
}

impl Compared {
    /// Returns how many times as long a step takes because of this rank: by its own steps, or by the time in which its
    /// device rests and the others wait, if it arrives last.
    pub fn times(&self) -> f64 {
        self.slower.max(1.0 / (1.0 - self.rests().clamp(0.0, 0.9)))
    }

    /// Returns the least delay that matters, in µs.
    pub fn least_delay_us(&self) -> u64 {
        units::whole(LATER_US.max(LATER * self.usual_us))
    }

    /// Returns the share of time in which its device rests while the others' are busy; 0 unless it arrives last, at
    /// most a few steps behind.
    fn rests(&self) -> f64 {
        let is_last = |us: f64| us >= self.least_delay_us() as f64 && us <= TOGETHER * self.usual_us;
        let waits = self.busy.filter(|(_, others)| *others >= WAITS && self.later_us.is_some_and(is_last));
        waits.map_or(0.0, |(own, others)| others - own)
    }

    fn band(&self) -> Band {
        let slower = match Band::of(self.slower, SLOWER.0, SLOWER.1) {
            Band::High if (self.slower - 1.0) * self.usual_us < SLOWER_US => Band::Between,
            it => it,
        };
        match (slower, Band::of(self.rests(), RESTS.0, RESTS.1)) {
            (Band::High, _) | (_, Band::High) => Band::High,
            (Band::Low, Band::Low) => Band::Low,
            _ => Band::Between,
        }
    }
}

/// The latest boundaries of one rank, and whether it is slower.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    recent: VecDeque<(u64, Stamp)>,
    /// The latest boundary of the observation before, and its time.
    observed: Option<(u64, Stamp)>,
    latest: Option<Compared>,
    /// The time by which it reached a step after the ranks' median over its run, in µs.
    late: Curve,
    /// Whether it was so far from the other ranks that they cannot wait for each other.
    is_apart: bool,
    /// The latest readings of its device's utilisation since then, in percent.
    busy: VecDeque<u8>,
    latch: Latch,
}

impl Skew {
    /// Takes the boundary after a step. A step that falls starts again.
    pub fn step(&mut self, step: u64, at: Stamp) {
        match self.recent.back() {
            Some((last, then)) if step < *last && at > *then => {
                self.latch.end(step, at);
                *self = Self { latch: std::mem::take(&mut self.latch), ..Self::default() };
            }
            Some((last, then)) if step <= *last || at < *then => return,
            _ => {}
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((step, at));
    }

    /// Takes the utilisation of its device in a second, in percent.
    pub fn busy(&mut self, percent: u64) {
        if self.busy.len() == READINGS.1 {
            self.busy.pop_front();
        }
        self.busy.push_back(u8::try_from(percent.min(100)).unwrap_or(100));
    }

    /// Returns by how many µs it reached steps after the ranks' median, over its steps; 0 where it was not later.
    pub fn late(&self) -> &Curve {
        &self.late
    }

    /// Returns the latest comparison with the other ranks.
    pub fn latest(&self) -> Option<Compared> {
        self.latest
    }

    /// Returns the times in which it was slower, oldest first.
    pub fn spells(&self) -> &[LatchPeriod] {
        self.latch.spells()
    }

    /// Returns whether enough steps have passed since the observation before.
    pub fn is_ready(&self, at: Stamp) -> bool {
        self.fresh().count() > STEPS && self.observed.is_none_or(|(_, then)| at.since(then) >= EVERY_US)
    }

    /// Takes an observation.
    pub fn observe(&mut self, compared: Compared, at: Stamp) {
        let Some((step, _)) = self.recent.back().copied() else { return };
        self.is_apart |= compared.later_us.is_some_and(|us| us.abs() > TOGETHER * compared.usual_us);
        if let Some(us) = compared.later_us {
            self.late.push(step, units::whole(us.max(0.0)));
        }
        let compared = Compared { busy: compared.busy.filter(|_| !self.is_apart), ..compared };
        self.latch.step(LASTING, (compared.band(), compared.times()), step, at);
        (self.latest, self.observed) = (Some(compared), Some((step, at)));
        self.busy.clear();
    }

    /// Returns the boundaries since the observation before, and the last one of it.
    fn fresh(&self) -> impl Iterator<Item = (u64, Stamp)> {
        let observed = self.observed.map_or(0, |(step, _)| step);
        self.recent.iter().copied().filter(move |(step, _)| *step >= observed)
    }

    /// Returns the median utilisation of its device since the observation before, as a share.
    fn usually_busy(&self) -> Option<f64> {
        lower_median_f64(self.busy.iter().map(|it| f64::from(*it) / 100.0)).filter(|_| self.busy.len() >= READINGS.0)
    }

    /// Returns the median duration of the new steps, in µs.
    fn duration(&self) -> Option<f64> {
        let all: Vec<_> = self.fresh().collect();
        let each = all.windows(2).filter_map(|pair| {
            let [(before, then), (step, at)] = pair else { return None };
            Some(at.since(*then) as f64 / (step - before) as f64)
        });
        lower_median_f64(each)
    }
}

/// Compares the ranks of a run; `are_aligned` if they count the same steps. `None` for each rank if there is nothing to
/// compare.
pub fn compare(ranks: &[&Skew], are_aligned: bool) -> Vec<Option<Compared>> {
    let durations: Option<Vec<f64>> = ranks.iter().map(|it| it.duration()).collect();
    let Some(durations) = durations else { return vec![None; ranks.len()] };
    let Some(usual_us) = lower_median_f64(durations.iter().copied()).filter(|it| *it > 0.0) else {
        return vec![None; ranks.len()];
    };
    let later = if are_aligned { delays(ranks) } else { vec![None; ranks.len()] };
    // The upper one of two: a rank that rests is compared with one that does not.
    let others = lower_median_f64(ranks.iter().filter_map(|it| it.usually_busy()).map(|it| -it)).map(|it| -it);
    let each = ranks.iter().zip(durations).zip(later);
    each.map(|((rank, own), later_us)| {
        Some(Compared { slower: own / usual_us, later_us, usual_us, busy: rank.usually_busy().zip(others) })
    })
    .collect()
}

/// Returns the median delay of each rank at the steps that all of them have reached, in µs; `None` without such steps.
fn delays(ranks: &[&Skew]) -> Vec<Option<f64>> {
    let mut by_step: BTreeMap<u64, Vec<Stamp>> = BTreeMap::new();
    for rank in ranks {
        for (step, at) in rank.fresh() {
            by_step.entry(step).or_default().push(at);
        }
    }
    let common: BTreeMap<u64, Option<f64>> = by_step
        .into_iter()
        .filter(|(_, stamps)| stamps.len() == ranks.len())
        .map(|(step, stamps)| (step, lower_median_f64(stamps.iter().map(|it| it.0 as f64))))
        .collect();
    let of = |rank: &&Skew| {
        let each = rank.fresh().filter_map(|(step, at)| Some(at.0 as f64 - (*common.get(&step)?)?));
        lower_median_f64(each).filter(|_| common.len() >= STEPS)
    };
    ranks.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    //! Made-up runs of several ranks: healthy ones of many kinds, and ones with a slow rank. Each has a seed.

    use super::*;
    use crate::{facts::units::whole, model::statistics::Random};

    /// Seeds of each kind. With 80 of each, none of the healthy hours raised anything either.
    const SEEDS: u64 = 16;

    /// Half an hour, in µs.
    const RUN_US: f64 = 1800e6;

    /// What a seed determines of a run.
    struct Run {
        noise: f64,
        one: f64,
    }

    /// The work of a rank in a step, in usual steps, and whether ranks wait for each other.
    struct Kind {
        name: &'static str,
        waits: bool,
        /// Steps by which the host of a rank runs ahead of the slowest one.
        ahead: f64,
        work: fn(&Run, usize, u64, &mut Random) -> f64,
        /// Percent of time in which the device of a rank is busy.
        busy: fn(&Run, usize, &mut Random) -> f64,
    }

    fn all(_: &Run, _: usize, _: &mut Random) -> f64 {
        97.0
    }

    fn own(run: &Run, rank: usize, _: &mut Random) -> f64 {
        40.0 + (run.one * 1000.0 + rank as f64 * 17.0) % 45.0
    }

    fn noisy(run: &Run, chance: &mut Random) -> f64 {
        (1.0 + run.noise * chance.normal()).max(0.2)
    }

    const HEALTHY: [Kind; 8] = [
        Kind { name: "in step", waits: true, ahead: 0.0, work: |run, _, _, chance| noisy(run, chance), busy: all },
        Kind {
            name: "ahead of the device",
            waits: true,
            ahead: 1.0,
            work: |run, _, _, chance| noisy(run, chance),
            busy: all,
        },
        Kind {
            name: "each for itself",
            waits: false,
            ahead: 0.0,
            work: |run, _, _, chance| noisy(run, chance),
            busy: own,
        },
        Kind {
            name: "rank 0 writes checkpoints",
            waits: true,
            ahead: 0.5,
            work: |run, rank, step, chance| {
                noisy(run, chance) + if rank == 0 && step % 50 == 0 { 30.0 * run.one } else { 0.0 }
            },
            busy: |run, rank, chance| if rank == 0 && chance.share() < 0.4 * run.one { 5.0 } else { 97.0 },
        },
        Kind {
            name: "rank 0 logs",
            waits: true,
            ahead: 0.5,
            work: |run, rank, _, chance| noisy(run, chance) * if rank == 0 { 1.0 + 0.08 * run.one } else { 1.0 },
            busy: |run, rank, _| if rank == 0 { 97.0 - 8.0 * run.one } else { 97.0 },
        },
        Kind {
            name: "rank 0 alone waits for its device",
            waits: true,
            ahead: 1.5,
            work: |run, rank, _, chance| noisy(run, chance) * if rank == 0 { 1.0 } else { 0.5 },
            busy: |_, rank, _| if rank == 0 { 93.0 } else { 98.0 },
        },
        Kind {
            name: "uneven lengths",
            waits: true,
            ahead: 0.5,
            work: |run, _, _, chance| noisy(run, chance) * chance.between(0.5, 1.0),
            busy: all,
        },
        Kind {
            name: "a bit uneven, each for itself",
            waits: false,
            ahead: 0.0,
            work: |run, rank, _, chance| noisy(run, chance) * (1.0 + 0.05 * run.one * rank as f64 / 8.0),
            busy: own,
        },
    ];

    const SLOW: [Kind; 2] = [
        Kind {
            name: "longer steps",
            waits: false,
            ahead: 0.0,
            work: |run, rank, _, chance| noisy(run, chance) * if rank == 1 { 1.3 + run.one } else { 1.0 },
            busy: own,
        },
        Kind {
            name: "arrives last",
            waits: true,
            ahead: 1.0,
            work: |run, rank, _, chance| noisy(run, chance) * if rank == 1 { 1.4 + run.one } else { 1.0 },
            busy: |run, rank, _| if rank == 1 { 98.0 / (1.4 + run.one) } else { 98.0 },
        },
    ];

    /// Plays a run: when each rank reaches each step. A rank that waits begins a step no earlier than the slowest
    /// rank has ended the steps before, except for those that its queue holds.
    fn played(kind: &Kind, seed: u64, noise: (f64, f64)) -> Vec<Skew> {
        let mut chance = Random::new(seed);
        let usual_us = 1000.0 * 10.0_f64.powf(chance.between(1.7, 4.0));
        let ranks = [2, 3, 4, 8][usize::try_from(seed % 4).unwrap()];
        let run = Run { noise: chance.between(noise.0, noise.1), one: chance.share() };
        let mut skews = vec![Skew::default(); ranks];
        let mut ends = vec![1e9; ranks];
        let mut second = 1000_u64;
        let steps = whole((RUN_US / usual_us).clamp(120.0, 6000.0));
        for step in 1..=steps {
            for (rank, end) in ends.iter_mut().enumerate() {
                *end += usual_us * (kind.work)(&run, rank, step, &mut chance);
            }
            if kind.waits {
                let slowest = ends.iter().copied().fold(0.0, f64::max);
                for end in &mut ends {
                    *end = end.max(slowest - kind.ahead * usual_us);
                }
            }
            for (skew, end) in skews.iter_mut().zip(&ends) {
                skew.step(step, Stamp(whole(*end)));
            }
            let now = ends.iter().copied().fold(f64::MAX, f64::min);
            while (second as f64 + 10.0) * 1e6 < now {
                second += 10;
                for (rank, skew) in skews.iter_mut().enumerate() {
                    for _ in 0..10 {
                        let percent = (kind.busy)(&run, rank, &mut chance) + 3.0 * chance.normal();
                        skew.busy(whole(percent.max(0.0)));
                    }
                }
                let at = Stamp(second * 1_000_000);
                if skews.iter().all(|it| it.is_ready(at)) {
                    let each = compare(&skews.iter().collect::<Vec<_>>(), true);
                    for (skew, compared) in skews.iter_mut().zip(each) {
                        skew.observe(compared.unwrap(), at);
                    }
                }
            }
        }
        skews
    }

    #[test]
    fn healthy_runs_of_many_kinds_raise_nothing() {
        let mut alarms = Vec::new();
        for kind in &HEALTHY {
            for seed in 0..SEEDS {
                let ranks = played(kind, seed, (0.01, 0.15));
                let raised = ranks.iter().position(|it| !it.spells().is_empty());
                alarms.extend(
                    raised.map(|rank| format!("{}, seed {seed}: rank {rank}, {:?}", kind.name, ranks[rank].latest())),
                );
            }
        }
        let runs = HEALTHY.len() as u64 * SEEDS;
        println!("{} false alarms in {} hours of {runs} healthy runs", alarms.len(), runs / 2);
        assert!(alarms.is_empty(), "{} of {runs}: {alarms:#?}", alarms.len());
    }

    #[test]
    fn a_slow_rank_is_found_and_no_other_one() {
        for kind in &SLOW {
            let mut found = 0;
            for seed in 0..SEEDS {
                let ranks = played(kind, seed, (0.01, 0.05));
                let raised: Vec<usize> = (0..ranks.len()).filter(|it| !ranks[*it].spells().is_empty()).collect();
                assert!(raised.iter().all(|it| *it == 1), "{}, seed {seed}: {raised:?}", kind.name);
                found += u64::from(raised == [1]);
            }
            println!("{}: found in {found} of {SEEDS} runs", kind.name);
            assert!(found >= SEEDS * 95 / 100, "{}: {found} of {SEEDS}", kind.name);
        }
    }

    #[test]
    fn it_is_over_when_the_rank_keeps_up_and_after_a_restart() {
        let mut ranks = [Skew::default(), Skew::default()];
        let mut ends = [0, 0];
        for step in 1..=800_u64 {
            ends[0] += 1_000_000;
            ends[1] += if (200..400).contains(&step) { 1_500_000 } else { 1_000_000 };
            for (rank, end) in ranks.iter_mut().zip(ends) {
                rank.step(step, Stamp(end));
            }
            let at = Stamp(ends[1]);
            if ranks.iter().all(|it| it.is_ready(at)) {
                let each = compare(&[&ranks[0], &ranks[1]], false);
                for (rank, compared) in ranks.iter_mut().zip(each) {
                    rank.observe(compared.unwrap(), at);
                }
            }
        }
        let [spell] = ranks[1].spells() else { panic!("{:?}", ranks[1]) };
        assert!(
            spell.first_alert_step < 300 && spell.resolved.is_some_and(|it| (400..520).contains(&it.0)),
            "{spell:?}"
        );
        assert!(ranks[0].spells().is_empty());
        ranks[1].step(1, Stamp(u64::MAX));
        assert_eq!(ranks[1].recent.len(), 1);
    }
}
