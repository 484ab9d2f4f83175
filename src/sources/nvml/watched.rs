//! A device that is watched: what is known of it from one reading to the next.

use crate::facts::event::{DeviceInfo, Load, ProcessUse, Trouble};
use nvml_wrapper::{Device, EventSet};
use std::time::Instant;

/// One device, and when its slow readings are due.
pub(super) struct Watched<'a> {
    pub(super) device: Device<'a>,
    pub(super) info: DeviceInfo,
    pub(super) slow_at: Instant,
    pub(super) slow_readings: u64,
    /// Figures that are read less often: their last values.
    pub(super) graphics: Vec<ProcessUse>,
    pub(super) load: Option<Load>,
    pub(super) pids: Vec<u32>,
    /// Divided into MIG devices: its processes are theirs.
    pub(super) is_divided: bool,
    /// Receives its critical errors and changes of its MIG devices, if it reports them.
    pub(super) events: Option<EventSet<'a>>,
    pub(super) refusals: Refusals,
}

/// What a device refused, as last sent.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) memory: Option<Trouble>,
    pub(super) processes: Option<Trouble>,
    /// Processes are listed, and what they use is not said.
    pub(super) is_untold: bool,
}
