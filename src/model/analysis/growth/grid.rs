//! Requested bytes without whole multiples of a unit, which shows what the job keeps under batches of any length.
//!
//! Memory that follows a batch's length has a fixed number of bytes per token. The requested bytes are then a sum of
//! kept bytes and whole multiples of that unit, which is the greatest common divisor of some changes (Euclid). The
//! remainder is free of the lengths' noise, of evaluation leftovers, and of a curriculum: a growing tensor shows in it
//! at once. A remainder above half of the unit looks like a fall. It is a rise if it recurs and its negative does not:
//! of a tensor that grows by one to four rows, four remainders recur. If a tensor grew already while the unit was
//! learned, `grown` finds the unit.

use super::grown::{Grown, MOST, gcd};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Changes that a unit is learned from.
const LEARNT: u64 = 12;

/// If more than one in this many changes fall, there is no unit.
const FALLS: u64 = 8;

/// If more than one in this many changes have half of the unit, it is half as large.
const HALVES: u64 = 8;

/// Remainders kept; one in this many recurs.
const RECENT: usize = 16;
const OFTEN: usize = 8;

/// The unit, and the sum of remainders since it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Grid {
    last: Option<u64>,
    blocks: Option<u64>,
    peak: Option<u64>,
    unit: u64,
    largest: u64,
    moves: u64,
    falls: u64,
    /// The latest remainders of changes; one that recurs is not a fall, however large.
    recent: VecDeque<u64>,
    /// Where the unit became known.
    since: u64,
    beside: f64,
    /// Changes with a remainder of half the unit.
    halves: u64,
    /// Changes with a remainder since the unit is known.
    rests: u64,
    grown: Grown,
}

impl Grid {
    /// Adds the requested bytes, and returns what was kept apart from whole units since the unit is known.
    pub(super) fn push(&mut self, at: u64, requested: u64, blocks: Option<u64>, peak: Option<u64>) -> Option<f64> {
        let has_blocks = self.blocks.zip(blocks).is_some_and(|(before, now)| now > before);
        let further = self.peak.zip(peak).map_or(0, |(before, now)| now.saturating_sub(before));
        (self.blocks, self.peak) = (blocks, peak);
        let last = self.last.replace(requested)?;
        let beside = self.add(at, requested, last);
        let change = requested.wrapping_sub(last).cast_signed();
        self.grown.push(at, change, further, has_blocks, self.beside, self.rests * FALLS <= self.moves);
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
            (self.rests, self.halves) = (0, 0);
            return None;
        }
        self.moves += u64::from(change > 0);
        let rest = change % self.unit;
        let up = if requested >= last || rest == 0 { rest } else { self.unit - rest };
        self.keep(up);
        if self.is_too_small() || self.falls * FALLS > self.moves {
            let grown = std::mem::take(&mut self.grown);
            let Self { last, blocks, peak, beside, .. } = *self;
            *self = Self { last, blocks, peak, beside, grown, ..Self::default() };
        }
        Some(self.beside)
    }

    /// Adds a remainder, 0 included.
    fn keep(&mut self, up: u64) {
        let kept = self.reading(up);
        self.beside += kept;
        self.falls += u64::from(kept < 0.0);
        self.halves += u64::from(up.saturating_mul(2) == self.unit);
        if up > 0 {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(up);
            self.rests += 1;
        }
        if self.halves * HALVES > self.moves {
            (self.unit, self.halves) = (self.unit / 2, 0);
            self.recent.clear();
        }
    }

    /// Returns the kept bytes that a remainder shows. Half of a unit may be a rise or a fall and counts as neither: an
    /// evaluation may keep half of each token, also at a step at which something grows.
    fn reading(&self, up: u64) -> f64 {
        let half = self.unit / 2;
        let other = if up >= half { up - half } else { up + half };
        if up.saturating_mul(2) == self.unit {
            0.0
        } else if up <= half || self.recent.back() == Some(&up) || self.recurs(up) {
            up as f64
        } else if self.unit.is_multiple_of(2) && self.recurs(other) {
            other as f64
        } else {
            -((self.unit - up) as f64)
        }
    }

    /// Whether a remainder is one of a few that recur, and none of them is its negative: what comes and goes has both
    /// signs.
    fn recurs(&self, rest: u64) -> bool {
        let count = |of: u64| self.recent.iter().filter(|it| **it == of).count();
        count(rest) * OFTEN >= RECENT && count(self.unit - rest) == 0
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

/// Quotients counted at a time.
const KEPT: usize = 64;

/// How many steps back a step is compared.
pub(super) const NEAR: usize = 4;

/// Allocators round every block up to a multiple of this, so blocks of one size have a whole multiple.
const ROUNDED: f64 = 512.0;

/// Sightings that make a quotient more than a coincidence.
const ENOUGH: u64 = 4;

/// The most frequent bytes per block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PerBlock {
    kept: Vec<Quotient>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Quotient {
    value: f64,
    count: u64,
    /// How much of the count may belong to the quotient that this one replaced.
    doubt: u64,
}

impl Quotient {
    fn sure(&self) -> u64 {
        self.count - self.doubt
    }
}

impl PerBlock {
    /// Adds the difference between two nearby steps.
    pub(super) fn push(&mut self, bytes: f64, blocks: f64) {
        if blocks <= 0.0 || bytes <= 0.0 {
            return;
        }
        let value = bytes / blocks;
        if let Some(it) = self.kept.iter_mut().find(|it| it.value.to_bits() == value.to_bits()) {
            it.count += 1;
        } else if self.kept.len() < KEPT {
            self.kept.push(Quotient { value, count: 1, doubt: 0 });
        } else if let Some(least) = self.kept.iter_mut().min_by_key(|it| it.count) {
            *least = Quotient { value, count: least.count + 1, doubt: least.count };
        }
    }

    /// Returns the bytes per block: among the most frequent quotients, the one nearest to `about`. If lengths are
    /// multiples of something, batches that differ by one are nearly as frequent as equal ones.
    pub(super) fn typical(&self, about: f64) -> Option<f64> {
        self.frequent(about, |it| it % ROUNDED == 0.0).or_else(|| self.frequent(about, |_| true))
    }

    fn frequent(&self, about: f64, may_be: impl Fn(f64) -> bool) -> Option<f64> {
        let kept = || self.kept.iter().filter(|it| may_be(it.value));
        let most = kept().map(Quotient::sure).max().filter(|it| *it >= ENOUGH)?;
        let frequent = kept().filter(|it| 2 * it.sure() >= most).map(|it| it.value);
        frequent.min_by(|a, b| (a - about).abs().total_cmp(&(b - about).abs()))
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
            grid.push(at, bytes.unsigned_abs(), None, None)
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
    fn a_few_sizes_that_recur_are_rises_and_what_comes_and_goes_is_not() {
        let rows: Vec<_> = (0..200).map(|it: i64| (it % 3 - 1, 1700 * (1 + it * it % 3))).collect();
        let kept = |of: &[(i64, i64)]| of.iter().map(|it| it.1).sum::<i64>() as f64;
        // Two rows of 1700 bytes leave more than half of the unit, which a fall could leave as well.
        let late = beside(&rows, 6000).unwrap() - beside(&rows[..100], 6000).unwrap();
        assert!((late - kept(&rows[100..])).abs() < 1.0, "{late}");
        let both: Vec<_> = (0..200).map(|it: i64| (0, if it % 2 == 0 { 1500 } else { -1500 })).collect();
        assert_eq!(beside(&both, 6000), Some(0.0));
    }

    #[test]
    fn half_of_a_token_hides_no_growth() {
        let evaluated = |it: i64| i64::from(it % 20 == 0) * 3000 * (1 - it % 40 / 10);
        let steps: Vec<_> =
            (0..200).map(|it: i64| (it % 5 - 2, evaluated(it) + i64::from(it % 2 == 0) * 900)).collect();
        let late = beside(&steps, 6000).unwrap() - beside(&steps[..100], 6000).unwrap();
        assert!((late - 50.0 * 900.0).abs() < 1.0, "{late}");
    }

    #[test]
    fn a_rounding_is_not_a_unit() {
        assert_eq!(beside(&[(1, 0), (1, 0)], 6000).map(|_| ()), Some(()));
        let mut grid = Grid::default();
        let bytes = |at: u64| (1 << 30) + at * at * 912_347 % 1_000_003 * 64;
        assert!((1..200).all(|at| grid.push(at, bytes(at), None, None).is_none()));
    }
}
