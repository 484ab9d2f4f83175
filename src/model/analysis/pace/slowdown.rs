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
mod tests;
