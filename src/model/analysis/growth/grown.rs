//! The unit of lengths, learned while something grows beside them.
//!
//! A greatest common divisor of such changes is one of the unit and of what grows as well, so that nothing is left
//! beside it. But the changes are whole multiples of the unit, some of them plus the same remainder: their differences
//! have the unit as a common divisor. Of all divisors of neighbouring changes and of their differences, the unit is the
//! one that describes the changes in the fewest bits, remainder included (minimum description length, Rissanen 1978). A
//! divisor that lengths and growth share by chance makes large multiples. A few changes of another kind (the first
//! evaluation) are described as they are.
//!
//! If the growth divides the unit (20 KiB beside tokens of 500 KiB), the changes alone do not show which of them are
//! lengths. The peak does: a step whose lengths grow raises it by several times its change (`working_set`), a kept
//! tensor does not. If the peak rises less than that with the most frequent change (majority vote, Boyer and Moore
//! 1981), that change is kept, and every multiple takes as few bits as its size needs.
//!
//! Such a unit is given up at the first large fall, or the second of any size, that it does not explain: then what
//! grew is a sawtooth.

use super::FURTHER;
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

/// A remainder has to save this many bits, or it is chance: it has two figures more than lengths alone.
const SAVED: f64 = 20.0;

/// Changes of which at least this many differ from the one before.
const DIFFER: usize = 8;

/// Parts of a unit that a change may consist of.
const PARTS: u64 = 16;

/// A remainder that differs by less than this share of the growth is the same.
const SLIGHT: u64 = 8;

/// If more than one in this many changes come with more blocks, their count shows what grows.
const COUNTED: u64 = 8;

/// One in this many changes has the remainder, or it is chance.
const OFTEN: usize = 4;

/// At most one in this many changes is of another kind.
const OTHERS: usize = 8;

/// The usual change is as frequent as all others together, and this many more.
const AHEAD: u64 = 16;

/// The peak must rise this often before it shows that the usual change is kept; then so many changes have to differ.
const PEAKS: u64 = 2;
const FEW_DIFFER: usize = 4;

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
    usual: Usual,
    used: Option<Used>,
    /// Whether a unit was given up.
    failed: bool,
}

impl Grown {
    /// Adds the latest change, how far the peak rose with it, and whether the count of blocks did. `beside` is what is
    /// known to be kept besides, `is_free` whether a unit may be learned.
    pub(super) fn push(&mut self, at: u64, change: i64, peak: u64, has_blocks: bool, beside: f64, is_free: bool) {
        self.usual.push(change, peak);
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
        let (differ, least) = if self.usual.is_kept() { (FEW_DIFFER, 0.0) } else { (DIFFER, LEAST_BITS) };
        if is_due && is_free && self.latest.len() >= differ {
            let largest = self.latest.iter().map(|it| it.unsigned_abs()).max().unwrap_or(0);
            self.used = best(&self.latest, least).map(|unit| Used { unit, since: at, largest, unexplained: 0, beside });
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

/// The most frequent change, by majority vote, and how far the peak rises with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Usual {
    change: i64,
    ahead: u64,
    /// The change before.
    last: i64,
    /// Whether the latest such change followed no larger one.
    is_alone: bool,
    /// The bytes by which these changes raised memory and its peak, and how often they raised the peak.
    gained: f64,
    further: f64,
    rises: u64,
}

impl Usual {
    /// Adds a change and the rise of the peak with it.
    fn push(&mut self, change: i64, peak: u64) {
        let last = std::mem::replace(&mut self.last, change);
        if change != self.change && change != 0 {
            self.ahead = self.ahead.saturating_sub(1);
            if self.ahead == 0 {
                *self = Self { change, ahead: 1, last: change, ..Self::default() };
            }
            self.is_alone = false;
            return;
        }
        if change != 0 {
            self.ahead += 1;
            // Outputs of the step before are alive at the peak, so it rises once more after a step that grew.
            self.is_alone = last.unsigned_abs() <= change.unsigned_abs();
            self.gained += if self.is_alone { change as f64 } else { 0.0 };
        }
        // What a step keeps shows in the peak of the next one.
        if self.is_alone {
            self.further += peak as f64;
            self.rises += u64::from(peak > 0);
        }
    }

    /// Returns whether the peak shows that these changes are kept and that it does not rise with the steps' lengths.
    fn is_kept(&self) -> bool {
        self.change > 0 && self.ahead >= AHEAD && self.rises >= PEAKS && self.further < FURTHER * self.gained
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

    /// Returns how many bits describe the changes, `least` for each multiple; `None` if it does not describe
    /// most of them.
    fn bits(self, changes: &[i64], least: f64) -> Option<f64> {
        let (size, growth) = (i64::try_from(self.size).ok()?, i64::try_from(self.growth).ok()?);
        let length = |it: i64| (2.0 * it.unsigned_abs() as f64 + 1.0).log2();
        let saved = if growth > 0 { SAVED } else { 0.0 };
        let (mut sum, mut others) = (length(size) + length(growth) + saved, 0);
        for change in changes {
            let rest = change.rem_euclid(size);
            let is_whole = rest == 0 || rest == growth;
            others += usize::from(!is_whole);
            // A change of another kind is described as it is.
            sum += length(if is_whole { change.div_euclid(size) } else { *change }).max(least);
        }
        (others * OTHERS <= changes.len()).then_some(sum)
    }
}

/// Returns the unit and remainder that describe the changes in the fewest bits; `None` if a unit alone needs fewer.
fn best(changes: &VecDeque<i64>, least: f64) -> Option<Unit> {
    // In multiples of what all have in common, so that the number of bits is independent of the changes' scale.
    let common = changes.iter().fold(0, |divisor, it| gcd(divisor, it.unsigned_abs()));
    let scale = i64::try_from(common).ok().filter(|it| *it > 0)?;
    let all: Vec<i64> = changes.iter().map(|it| it / scale).collect();
    let between: Vec<i64> = all.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    let units = divisors(&all).chain(divisors(&between)).flat_map(|size| {
        // Of any multiples, about half have half of a unit twice as large.
        let growth = usual_rest(&all, size).filter(|it| 2 * it != size);
        [Some(0), growth].into_iter().flatten().map(move |growth| Unit { size, growth })
    });
    let whole = Unit { size: 1, growth: 0 };
    let described = units.chain([whole]).filter_map(|unit| Some((unit, unit.bits(&all, least)?)));
    let unit = described.min_by(|a, b| a.1.total_cmp(&b.1))?.0;
    let largest = all.iter().map(|it| it.unsigned_abs()).max()?;
    let is_used = unit.growth > 0 && unit.size.saturating_mul(MOST) >= largest;
    is_used.then(|| Unit { size: unit.size * common, growth: unit.growth * common })
}

/// Returns the remainder that most changes have beside whole units, if enough do.
fn usual_rest(changes: &[i64], size: u64) -> Option<u64> {
    let signed = i64::try_from(size).ok()?;
    let mut rests: Vec<u64> = changes.iter().map(|it| it.rem_euclid(signed).unsigned_abs()).collect();
    rests.retain(|it| *it > 0);
    rests.sort_unstable();
    let usual = rests.chunk_by(|a, b| a == b).max_by_key(|it| it.len())?;
    (usual.len() * OFTEN >= changes.len()).then(|| usual[0])
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
        with_peaks(changes.into_iter().map(|it| (it, 0)), has_blocks)
    }

    /// The same after changes and rises of the peak.
    fn with_peaks(changes: impl IntoIterator<Item = (i64, i64)>, has_blocks: bool) -> Option<(f64, u64)> {
        let mut grown = Grown::default();
        for (at, (change, peak)) in (0..).zip(changes) {
            grown.push(at, change, peak.unsigned_abs(), has_blocks, 0.0, true);
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
    fn the_peak_shows_which_of_two_sizes_is_kept() {
        const ROWS: i64 = TOKEN / 25;
        let job = |of_rows: i64| {
            let tokens = |it: i64| i64::from(it % 16 == 0) * TOKEN;
            (1..500).map(move |it| (tokens(it) + ROWS, 4 * tokens(it) + tokens(it - 1) + of_rows * ROWS))
        };
        assert_eq!(with_peaks(job(1), false).map(|it| it.1), Some(TOKEN.unsigned_abs()));
        assert_eq!(with_peaks(job(4), false), None, "the steps grow, 1 or 26 tokens at a time");
        assert_eq!(pushed(job(1).map(|it| it.0), false), None, "the peak is unknown");
        let first_evaluation = |(at, it): (i64, (i64, i64))| (it.0 + i64::from(at == 100) * 10_432_003, it.1);
        assert_eq!(with_peaks((0..).zip(job(1)).map(first_evaluation), false).map(|it| it.1), Some(512_000));
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
