//! Figures of the driver, carried forward from one of its readings to the next: what is free, and what a process has.

use crate::facts::units::{Bytes, Stamp};
use serde::{Deserialize, Serialize};

/// An error's words give hundredths of a GiB.
const ROUNDING: u64 = 8 << 20;

/// What was free at one instant, and what allocators took since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub(super) at: Stamp,
    free: u64,
    pub(super) taken: i64,
}

impl Room {
    pub(super) fn new(at: Stamp, free: u64) -> Self {
        Self { at, free, taken: 0 }
    }

    /// What is free now, bytes.
    pub fn free(&self) -> u64 {
        self.free.saturating_add_signed(self.taken.saturating_neg())
    }

    /// Takes a later word; an earlier one changes nothing.
    pub(super) fn hear(room: &mut Option<Self>, at: Stamp, free: u64) {
        if room.is_none_or(|it| it.at <= at) {
            *room = Some(Self::new(at, free));
        }
    }
}

/// What the driver attributes to a process on a device in all, carried forward from one list to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverUse {
    pub(super) at: Stamp,
    pub(super) taken: i64,
    /// What its own error said since, and what was taken by then.
    pub(super) said: Option<(Bytes, i64)>,
}

impl DriverUse {
    /// What it has now: from the figure of the driver's list; from its own error where that is newer and says something else
    /// than rounding explains.
    pub fn now(&self, listed: Option<Bytes>) -> Option<Bytes> {
        let listed = listed.map(|it| it.0.saturating_add_signed(self.taken));
        let said = self.said.map(|(it, by_then)| it.0.saturating_add_signed(self.taken.saturating_sub(by_then)));
        let is_rounded = listed.zip(said).is_some_and(|(listed, said)| listed.abs_diff(said) <= ROUNDING);
        said.filter(|_| !is_rounded).or(listed).map(Bytes)
    }

    /// Bytes that its allocator took since the driver's list.
    pub fn taken(&self) -> i64 {
        self.taken
    }

    /// When the driver listed it.
    pub(super) fn listed_at(&self) -> Stamp {
        self.at
    }

    /// Its allocator took bytes since, or gave them back.
    pub(super) fn take(&mut self, bytes: i64) {
        self.taken = self.taken.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_latest_word_counts_and_what_was_taken_since() {
        let mut room = Some(Room::new(Stamp(10), 5 * GIB));
        Room::hear(&mut room, Stamp(9), GIB);
        assert_eq!(room.map(|it| it.free()), Some(5 * GIB), "an earlier word changes nothing");
        for (taken, free) in [(2, 3), (-4, 9), (7, 0)] {
            let it = Room { taken: taken * GIB.cast_signed(), ..room.unwrap() };
            assert_eq!(it.free(), free * GIB, "{taken}");
        }
        Room::hear(&mut room, Stamp(11), 2 * GIB);
        assert_eq!(room, Some(Room::new(Stamp(11), 2 * GIB)));
    }

    #[test]
    fn a_total_is_carried_forward_and_an_error_corrects_it_beyond_its_rounding() {
        let taken = 3 * GIB.cast_signed();
        let own = DriverUse { at: Stamp(1), taken, said: None };
        assert_eq!((own.now(Some(Bytes(GIB))), own.now(None)), (Some(Bytes(4 * GIB)), None));
        let rounded = DriverUse { said: Some((Bytes(4 * GIB + (5 << 20)), taken)), ..own };
        assert_eq!(rounded.now(Some(Bytes(GIB))), Some(Bytes(4 * GIB)));
        let other = DriverUse { said: Some((Bytes(6 * GIB), taken)), ..own };
        assert_eq!((other.now(Some(Bytes(GIB))), other.now(None)), (Some(Bytes(6 * GIB)), Some(Bytes(6 * GIB))));
    }
}
