//! Changes from block to block, and how far they would carry a random walk.

use serde::{Deserialize, Serialize};

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
