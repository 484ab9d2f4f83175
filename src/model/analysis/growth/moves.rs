//! Ups and downs from block to block, and how far they would carry a series that has no aim.

use serde::{Deserialize, Serialize};

/// Blocks that have to be seen before anything is said.
const FEW: f64 = 16.0;

/// Share of falls among the moves from which on a series may be a walk without aim.
const FAIR: f64 = 0.25;

/// How unlikely so few falls have to be for a fair coin, in half standard deviations of its share.
const SURE: f64 = 2.25;

/// Blocks over which moves are remembered.
const MEMORY: f64 = 4096.0;

/// What the moves were like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moves {
    blocks: f64,
    rises: f64,
    falls: f64,
    sum: f64,
    square: f64,
    last: f64,
    /// Sum of the squared differences of neighbouring moves.
    bends: f64,
}

impl Moves {
    /// Takes the difference of two neighbouring blocks.
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

    /// How rough the series is: the root of the mean squared second difference, in which a trend does not show, wherever
    /// it began; `None` as long as too little was seen.
    pub(super) fn roughness(&self) -> Option<f64> {
        (self.blocks >= FEW).then(|| (self.bends / (self.blocks - 1.0)).sqrt())
    }

    /// The standard deviation of where a random walk with these moves is after so many blocks; `None` as
    /// long as too little was seen, 0 where falls are so rare that it is no walk.
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
            // Noise, and a trend from half time on.
            let value = |at: i32| f64::from(at * at * at % 101) + slope * f64::from((at - 60).max(0));
            (1..120).for_each(|at| moves.push(value(at) - value(at - 1)));
            moves.roughness().unwrap()
        };
        assert!((roughness(30.0) / roughness(0.0) - 1.0).abs() < 0.01);
    }
}
