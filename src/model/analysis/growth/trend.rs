//! Detects a rise that shows in neither the lowest values nor a count: a line through means, with more certainty than
//! noise gives.
//!
//! If every batch has another length, the lowest value of a stretch is mostly chance. The mean of a longer stretch is
//! less so (batch means, Conway 1963). At every horizon, a line through the latest means is tested by its slope against
//! the remaining spread, widened for correlated residuals ([`LineFit`]).

use super::{
    GrowthInput,
    new_highs::{Block, Fading, Run},
};
use crate::model::statistics::LineFit;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Number of means per line, and the minimum slope in standard errors: fewer means need more.
const LINES: [(usize, f64); 3] = [(16, 10.0), (24, 8.5), (32, 7.5)];

/// Minimum new highs of a line, and positions that it spans: a few jumps of the level are not a line.
const RISES: usize = 8;
const SPAN: u64 = 20;

/// Most means kept.
const MOST: usize = 32;

/// How many means to wait for a new high, which noise may hide for a while.
const PATIENCE: f64 = 8.0;

/// Minimum share of the gain in each quarter.
const EACH: f64 = 0.1;

/// A larger share of the gain between two neighbours is a jump of the level.
const JUMP: f64 = 0.7;

/// If the count of blocks rises by this much, the count decides.
const A_BLOCK: f64 = 1.0;

/// The latest means at every horizon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Trends {
    levels: Vec<Level>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Level {
    means: VecDeque<Mean>,
    /// The highest mean among those that were dropped.
    before: Fading,
}

/// One stretch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Mean {
    from: u64,
    to: u64,
    bytes: f64,
    /// Live blocks; 0 without a count.
    blocks: f64,
}

impl Trends {
    /// Adds the mean bytes and counts of the stretches that a sample completed, each with its horizon.
    pub(super) fn push(&mut self, fresh: impl Iterator<Item = ((usize, Block), (usize, Block))>) {
        for ((level, bytes), (_, blocks)) in fresh {
            if self.levels.len() <= level {
                self.levels.resize_with(level + 1, Level::default);
            }
            let Some(it) = self.levels.get_mut(level) else { return };
            if it.means.len() == MOST
                && let Some(oldest) = it.means.pop_front()
            {
                it.before.tick();
                it.before.note(oldest.bytes);
            }
            it.means.push_back(Mean { from: bytes.from, to: bytes.to, bytes: bytes.low, blocks: blocks.low });
        }
    }

    /// Returns the line at one horizon that is growth and began after a position, and its number of means.
    pub(super) fn run(&self, level: usize, origin: u64) -> Option<(Run, usize)> {
        let it = self.levels.get(level)?;
        LINES.iter().find_map(|(count, sure)| Some((it.run(*count, *sure, origin)?, *count)))
    }
}

impl Level {
    fn run(&self, count: usize, sure: f64, origin: u64) -> Option<Run> {
        let from = self.means.len().checked_sub(count)?;
        let (first, last) = (self.means.get(from).filter(|it| it.from > origin)?, self.means.back()?);
        let each = count / 4;
        let quarter = |number: usize, of: fn(&Mean) -> f64| {
            let it = self.means.range(from + number * each..from + (number + 1) * each);
            it.map(|it| of(it) / each as f64).sum::<f64>()
        };
        // The test that most series fail comes first.
        let quarters = [0, 1, 2, 3].map(|number| quarter(number, |mean| mean.bytes));
        let gained = quarters[3] - quarters[0];
        let is_even = gained > 0.0 && quarters.windows(2).all(|it| it[1] - it[0] >= EACH * gained);
        if !is_even || quarter(3, |it| it.blocks) - quarter(0, |it| it.blocks) >= A_BLOCK {
            return None;
        }
        let latest = || self.means.range(from..);
        let rises = rises(latest().map(|it| it.bytes));
        if rises < RISES || last.to - first.from < SPAN {
            return None;
        }
        let mut line = LineFit::default();
        latest().for_each(|it| line.push((it.from.midpoint(it.to) - first.from) as f64, it.bytes - first.bytes));
        let (slope, _) = line.slope().filter(|it| 2.0 * it.0 >= sure * it.1)?;
        let gain = slope * (last.to - first.from) as f64;
        let jumps = latest().zip(latest().skip(1)).any(|(before, after)| after.bytes - before.bytes > JUMP * gain);
        let earlier = self.means.range(..from).map(|it| it.bytes).chain(self.before.highest()).reduce(f64::max);
        let is_new = earlier.is_none_or(|it| quarters[3] > it);
        let top = last.bytes.max(quarters[3]);
        let gap = PATIENCE * (last.to - last.from + 1) as f64;
        let run = Run { since: first.from, base: top - gain, top, top_at: last.to, gap, rises };
        (is_new && !jumps).then_some(run)
    }
}

/// Counts new highs after the first value.
fn rises(mut values: impl Iterator<Item = f64>) -> usize {
    let first = values.next().unwrap_or(0.0);
    values.fold((0, first), |(rises, top), it| (rises + usize::from(it > top), top.max(it))).0
}

/// Seconds that are compared.
const SECONDS: usize = 20;

/// Blocks that come within them, at least: what a loop keeps comes in many equal parts.
const BLOCKS: f64 = 100.0;

/// The largest standard deviation of the blocks of a second, as a share of their mean.
const EVEN: f64 = 0.25;

/// How much of the variance of bytes the count of blocks explains, at least.
const STRAIGHT: f64 = 0.998;

/// One second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    at: u64,
    bytes: f64,
    blocks: f64,
    /// Bytes that were alive beyond those of now.
    freed: u64,
}

/// The latest seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plain {
    rows: VecDeque<Row>,
}

impl Plain {
    /// Adds a sample; without a count and a peak nothing is plain.
    pub(super) fn push(&mut self, at: u64, seen: &GrowthInput) {
        let (Some(blocks), Some(peak)) = (seen.blocks, seen.peak) else { return self.rows.clear() };
        if self.rows.len() > SECONDS {
            self.rows.pop_front();
        }
        let bytes = seen.requested.unwrap_or(seen.bytes) as f64;
        self.rows.push_back(Row { at, bytes, blocks: blocks as f64, freed: peak.saturating_sub(seen.bytes) });
    }

    /// Returns the latest seconds if they are plain growth.
    pub(super) fn run(&self, origin: u64) -> Option<Run> {
        let (first, last) = (self.rows.front()?, self.rows.back()?);
        let is_whole = self.rows.len() > SECONDS && first.at >= origin;
        if !is_whole || last.blocks - first.blocks < BLOCKS || self.rows.iter().any(|it| it.freed == 0) {
            return None;
        }
        let pairs = || self.rows.iter().zip(self.rows.iter().skip(1));
        let paces: Vec<f64> = pairs().map(|(a, b)| (b.blocks - a.blocks) / (b.at - a.at).max(1) as f64).collect();
        let (mean, deviation) = spread(&paces);
        let is_even = paces.iter().all(|it| *it > 0.0) && deviation <= EVEN * mean;
        (is_even && self.straightness() >= STRAIGHT).then(|| Run {
            since: first.at.saturating_add(1),
            base: first.blocks,
            top: last.blocks,
            top_at: last.at,
            gap: pairs().map(|(a, b)| (b.at - a.at) as f64).fold(0.0, f64::max),
            rises: SECONDS,
        })
    }

    /// The square of the correlation of bytes and blocks; 0 if the bytes fall.
    fn straightness(&self) -> f64 {
        let count = self.rows.len() as f64;
        let mean = |of: fn(&Row) -> f64| self.rows.iter().map(of).sum::<f64>() / count;
        let (bytes, blocks) = (mean(|it| it.bytes), mean(|it| it.blocks));
        let sums = self.rows.iter().fold((0.0, 0.0, 0.0), |(xx, xy, yy), it| {
            let (x, y) = (it.blocks - blocks, it.bytes - bytes);
            (xx + x * x, xy + x * y, yy + y * y)
        });
        let (xx, xy, yy) = sums;
        if xy > 0.0 { xy * xy / (xx * yy) } else { 0.0 }
    }
}

/// The mean and the standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / count;
    (mean, square.sqrt())
}
