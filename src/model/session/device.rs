//! One device, as the driver and the probes report it.

use super::{course::Course, room::Room};
use crate::{
    facts::{
        event::{DeviceId, DeviceMemory, ProcessUse, Trouble},
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
    /// NVML's index; `None` for a device that only probes report.
    pub index: Option<u32>,
    /// Product name.
    pub name: Foreign,
    /// The parent device of a MIG device.
    pub parent: Option<DeviceId>,
    /// The driver's memory figures, or why they are missing.
    pub memory: Option<Reading<Result<DeviceMemory, Trouble>>>,
    /// Its other metrics, and when the driver last reported a change; `None` before the first reading.
    pub metrics: Option<Reading<Metrics>>,
    /// The processes on it, or why they are unknown.
    pub processes: Option<Reading<Result<Vec<ProcessUse>, Trouble>>>,
    /// When the driver stopped listing it.
    pub gone: Option<Stamp>,
    /// Used bytes over time (µs).
    pub history: Curve,
    /// Its important metrics over time.
    pub course: Course,
    /// Free memory at the latest reading of any source, and what allocators took since.
    pub room: Option<Room>,
    /// The state when its jobs began to end; `None` while they run.
    pub before: Option<Box<Before>>,
    /// When its jobs ended, if the device is shown as it was then.
    pub ended: Option<Stamp>,
}

/// A device's state at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// When.
    pub at: Stamp,
    /// The driver's memory figures.
    pub memory: Option<Reading<Result<DeviceMemory, Trouble>>>,
    /// The driver's list of processes.
    pub processes: Option<Reading<Result<Vec<ProcessUse>, Trouble>>>,
    /// Free memory.
    pub room: Option<Room>,
}

impl Device {
    /// Creates a device of which only the name is known.
    pub fn new(id: DeviceId) -> Self {
        Self {
            id,
            index: None,
            name: Foreign::default(),
            parent: None,
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
