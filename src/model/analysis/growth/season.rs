//! Compares a sample with the one at the same place in the tooth before, so that the tooth's shape cancels out.
//!
//! Seasonal differences (Box and Jenkins 1970), with the season counted from one fall to the next, because cycles may
//! have any length.

use super::point::Point;
use serde::{Deserialize, Serialize};

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
