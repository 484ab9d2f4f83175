//! Each second, the metrics of a device are one observation for every process that trains there.

use super::Session;
use crate::facts::units::Stamp;

/// Older metrics do not count. The driver's thread sends all of them once a minute.
const STALE_US: u64 = 150_000_000;

impl Session {
    /// Applies one more second.
    pub(super) fn second(&mut self, at: Stamp) {
        for process in self.processes.iter_mut().filter(|it| it.is_alive()) {
            for on in &mut process.devices {
                let device = self.devices.iter().find(|it| it.id == on.device && it.gone.is_none());
                let reading = device.and_then(|it| it.metrics.as_ref()).filter(|it| at.since(it.at) < STALE_US);
                if let Some((reading, step)) = reading.zip(on.step) {
                    on.hardware.second(&reading.value, step, at);
                }
            }
        }
    }
}
