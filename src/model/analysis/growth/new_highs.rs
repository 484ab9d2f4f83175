//! Runs of new highs of one series at one horizon: evidence that it rises and nothing is released.
//!
//! A series without growth makes new highs too, but ever more rarely: among `t` values in random order, the chance that
//! the last is the highest is `1/t`, so about `ln(t/s)` new highs are expected between `s` and `t` (Rényi 1962; Foster
//! and Stuart 1954 built tests on it). Kept memory makes them at a constant rate, and releases nothing in between.

use crate::model::statistics;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Rises remembered.
const RISES: usize = 48;

/// Shortest run, in positions on the axis.
const SPAN: f64 = 20.0;

/// Minimum ratio of a run's gain to the largest recent release.
const OVER_GIVEN: f64 = 3.0;

/// Largest share of one rise in a run's gain; a jump of the level is not growth.
const BIGGEST: f64 = 0.5;

/// Eighths of a run's time that must have a rise.
const EIGHTHS: u32 = 5;

/// Largest ratio between the paces of a steady run.
const STEADY: f64 = 1.5;

/// Requirements for a run beyond its shape.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bar {
    /// Minimum number of rises.
    pub(super) rises: usize,
    /// Largest chance at which a series without growth makes as many new highs.
    pub(super) chance: f64,
    /// Minimum share of the gain in the later half of its time.
    pub(super) later: f64,
    /// Minimum gain, in bytes.
    pub(super) gain: f64,
    /// Minimum gain per position on the axis, in bytes.
    pub(super) pace: f64,
}

/// The lowest value of a stretch of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    /// First position.
    pub(super) from: u64,
    /// Last position.
    pub(super) to: u64,
    /// Number of the last sample.
    pub(super) number: u64,
    /// The lowest value.
    pub(super) low: f64,
}

/// A new high. The largest part of a growing series' state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct High {
    /// The first position after the block before it.
    since: u64,
    /// The block's last position.
    at: u64,
    /// Number of the last sample before the block.
    number: u64,
    value: f64,
}

/// From one high to the next.
#[derive(Clone, Copy, Debug)]
struct Rise {
    since: u64,
    at: u64,
    number: u64,
    before: f64,
    after: f64,
}

/// A run that is growth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// Where it began.
    pub(super) since: u64,
    /// The value before it.
    pub(super) base: f64,
    /// The highest value.
    pub(super) top: f64,
    /// Where the series first reached it.
    pub(super) top_at: u64,
    /// The longest time between two of its rises.
    pub(super) gap: f64,
    /// Number of rises.
    pub(super) rises: usize,
}

/// New highs of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Climb {
    last: Option<Block>,
    rose: bool,
    top: f64,
    /// The value before the oldest of the highs.
    base: f64,
    highs: VecDeque<High>,
    given: Fading,
    high: Fading,
    moves: Moves,
}

impl Climb {
    /// Adds the next block.
    pub(super) fn push(&mut self, block: Block) {
        self.rose = false;
        let Some(last) = self.last.replace(block) else {
            self.top = block.low;
            return;
        };
        self.given.tick();
        self.high.tick();
        self.moves.push(block.low - last.low);
        let fall = self.top - block.low;
        if fall < 0.0 {
            if self.highs.is_empty() {
                self.base = self.top;
            } else if self.highs.len() == RISES {
                self.base = self.highs.pop_front().map_or(self.top, |it| it.value);
            } else if self.highs.len() == self.highs.capacity() {
                self.highs.reserve_exact(RISES / 6);
            }
            let (since, number) = (last.to.saturating_add(1), last.number);
            self.highs.push_back(High { since, at: block.to, number, value: block.low });
            self.top = block.low;
            self.rose = true;
        } else if fall > 0.0 {
            self.given.note(fall);
            let base = if self.highs.is_empty() { self.top } else { self.base };
            if fall > 0.5 * (self.top - base) {
                self.high.note(self.top);
                self.highs.clear();
                self.top = block.low;
            }
        }
    }

    /// Returns the latest block.
    pub(super) fn last(&self) -> Option<Block> {
        self.last
    }

    /// Returns whether the latest block is a new high.
    pub(super) fn rose(&self) -> bool {
        self.rose
    }

    /// Returns the highest value and where the series first reached it; `None` without rises.
    pub(super) fn top(&self) -> Option<(f64, u64)> {
        self.highs.back().map(|it| (it.value, it.at))
    }

    /// The rises, latest first.
    fn rises(&self) -> impl Iterator<Item = Rise> {
        let earlier = self.highs.iter().rev().skip(1).map(|it| it.value).chain([self.base]);
        self.highs.iter().rev().zip(earlier).map(|(it, before)| {
            let High { since, at, number, value } = *it;
            Rise { since, at, number, before, after: value }
        })
    }

    /// Returns how many of the rises began after a position.
    pub(super) fn rises_after(&self, place: u64) -> usize {
        self.highs.iter().rev().take_while(|it| it.since > place).count()
    }

    /// Returns how many rises began at or after a position, and their gain without the largest.
    pub(super) fn gained_after(&self, place: u64) -> (usize, f64) {
        let rises = || self.rises().take_while(|it| it.since >= place).map(|it| it.after - it.before);
        (rises().count(), rises().sum::<f64>() - rises().fold(0.0, f64::max))
    }

    /// Returns where the oldest remembered rise began; 0 if none was forgotten.
    pub(super) fn remembered(&self) -> u64 {
        self.highs.front().filter(|_| self.highs.len() == RISES).map_or(0, |it| it.since)
    }

    /// Returns the largest recent release.
    pub(super) fn given(&self) -> f64 {
        self.given.highest().unwrap_or(0.0)
    }

    /// Returns the changes from block to block.
    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Forgets the changes so far, because they were growth.
    pub(super) fn forget_moves(&mut self) {
        self.moves = Moves::default();
    }

    /// Returns the shortest of the latest runs that is growth: it began after `origin`, lies above the recent highs,
    /// gained several times the recent releases, meets the bar, and got further than chance does in that many samples
    /// (`far`).
    pub(super) fn run(&self, origin: u64, bar: &Bar, far: impl Fn(f64) -> f64) -> Option<Run> {
        if self.highs.len() < bar.rises || self.high.highest().is_some_and(|it| self.top <= it) {
            return None;
        }
        let (last, number) = (self.rises().next()?, self.last?.number);
        let given = self.given();
        let (mut biggest, mut gap, mut later) = (0.0_f64, 0, last.at);
        for (count, rise) in (1_usize..).zip(self.rises()).take_while(|(_, it)| it.since > origin) {
            biggest = biggest.max(rise.after - rise.before);
            gap = gap.max(later - rise.at);
            later = rise.at;
            let (span, gain) = ((last.at - rise.at) as f64, last.after - rise.before);
            let is_growth = || {
                gain >= bar.gain.max(bar.pace * span)
                    && self.is_even(count, &rise, bar)
                    && statistics::poisson_tail(count, ((last.at - origin) as f64 / (rise.since - origin) as f64).ln())
                        <= bar.chance
                    && gain >= far((number - rise.number) as f64)
            };
            let has_shape = count >= bar.rises && span >= SPAN && biggest <= BIGGEST * gain;
            if has_shape && gain >= OVER_GIVEN * given && is_growth() {
                let (top, top_at, gap) = (self.top, last.at, gap as f64);
                return Some(Run { since: rise.since, base: rise.before, top, top_at, gap, rises: count });
            }
        }
        None
    }

    /// Returns the latest three rises if they are too regular for chance: consecutive, the last two with about the same
    /// pace, after `origin`, above the recent highs, and with several times the recent releases.
    pub(super) fn steady(&self, origin: u64) -> Option<Run> {
        let mut rises = self.rises();
        let (last, middle, first) = (rises.next()?, rises.next()?, rises.next()?);
        let follow = middle.since == first.at.saturating_add(1) && last.since == middle.at.saturating_add(1);
        let pace = |it: &Rise| (it.after - it.before) / (it.at - it.since + 1) as f64;
        let (slow, fast) = (pace(&middle).min(pace(&last)), pace(&middle).max(pace(&last)));
        let gain = last.after - first.before;
        let is_new = self.last.is_some_and(|it| it.to == last.at) && first.since > origin;
        let is_above = self.high.highest().is_none_or(|it| self.top > it) && gain >= OVER_GIVEN * self.given();
        let gap = (last.at - middle.at).max(middle.at - first.at) as f64;
        (is_new && follow && is_above && fast <= STEADY * slow && pace(&first) <= STEADY * fast).then_some(Run {
            since: first.since,
            base: first.before,
            top: self.top,
            top_at: last.at,
            gap,
            rises: 3,
        })
    }

    /// Whether the run of the latest `count` rises continues as it began.
    fn is_even(&self, count: usize, first: &Rise, bar: &Bar) -> bool {
        let (from, to) = (first.at, self.highs.back().map_or(first.at, |it| it.at));
        let middle = from + (to - from) / 2;
        let (mut later, mut gain, mut eighths) = (0, 0.0, 0_u8);
        for it in self.rises().take(count) {
            if it.at > middle {
                later += 1;
                gain += it.after - it.before;
            }
            let place = u128::from(it.at - from) * 8 / (u128::from(to - from) + 1);
            eighths |= 1_u8.checked_shl(u32::try_from(place).unwrap_or(0)).unwrap_or(0);
        }
        let is_spread = eighths.count_ones() >= EIGHTHS;
        4 * later >= count && gain >= bar.later * (self.top - first.before) && is_spread
    }
}

/// The highest value of at least the later half of a series; older ones are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Fading {
    current: Option<f64>,
    previous: Option<f64>,
    ticks: u64,
}

impl Fading {
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks.is_power_of_two() && self.ticks >= 64 {
            self.previous = self.current.take();
        }
    }

    pub(super) fn note(&mut self, value: f64) {
        self.current = Some(self.current.map_or(value, |it| it.max(value)));
    }

    pub(super) fn highest(&self) -> Option<f64> {
        self.current.into_iter().chain(self.previous).reduce(f64::max)
    }
}

/// Minimum number of blocks before there is an estimate.
const FEW: f64 = 16.0;

/// Minimum share of falls among the changes of a random walk.
const FAIR: f64 = 0.25;

/// How unlikely so few falls must be for a fair coin, in half standard deviations of its share.
const SURE: f64 = 2.25;

/// Blocks over which changes are remembered.
const MEMORY: f64 = 4096.0;

/// The statistics of the changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moves {
    blocks: f64,
    rises: f64,
    falls: f64,
    sum: f64,
    square: f64,
    last: f64,
    /// Sum of the squared differences of neighbouring changes.
    bends: f64,
}

impl Moves {
    /// Adds the difference of two neighbouring blocks.
    pub(super) fn push(&mut self, change: f64) {
        if self.blocks >= MEMORY {
            for it in
                [&mut self.blocks, &mut self.rises, &mut self.falls, &mut self.sum, &mut self.square, &mut self.bends]
            {
                *it *= 0.5;
            }
        }
        self.blocks += 1.0;
        if self.blocks > 1.0 {
            self.bends += (change - self.last) * (change - self.last);
        }
        self.last = change;
        self.sum += change;
        self.square += change * change;
        if change > 0.0 {
            self.rises += 1.0;
        } else if change < 0.0 {
            self.falls += 1.0;
        }
    }

    /// Returns the series' roughness: the root of the mean squared second difference, which a trend does not affect,
    /// wherever it began; `None` with too few blocks.
    pub(super) fn roughness(&self) -> Option<f64> {
        (self.blocks >= FEW).then(|| (self.bends / (self.blocks - 1.0)).sqrt())
    }

    /// Returns the standard deviation of a random walk's position after this many blocks; `None` with too few blocks, 0
    /// if falls are too rare for a walk.
    pub(super) fn stray(&self, blocks: f64) -> Option<f64> {
        if self.blocks < FEW {
            return None;
        }
        let moves = self.rises + self.falls;
        if self.falls == 0.0 || self.falls < FAIR.min(0.5 - SURE / moves.sqrt()) * moves {
            return Some(0.0);
        }
        let mean = self.sum / self.blocks;
        Some(((self.square / self.blocks - mean * mean).max(0.0) * blocks).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_does_not_make_a_series_rougher() {
        let roughness = |slope: f64| {
            let mut moves = Moves::default();
            // Noise, and a trend in the second half.
            let value = |at: i32| f64::from(at * at * at % 101) + slope * f64::from((at - 60).max(0));
            (1..120).for_each(|at| moves.push(value(at) - value(at - 1)));
            moves.roughness().unwrap()
        };
        assert!((roughness(30.0) / roughness(0.0) - 1.0).abs() < 0.01);
    }
}
