//! What a screen, a report or a recording needs beside what is always read. Nothing else is read, because it costs.

use crate::facts::{
    event::DeviceId,
    figures::{RECORDED_EVERY, TREE_EVERY, WATCHED_EVERY},
};

/// What is shown: costly metrics of devices (a reading of PCIe's throughput takes 20 ms), and figures of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// Neither.
    #[default]
    None,
    /// The metrics of a device.
    Device(DeviceId),
    /// The figures of a process on a device.
    Process(u32, DeviceId),
    /// The figures of all processes, without their trees, and the metrics of a device if one is named.
    Processes(Option<DeviceId>),
    /// Everything, for a single report.
    All,
}

impl Focus {
    /// Returns whether the costly metrics of a device are read.
    pub(super) fn includes(&self, device: &DeviceId) -> bool {
        match self {
            Self::None | Self::Process(..) | Self::Processes(None) => false,
            Self::Device(it) | Self::Processes(Some(it)) => it == device,
            Self::All => true,
        }
    }

    /// Returns the seconds between two readings of what processes use of a device.
    pub(super) fn uses_every(&self, device: &DeviceId, recorded: bool) -> Option<u64> {
        let is_shown = match self {
            Self::None | Self::Device(_) => false,
            Self::Process(_, it) => it == device,
            Self::Processes(_) | Self::All => true,
        };
        every(is_shown, recorded)
    }

    /// Returns the seconds between two readings of what a process uses of its host.
    pub(super) fn host_every(&self, pid: u32, recorded: bool) -> Option<u64> {
        every(matches!(self, Self::Processes(_)) || self.shows(pid), recorded)
    }

    /// Returns the seconds between two readings of a process's tree.
    pub(super) fn tree_every(&self, pid: u32) -> Option<u64> {
        self.shows(pid).then_some(TREE_EVERY)
    }

    fn shows(&self, pid: u32) -> bool {
        match self {
            Self::None | Self::Device(_) | Self::Processes(_) => false,
            Self::Process(it, _) => *it == pid,
            Self::All => true,
        }
    }
}

fn every(is_shown: bool, recorded: bool) -> Option<u64> {
    if is_shown { Some(WATCHED_EVERY) } else { recorded.then_some(RECORDED_EVERY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_shown_or_recorded_is_read() {
        let [one, other] = ["GPU-1", "GPU-2"].map(|it| DeviceId(it.to_owned()));
        let process = Focus::Process(7, one.clone());
        assert_eq!((process.uses_every(&one, false), process.uses_every(&other, false)), (Some(2), None));
        assert_eq!((process.host_every(7, false), process.host_every(8, false)), (Some(2), None));
        assert_eq!((process.tree_every(7), process.tree_every(8), process.includes(&one)), (Some(10), None, false));
        assert_eq!((process.uses_every(&other, true), process.host_every(8, true)), (Some(10), Some(10)));
        let processes = Focus::Processes(None);
        assert_eq!((processes.uses_every(&other, false), processes.host_every(8, false)), (Some(2), Some(2)));
        assert_eq!((processes.tree_every(8), processes.includes(&one)), (None, false));
        let with_device = Focus::Processes(Some(one.clone()));
        assert_eq!((with_device.includes(&one), with_device.includes(&other)), (true, false));
        assert_eq!(with_device.uses_every(&other, false), Some(2));
        let device = Focus::Device(one.clone());
        assert_eq!((device.includes(&one), device.includes(&other)), (true, false));
        assert_eq!((device.uses_every(&one, false), device.host_every(7, false)), (None, None));
        assert_eq!((Focus::None.uses_every(&one, true), Focus::None.tree_every(7)), (Some(10), None));
        assert!(Focus::All.includes(&one) && Focus::All.tree_every(8).is_some());
    }
}
