//! A sample against the one at the same place of the tooth before: what the teeth are made of is then no part of the difference.
//!
//! Seasonal differences (Box and Jenkins 1970), with the season counted from one fall to the next, since cycles may be of any
//! length.

use super::point::Point;
use serde::{Deserialize, Serialize};

/// Samples kept of a tooth.
const KEPT: usize = 256;

/// Pairs that make a rate.
const ENOUGH: u64 = 16;

/// The tooth that lasts, and the one before.
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
    /// Takes a sample; the one at its place in the tooth before.
    pub(super) fn push(&mut self, point: Point) -> Option<Point> {
        if point.begins_tooth {
            // The beginning of the first tooth was not seen.
            self.before = std::mem::take(&mut self.now);
            if !std::mem::replace(&mut self.is_known, true) {
                self.before.clear();
            }
        }
        let other = self.before.get(self.now.len()).copied();
        if self.now.len() < KEPT {
            self.now.push(point);
        }
        let it = other?;
        self.pairs += 1;
        self.blocks += point.blocks? - it.blocks?;
        self.bytes += point.bytes - it.bytes;
        self.span += (point.at - it.at) as f64;
        other
    }

    /// Whether a tooth ended.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Blocks a step; `None` where nothing or too little was compared.
    pub(super) fn blocks(&self) -> Option<f64> {
        (self.pairs >= ENOUGH && self.blocks > 0.0).then(|| self.blocks / self.span)
    }

    /// Bytes per block.
    pub(super) fn per_block(&self) -> Option<f64> {
        (self.blocks > 0.0).then(|| self.bytes / self.blocks)
    }
}
