//! A sawtooth: the lowest value between two falls, whatever the distance between them.
//!
//! Memory that is released at the end of an epoch, or by the garbage collector, hides what is kept until then. After
//! each fall it shows.

use super::{
    Point,
    new_highs::{Block, Climb, Fading},
};
use serde::{Deserialize, Serialize};

/// A tooth's minimum height, and a fall's minimum size, as shares of the recent high.
const HALF: f64 = 0.5;

/// Once a tooth has risen by this share of the high, its lowest value has passed.
const LEFT: f64 = 0.125;

/// A tooth has at least this many rises. Fewer are a new level, such as the outputs of an evaluation.
const RISES: u32 = 4;

/// The teeth of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Teeth {
    tooth: Option<Block>,
    top: f64,
    last: f64,
    /// Samples of the tooth above the sample before them.
    rises: u32,
    height: Fading,
    climb: Climb,
    is_reported: bool,
    is_fresh: bool,
    begins: bool,
}

impl Teeth {
    /// Adds a sample.
    pub(super) fn push(&mut self, at: u64, value: f64) {
        (self.is_fresh, self.begins) = (false, false);
        let Some(mut tooth) = self.tooth else {
            self.tooth = Some(Block { from: at, to: at, number: 0, low: value });
            (self.top, self.last) = (value, value);
            return;
        };
        self.rises += u32::from(value > self.last);
        self.last = value;
        let (height, fall) = (self.top - tooth.low, self.top - value);
        let usual = self.height.highest();
        if height > 0.0 && height >= HALF * usual.unwrap_or(0.0) && fall > HALF * height {
            self.height.tick();
            self.height.note(fall);
            // If the first tooth began higher than the second one, its beginning is missing.
            if tooth.number > 0 || value >= tooth.low {
                self.report(tooth);
            }
            (self.is_reported, self.begins, self.rises) = (false, true, 0);
            tooth = Block { from: at, to: at, number: tooth.number + 1, low: value };
            self.top = value;
        } else if value < tooth.low {
            (tooth.to, tooth.low, self.top) = (at, value, value);
        } else {
            self.top = self.top.max(value);
            if usual.is_some_and(|it| self.top - tooth.low >= LEFT * it) {
                self.report(Block { to: at, ..tooth });
            }
        }
        self.tooth = Some(tooth);
    }

    fn report(&mut self, tooth: Block) {
        if !self.is_reported && self.rises >= RISES {
            self.climb.push(tooth);
            (self.is_reported, self.is_fresh) = (true, true);
        }
    }

    /// Returns the tooth whose lowest value the latest sample confirmed.
    pub(super) fn completed(&self) -> Option<Block> {
        self.climb.last().filter(|_| self.is_fresh)
    }

    /// Returns whether a tooth begins with the latest sample.
    pub(super) fn begins(&self) -> bool {
        self.begins
    }

    /// Returns the lowest values, tooth by tooth.
    pub(super) fn climb(&self) -> &Climb {
        &self.climb
    }
}

/// Samples kept of a tooth.
const KEPT: usize = 256;

/// Pairs needed for a rate.
const ENOUGH: u64 = 16;

/// The current tooth and the one before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Season {
    now: Vec<Point>,
    before: Vec<Point>,
    is_known: bool,
    pairs: u64,
    blocks: f64,
    bytes: f64,
    span: f64,
}

impl Season {
    /// Adds a sample and returns the one at its place in the tooth before.
    pub(super) fn push(&mut self, point: Point) -> Option<Point> {
        if point.begins_tooth {
            self.before = std::mem::take(&mut self.now);
            self.is_known = true;
        }
        let other = self.before.get(self.now.len()).copied();
        // The samples do not include the beginning of the first tooth.
        if self.is_known && self.now.len() < KEPT {
            self.now.push(point);
        }
        let it = other?;
        self.pairs += 1;
        self.blocks += point.blocks? - it.blocks?;
        self.bytes += point.bytes - it.bytes;
        self.span += (point.at - it.at) as f64;
        other
    }

    /// Returns whether a tooth has ended.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns blocks per step; `None` with too few comparisons.
    pub(super) fn blocks(&self) -> Option<f64> {
        (self.pairs >= ENOUGH && self.blocks > 0.0).then(|| self.blocks / self.span)
    }

    /// Returns bytes per block.
    pub(super) fn per_block(&self) -> Option<f64> {
        (self.blocks > 0.0).then(|| self.bytes / self.blocks)
    }
}
