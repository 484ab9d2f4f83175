//! A bounded list of the latest items that counts those it dropped.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The latest `N` items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latest<T, const N: usize> {
    kept: VecDeque<T>,
    gone: u64,
}

impl<T, const N: usize> Default for Latest<T, N> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), gone: 0 }
    }
}

impl<T, const N: usize> Latest<T, N> {
    /// Adds an item and drops the oldest if the list is full.
    pub fn push(&mut self, item: T) {
        if self.kept.len() >= N {
            self.kept.pop_front();
            self.gone += 1;
        }
        self.kept.push_back(item);
    }

    /// Returns the items, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.kept.iter()
    }

    /// Returns the newest item.
    pub fn last(&self) -> Option<&T> {
        self.kept.back()
    }

    /// Returns the newest item that matches, mutably.
    pub fn newest_mut(&mut self, is_of_it: impl Fn(&T) -> bool) -> Option<&mut T> {
        self.kept.iter_mut().rev().find(|it| is_of_it(it))
    }

    /// Returns how many items were dropped.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_is_counted() {
        let mut latest = Latest::<u32, 2>::default();
        for it in 0..5 {
            latest.push(it);
        }
        assert_eq!(latest.iter().copied().collect::<Vec<_>>(), [3, 4]);
        assert_eq!((latest.last(), latest.gone()), (Some(&4), 3));
    }
}
