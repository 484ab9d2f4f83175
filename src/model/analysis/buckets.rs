//! A whole run in a bounded number of buckets over a rising axis (steps, µs, readings).
//!
//! A bucket covers the places with equal `place / stride`. When all buckets are in use, neighbours merge and the stride
//! doubles, so that a run of `n` places ends with `ROOM / 2` to `ROOM` buckets, in amortised constant time per place.
//! The curves of [`super::curve`], the timeline and the report's series keep different figures in them.
//!
//! Not kept this way: the probe's history, which serves real readings and none that was merged; the growth detector's
//! horizons, which need every power of two at once; the curve of a memory snapshot, whose length is known.

use serde::{Deserialize, Serialize};

/// The figures of one bucket.
pub trait Merge {
    /// Returns the last place on the axis that they stand for.
    fn place(&self) -> u64;

    /// Takes the figures of later places in.
    fn merge(&mut self, newer: &Self);
}

/// At most `ROOM` buckets, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets<T, const ROOM: usize> {
    kept: Vec<T>,
    stride: u64,
}

impl<T, const ROOM: usize> Default for Buckets<T, ROOM> {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1 }
    }
}

impl<T: Merge, const ROOM: usize> Buckets<T, ROOM> {
    /// Returns empty buckets that never cover less than `stride` of the axis.
    pub fn with_stride(stride: u64) -> Self {
        Self { kept: Vec::new(), stride: stride.max(1) }
    }

    /// Adds figures at the newest place, or after it.
    pub fn push(&mut self, fresh: T) {
        if let Some(newest) = self.newest_at(fresh.place()) {
            newest.merge(&fresh);
        } else {
            self.kept.push(fresh);
        }
    }

    /// Makes room for a place, and returns the bucket that covers it; `None` where a new one is needed.
    pub fn newest_at(&mut self, place: u64) -> Option<&mut T> {
        while self.kept.len() >= ROOM && !self.covers(place) {
            self.coarsen();
        }
        if self.covers(place) { self.kept.last_mut() } else { None }
    }

    /// Returns all buckets, oldest first.
    pub fn all(&self) -> &[T] {
        &self.kept
    }

    /// Returns the newest bucket.
    pub fn newest_mut(&mut self) -> Option<&mut T> {
        self.kept.last_mut()
    }

    /// Returns how much of the axis one bucket covers.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Whether the newest bucket covers a place.
    fn covers(&self, place: u64) -> bool {
        self.kept.last().is_some_and(|newest| newest.place() / self.stride == place / self.stride)
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
    #[derive(Clone, Copy, Debug)]
    struct Span(u64, u64, usize);

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
            let mut buckets = Buckets::<Span, 64>::default();
            let mut place = 0;
            for step in &moves {
                place += step;
                buckets.push(Span(place, place, 1));
            }
            let all = buckets.all();
            prop_assert!(all.len() <= 64);
            prop_assert_eq!(all.iter().map(|it| it.2).sum::<usize>(), moves.len());
            prop_assert!(all.windows(2).all(|it| it[0].1 < it[1].0));
            prop_assert!(all.iter().all(|it| it.0 / buckets.stride() == it.1 / buckets.stride()));
        }
    }

    #[test]
    fn a_place_at_the_end_of_the_axis_still_finds_room() {
        let mut buckets = Buckets::<Span, 2>::default();
        for place in [0, 1 << 40, 1 << 62, u64::MAX - 1, u64::MAX] {
            buckets.push(Span(place, place, 1));
        }
        assert_eq!(buckets.all().iter().map(|it| it.2).sum::<usize>(), 5);
        assert!(buckets.all().len() <= 2);
    }
}
