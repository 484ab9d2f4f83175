//! Workers that copy the pages of their parent.
//!
//! A forked worker shares the pages of its parent until one of them writes there. Python writes a reference count when
//! it looks at an object, so a worker that reads a list of Python objects copies it. In the kernel's figures its
//! private memory rises while its resident memory stays as it is: what was shared is private now. Memory that a worker
//! asks for itself raises both. Where a parent frees what it shared, the memory of all of them does not rise, and
//! nothing was copied.

use crate::facts::{
    host_memory::{TreeMemory, WorkerMemory},
    units::Stamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A worker must have copied this much on average, in bytes: every worker copies the interpreter's own objects.
const EACH_MIN: u64 = 100 << 20;

/// The share of what became private by which resident memory may rise.
const RESIDENT: f64 = 0.25;

/// The share of it by which the memory of all processes must rise.
const TREE: f64 = 0.5;

/// Most periods remembered.
const PERIODS: usize = 4;

/// Copies of one set of workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyPeriod {
    /// When the workers were first seen.
    pub since: Stamp,
    /// When it was raised; it never changes.
    pub first_alert_at: Stamp,
    /// When the workers were gone; `None` while they live.
    pub resolved: Option<Stamp>,
    /// Workers that were compared.
    pub workers: u64,
    /// What they have copied, in bytes.
    pub copied: u64,
    /// What they still share and may copy, in bytes.
    pub shared: u64,
}

/// The workers of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    since: Stamp,
    first: BTreeMap<u32, WorkerMemory>,
    /// Memory of the process and its workers when they were first seen.
    tree: u64,
    periods: Vec<CopyPeriod>,
}

impl Workers {
    /// Returns the latest periods, oldest first.
    pub fn periods(&self) -> &[CopyPeriod] {
        &self.periods
    }

    /// Applies a reading of the process's tree.
    pub fn reading(&mut self, it: &TreeMemory, at: Stamp) {
        let is_new = it.each.iter().any(|worker| !self.first.contains_key(&worker.pid));
        self.first.retain(|pid, _| it.each.iter().any(|worker| worker.pid == *pid));
        let tree = it.own.anonymous.plus(it.of_workers.anonymous).0;
        if is_new || self.first.is_empty() {
            self.end(at);
            self.since = at;
            self.first = it.each.iter().map(|worker| (worker.pid, *worker)).collect();
            self.tree = tree;
            return;
        }
        let (mut copied, mut resident, mut shared) = (0_i128, 0_i128, 0_u64);
        for worker in &it.each {
            let Some(first) = self.first.get(&worker.pid).map(|it| it.pages) else { continue };
            copied += i128::from(worker.pages.private.0) - i128::from(first.private.0);
            resident += i128::from(worker.pages.resident.0) - i128::from(first.resident.0);
            shared += worker.pages.resident.0.saturating_sub(worker.pages.private.0);
        }
        let copied = u64::try_from(copied).unwrap_or(0);
        let workers = self.first.len() as u64;
        let is_copied = resident as f64 <= RESIDENT * copied as f64
            && tree.saturating_sub(self.tree) as f64 >= TREE * copied as f64;
        if let Some(active) = self.periods.last_mut().filter(|it| it.resolved.is_none()) {
            (active.workers, active.copied, active.shared) = (workers, active.copied.max(copied), shared);
        } else if is_copied && copied >= EACH_MIN * workers {
            if self.periods.len() == PERIODS {
                self.periods.remove(0);
            }
            let (since, resolved) = (self.since, None);
            self.periods.push(CopyPeriod { since, first_alert_at: at, resolved, workers, copied, shared });
        }
    }

    /// Ends what lasts, because the workers or their process are gone.
    pub fn end(&mut self, at: Stamp) {
        self.first.clear();
        if let Some(it) = self.periods.last_mut().filter(|it| it.resolved.is_none()) {
            it.resolved = Some(at);
        }
    }
}

#[cfg(test)]
mod tests;
