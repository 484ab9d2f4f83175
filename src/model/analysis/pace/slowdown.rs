//! Steps that take longer than before, and since which step.
//!
//! The run is cut into blocks of at least [`STEPS`] steps and [`BLOCK_US`]: one outlier or a short disturbance is in
//! one block or two. A slowdown is raised when [`LASTING`] blocks in a row are slower than the reference, clearly
//! beyond the blocks' own spread. The reference is the lower quartile of all earlier blocks, so that neither warm-up
//! nor phases of evaluation make steps look slow or fast. Each time it is raised doubles the next wait.
//!
//! Larger inputs take longer without any fault. If the highest live memory has risen along with the duration, the new
//! level counts as normal from then on.

use super::super::buckets::{Buckets, Merge};
use crate::facts::units::Stamp;
use crate::model::statistics::{median_f64, quantile_f64};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The fewest steps and µs of a block.
const STEPS: u64 = 8;
const BLOCK_US: u64 = 10_000_000;

/// Slow blocks before a slowdown is raised, normal ones before it is over, and the fewest of a reference.
const LASTING: usize = 6;

/// Most blocks of the whole run.
const HISTORY: usize = 128;

/// Ratios to the reference: a slowdown's median block, its other blocks, and a normal block.
const SLOW: f64 = 1.2;
const SLOWISH: f64 = 1.12;
const NORMAL: f64 = 1.08;

/// Standard deviations of the reference's blocks that a slowdown exceeds.
const DEVIATIONS: f64 = 8.0;

/// The rise of the highest live memory from which on inputs count as larger.
const LARGER: f64 = 1.03;

/// Most slowdowns remembered, and most doublings of the wait.
const SPELLS: usize = 4;
const DOUBLINGS: u32 = 6;

/// A time in which steps took longer than before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowPeriod {
    /// The first slow step, as far as blocks show it.
    pub since_step: u64,
    /// The step at which it was raised; it never changes.
    pub first_alert_step: u64,
    /// When it was raised.
    pub first_alert_at: Stamp,
    /// The step and time at which it was over; `None` while it lasts.
    pub resolved: Option<(u64, Stamp)>,
    /// The duration of a step before, in µs.
    pub before_us: f64,
    /// The duration of a step in its latest slow blocks, in µs.
    pub now_us: f64,
}

impl SlowPeriod {
    /// Returns the ratio of both durations.
    pub fn ratio(&self) -> f64 {
        self.now_us / self.before_us
    }
}

/// Steps in a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Block {
    /// Its place among all blocks.
    number: u64,
    /// The step before its first, and its last.
    before: u64,
    last: u64,
    /// The mean duration of a step, in µs.
    us: f64,
    /// The highest live bytes by its end.
    peak: Option<u64>,
}

impl Merge for Block {
    fn place(&self) -> u64 {
        self.number
    }

    fn merge(&mut self, newer: &Self) {
        let (own, its) = (self.steps(), newer.steps());
        let us = (self.us * own + newer.us * its) / (own + its).max(1.0);
        *self = Self { before: self.before, us, peak: self.peak.max(newer.peak), ..*newer };
    }
}

impl Block {
    fn steps(&self) -> f64 {
        self.last.saturating_sub(self.before) as f64
    }
}

/// What is normal.
#[derive(Clone, Copy, Debug)]
struct Reference {
    us: f64,
    sigma: f64,
    peak: Option<u64>,
}

/// The detector. It holds at most [`HISTORY`] and [`LASTING`] blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    begun: Option<(u64, Stamp)>,
    blocks: u64,
    history: Buckets<Vec<Block>, HISTORY>,
    recent: VecDeque<Block>,
    /// Slow blocks in a row, or normal ones during a slowdown.
    held: usize,
    /// The blocks in which it began: the one before, and the first slow one.
    onset: Option<[Block; 2]>,
    /// The slowest level that larger inputs explain, in µs.
    explained_us: f64,
    raised: u32,
    spells: Vec<SlowPeriod>,
}

impl Slowdown {
    /// Takes the boundary after a step, with the highest live bytes so far.
    pub(super) fn boundary(&mut self, step: u64, at: Stamp, peak: Option<u64>) {
        let Some((before, since)) = self.begun else {
            self.begun = Some((step, at));
            return;
        };
        let (steps, us) = (step.saturating_sub(before), at.since(since));
        if steps >= STEPS && us >= BLOCK_US {
            self.begun = Some((step, at));
            let block = Block { number: self.blocks, before, last: step, us: us as f64 / steps as f64, peak };
            self.blocks += 1;
            self.block(block, at);
        }
    }

    /// Returns the detector for a job that counts from the beginning again.
    pub(super) fn restarted(mut self, step: u64, at: Stamp) -> Self {
        self.end(step, at);
        Self { spells: self.spells, raised: self.raised, ..Self::default() }
    }

    /// Returns the latest slowdowns, oldest first.
    pub(super) fn spells(&self) -> &[SlowPeriod] {
        &self.spells
    }

    fn is_active(&self) -> bool {
        self.spells.last().is_some_and(|it| it.resolved.is_none())
    }

    fn end(&mut self, step: u64, at: Stamp) {
        (self.held, self.onset) = (0, None);
        if let Some(spell) = self.spells.last_mut().filter(|it| it.resolved.is_none()) {
            spell.resolved = Some((step, at));
        }
    }

    fn block(&mut self, block: Block, at: Stamp) {
        let before = self.recent.back().copied();
        if self.recent.len() == LASTING
            && let Some(oldest) = self.recent.pop_front()
            && !self.is_active()
        {
            self.history.push(oldest);
        }
        self.recent.push_back(block);
        if self.is_active() {
            self.during(&block, at);
        } else if let (Some(reference), Some(before)) = (self.reference(), before) {
            self.before(&block, before, &reference, at);
        }
    }

    /// Looks for the end of a slowdown.
    fn during(&mut self, block: &Block, at: Stamp) {
        let level = self.level();
        let Some(spell) = self.spells.last_mut() else { return };
        let normal = (spell.before_us * NORMAL).max(f64::midpoint(spell.before_us, spell.now_us));
        self.held = if block.us < normal { self.held + 1 } else { 0 };
        if self.held >= LASTING {
            self.end(block.last, at);
        } else if self.held == 0 {
            spell.now_us = level.max(spell.before_us);
        }
    }

    /// Looks for the beginning of a slowdown.
    fn before(&mut self, block: &Block, before: Block, reference: &Reference, at: Stamp) {
        let ratio = block.us / reference.us;
        if ratio < NORMAL {
            (self.held, self.onset) = (0, None);
        } else if ratio >= SLOWISH {
            self.held += 1;
            self.onset = self.onset.or(Some([before, *block]));
        }
        if self.held < LASTING << self.raised.min(DOUBLINGS) {
            return;
        }
        let level = self.level();
        if level < (reference.us * SLOW).max(reference.us + DEVIATIONS * reference.sigma) {
            return;
        }
        let grew = block.peak.zip(reference.peak).is_some_and(|(now, then)| now as f64 > LARGER * then as f64);
        if grew {
            self.explained_us = self.explained_us.max(level);
            (self.held, self.onset) = (0, None);
            return;
        }
        let onset = self.onset.map_or(block.before, |onset| since(onset, reference.us, level));
        self.held = 0;
        self.raised = self.raised.saturating_add(1);
        if self.spells.len() == SPELLS {
            self.spells.remove(0);
        }
        self.spells.push(SlowPeriod {
            since_step: onset,
            first_alert_step: block.last,
            first_alert_at: at,
            resolved: None,
            before_us: reference.us,
            now_us: level,
        });
    }

    /// The median of the latest blocks, in µs.
    fn level(&self) -> f64 {
        median_f64(self.recent.iter().map(|it| it.us)).unwrap_or(0.0)
    }

    fn reference(&self) -> Option<Reference> {
        let all = self.history.all();
        if all.len() < LASTING {
            return None;
        }
        let quartile = quantile_f64(all.iter().map(|it| it.us), 4).unwrap_or(0.0);
        let middle = median_f64(all.iter().map(|it| it.us)).unwrap_or(0.0);
        let sigma = super::SIGMA * median_f64(all.iter().map(|it| (it.us - middle).abs())).unwrap_or(0.0);
        let mut peaks: Vec<u64> = all.iter().filter_map(|it| it.peak).collect();
        peaks.sort_unstable();
        let us = quartile.max(self.explained_us).max(1.0);
        Some(Reference { us, sigma, peak: peaks.get(peaks.len() / 4).copied() })
    }
}

/// Estimates the first slow step: a block in which the change happened lies between the two levels.
fn since(onset: [Block; 2], normal: f64, slow: f64) -> u64 {
    let slow_steps = |block: &Block| {
        let share = ((block.us - normal) / (slow - normal)).clamp(0.0, 1.0);
        crate::facts::units::whole(share * block.steps())
    };
    let [before, first] = onset;
    let partly = if slow_steps(&first) as f64 >= first.steps() { slow_steps(&before) } else { 0 };
    first.last.saturating_sub(slow_steps(&first)).saturating_sub(partly) + 1
}

#[cfg(test)]
mod tests {
    //! Made-up jobs: healthy ones of many shapes, and ones whose steps become slower. Each has a seed.

    use super::*;
    use crate::model::statistics::Random;

    /// Seeds of each shape. With ten times as many, still none of the 6400 healthy runs raises anything.
    const SEEDS: u64 = 40;

    /// One step of a job: its place in the run, the chance, and a number that the run keeps from step to step.
    type Shape = fn(&Run, u64, &mut Random, &mut f64) -> (f64, f64);

    /// What a seed determines of a run.
    struct Run {
        steps: u64,
        /// The usual duration, in µs.
        usual: f64,
        noise: f64,
        /// Two shares that a shape uses as it likes.
        one: f64,
        two: f64,
    }

    fn noisy(run: &Run, chance: &mut Random) -> f64 {
        (1.0 + run.noise * chance.normal()).max(0.2)
    }

    fn every(step: u64, share: f64, from: f64, to: f64) -> bool {
        step.is_multiple_of(crate::facts::units::whole(from + share * (to - from)).max(1))
    }

    /// Durations are shares of the usual one, memory is in GiB.
    const HEALTHY: [(&str, Shape); 16] = [
        ("steady", |run, _, chance, _| (noisy(run, chance), 20.0)),
        ("checkpoints", |run, step, chance, _| {
            let long = if every(step, run.one, 5.0, 500.0) { 2.0 + 80.0 * run.two } else { 0.0 };
            (noisy(run, chance) + long, 20.0)
        }),
        ("evaluation", |run, step, chance, _| {
            let long = if every(step, run.one, 50.0, 1000.0) { 20.0 + 300.0 * run.two } else { 0.0 };
            (noisy(run, chance) + long, 20.0)
        }),
        ("warm-up", |run, step, chance, _| {
            let slow = 1.0 + 20.0 * run.two * (-(step as f64) / (1.0 + 100.0 * run.one)).exp();
            (noisy(run, chance) * slow, 20.0)
        }),
        ("compilation", |run, step, chance, _| {
            let compiles = step < 4 || (step < 300 && every(step, run.one, 10.0, 100.0));
            (noisy(run, chance) + if compiles { 100.0 * run.two } else { 0.0 }, 20.0)
        }),
        ("accumulation", |run, step, chance, _| {
            let is_last = every(step, run.one, 2.0, 16.0);
            (noisy(run, chance) * if is_last { 1.0 + 2.0 * run.two } else { 1.0 }, 20.0)
        }),
        ("two optimizers", |run, step, chance, _| {
            (noisy(run, chance) * if step % 2 == 0 { 1.0 } else { 1.0 + 4.0 * run.two }, 20.0)
        }),
        ("random lengths", |run, _, chance, _| {
            let length = chance.between(1.0 - 0.8 * run.one, 1.0);
            (noisy(run, chance) * length, 20.0)
        }),
        ("heavy tails", |run, _, chance, _| {
            let tail = (chance.share().max(1e-6)).powf(-0.4) - 1.0;
            (noisy(run, chance) + run.one * tail, 20.0)
        }),
        ("wandering", |run, _, chance, state| {
            *state = 0.95 * *state + run.noise * 0.3 * chance.normal();
            ((1.0 + *state).max(0.2), 20.0)
        }),
        ("curriculum", |run, step, chance, state| {
            let length = 1.0 + 3.0 * step as f64 / run.steps as f64;
            *state = state.max(10.0 * length);
            (noisy(run, chance) * length, 10.0 + *state)
        }),
        ("stages", |run, step, chance, state| {
            let length = 2.0_f64.powi(i32::try_from(4 * step / run.steps).unwrap_or(0));
            *state = state.max(5.0 * length);
            (noisy(run, chance) * length, 10.0 + *state)
        }),
        ("sorted by length", |run, step, chance, state| {
            let epoch = run.steps / (2 + crate::facts::units::whole(8.0 * run.one));
            let length = 1.0 + 3.0 * (step % epoch.max(1)) as f64 / epoch.max(1) as f64;
            *state = state.max(5.0 * length);
            (noisy(run, chance) * length, 10.0 + *state)
        }),
        ("faster later", |run, step, chance, _| {
            let is_late = step as f64 > run.one * run.steps as f64;
            (noisy(run, chance) * if is_late { 0.5 } else { 1.0 }, 20.0)
        }),
        ("a neighbour for half a minute", |run, step, chance, state| {
            let is_disturbed = step as f64 > run.one * run.steps as f64 && *state < 30e6;
            let share = noisy(run, chance) * if is_disturbed { 1.0 + 3.0 * run.two } else { 1.0 };
            *state += if is_disturbed { share * run.usual } else { 0.0 };
            (share, 20.0)
        }),
        ("suspended for an hour", |run, step, chance, _| {
            let is_it = step == crate::facts::units::whole(run.one * run.steps as f64);
            (noisy(run, chance) + if is_it { 3.6e9 / run.usual } else { 0.0 }, 20.0)
        }),
    ];

    /// From the step on that a share of the run determines, by a factor that another one determines.
    const SLOWER: [(&str, Shape); 4] = [
        ("at once", |run, step, chance, _| {
            (noisy(run, chance) * if is_slow(run, step) { factor(run) } else { 1.0 }, 20.0)
        }),
        ("with checkpoints", |run, step, chance, _| {
            let long = if every(step, run.two, 100.0, 500.0) { 10.0 } else { 0.0 };
            (noisy(run, chance) * if is_slow(run, step) { factor(run) } else { 1.0 } + long, 20.0)
        }),
        ("workers starve", |run, step, chance, _| {
            let waits = is_slow(run, step) && step % 8 == 0;
            (noisy(run, chance) + if waits { 8.0 * (factor(run) - 1.0) } else { 0.0 }, 20.0)
        }),
        ("gradually", |run, step, chance, _| {
            let late = (step as f64 / run.steps as f64 - onset(run)).max(0.0);
            (noisy(run, chance) * (1.0 + 2.0 * late), 20.0)
        }),
    ];

    fn onset(run: &Run) -> f64 {
        0.3 + 0.4 * run.one
    }

    fn is_slow(run: &Run, step: u64) -> bool {
        step as f64 > onset(run) * run.steps as f64
    }

    fn factor(run: &Run) -> f64 {
        1.35 + 1.5 * run.two
    }

    fn played(shape: Shape, seed: u64, noise: (f64, f64)) -> (Run, Slowdown) {
        let mut chance = Random::new(seed);
        let usual = 1000.0 * 10.0_f64.powf(chance.between(1.6, 4.3));
        let steps = crate::facts::units::whole((chance.between(600.0, 2400.0) * 1e6 / usual).clamp(600.0, 12_000.0));
        let noise = chance.between(noise.0, noise.1);
        let run = Run { steps, usual, noise, one: chance.share(), two: chance.share() };
        let (mut slowdown, mut at, mut state) = (Slowdown::default(), 0, 0.0);
        for step in 1..=steps {
            let (duration, gib) = shape(&run, step, &mut chance, &mut state);
            at += crate::facts::units::whole(duration * usual);
            slowdown.boundary(step, Stamp(at), Some(crate::facts::units::whole(gib * 1e9)));
        }
        (run, slowdown)
    }

    #[test]
    fn healthy_jobs_of_many_shapes_raise_nothing() {
        let mut alarms = Vec::new();
        for (name, shape) in HEALTHY {
            let raised = (0..SEEDS).filter(|seed| !played(shape, *seed, (0.01, 0.2)).1.spells.is_empty());
            alarms.extend(raised.map(|seed| format!("{name}, seed {seed}")));
        }
        assert!(alarms.is_empty(), "{} of {}: {alarms:#?}", alarms.len(), HEALTHY.len() as u64 * SEEDS);
    }

    #[test]
    fn steps_that_become_slower_are_found_with_the_step_where_they_begin() {
        for (name, shape) in SLOWER {
            let (mut found, mut near) = (0, 0);
            for seed in 0..SEEDS {
                let (run, slowdown) = played(shape, seed, (0.01, 0.05));
                let Some(spell) = slowdown.spells.first() else { continue };
                found += 1;
                assert!(spell.resolved.is_none() && slowdown.spells.len() == 1, "{name}, seed {seed}: {slowdown:?}");
                let begun = onset(&run) * run.steps as f64;
                near += u64::from((spell.since_step as f64 - begun).abs() <= 3.0 + 0.01 * run.steps as f64);
            }
            // The beginning of a gradual slowdown is not sharp.
            let least = if name == "gradually" { 0 } else { found * 9 / 10 };
            assert!(
                found >= SEEDS * 95 / 100 && near >= least,
                "{name}: {found} found, {near} near its step, of {SEEDS}"
            );
        }
    }

    #[test]
    fn it_is_over_when_steps_are_as_short_as_before() {
        let mut slowdown = Slowdown::default();
        let mut at = 0;
        for step in 1..=3000 {
            at += if (1000..2000).contains(&step) { 1_600_000 } else { 1_000_000 };
            slowdown.boundary(step, Stamp(at), None);
        }
        let [spell] = slowdown.spells() else { panic!("{slowdown:?}") };
        assert!((998..=1002).contains(&spell.since_step), "{spell:?}");
        assert!((1.59..1.61).contains(&spell.ratio()), "{spell:?}");
        assert!(
            spell.first_alert_step < 1080 && spell.resolved.is_some_and(|it| (2000..2080).contains(&it.0)),
            "{spell:?}"
        );
    }

    #[test]
    fn a_run_of_any_length_takes_little_memory() {
        let mut slowdown = Slowdown::default();
        for step in 1..200_000 {
            slowdown.boundary(step, Stamp(step * 2_000_000), Some(1));
        }
        assert!(slowdown.history.all().len() <= HISTORY && slowdown.recent.len() <= LASTING);
        let size = size_of::<Slowdown>() + (HISTORY + LASTING) * size_of::<Block>();
        assert!(size <= 8 << 10, "{size}");
    }
}
