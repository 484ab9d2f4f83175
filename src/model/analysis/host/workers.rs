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
mod tests {
    //! Tests of workers that copy what they share.

    use super::*;
    use crate::facts::{host_memory::Pages, units::Bytes};

    const MIB: u64 = 1 << 20;

    /// A parent with 1 GiB, and two workers that have copied and asked for so much.
    fn tree(pids: [u32; 2], copied: u64, own: u64) -> TreeMemory {
        let total = 1024;
        let worker = |pid| WorkerMemory {
            pid,
            pages: Pages {
                resident: Bytes((total + own) * MIB),
                private: Bytes((copied + own) * MIB),
                anonymous: Bytes((copied + own + (total - copied) / 3) * MIB),
                ..Pages::default()
            },
        };
        let each: Vec<_> = pids.into_iter().map(worker).collect();
        let of_workers = each.iter().fold(Pages::default(), |sum, it| sum.plus(it.pages));
        let parent = Pages {
            resident: Bytes(total * MIB),
            private: Bytes(copied * MIB),
            anonymous: Bytes((copied + (total - copied) / 3) * MIB),
            ..Pages::default()
        };
        TreeMemory { own: parent, workers: 2, of_workers, each }
    }

    fn judged(all: impl IntoIterator<Item = TreeMemory>) -> Workers {
        let mut workers = Workers::default();
        for (turn, it) in all.into_iter().enumerate() {
            workers.reading(&it, Stamp(turn as u64 * 10_000_000));
        }
        workers
    }

    #[test]
    fn workers_that_copy_what_they_share_are_raised_once_and_end_with_them() {
        let mut workers = judged([70, 150, 300, 600, 600].map(|it| tree([7, 8], it, 0)));
        let [it] = workers.periods() else { panic!("{:?}", workers.periods()) };
        assert_eq!((it.workers, it.copied, it.resolved), (2, 2 * 530 * MIB, None));
        assert_eq!((it.since, it.first_alert_at), (Stamp(0), Stamp(20_000_000)));
        // Those of the next epoch begin anew.
        workers.reading(&tree([9, 10], 0, 0), Stamp(60_000_000));
        assert_eq!(workers.periods()[0].resolved, Some(Stamp(60_000_000)));
        let again = [300, 600].map(|it| tree([9, 10], it, 0));
        for it in &again {
            workers.reading(it, Stamp(70_000_000));
        }
        assert_eq!(workers.periods().len(), 2);
    }

    #[test]
    fn healthy_workers_are_not() {
        for (name, all) in [
            ("they share arrays", [10, 20, 30, 30].map(|it| tree([7, 8], it, 0))),
            ("they fill caches of their own", [0, 200, 400, 600].map(|it| tree([7, 8], 20, it))),
            ("they are replaced", [0, 1, 2, 3].map(|it| tree([7 + 2 * it, 8 + 2 * it], u64::from(it) * 200, 0))),
        ] {
            assert!(judged(all).periods().is_empty(), "{name}");
        }
        // The parent frees what it shared: it is private to the workers, and nothing was copied.
        let freed = [0, 500, 900].map(|copied| {
            let mut tree = tree([7, 8], copied, 0);
            tree.own = Pages::default();
            tree.of_workers.anonymous = Bytes(1024 * MIB);
            tree
        });
        assert!(judged(freed).periods().is_empty());
    }
}
