//! The counters that a signature is made of, without those that are unknown: a session keeps hundreds of rows of each
//! process.

use crate::{
    facts::{event::wire::Counters, units::Stamp},
    model::analysis::packed::{self, Numbers},
};
use serde::{Deserialize, Serialize};

/// The counters that a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Requested,
    Allocated,
    Peak,
    Blocks,
    Active,
    Reserved,
    InactiveSplit,
    PrivatePools,
    DeviceAllocs,
    DeviceFrees,
}

/// Their number.
const ALL: usize = Kept::DeviceFrees as usize + 1;

/// Numbers of a packed row.
pub(super) const NUMBERS: usize = 3 + ALL;

/// The counters at one position of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) step: u64,
    pub(super) at: Stamp,
    /// A bit for each known counter.
    known: u16,
    values: [u64; ALL],
}

impl Row {
    /// Takes what a row has from the counters of a step.
    pub(super) fn new(step: u64, at: Stamp, counters: &Counters) -> Self {
        let all: [Option<u64>; ALL] = [
            counters.requested,
            counters.allocated,
            counters.allocated_peak,
            counters.blocks,
            counters.active,
            counters.reserved,
            counters.inactive_split,
            counters.private_pools,
            counters.device_allocs,
            counters.device_frees,
        ];
        let known = all.iter().rev().fold(0, |bits, it| bits << 1 | u16::from(it.is_some()));
        Self { step, at, known, values: all.map(Option::unwrap_or_default) }
    }

    /// Returns a counter; `None` if it is unknown.
    pub(super) fn get(&self, it: Kept) -> Option<u64> {
        let place = it as usize;
        self.values.get(place).copied().filter(|_| self.known & 1 << place != 0)
    }
}

impl Numbers<NUMBERS> for Row {
    fn numbers(&self) -> [u64; NUMBERS] {
        packed::numbers([self.step, self.at.0, self.known.into()].into_iter().chain(self.values))
    }

    fn of_numbers(&[step, at, known, values @ ..]: &[u64; NUMBERS]) -> Self {
        Self { step, at: Stamp(at), known: u16::try_from(known).unwrap_or(0), values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_counters_of_its_step_and_lacks_unknown_ones() {
        let counters =
            Counters { requested: Some(1), reserved: Some(0), device_frees: Some(u64::MAX), ..Counters::default() };
        let row = Row::new(7, Stamp(9), &counters);
        assert_eq!((row.step, row.at), (7, Stamp(9)));
        let all = [Kept::Requested, Kept::Reserved, Kept::DeviceFrees, Kept::Allocated].map(|it| row.get(it));
        assert_eq!(all, [Some(1), Some(0), Some(u64::MAX), None]);
    }
}
