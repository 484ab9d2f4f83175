//! The pickle's memo, by number.

use super::value::{Kept, Slot};
use std::collections::HashMap;

/// Picklers count from 0 on; a much larger number reserves nothing for those before it.
#[derive(Debug, Default)]
pub(super) struct Memo {
    dense: Vec<Kept>,
    sparse: HashMap<Slot, Kept>,
}

impl Memo {
    /// Returns the number of the next object, for picklers that leave it out.
    pub(super) fn next(&self) -> Slot {
        Slot::try_from(self.dense.len() + self.sparse.len()).unwrap_or(Slot::MAX)
    }

    pub(super) fn set(&mut self, at: Slot, kept: Kept) {
        let place = at as usize;
        if place == self.dense.len() {
            self.dense.push(kept);
        } else if let Some(it) = self.dense.get_mut(place) {
            *it = kept;
        } else {
            self.sparse.insert(at, kept);
        }
    }

    #[inline]
    pub(super) fn get(&self, at: Slot) -> Option<Kept> {
        self.dense.get(at as usize).copied().or_else(|| self.sparse.get(&at).copied())
    }
}
