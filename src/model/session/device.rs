//! One device: what the driver and the probes say of it.

use super::carried::Room;
use crate::{
    facts::{
        event::{DeviceId, DeviceMemory, Load, ProcessUse, Trouble},
        text::Foreign,
        units::{Bytes, Stamp},
    },
    model::analysis::curve::Curve,
};
use serde::{Deserialize, Serialize};

/// One bucket of a device's history, in µs.
const HISTORY_STRIDE_US: u64 = 1_000_000;

/// A reading and when it was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading<T> {
    /// When.
    pub at: Stamp,
    /// What.
    pub value: T,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its UUID, or a made-up name where a probe gave none.
    pub id: DeviceId,
    /// NVML's index; `None` for a device that only probes name.
    pub index: Option<u32>,
    /// Product name.
    pub name: Foreign,
    /// For a MIG device, the one it is a part of.
    pub parent: Option<DeviceId>,
    /// The driver's memory figures, or why there are none.
    pub memory: Option<Reading<Result<DeviceMemory, Trouble>>>,
    /// How busy and how warm.
    pub load: Option<Reading<Load>>,
    /// The processes on it, or why they are unknown.
    pub processes: Option<Reading<Result<Vec<ProcessUse>, Trouble>>>,
    /// When the driver stopped listing it.
    pub gone: Option<Stamp>,
    /// Bytes used over time, µs.
    pub history: Curve,
    /// What was free at the latest word of anybody, and what was taken since.
    pub room: Option<Room>,
    /// What was known when its jobs began to end; `None` while they run.
    pub before: Option<Box<Before>>,
    /// Where it is shown as it was when its jobs ended: when that was.
    pub ended: Option<Stamp>,
}

/// What was known of a device at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// When.
    pub at: Stamp,
    /// The driver's memory figures.
    pub memory: Option<Reading<Result<DeviceMemory, Trouble>>>,
    /// The driver's list of processes.
    pub processes: Option<Reading<Result<Vec<ProcessUse>, Trouble>>>,
    /// What was free.
    pub room: Option<Room>,
}

impl Device {
    /// A device of which only the name is known.
    pub fn new(id: DeviceId) -> Self {
        Self {
            id,
            index: None,
            name: Foreign::default(),
            parent: None,
            memory: None,
            load: None,
            processes: None,
            gone: None,
            history: Curve::with_stride(HISTORY_STRIDE_US),
            room: None,
            before: None,
            ended: None,
        }
    }

    /// The driver's memory figures, where it gave them, with what was taken since.
    pub fn figures(&self) -> Option<DeviceMemory> {
        let memory = *self.memory.as_ref()?.value.as_ref().ok()?;
        let Some(room) = self.room else { return Some(memory) };
        let within = memory.used.plus(memory.free);
        let free = within.min(Bytes(room.free()));
        Some(DeviceMemory { used: Bytes(within.0 - free.0), free, ..memory })
    }

    /// The driver's process list, where it gave one.
    pub fn process_list(&self) -> Option<&[ProcessUse]> {
        Some(self.processes.as_ref()?.value.as_ref().ok()?)
    }
}
