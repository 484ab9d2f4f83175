//! Bytes per block, measured between steps with equal batch lengths.
//!
//! Bytes carry the noise of every batch's lengths, but two nearby steps of equal lengths differ by exactly what was
//! kept in between. Among the quotients of byte and block differences those recur, the others scatter. The most
//! frequent one is found in constant memory (space-saving, Metwally, Agrawal and El Abbadi 2005).

use serde::{Deserialize, Serialize};

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
