//! A whole run in a bounded number of buckets over a rising axis (steps, µs, readings).
//!
//! A bucket covers the places with equal `place / stride`. When all buckets are in use, neighbours merge and the stride
//! doubles, so that a run of `n` places ends with `ROOM / 2` to `ROOM` buckets, in amortised constant time per place.
//! The curves of [`super::curve`], the timeline and the report's series keep different figures in them. A session has
//! many of them, which are [`Packed`].
//!
//! Not kept this way: the probe's history, which serves real readings and none that was merged; the growth detector's
//! horizons, which need every power of two at once; the curve of a memory snapshot, whose length is known.

use super::packed::{Numbers, Packed};
use serde::{Deserialize, Serialize};

/// The figures of one bucket.
pub trait Merge {
    /// Returns the last place on the axis that they stand for.
    fn place(&self) -> u64;

    /// Takes the figures of later places in.
    fn merge(&mut self, newer: &Self);
}

/// Where buckets are kept, oldest first.
pub trait Store: Default {
    /// A bucket.
    type Item: Merge;

    /// Returns their number.
    fn count(&self) -> usize;

    /// Returns the newest one, which may be changed.
    fn newest(&mut self) -> Option<&mut Self::Item>;

    /// Adds one.
    fn push(&mut self, fresh: Self::Item);

    /// Removes each one for which this returns true of it and the one that is left before it.
    fn dedup_by(&mut self, is_same: impl FnMut(&mut Self::Item, &mut Self::Item) -> bool);
}

impl<T: Merge> Store for Vec<T> {
    type Item = T;

    fn count(&self) -> usize {
        self.len()
    }

    fn newest(&mut self) -> Option<&mut T> {
        self.last_mut()
    }

    fn push(&mut self, fresh: T) {
        self.push(fresh);
    }

    fn dedup_by(&mut self, is_same: impl FnMut(&mut T, &mut T) -> bool) {
        self.dedup_by(is_same);
    }
}

impl<T: Merge + Numbers<N>, const N: usize> Store for Packed<T, N> {
    type Item = T;

    fn count(&self) -> usize {
        self.len()
    }

    fn newest(&mut self) -> Option<&mut T> {
        self.newest_mut()
    }

    fn push(&mut self, fresh: T) {
        self.push(fresh);
    }

    fn dedup_by(&mut self, mut is_same: impl FnMut(&mut T, &mut T) -> bool) {
        let mut left = Self::default();
        for mut it in self.iter() {
            if !left.newest_mut().is_some_and(|before| is_same(&mut it, before)) {
                left.push(it);
            }
        }
        *self = left;
    }
}

/// At most `ROOM` buckets, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets<S, const ROOM: usize> {
    kept: S,
    stride: u64,
}

impl<S: Store, const ROOM: usize> Default for Buckets<S, ROOM> {
    fn default() -> Self {
        Self::with_stride(1)
    }
}

impl<S: Store, const ROOM: usize> Buckets<S, ROOM> {
    /// Returns empty buckets that never cover less than `stride` of the axis.
    pub fn with_stride(stride: u64) -> Self {
        Self { kept: S::default(), stride: stride.max(1) }
    }

    /// Adds figures at the newest place, or after it.
    pub fn push(&mut self, fresh: S::Item) {
        if let Some(newest) = self.newest_at(fresh.place()) {
            newest.merge(&fresh);
        } else {
            self.kept.push(fresh);
        }
    }

    /// Makes room for a place, and returns the bucket that covers it; `None` where a new one is needed.
    pub fn newest_at(&mut self, place: u64) -> Option<&mut S::Item> {
        while self.kept.count() >= ROOM && !self.covers(place) {
            self.coarsen();
        }
        if self.covers(place) { self.kept.newest() } else { None }
    }

    /// Returns all buckets, oldest first.
    pub fn all(&self) -> &S {
        &self.kept
    }

    /// Returns the newest bucket.
    pub fn newest_mut(&mut self) -> Option<&mut S::Item> {
        self.kept.newest()
    }

    /// Returns how much of the axis one bucket covers.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Whether the newest bucket covers a place.
    fn covers(&mut self, place: u64) -> bool {
        let stride = self.stride;
        self.kept.newest().is_some_and(|newest| newest.place() / stride == place / stride)
    }

    fn coarsen(&mut self) {
        self.stride = self.stride.saturating_mul(2);
        let stride = self.stride;
        self.kept.dedup_by(|new, old| {
            let is_same = new.place() / stride == old.place() / stride;
            if is_same {
                old.merge(new);
            }
            is_same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From where to where, and how many.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Span(u64, u64, u64);

    impl Numbers<3> for Span {
        fn numbers(&self) -> [u64; 3] {
            [self.0, self.1, self.2]
        }

        fn of_numbers(&[from, to, count]: &[u64; 3]) -> Self {
            Self(from, to, count)
        }
    }

    impl Merge for Span {
        fn place(&self) -> u64 {
            self.1
        }

        fn merge(&mut self, newer: &Self) {
            *self = Self(self.0, newer.1, self.2 + newer.2);
        }
    }

    proptest! {
        #[test]
        fn buckets_are_bounded_in_order_and_lose_nothing(moves in prop::collection::vec(0_u64..50, 1..5000)) {
            let mut buckets = Buckets::<Vec<Span>, 64>::default();
            let mut packed = Buckets::<Packed<Span, 3>, 64>::default();
            let mut place = 0;
            for step in &moves {
                place += step;
                buckets.push(Span(place, place, 1));
                packed.push(Span(place, place, 1));
            }
            let all = buckets.all();
            prop_assert_eq!(&packed.all().iter().collect::<Vec<_>>(), all);
            prop_assert!(all.len() <= 64);
            prop_assert_eq!(all.iter().map(|it| it.2).sum::<u64>(), moves.len() as u64);
            prop_assert!(all.windows(2).all(|it| it[0].1 < it[1].0));
            prop_assert!(all.iter().all(|it| it.0 / buckets.stride() == it.1 / buckets.stride()));
        }
    }

    #[test]
    fn a_place_at_the_end_of_the_axis_still_finds_room() {
        let mut buckets = Buckets::<Vec<Span>, 2>::default();
        for place in [0, 1 << 40, 1 << 62, u64::MAX - 1, u64::MAX] {
            buckets.push(Span(place, place, 1));
        }
        assert_eq!(buckets.all().iter().map(|it| it.2).sum::<u64>(), 5);
        assert!(buckets.all().len() <= 2);
    }
}
