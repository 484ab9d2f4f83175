//! Finds the smallest device on which a run fits, by bisection.

/// Device sizes are multiples of this.
const GRANULE: u64 = 2 << 20;
/// The result is exact to this part of it, or to a granule.
const PART: u64 = 256;

/// A search between a size that is too small and one that is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    too_small: u64,
    enough: u64,
}

impl Search {
    /// Creates a search from the live memory at the peak to a size on which the run fits.
    pub(super) fn new(live: u64, enough: u64) -> Self {
        Self { too_small: live.saturating_sub(1), enough }
    }

    /// Returns the size to try next; `None` once it is found.
    pub(super) fn next(&self) -> Option<u64> {
        let gap = self.enough.saturating_sub(self.too_small);
        if gap <= GRANULE.max(self.enough / PART) {
            return None;
        }
        let middle = (self.too_small + gap / 2).next_multiple_of(GRANULE);
        Some(middle).filter(|it| *it > self.too_small && *it < self.enough)
    }

    /// Adds whether the run fits on a device of this size.
    pub(super) fn note(&mut self, size: u64, fits: bool) {
        if fits {
            self.enough = self.enough.min(size);
        } else {
            self.too_small = self.too_small.max(size);
        }
    }

    /// Returns the smallest size on which the run is known to fit.
    pub(super) fn smallest(&self) -> u64 {
        self.enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_ends_near_the_smallest_that_is_enough(live in 0_u64..1 << 40, more in 0_u64..1 << 40, share in 0.0..1.0_f64) {
            let enough = live + more;
            let truth = live + crate::facts::units::whole(more as f64 * share);
            let mut search = Search::new(live, enough);
            let mut tries = 0;
            while let Some(size) = search.next() {
                search.note(size, size >= truth);
                tries += 1;
            }
            let found = search.smallest();
            prop_assert!(tries <= 40 && found >= truth, "{tries} tries, {found} for {truth}");
            prop_assert!(found - truth <= GRANULE.max(found / PART), "{found} for {truth}");
        }
    }
}
