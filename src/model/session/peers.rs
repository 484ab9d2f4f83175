//! What the other probed processes say, for one of them.

use super::Session;
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
pub(super) struct Peers {
    /// What they reserved on its device, where it is to speak for the device.
    pub(super) reserved: Option<u64>,
    /// What the other ranks of its run want of their devices, the median.
    pub(super) want: Option<u64>,
}

impl Peers {
    /// What a sample says of growth; with `reserved`, also of the device outside of all that is probed.
    pub(super) fn seen(&self, sample: &Sample, step: Option<u64>) -> Observation {
        let it = &sample.counters;
        let used = || it.device_total?.checked_sub(it.device_free?);
        let outside = || used()?.checked_sub(it.reserved?)?.checked_sub(self.reserved?);
        Observation {
            step,
            at: Stamp(sample.at_us),
            allocated: it.allocated,
            requested: it.requested,
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
    pub(super) fn peers(&self, probe: ProbeId, sample: &Sample) -> Peers {
        let want = sample.step.filter(|_| sample.edge != wire::Edge::Tick).and_then(|_| self.peers_want(probe));
        Peers { reserved: self.reserved_by_others(probe, sample), want }
    }

    /// What the other living ranks of the same run want of their devices, the median.
    fn peers_want(&self, probe: ProbeId) -> Option<u64> {
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
}
