//! Devices on which the driver lists a process though it does not train there.

use crate::{
    facts::{
        event::{DeviceId, ProcessUse},
        units::Stamp,
    },
    model::analysis::latch::{Band, Latch, Patience},
};
use serde::{Deserialize, Serialize};

/// Devices kept per probe.
pub const DEVICES: usize = 16;

/// Readings of the driver's list before a context is told, which is then not one on a device that is about to be trained
/// on, and before it is taken to be gone.
const LISTED: Patience = Patience { on: 5, off: 10 };

/// Those of one process, as many at most as it may have devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contexts {
    all: Vec<Context>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// On which device.
    pub device: DeviceId,
    /// When; its measure is the bytes that the driver charges for it, 0 where it does not say.
    pub latch: Latch,
}

impl Contexts {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Context> {
        self.all.iter()
    }

    /// Takes what the driver's list of a device says of the process: its entry if it has one, and whether it is a foreign
    /// one there.
    pub(super) fn listed(&mut self, id: &DeviceId, entry: Option<&ProcessUse>, is_foreign: bool, step: u64, at: Stamp) {
        let is_context = entry.is_some() && is_foreign;
        if is_context && self.all.len() < DEVICES && self.all.iter().all(|it| it.device != *id) {
            self.all.push(Context { device: id.clone(), latch: Latch::default() });
        }
        if let Some(it) = self.all.iter_mut().find(|it| it.device == *id) {
            let used = entry.and_then(|it| it.used).map_or(0.0, |it| it.0 as f64);
            it.latch.step(LISTED, (if is_context { Band::High } else { Band::Low }, used), step, at);
        }
    }
}
