//! Counts what gpuwatch did not see or no longer keeps. Every view shows it, and no verdict passes on incomplete data.

use super::{DEVICES, PROBES, process};
use crate::facts::{
    event::{DeviceId, Gap, ProbeId, Unread},
    units::Stamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names remembered, so that each counts once. Beyond that, the count is a lower bound.
const COUNTED: usize = 4096;

/// Holes in recordings that are listed one by one.
const GAPS: usize = 16;

/// Everything that was lost, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Ended processes dropped to make room for others.
    pub ended: u64,
    /// Processes refused for lack of room.
    pub processes: Distinct<ProbeId>,
    /// Devices refused for lack of room.
    pub devices: Distinct<DeviceId>,
    /// Samples of devices beyond those kept for one process.
    pub samples: u64,
    /// The most probe sockets that were unread at one time.
    pub sockets: u64,
    /// The most names in socket directories that were unread at one time.
    pub names: u64,
    /// What recordings lack, and since when: the first ones, and the rest as one.
    pub gaps: Vec<(Stamp, Gap)>,
}

/// Counts distinct values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distinct<T: Ord>(BTreeSet<T>);

impl<T: Ord> Default for Distinct<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord + Clone> Distinct<T> {
    /// Counts a value that was not counted before.
    pub(super) fn insert(&mut self, it: &T) {
        if self.0.len() < COUNTED && !self.0.contains(it) {
            self.0.insert(it.clone());
        }
    }

    /// Formats the count: `3`, or `at least 4096`.
    fn words(&self) -> Option<String> {
        match self.0.len() {
            0 => None,
            COUNTED => Some(format!("at least {COUNTED}")),
            count => Some(count.to_string()),
        }
    }

    /// Returns how many are known; where they are too many to count, there are more.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Losses {
    /// Sets how many items of a kind a source skips now.
    pub(super) fn unread(&mut self, what: Unread, count: u64) {
        match what {
            Unread::Sockets => self.sockets = self.sockets.max(count),
            Unread::Names => self.names = self.names.max(count),
            Unread::Other => {}
        }
    }

    /// Adds a hole in a recording.
    pub(super) fn gap(&mut self, at: Stamp, gap: &Gap) {
        let is_full = self.gaps.len() >= GAPS;
        match self.gaps.last_mut().filter(|_| is_full) {
            Some((_, last)) => *last = std::mem::take(last).and(gap.clone()),
            None => self.gaps.push((at, gap.clone())),
        }
    }

    /// Describes the holes in recordings without the reasons, in a line; `None` without one.
    pub fn missing(&self) -> Option<String> {
        let all: Vec<_> = self.gaps.iter().map(|(since, it)| it.missing(*since)).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Returns a count for each kind of loss as JSON.
    pub fn json(&self) -> Value {
        json!({
            "processes": self.processes.count(),
            "ended_processes": self.ended,
            "devices": self.devices.count(),
            "sockets": self.sockets,
            "names": self.names,
            "samples": self.samples,
            "gaps": self.gaps.iter().map(gap).collect::<Vec<_>>(),
        })
    }

    /// Describes each kind of loss in a line; empty if nothing was lost.
    pub fn words(&self) -> Vec<String> {
        let some = |count: u64| (count > 0).then(|| count.to_string());
        let lines = [
            self.processes.words().map(|it| {
                format!("probed processes that were not watched: {it}; gpuwatch watches up to {PROBES} at once")
            }),
            some(self.ended)
                .map(|it| format!("ended processes that are no longer kept: {it}; gpuwatch keeps the latest {PROBES}")),
            some(self.sockets).map(|it| {
                format!("sockets of probes that were not read: {it}; there were too many at once (see `ulimit -n`)")
            }),
            some(self.names)
                .map(|it| format!("names in the socket directory that were not looked at: {it}; remove what is old")),
            self.devices.words().map(|it| format!("devices that are not shown: {it}; gpuwatch shows up to {DEVICES}")),
            some(self.samples).map(|it| {
                let most = process::DEVICES;
                format!("samples that were left out: {it}; gpuwatch watches up to {most} devices of a process")
            }),
        ];
        let gaps = self.gaps.iter().map(|(since, it)| it.words(*since));
        gaps.chain(lines.into_iter().flatten()).collect()
    }
}

fn gap((at_us, it): &(Stamp, Gap)) -> Value {
    json!({"at_us": at_us, "until_us": it.until_us, "events": it.lost, "steps": it.steps, "why": it.why})
}
