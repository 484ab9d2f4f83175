//! Figures of the other probed processes that one process needs.

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

/// Figures of the other probed processes that one process needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peers {
    /// Bytes they reserved on its device, if the process watches the device.
    pub(super) reserved: Option<u64>,
    /// The median of the memory that the other ranks of its run want.
    pub(super) want: Option<u64>,
}

impl Peers {
    /// Returns a sample's input to growth detection; with `reserved`, also for unprobed memory on the device.
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
            bounded: None,
            reserved: it.reserved,
            pools: it.private_pools,
            driver: None,
            device: outside(),
            pinned: it.pinned_reserved,
            host: it.rss,
        }
    }
}

impl Session {
    /// Returns the peers' figures for a sample of one process.
    pub(super) fn peers(&self, probe: ProbeId, sample: &Sample) -> Peers {
        let want = sample.step.filter(|_| sample.edge != wire::Edge::Tick).and_then(|_| self.peers_want(probe));
        Peers { reserved: self.reserved_by_others(probe, sample), want }
    }

    /// The median of what the other living ranks of the same run want of their devices.
    fn peers_want(&self, probe: ProbeId) -> Option<u64> {
        let own = self.process(probe)?.hello.as_ref()?.run.as_ref()?;
        let others = self.processes.iter().filter(|it| it.probe != probe && it.is_alive());
        let mut wanted: Vec<u64> = others
            .filter(|it| it.hello.as_ref().is_some_and(|hello| hello.run.as_ref() == Some(own)))
            .filter_map(|it| {
                let stepped = it.devices.iter().filter(|its| its.step.is_some());
                stepped.filter_map(|its| strain::wanted(&its.counters)).max()
            })
            .collect();
        let middle = wanted.len() / 2;
        (!wanted.is_empty()).then(|| *wanted.select_nth_unstable(middle).1)
    }
}
