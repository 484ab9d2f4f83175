//! Carries the driver's figures forward from one reading to the next: free memory, and each process's total.

use crate::facts::units::{Bytes, Stamp};
use serde::{Deserialize, Serialize};

/// An error's text rounds to hundredths of a GiB.
const ROUNDING: u64 = 8 << 20;

/// Free memory at one instant, and what allocators took since.
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

    /// Returns the free bytes now.
    pub fn free(&self) -> u64 {
        self.free.saturating_add_signed(self.taken.saturating_neg())
    }

    /// Takes a newer reading; ignores an older one.
    pub(super) fn note(room: &mut Option<Self>, at: Stamp, free: u64) {
        if room.is_none_or(|it| it.at <= at) {
            *room = Some(Self::new(at, free));
        }
    }
}

/// The driver's total for a process on a device, carried forward from one list to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverUse {
    pub(super) at: Stamp,
    pub(super) taken: i64,
    /// The total from its own error since the list, and the bytes it had taken by then.
    pub(super) in_error: Option<(Bytes, i64)>,
}

impl DriverUse {
    /// Returns the total now: from the driver's list, or from the process's own error if that is newer and differs by
    /// more than rounding.
    pub fn now(&self, listed: Option<Bytes>) -> Option<Bytes> {
        let listed = listed.map(|it| it.0.saturating_add_signed(self.taken));
        let in_error =
            self.in_error.map(|(it, by_then)| it.0.saturating_add_signed(self.taken.saturating_sub(by_then)));
        let is_rounded = listed.zip(in_error).is_some_and(|(listed, in_error)| listed.abs_diff(in_error) <= ROUNDING);
        in_error.filter(|_| !is_rounded).or(listed).map(Bytes)
    }

    /// Returns the bytes that its allocator took since the driver's list.
    pub fn taken(&self) -> i64 {
        self.taken
    }

    /// Returns the time of the driver's list.
    pub(super) fn listed_at(&self) -> Stamp {
        self.at
    }

    /// Adds bytes that its allocator took since, or gave back.
    pub(super) fn take(&mut self, bytes: i64) {
        self.taken = self.taken.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_latest_reading_counts_and_what_was_taken_since() {
        let mut room = Some(Room::new(Stamp(10), 5 * GIB));
        Room::note(&mut room, Stamp(9), GIB);
        assert_eq!(room.map(|it| it.free()), Some(5 * GIB), "an earlier word changes nothing");
        for (taken, free) in [(2, 3), (-4, 9), (7, 0)] {
            let it = Room { taken: taken * GIB.cast_signed(), ..room.unwrap() };
            assert_eq!(it.free(), free * GIB, "{taken}");
        }
        Room::note(&mut room, Stamp(11), 2 * GIB);
        assert_eq!(room, Some(Room::new(Stamp(11), 2 * GIB)));
    }

    #[test]
    fn a_total_is_carried_forward_and_an_error_corrects_it_beyond_its_rounding() {
        let taken = 3 * GIB.cast_signed();
        let own = DriverUse { at: Stamp(1), taken, in_error: None };
        assert_eq!((own.now(Some(Bytes(GIB))), own.now(None)), (Some(Bytes(4 * GIB)), None));
        let rounded = DriverUse { in_error: Some((Bytes(4 * GIB + (5 << 20)), taken)), ..own };
        assert_eq!(rounded.now(Some(Bytes(GIB))), Some(Bytes(4 * GIB)));
        let other = DriverUse { in_error: Some((Bytes(6 * GIB), taken)), ..own };
        assert_eq!((other.now(Some(Bytes(GIB))), other.now(None)), (Some(Bytes(6 * GIB)), Some(Bytes(6 * GIB))));
    }
}
