//! How far a machine's clocks are from this one's, measured by the beats of its stream.
//!
//! A beat has the sender's clocks, and arrives after an unknown delay. The smallest difference between arrival and
//! departure of the latest beats is the clocks' difference plus the shortest delay, usually less than a few
//! milliseconds.

use crate::facts::units::Stamp;
use std::collections::VecDeque;

/// Beats that are compared: two clocks drift apart by a few µs in each second.
const BEATS: usize = 64;

/// The measured differences, in µs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Of each beat: how far this machine's monotonic clock is ahead, and its wall clock.
    beats: VecDeque<(i64, i64)>,
}

impl Clock {
    /// Takes a beat: the machine's clocks, and this machine's at the arrival; monotonic and wall clock.
    pub fn beat(&mut self, there: (Stamp, u64), here: (Stamp, u64)) {
        if self.beats.len() == BEATS {
            self.beats.pop_front();
        }
        self.beats.push_back((difference(here.0.0, there.0.0), difference(here.1, there.1)));
    }

    /// Returns a machine's instant on this machine's clock; `None` before the first beat.
    pub fn here(&self, there: Stamp) -> Option<Stamp> {
        let ahead = self.beats.iter().map(|it| it.0).min()?;
        Some(Stamp(there.0.saturating_add_signed(ahead)))
    }

    /// Returns how far the machine's wall clock is ahead of this one's, in µs; `None` before the first beat.
    pub fn wall_ahead_us(&self) -> Option<i64> {
        self.beats.iter().map(|it| it.1).min().map(i64::saturating_neg)
    }
}

fn difference(one: u64, other: u64) -> i64 {
    let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    signed(one).saturating_sub(signed(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beat_with_the_shortest_delay_measures_the_clocks() {
        let mut clock = Clock::default();
        assert_eq!((clock.here(Stamp(5)), clock.wall_ahead_us()), (None, None));
        for delay in [90, 7, 300, 2_000_000] {
            // There, the monotonic clock is 1000 s ahead, and the wall clock 3 s.
            let there = (Stamp(1_000_000_000 + 500), 60_000_000 + 3_000_000);
            clock.beat(there, (Stamp(500 + delay), 60_000_000 + delay));
        }
        assert_eq!(clock.here(Stamp(1_000_000_900)), Some(Stamp(907)));
        assert_eq!(clock.wall_ahead_us(), Some(3_000_000 - 7));
    }

    #[test]
    fn clocks_of_a_hostile_machine_stay_in_range_and_old_beats_are_forgotten() {
        let mut clock = Clock::default();
        clock.beat((Stamp(u64::MAX), u64::MAX), (Stamp(0), 0));
        assert!(clock.here(Stamp(u64::MAX)).is_some());
        clock.beat((Stamp(0), 0), (Stamp(u64::MAX), u64::MAX));
        assert!(clock.here(Stamp(0)).is_some() && clock.wall_ahead_us().is_some());
        for _ in 0..BEATS {
            clock.beat((Stamp(10), 10), (Stamp(15), 10));
        }
        assert_eq!((clock.here(Stamp(10)), clock.beats.len()), (Some(Stamp(15)), BEATS));
    }
}
