//! One device, as the driver and the probes report it.

use super::course::Course;
use crate::{
    facts::{
        event::{DeviceId, DeviceMemory, ProcessUse, ReadError},
        maker::Maker,
        metrics::{Changes, Metric, Metrics},
        text::Foreign,
        units::{Bytes, Stamp},
    },
    model::analysis::curve::Curve,
};
use serde::{Deserialize, Serialize};

/// µs per bucket of a device's history.
const HISTORY_STRIDE_US: u64 = 1_000_000;

/// A reading and when it was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading<T> {
    /// When it was taken.
    pub at: Stamp,
    /// What was read.
    pub value: T,
}

/// What the driver has reported of a device, and its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its UUID, or a generated name if a probe reported none.
    pub id: DeviceId,
    /// NVML's index, or the maker's own; `None` for a device that only probes report.
    pub index: Option<u32>,
    /// Product name.
    pub name: Foreign,
    /// The parent device of a MIG device.
    pub parent: Option<DeviceId>,
    /// Who makes it; NVIDIA where no driver lists it.
    pub maker: Maker,
    /// The driver's memory figures, or why they are missing.
    pub memory: Option<Reading<Result<DeviceMemory, ReadError>>>,
    /// Its other metrics, and when the driver last reported a change; `None` before the first reading.
    pub metrics: Option<Reading<Metrics>>,
    /// The processes on it, or why they are unknown.
    pub processes: Option<Reading<Result<Vec<ProcessUse>, ReadError>>>,
    /// When the driver stopped listing it.
    pub gone: Option<Stamp>,
    /// Used bytes over time (µs).
    pub history: Curve,
    /// Its important metrics over time.
    pub course: Course,
    /// Free memory at the latest reading of any source, and what allocators took since.
    pub room: Option<FreeMemory>,
    /// The state when its jobs began to end; `None` while they run.
    pub before: Option<Box<StateBefore>>,
    /// When its jobs ended, if the device is shown as it was then.
    pub ended: Option<Stamp>,
}

/// A device's state at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateBefore {
    /// When.
    pub at: Stamp,
    /// The driver's memory figures.
    pub memory: Option<Reading<Result<DeviceMemory, ReadError>>>,
    /// The driver's list of processes.
    pub processes: Option<Reading<Result<Vec<ProcessUse>, ReadError>>>,
    /// Free memory.
    pub room: Option<FreeMemory>,
}

impl Device {
    /// Creates a device of which only the name is known.
    pub fn new(id: DeviceId) -> Self {
        Self {
            id,
            index: None,
            name: Foreign::default(),
            parent: None,
            maker: Maker::default(),
            memory: None,
            metrics: None,
            processes: None,
            gone: None,
            history: Curve::with_stride(HISTORY_STRIDE_US),
            course: Course::default(),
            room: None,
            before: None,
            ended: None,
        }
    }

    /// Returns the driver's memory figures, adjusted for what allocators took since.
    pub fn figures(&self) -> Option<DeviceMemory> {
        let memory = *self.memory.as_ref()?.value.as_ref().ok()?;
        let Some(room) = self.room else { return Some(memory) };
        let within = memory.used.plus(memory.free);
        let free = within.min(Bytes(room.free()));
        Some(DeviceMemory { used: Bytes(within.0 - free.0), free, ..memory })
    }

    /// Applies changes of metrics.
    pub(super) fn changed(&mut self, at: Stamp, changes: &Changes) {
        let reading = self.metrics.get_or_insert_with(|| Reading { at, value: Metrics::default() });
        reading.at = at;
        reading.value.apply(changes);
    }

    /// Returns a metric.
    pub fn metric(&self, metric: Metric) -> Option<u64> {
        self.metrics.as_ref()?.value.get(metric)
    }

    /// Returns the driver's process list, if there is one.
    pub fn process_list(&self) -> Option<&[ProcessUse]> {
        Some(self.processes.as_ref()?.value.as_ref().ok()?)
    }
}

/// An error's text rounds to hundredths of a GiB.
pub(super) const ROUNDING: u64 = 8 << 20;

/// Free memory at one instant, and what allocators took since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeMemory {
    pub(super) at: Stamp,
    free: u64,
    pub(super) taken: i64,
}

impl FreeMemory {
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
        let mut room = Some(FreeMemory::new(Stamp(10), 5 * GIB));
        FreeMemory::note(&mut room, Stamp(9), GIB);
        assert_eq!(room.map(|it| it.free()), Some(5 * GIB), "an earlier word changes nothing");
        for (taken, free) in [(2, 3), (-4, 9), (7, 0)] {
            let it = FreeMemory { taken: taken * GIB.cast_signed(), ..room.unwrap() };
            assert_eq!(it.free(), free * GIB, "{taken}");
        }
        FreeMemory::note(&mut room, Stamp(11), 2 * GIB);
        assert_eq!(room, Some(FreeMemory::new(Stamp(11), 2 * GIB)));
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
