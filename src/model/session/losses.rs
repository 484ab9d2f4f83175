//! What was not seen, or is not kept: every view says so, and a verdict that rests on less than the whole does not pass.

use super::{DEVICES, PROBES, process};
use crate::facts::event::{DeviceId, ProbeId, Unread};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names remembered, so that each counts once; of more, only this many are known.
const COUNTED: usize = 4096;

/// Everything that was left out, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Ended processes that made room for others.
    pub ended: u64,
    /// Processes that found no room.
    pub processes: Distinct<ProbeId>,
    /// Devices that found no room.
    pub devices: Distinct<DeviceId>,
    /// Samples of devices beyond those kept of one process.
    pub samples: u64,
    /// Sockets of probes that were not read, at most at one time.
    pub sockets: u64,
    /// Names in socket directories that were not looked at, at most at one time.
    pub names: u64,
}

/// How many different ones there were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distinct<T: Ord>(BTreeSet<T>);

impl<T: Ord> Default for Distinct<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord + Clone> Distinct<T> {
    /// Counts it, unless it was counted before.
    pub(super) fn insert(&mut self, it: &T) {
        if self.0.len() < COUNTED && !self.0.contains(it) {
            self.0.insert(it.clone());
        }
    }

    /// How many, as words: `3`, or `at least 4096`.
    fn words(&self) -> Option<String> {
        match self.0.len() {
            0 => None,
            COUNTED => Some(format!("at least {COUNTED}")),
            count => Some(count.to_string()),
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Losses {
    /// Takes how many of something a source leaves unread now.
    pub(super) fn unread(&mut self, what: Unread, count: u64) {
        match what {
            Unread::Sockets => self.sockets = self.sockets.max(count),
            Unread::Names => self.names = self.names.max(count),
            Unread::Other => {}
        }
    }

    /// As JSON: a count for each kind of loss.
    pub fn json(&self) -> Value {
        json!({
            "processes": self.processes.count(),
            "ended_processes": self.ended,
            "devices": self.devices.count(),
            "sockets": self.sockets,
            "names": self.names,
            "samples": self.samples,
        })
    }

    /// What was not seen at all or is not kept any more, a line each; empty where everything was seen.
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
        lines.into_iter().flatten().collect()
    }
}
