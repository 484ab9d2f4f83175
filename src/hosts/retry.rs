//! When to connect again: after a second, then twice as long each time, up to a minute.

use std::time::Duration;

/// The first wait, and the longest one, in ms.
const FIRST_MS: u64 = 1_000;
const LONGEST_MS: u64 = 60_000;

/// A connection that lasts this long was a good one, in µs.
const GOOD_US: u64 = 60_000_000;

/// Links of a cluster wait for slightly different times, so that they do not all connect at once: the difference of two
/// neighbours, and how many have one of their own, in ms.
const APART_MS: u64 = 37;
const AMONG: u64 = 16;

/// The failures of one link in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    failures: u32,
    place: u64,
}

impl Retry {
    /// Creates one for the link at this place of the list.
    pub fn new(place: usize) -> Self {
        Self { failures: 0, place: place as u64 }
    }

    /// Returns how long to wait after a connection that lasted for this time, in µs.
    pub fn after(&mut self, lasted_us: u64) -> Duration {
        if lasted_us >= GOOD_US {
            self.failures = 0;
        }
        let wait = FIRST_MS.saturating_mul(1 << self.failures.min(6)).min(LONGEST_MS);
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(wait + self.place % AMONG * APART_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_waits_twice_as_long_each_time_up_to_a_minute_and_begins_again_after_a_good_connection() {
        let mut retry = Retry::new(0);
        let waits: Vec<u64> = (0..8).map(|_| retry.after(10_000).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((retry.after(GOOD_US).as_secs(), retry.after(0).as_secs()), (1, 2));
        for _ in 0..100 {
            assert!(retry.after(0) <= Duration::from_millis(LONGEST_MS));
        }
        assert_ne!(Retry::new(1).after(0), Retry::new(2).after(0));
    }
}
