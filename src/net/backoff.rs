//! When to try again: after a pause that doubles with each failure in a row.

use crate::sources::doubled;
use std::time::Duration;

/// Connections to several servers wait for slightly different times, so that they do not all begin at once: the
/// difference of two neighbours, in ms, and how many have a difference of their own.
const APART_MS: u64 = 37;
const AMONG: u64 = 16;

/// The failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    offset: Duration,
}

impl Backoff {
    /// Creates one with its first and its longest pause.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0, offset: Duration::ZERO }
    }

    /// Returns the same for the server at this place of a list.
    #[must_use]
    pub fn staggered(self, place: usize) -> Self {
        Self { offset: Duration::from_millis(place as u64 % AMONG * APART_MS), ..self }
    }

    /// Begins again with the first pause.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns how long to wait after another failure.
    pub fn pause(&mut self) -> Duration {
        let pause = doubled(self.first, self.failures, self.longest);
        self.failures = self.failures.saturating_add(1);
        pause + self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_the_longest_and_begins_again_after_a_success() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut one = backoff;
        let pauses: Vec<u64> = (0..8).map(|_| one.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        one.reset();
        assert_eq!((one.pause().as_secs(), one.pause().as_secs()), (1, 2));
        for _ in 0..100 {
            assert!(one.pause() <= Duration::from_secs(60));
        }
        assert_ne!(backoff.staggered(1).pause(), backoff.staggered(2).pause());
    }
}
