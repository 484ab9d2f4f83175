//! The unit of lengths, learned while something grows beside them.
//!
//! A greatest common divisor of such changes is one of the unit and of what grows as well, so that nothing is left
//! beside it. But the changes are whole multiples of the unit, some of them plus the same remainder: their differences
//! have the unit as a common divisor. Of all divisors of neighbouring changes and of their differences, the unit is the
//! one that describes the changes in the fewest bits, remainder included (minimum description length, Rissanen 1978). A
//! divisor that lengths and growth share by chance makes large multiples.
//!
//! Such a unit is given up at the first large fall, or the second of any size, that it does not explain: then what
//! grew is a sawtooth.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Changes that a unit is learned from at first; it is searched again whenever their number has doubled.
const LEARNT: u64 = 12;

/// Changes kept to learn from.
const KEPT: usize = 32;

/// Most units in the largest change; with more, the unit is chance or rounding, and its remainders mean nothing.
pub(super) const MOST: u64 = 2048;

/// A multiple takes at least this many bits: small ones are equally likely.
const LEAST_BITS: f64 = 6.0;

/// Changes of which at least this many differ from the one before.
const DIFFER: usize = 8;

/// Parts of a unit that a change may consist of.
const PARTS: u64 = 4;

/// A remainder that differs by less than this share of the growth is the same.
const SLIGHT: u64 = 8;

/// If more than one in this many changes come with more blocks, their count shows what grows.
const COUNTED: u64 = 8;

/// One in this many changes has the remainder, or it is chance.
const OFTEN: usize = 4;

/// A unit, and the remainder of changes by which something grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Unit {
    size: u64,
    growth: u64,
}

/// The unit in use, and the sum of remainders.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Used {
    unit: Unit,
    since: u64,
    /// The largest change that it was learned from.
    largest: u64,
    /// Falls that it does not explain.
    unexplained: u64,
    beside: f64,
}

/// The latest changes, and their unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Grown {
    moves: u64,
    /// How many of them came with more blocks.
    counted: u64,
    /// The latest changes that differ from the one before.
    latest: VecDeque<i64>,
    used: Option<Used>,
    /// Whether a unit was given up.
    failed: bool,
}

impl Grown {
    /// Adds the latest change, and whether the count of blocks rose with it. `beside` is what else is known to be kept,
    /// `is_free` whether a unit may be learned.
    pub(super) fn push(&mut self, at: u64, change: i64, has_blocks: bool, beside: f64, is_free: bool) {
        if change == 0 || self.failed {
            return;
        }
        self.moves += 1;
        self.counted += u64::from(has_blocks);
        let is_free = is_free && self.counted * COUNTED <= self.moves;
        if let Some(it) = &mut self.used {
            if !it.add(change) {
                *self = Self { failed: true, ..Self::default() };
            }
            return;
        }
        if self.latest.back() != Some(&change) {
            if self.latest.len() == KEPT {
                self.latest.pop_front();
            }
            self.latest.push_back(change);
        }
        let is_due = self.moves.is_multiple_of(LEARNT) && (self.moves / LEARNT).is_power_of_two();
        if is_due && is_free && self.latest.len() >= DIFFER {
            let largest = self.latest.iter().map(|it| it.unsigned_abs()).max().unwrap_or(0);
            self.used = best(&self.latest).map(|unit| Used { unit, since: at, largest, unexplained: 0, beside });
        }
    }

    /// Returns what was kept apart from whole units; `None` without such a unit.
    pub(super) fn beside(&self) -> Option<f64> {
        self.used.map(|it| it.beside)
    }

    /// Returns where the unit became known; `None` without one.
    pub(super) fn since(&self) -> Option<u64> {
        self.used.map(|it| it.since)
    }

    /// Returns the unit, in bytes; `None` without one.
    pub(super) fn unit(&self) -> Option<u64> {
        self.used.map(|it| it.unit.size)
    }
}

impl Used {
    /// Adds the remainder of a change, and returns whether the unit holds.
    fn add(&mut self, change: i64) -> bool {
        let up = self.unit.rest(change);
        let up = if up == 0 || up == self.unit.growth { up } else { self.unit.refine(change) };
        let Unit { size, growth } = self.unit;
        let off = up.abs_diff(growth).min(up).min(size - up);
        if change < 0 && off.saturating_mul(SLIGHT) > growth {
            self.unexplained += 1;
            if change.unsigned_abs() > self.largest || self.unexplained > 1 {
                return false;
            }
        }
        self.beside += if up <= size / 2 || up == growth { up as f64 } else { -((size - up) as f64) };
        true
    }
}

impl Unit {
    /// Returns the remainder of a change.
    fn rest(self, change: i64) -> u64 {
        change.rem_euclid(self.size.cast_signed()).unsigned_abs()
    }

    /// Divides the unit by up to [`PARTS`] if a change, with or without growth, is whole parts of it: an evaluation
    /// may keep less of each token. Returns the remainder of the change.
    fn refine(&mut self, change: i64) -> u64 {
        let parts = [change, change.saturating_sub(self.growth.cast_signed())].map(|it| gcd(self.size, self.rest(it)));
        if let Some(part) = parts.into_iter().filter(|it| self.size <= PARTS.saturating_mul(*it)).max() {
            *self = Self { size: part, growth: self.growth % part };
        }
        self.rest(change)
    }

    /// Returns how many bits describe the changes; `None` if it does not describe all of them.
    fn bits(self, changes: &VecDeque<i64>) -> Option<f64> {
        let (size, growth) = (i64::try_from(self.size).ok()?, i64::try_from(self.growth).ok()?);
        let length = |it: i64| (2.0 * it.unsigned_abs() as f64 + 1.0).log2();
        let mut sum = length(size) + length(growth);
        for change in changes {
            let rest = change.rem_euclid(size);
            if rest != 0 && rest != growth {
                return None;
            }
            sum += length(change.div_euclid(size)).max(LEAST_BITS);
        }
        Some(sum)
    }
}

/// Returns the unit and remainder that describe the changes in the fewest bits; `None` if a common divisor needs fewer.
fn best(changes: &VecDeque<i64>) -> Option<Unit> {
    let all: Vec<i64> = changes.iter().copied().collect();
    let between: Vec<i64> = all.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    let whole = all.iter().fold(0, |divisor, it| gcd(divisor, it.unsigned_abs()));
    let whole = Unit { size: whole, growth: 0 }.bits(changes)?;
    let found = divisors(&all).chain(divisors(&between)).filter_map(|size| {
        let signed = i64::try_from(size).ok()?;
        let rests = all.iter().map(|it| it.rem_euclid(signed).unsigned_abs()).filter(|it| *it > 0);
        let is_often = rests.clone().count() * OFTEN >= all.len();
        // Of any multiples, about half have half of a unit twice as large.
        let unit = rests.max().filter(|it| is_often && 2 * it != size).map(|growth| Unit { size, growth })?;
        Some((unit, unit.bits(changes)?))
    });
    let (unit, bits) = found.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let largest = all.iter().map(|it| it.unsigned_abs()).max()?;
    (bits < whole && unit.size.saturating_mul(MOST) >= largest).then_some(unit)
}

/// Returns the common divisors of one to four neighbours.
fn divisors(of: &[i64]) -> impl Iterator<Item = u64> {
    let from = |from: usize| {
        of.iter().skip(from).take(4).scan(0, |divisor, it| {
            *divisor = gcd(*divisor, it.unsigned_abs());
            Some(*divisor)
        })
    };
    (0..of.len()).flat_map(from).filter(|it| *it > 0)
}

/// Returns the greatest common divisor.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: i64 = 512_000;
    const KEPT_BYTES: i64 = 6144;

    /// What was kept beside whole units, and the unit, after these changes.
    fn pushed(changes: impl IntoIterator<Item = i64>, has_blocks: bool) -> Option<(f64, u64)> {
        let mut grown = Grown::default();
        for (at, change) in (0..).zip(changes) {
            grown.push(at, change, has_blocks, 0.0, true);
        }
        grown.beside().zip(grown.unit())
    }

    /// Changes of a curriculum, a token more every third step, with a tensor that grows at every other.
    fn curriculum(steps: i64) -> impl Iterator<Item = i64> {
        (0..steps).map(|it| i64::from(it % 3 == 0) * TOKEN + i64::from(it % 2 == 0) * KEPT_BYTES)
    }

    #[test]
    fn a_unit_is_found_under_growth() {
        let (beside, unit) = pushed(curriculum(120), false).unwrap();
        assert_eq!(unit, TOKEN.unsigned_abs());
        assert!((beside / KEPT_BYTES as f64).fract().abs() < 1e-9, "{beside}");
        assert!(beside >= 20.0 * KEPT_BYTES as f64, "{beside}");
        assert_eq!(pushed(curriculum(120), true), None, "the count of blocks shows this growth");
    }

    #[test]
    fn lengths_alone_have_no_unit_with_a_remainder() {
        let lengths = |it: i64| TOKEN * (it * 7919 % 101);
        assert_eq!(pushed((0..500).map(|it| lengths(it + 1) - lengths(it)), false), None);
        assert_eq!(pushed((0..500).map(|it| TOKEN * (2 + it % 2)), false), None, "two or three tokens a step");
    }

    #[test]
    fn a_release_ends_the_unit_and_parts_of_it_do_not() {
        let with = |more: &[i64]| pushed(curriculum(120).chain(more.iter().copied()), false);
        let before = with(&[]).unwrap().0;
        assert_eq!(with(&[-70 * TOKEN - 60 * KEPT_BYTES]), None);
        assert_eq!(with(&[-TOKEN]), Some((before, 512_000)));
        assert_eq!(with(&[-TOKEN / 2, TOKEN / 2]), Some((before, 256_000)), "an evaluation keeps half of each token");
        assert_eq!(with(&[-100_000]).map(|it| it.1), Some(512_000), "one small fall may be another's");
        assert_eq!(with(&[-100_000, -33_000]), None);
    }

    #[test]
    fn no_change_is_too_large() {
        let extremes = [i64::MIN, i64::MAX, 1, -1, 3, i64::MIN + 1, i64::MAX / 2];
        pushed((0..500).map(|it: usize| extremes[it * it % 7].wrapping_add(it.cast_signed() as i64 % 5)), false);
    }
}
