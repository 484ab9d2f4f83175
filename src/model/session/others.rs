//! What the other probed processes say, for one of them.

use super::{Session, device::Device};
use crate::{
    facts::{
        event::{
            ProbeId,
            wire::{self, Sample},
        },
        units::Stamp,
    },
    model::analysis::{growth::Observation, strain},
};

/// What the other probed processes say, for one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Others {
    /// What they reserved on its device, where it is to speak for the device.
    pub(super) beside: Option<u64>,
    /// What the other ranks of its run want of their devices, the median.
    pub(super) want: Option<u64>,
}

impl Others {
    /// What a sample says of growth; with `beside`, also of the device outside of all that is probed.
    pub(super) fn seen(&self, sample: &Sample, step: Option<u64>) -> Observation {
        let it = &sample.counters;
        let used = || it.device_total?.checked_sub(it.device_free?);
        let outside = || used()?.checked_sub(it.reserved?)?.checked_sub(self.beside?);
        Observation {
            step,
            at: Stamp(sample.at_us),
            allocated: it.allocated,
            blocks: it.blocks,
            peak: it.allocated_peak,
            reserved: it.reserved,
            driver: None,
            device: outside(),
            pinned: it.pinned_reserved,
            host: it.rss,
        }
    }
}

impl Session {
    /// What they say at a sample of one of them.
    pub(super) fn others(&self, probe: ProbeId, sample: &Sample) -> Others {
        let want = sample.step.filter(|_| sample.edge != wire::Edge::Tick).and_then(|_| self.others_want(probe));
        Others { beside: self.beside(probe, sample), want }
    }

    /// What the other living ranks of the same run want of their devices, the median.
    fn others_want(&self, probe: ProbeId) -> Option<u64> {
        let own = self.process(probe)?.hello.as_ref()?.run.as_ref()?;
        let others = self.processes.iter().filter(|it| it.probe != probe && it.is_alive());
        let mut wanted: Vec<u64> = others
            .filter(|it| it.hello.as_ref().is_some_and(|it| it.run.as_ref() == Some(own)))
            .filter_map(|it| {
                let stepped = it.devices.iter().filter(|its| its.step.is_some());
                stepped.filter_map(|its| strain::wanted(&its.counters)).max()
            })
            .collect();
        let middle = wanted.len() / 2;
        (!wanted.is_empty()).then(|| *wanted.select_nth_unstable(middle).1)
    }

    /// What the other probed processes reserved on the device of a sample, if its process is to speak for the
    /// device: the first of them does, and only where the driver's list does not.
    fn beside(&self, probe: ProbeId, sample: &Sample) -> Option<u64> {
        sample.counters.device_free?;
        let own = self.process(probe)?;
        let device = &own.devices.iter().find(|it| it.ordinal == sample.device)?.device;
        let listed = |it: &Device| it.process_list().is_some_and(|it| it.iter().any(|it| Some(it.pid) == own.pid));
        if self.device(device).is_some_and(listed) {
            return None;
        }
        let others = self.processes.iter().filter(|it| it.probe != probe && it.is_alive());
        let mut sum = 0_u64;
        for (other, it) in others.flat_map(|it| it.devices.iter().map(move |its| (it, its))) {
            if it.device == *device && it.first.is_some() {
                if other.probe < probe {
                    return None;
                }
                sum = sum.saturating_add(it.counters.reserved?);
            }
        }
        Some(sum)
    }
}
