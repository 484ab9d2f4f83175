//! Bytes per block, read where the lengths of batches do not show: between steps that were alike.
//!
//! Bytes carry the noise of every batch's lengths, but two nearby steps of the same lengths differ by exactly
//! what was kept in between. Of the quotients of byte and block differences those recur, the others scatter;
//! the most frequent is found in constant memory (space-saving, Metwally, Agrawal and El Abbadi 2005).

use serde::{Deserialize, Serialize};

/// Quotients counted at once.
const KEPT: usize = 64;

/// Steps back that a step is compared with.
pub(super) const NEAR: usize = 4;

/// Allocators round every block up to a multiple of this, so that blocks of one size have a whole one.
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
    /// How much of the count may be another's, from whom the place was taken.
    doubt: u64,
}

impl Quotient {
    fn sure(&self) -> u64 {
        self.count - self.doubt
    }
}

impl PerBlock {
    /// Takes the difference between two nearby steps.
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

    /// Bytes per block: of the quotients that are about as frequent as any, the one nearest to `about`. Where
    /// lengths are multiples of something, batches one apart are nearly as frequent as those that are alike.
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
