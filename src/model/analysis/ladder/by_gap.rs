//! Figures by gap, and sets of gaps.

use super::{Gap, Level};
use serde::{Deserialize, Serialize};

/// A value for each gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByGap<T>([T; Gap::ALL.len()]);

impl<T: Copy> ByGap<T> {
    /// Returns a gap's value.
    pub fn get(&self, gap: Gap) -> T {
        self.0[gap as usize]
    }

    /// Sets a gap's value.
    pub fn set(&mut self, gap: Gap, value: T) {
        self.0[gap as usize] = value;
    }
}

/// A set of gaps, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapSet(u32);

impl GapSet {
    /// Returns it as a number.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set of a number that [`Self::bits`] returned.
    pub fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Adds a gap.
    pub fn insert(&mut self, gap: Gap) {
        self.0 |= 1 << gap as u32;
    }

    /// Returns whether it contains a gap.
    pub fn contains(self, gap: Gap) -> bool {
        self.0 & 1 << gap as u32 != 0
    }

    /// Adds all gaps of another set.
    pub fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns its gaps, from the inside out.
    pub fn iter(self) -> impl Iterator<Item = Gap> {
        Gap::ALL.into_iter().filter(move |it| self.contains(*it))
    }

    /// Returns the gap that has this level as its upper bound.
    pub fn at(self, level: Level) -> Option<Gap> {
        let first = (self.0 & OF_LEVEL[level as usize]).trailing_zeros();
        Gap::ALL.get(first as usize).copied()
    }
}

/// The gaps of each level, a bit each.
const OF_LEVEL: [u32; Level::ALL.len()] = {
    let (mut of, mut at) = ([0; Level::ALL.len()], 0);
    while at < Gap::ALL.len() {
        if let Some(level) = Gap::ALL[at].row().level {
            of[level as usize] |= 1 << at;
        }
        at += 1;
    }
    of
};
