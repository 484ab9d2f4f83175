//! A watched device: its state from one reading to the next.

use super::{metrics::Meter, uses::Uses};
use crate::facts::event::{DeviceInfo, ProcessUse, Trouble};
use nvml_wrapper::{Device, EventSet};
use std::time::Instant;

/// One device, and when its slow readings are due.
pub(super) struct Watched<'a> {
    pub(super) device: Device<'a>,
    pub(super) info: DeviceInfo,
    pub(super) slow_at: Instant,
    /// Counts the slow readings; devices begin at different numbers.
    pub(super) second: u64,
    pub(super) is_first: bool,
    /// The last list of graphics processes, which is read less often.
    pub(super) graphics: Vec<ProcessUse>,
    pub(super) meter: Meter,
    pub(super) uses: Uses,
    pub(super) pids: Vec<u32>,
    /// Whether it is divided into MIG devices, which then have its processes.
    pub(super) is_divided: bool,
    /// Receives its critical errors and changes of its MIG devices, if it reports them.
    pub(super) events: Option<EventSet<'a>>,
    pub(super) refusals: Refusals,
}

/// A device's refusals, as last sent.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) memory: Option<Trouble>,
    pub(super) processes: Option<Trouble>,
    /// Whether the driver lists processes without their memory.
    pub(super) is_unreported: bool,
}
