//! Bytes per block, read where the lengths of batches do not show: between steps that were alike.
//!
//! Bytes carry the noise of every batch's lengths, but two nearby steps of the same lengths differ by exactly
//! what was kept in between. Of the quotients of byte and block differences those recur, the others scatter;
//! the most frequent is found in constant memory (space-saving, Metwally, Agrawal and El Abbadi 2005).

/// Quotients counted at once.
const KEPT: usize = 32;

/// Steps back that a step is compared with.
pub(super) const NEAR: usize = 4;

/// Sightings that make a quotient more than a coincidence.
const ENOUGH: u64 = 4;

/// The most frequent bytes per block.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PerBlock {
    kept: Vec<Quotient>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
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

    /// Bytes per block, where one value stands out.
    pub(super) fn typical(&self) -> Option<f64> {
        let best = self.kept.iter().max_by_key(|it| it.sure())?;
        let next = self.kept.iter().filter(|it| it.value.to_bits() != best.value.to_bits()).map(Quotient::sure).max();
        (best.sure() >= ENOUGH && best.sure() >= 2 * next.unwrap_or(0)).then_some(best.value)
    }
}
