//! A device that is read from the kernel's files, and the form of the table of what drivers give.

use super::sysfs::{number, text};
use crate::facts::{
    event::{DeviceInfo, DeviceMemory, ReadError},
    maker::Maker,
    metrics::Metric,
};
use std::path::{Path, PathBuf};

/// What a driver of the kernel gives of its devices. What it does not give is not in its row.
pub(super) struct KernelDriver {
    /// The maker of its devices.
    pub(super) maker: Maker,
    /// Its name in the kernel.
    pub(super) module: &'static str,
    /// Reads a device's memory; `None` if no file has its total and use.
    pub(super) memory: Option<MemoryOf>,
    /// Its metrics, without those of its link.
    pub(super) reads: &'static [Read],
    /// Returns whether a bridge is on the card, by its maker's number and its own.
    pub(super) has_bridge: fn(u64, u64) -> bool,
    /// The regions that hold the memory of a client of a device with memory of its own.
    pub(super) regions: &'static [&'static str],
    /// The same for a device that shares the system's memory.
    pub(super) shared_regions: &'static [&'static str],
    /// The region of a client's memory that is the system's; empty if it tells of none.
    pub(super) system_regions: &'static [&'static str],
    /// The classes of engines that compute or draw.
    pub(super) engines: &'static [&'static str],
    /// The classes that encode video.
    pub(super) encoders: &'static [&'static str],
    /// The classes that decode video.
    pub(super) decoders: &'static [&'static str],
}

/// Reads a device's memory.
type MemoryOf = fn(&Card) -> Result<DeviceMemory, ReadError>;

/// One metric: where the kernel has it, for the documents, and how it is read.
pub(super) struct Read {
    pub(super) metric: Metric,
    pub(super) file: &'static str,
    pub(super) value: fn(&Card) -> Option<Amount>,
}

/// What a file has for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// The metric's value.
    Now(u64),
    /// A total of energy, in µJ. The metric is its rate, in mW.
    Microjoules(u64),
}

/// A device.
pub(super) struct Card {
    pub(super) driver: &'static KernelDriver,
    pub(super) info: DeviceInfo,
    /// `cardN` in `/sys/class/drm`.
    pub(super) folder: PathBuf,
    /// Its folder on the bus.
    pub(super) device: PathBuf,
    /// The folder of its sensors.
    pub(super) sensors: Option<PathBuf>,
    /// Whether it shares the system's memory.
    pub(super) is_integrated: bool,
    /// Its names in `/dev/dri`.
    pub(super) nodes: Vec<String>,
    /// The numbers by which the compute driver names its files: one, or one for each partition of the card.
    pub(super) gpu_ids: Vec<u64>,
    /// Its address on the bus, `0000:03:00.0`.
    pub(super) address: String,
}

/// What the bus tells of a device.
pub(super) struct OnBus<'a> {
    /// The folder below which the kernel's files lie.
    pub(super) root: &'a Path,
    /// Its folder on the bus.
    pub(super) device: &'a Path,
    /// The maker's number for it.
    pub(super) number: u16,
    /// Its revision.
    pub(super) revision: u8,
}

impl Card {
    /// Returns whether the device sleeps to save power. Reading its figures would wake it.
    pub(super) fn is_suspended(&self) -> bool {
        text(&self.device.join("power/runtime_status")).is_ok_and(|it| it == "suspended" || it == "suspending")
    }

    /// Returns whether the device is still on the bus.
    pub(super) fn is_there(&self) -> bool {
        self.device.join("uevent").exists()
    }

    /// Reads its memory.
    pub(super) fn memory(&self) -> Result<DeviceMemory, ReadError> {
        let Some(read) = self.driver.memory else { return Err(ReadError::NotSupported) };
        let reading = read(self);
        if reading.is_err() && !self.is_there() { Err(ReadError::Lost) } else { reading }
    }

    /// Reads one of its sensors, and divides the value.
    pub(super) fn sensor(&self, name: &str, by: u64) -> Option<Amount> {
        number(&self.sensors.as_ref()?.join(name)).ok().map(|it| Amount::Now(it / by))
    }

    /// Returns the regions that hold a client's memory.
    pub(super) fn regions(&self) -> &'static [&'static str] {
        if self.is_integrated { self.driver.shared_regions } else { self.driver.regions }
    }
}
