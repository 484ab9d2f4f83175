//! Requested bytes without whole multiples of a unit, which shows what the job keeps under batches of any length.
//!
//! Memory that follows a batch's length has a fixed number of bytes per token. The requested bytes are then a sum of
//! kept bytes and whole multiples of that unit, which is the greatest common divisor of some changes (Euclid). The
//! remainder is free of the lengths' noise, of evaluation leftovers, and of a curriculum: a growing tensor shows in it
//! at once. If it grew already while the unit was learned, `grown` finds the unit.

use super::grown::{Grown, MOST, gcd};
use serde::{Deserialize, Serialize};

/// Changes that a unit is learned from.
const LEARNT: u64 = 12;

/// If more than one in this many changes fall, there is no unit.
const FALLS: u64 = 8;

/// The unit, and the sum of remainders since it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Grid {
    last: Option<u64>,
    blocks: Option<u64>,
    unit: u64,
    largest: u64,
    moves: u64,
    falls: u64,
    /// The latest remainder of a change; one that recurs is not a fall, however large.
    usual: u64,
    /// Where the unit became known.
    since: u64,
    beside: f64,
    /// Whether a change had a remainder since the unit is known.
    has_rest: bool,
    grown: Grown,
}

impl Grid {
    /// Adds the requested bytes, and returns what was kept apart from whole units since the unit is known.
    pub(super) fn push(&mut self, at: u64, requested: u64, blocks: Option<u64>) -> Option<f64> {
        let has_blocks = self.blocks.zip(blocks).is_some_and(|(before, now)| now > before);
        self.blocks = blocks;
        let last = self.last.replace(requested)?;
        let beside = self.add(at, requested, last);
        self.grown.push(at, requested.wrapping_sub(last).cast_signed(), has_blocks, self.beside, !self.has_rest);
        self.grown.beside().or(beside)
    }

    /// Adds a change, and returns the sum of remainders.
    fn add(&mut self, at: u64, requested: u64, last: u64) -> Option<f64> {
        let change = requested.abs_diff(last);
        if self.moves < LEARNT {
            self.unit = gcd(self.unit, change);
            self.largest = self.largest.max(change);
            self.moves += u64::from(change > 0);
            self.since = at;
            if self.moves == LEARNT && self.is_too_small() {
                (self.unit, self.moves, self.largest) = (0, 0, 0);
            }
            self.has_rest = false;
            return None;
        }
        self.moves += u64::from(change > 0);
        let rest = change % self.unit;
        let up = if requested >= last || rest == 0 { rest } else { self.unit - rest };
        if up > 0 && up.saturating_mul(2) == self.unit {
            // The remainder is half of the unit in either direction, so the unit is half as large.
            self.unit = up;
        } else if up <= self.unit / 2 || up == self.usual {
            self.beside += up as f64;
        } else {
            self.beside -= (self.unit - up) as f64;
            self.falls += 1;
        }
        if up > 0 {
            (self.usual, self.has_rest) = (up, true);
        }
        if self.is_too_small() || self.falls * FALLS > self.moves {
            let grown = std::mem::take(&mut self.grown);
            *self = Self { beside: self.beside, last: self.last, blocks: self.blocks, grown, ..Self::default() };
        }
        Some(self.beside)
    }

    fn is_too_small(&self) -> bool {
        self.unit.saturating_mul(MOST) < self.largest
    }

    /// Returns whether the unit was known at a position, so that later changes are independent of those it was learned
    /// from.
    pub(super) fn is_known(&self, at: u64) -> bool {
        match self.grown.since() {
            Some(since) => since < at,
            None => self.has_unit() && self.since < at,
        }
    }

    /// Returns whether there is a unit.
    pub(super) fn has_unit(&self) -> bool {
        self.moves >= LEARNT || self.grown.since().is_some()
    }

    /// Returns the unit, in bytes; 0 if there is none.
    pub(super) fn unit(&self) -> u64 {
        self.grown.unit().unwrap_or(if self.moves >= LEARNT { self.unit } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last remainder after changes of these tokens and bytes, with `word` bytes per token.
    fn beside(moves: &[(i64, i64)], word: i64) -> Option<f64> {
        let mut grid = Grid::default();
        let (mut at, mut bytes) = (0, 1 << 30);
        let learnt = (1..30).map(|it| (if it % 2 == 0 { 7 - it } else { it }, 0));
        let all = learnt.chain(moves.iter().copied());
        all.map(|(words, more)| {
            (at, bytes) = (at + 1, bytes + words * word + more);
            grid.push(at, bytes.unsigned_abs(), None)
        })
        .last()
        .flatten()
    }

    #[test]
    fn the_remainder_is_what_was_kept() {
        assert_eq!(beside(&[(5, 0), (-5, 0)], 6000), Some(0.0));
        assert_eq!(beside(&[(5, 2000), (-9, 2000), (3, 0)], 6000), Some(4000.0));
        assert_eq!(beside(&[(1, 700), (0, -700)], 6000), Some(0.0));
    }

    #[test]
    fn a_recurring_remainder_is_not_a_fall_and_half_a_unit_is_a_unit() {
        assert_eq!(beside(&[(1, 5000), (2, 5000), (-3, 5000)], 6000), Some(9000.0), "the first looks like a fall");
        assert_eq!(beside(&[(1, 3000), (2, -3000), (-3, 9000), (0, 100)], 6000), Some(100.0));
    }

    #[test]
    fn a_rounding_is_not_a_unit() {
        assert_eq!(beside(&[(1, 0), (1, 0)], 6000).map(|_| ()), Some(()));
        let mut grid = Grid::default();
        let bytes = |at: u64| (1 << 30) + at * at * 912_347 % 1_000_003 * 64;
        assert!((1..200).all(|at| grid.push(at, bytes(at), None).is_none()));
    }
}
