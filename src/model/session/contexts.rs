//! Devices on which the driver lists a process that does not train there.

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

/// Readings of the driver's list before gpuwatch reports a context, because the process may be about to train there,
/// and before it counts as gone.
const LISTED: Patience = Patience { on: 5, off: 10 };

/// The contexts of one process; at most as many as it may have devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contexts {
    all: Vec<Context>,
}

/// A CUDA context of a process on a device on which it does not train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The device that holds the context.
    pub device: DeviceId,
    /// When it is raised; the measure is the bytes that the driver charges for it, 0 if unknown.
    pub latch: Latch,
}

impl Contexts {
    /// Returns the contexts.
    pub fn iter(&self) -> impl Iterator<Item = &Context> {
        self.all.iter()
    }

    /// Applies a driver's list of a device: the process's entry, if any, and whether the process does not train there.
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
