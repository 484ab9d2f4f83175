//! Figures of processes beside their device memory, as sources last reported them.

use super::{PROCESS_INFO, Session, process::DEVICES};
use crate::facts::{
    event::DeviceId,
    figures::{Changes, Figure, Figures, Of},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The known figures of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfProcess {
    /// Those of the host.
    pub host: Figures,
    /// Those of each device.
    pub devices: BTreeMap<DeviceId, Figures>,
}

impl OfProcess {
    /// Returns a figure; one that belongs to a device is that of this device.
    pub fn get(&self, figure: Figure, device: &DeviceId) -> Option<u64> {
        match figure.row().of {
            Of::Device => self.devices.get(device)?.get(figure),
            Of::Host | Of::Tree => self.host.get(figure),
        }
    }

    fn apply(&mut self, device: Option<&DeviceId>, changes: &Changes) {
        let Some(device) = device else { return self.host.apply(changes) };
        if self.devices.len() >= DEVICES && !self.devices.contains_key(device) {
            return;
        }
        let figures = self.devices.entry(device.clone()).or_default();
        figures.apply(changes);
        if *figures == Figures::default() {
            self.devices.remove(device);
        }
    }
}

impl Session {
    /// Applies changes of a process's figures, and forgets a process without any.
    pub(super) fn figures(&mut self, pid: u32, device: Option<&DeviceId>, changes: &Changes) {
        if self.figures.len() >= PROCESS_INFO && !self.figures.contains_key(&pid) {
            return;
        }
        let known = self.figures.entry(pid).or_default();
        known.apply(device, changes);
        if *known == OfProcess::default() {
            self.figures.remove(&pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_by_process_and_device_until_they_are_gone() {
        let mut session = Session::default();
        let [one, other] = ["GPU-1", "GPU-2"].map(|it| DeviceId(it.to_owned()));
        let busy: Figures = [(Figure::SmPercent, 34)].into_iter().collect();
        let host: Figures = [(Figure::Rss, 9)].into_iter().collect();
        session.figures(7, Some(&one), &busy.clone().into());
        session.figures(7, None, &host.clone().into());
        let known = &session.figures[&7];
        let of = |figure, device| known.get(figure, device);
        assert_eq!((of(Figure::SmPercent, &one), of(Figure::SmPercent, &other)), (Some(34), None));
        assert_eq!((of(Figure::Rss, &other), of(Figure::Threads, &one)), (Some(9), None));
        session.figures(7, Some(&one), &Figures::default().since(&busy));
        assert_eq!(session.figures[&7].devices.len(), 0);
        session.figures(7, None, &Figures::default().since(&host));
        assert!(session.figures.is_empty(), "a process without figures takes no memory");
    }
}
