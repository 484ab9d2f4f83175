//! The host's memory: the latest reading, the course of each limit, and what the kernel has killed.

use super::{Latest, Session, device::Reading, process::Process};
use crate::{
    facts::{
        host_memory::{HostMemory, TreeMemory},
        units::Stamp,
    },
    model::analysis::{
        host::{
            self, Limit, LimitOf, OwnMemory,
            filling::{Filling, LimitReading},
            workers::Workers,
        },
        latch::{Band, Latch, Patience},
    },
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most limits whose course is kept.
const LIMITS: usize = 128;

/// Kills remembered.
const KILLS: usize = 16;

/// `/dev/shm` is almost full from the first share on, and has room again below the second.
const SHM_HIGH: f64 = 0.90;
const SHM_LOW: f64 = 0.80;

/// Readings before that is raised and before it is over.
const SHM: Patience = Patience { on: 2, off: 2 };

/// What is known of the host's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The first reading.
    pub begun: Option<Stamp>,
    /// The latest reading, without pages.
    pub memory: Option<Reading<HostMemory>>,
    /// The pages of the watched processes and their workers, as last read, by pid.
    pub trees: BTreeMap<u32, TreeMemory>,
    fillings: Vec<(LimitOf, Filling)>,
    workers: Vec<(u32, Workers)>,
    /// Whether `/dev/shm` is almost full; the measure is the used share.
    pub shm: Latch,
    /// What the kernel has killed.
    pub kills: Latest<Kill, KILLS>,
}

/// The kernel has killed processes because memory ran out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kill {
    /// The last reading before it.
    pub before: Stamp,
    /// The reading that shows it.
    pub at: Stamp,
    /// The group of the processes; the machine if only its counter shows it, which also counts other groups.
    pub of: LimitOf,
    /// What was full, in words.
    pub place: String,
    /// The limit that was reached; `None` if no limit was near.
    pub size: Option<u64>,
    /// How many processes.
    pub count: u64,
}

/// From this use on, a limit was near when the kernel killed.
const NEAR: f64 = 0.85;

impl Host {
    /// Returns the course of each limit.
    pub fn fillings(&self) -> impl Iterator<Item = (&LimitOf, &Filling)> {
        self.fillings.iter().map(|(of, it)| (of, it))
    }

    /// Returns what is known of the workers of each process.
    pub fn workers(&self) -> impl Iterator<Item = (u32, &Workers)> {
        self.workers.iter().map(|(pid, it)| (*pid, it))
    }

    /// Compares the counters of kills with those of the reading before.
    fn count_kills(&mut self, now: &HostMemory, at: Stamp) {
        let Some(reading) = &self.memory else { return };
        let (known, before) = (&reading.value, reading.at);
        let rise = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?).filter(|it| *it > 0);
        let full = |limit: &Limit| limit.used as f64 >= NEAR * limit.room as f64;
        // Its use has fallen with what was killed.
        let limits = [host::limits(known), host::limits(now)].concat();
        let near = |of: &LimitOf| limits.iter().filter(|it| it.of == *of && full(it)).map(|it| it.size).next();
        let mut kills = Vec::new();
        for group in &now.groups {
            let then = host::group(known, group.path.raw());
            let Some(count) = then.and_then(|it| rise(group.oom_kills, it.oom_kills)) else { continue };
            let of = LimitOf::Group(group.path.raw().to_owned());
            // Usually the group's own limit; without one, the machine's.
            let size = group.max.map(|it| it.0).filter(|_| near(&LimitOf::Machine).is_none() || near(&of).is_some());
            let place = if size.is_some() { host::words(&of, now) } else { host::words(&LimitOf::Machine, now) };
            let size = size.or_else(|| near(&LimitOf::Machine));
            kills.push(Kill { before, at, of, place, size, count });
        }
        // A kill counts in the group and in those around it: the innermost limit is the reason.
        kills.sort_by_key(|it| it.size.unwrap_or(u64::MAX));
        kills.truncate(1);
        if kills.is_empty()
            && let Some(count) = rise(now.machine.oom_kills, known.machine.oom_kills)
        {
            let of =
                known.groups.iter().map(|it| LimitOf::Group(it.path.raw().to_owned())).find(|it| near(it).is_some());
            let of = of.unwrap_or(LimitOf::Machine);
            let (place, size) = (host::words(&of, known), near(&of));
            kills.push(Kill { before, at, of: LimitOf::Machine, place, size, count });
        }
        for it in kills {
            self.kills.push(it);
        }
    }

    fn judge_shm(&mut self, memory: &HostMemory, at: Stamp, second: u64) {
        let Some(shm) = memory.shm.filter(|it| it.size.0 > 0 && !memory.processes.is_empty()) else { return };
        let share = shm.used.0 as f64 / shm.size.0 as f64;
        self.shm.step(SHM, (Band::of(share, SHM_HIGH, SHM_LOW), share), second, at);
    }

    fn judge_workers(&mut self, memory: &HostMemory, at: Stamp) {
        for (pid, it) in &mut self.workers {
            if !memory.processes.iter().any(|job| job.pid == *pid) {
                it.end(at);
            }
        }
        for job in &memory.processes {
            let Some(tree) = &job.tree else { continue };
            if let Some((_, it)) = self.workers.iter_mut().find(|it| it.0 == job.pid) {
                it.reading(tree, at);
            } else if self.workers.len() < LIMITS && !tree.each.is_empty() {
                let mut workers = Workers::default();
                workers.reading(tree, at);
                self.workers.push((job.pid, workers));
            }
        }
    }

    fn judge_limits(&mut self, memory: &HostMemory, steps: &[u32], at: Stamp) {
        let limits = host::limits(memory);
        for (of, it) in &mut self.fillings {
            if !limits.iter().any(|limit| limit.of == *of) {
                it.end(at);
            }
        }
        for limit in limits.into_iter().filter(|it| it.room > 0) {
            let is_under = |pid: u32| match &limit.of {
                LimitOf::Machine => true,
                LimitOf::Group(path) | LimitOf::Slowed(path) => host::is_in(memory, pid, path),
                LimitOf::Shm => false,
                LimitOf::AddressSpace(own) => pid == *own,
            };
            // What is asked for is an address space already.
            let may_fill = !matches!(limit.of, LimitOf::Shm | LimitOf::AddressSpace(_));
            let own = memory.processes.iter().filter(|it| may_fill && is_under(it.pid));
            let asked = own.map(|it| Some((it.anonymous?.0, it.data?.0)));
            let asked = asked.reduce(|one, other| Some((one?.0 + other?.0, one?.1 + other?.1))).flatten();
            let has_steps = steps.iter().any(|pid| is_under(*pid));
            let reading = LimitReading { at, room: limit.room, used: limit.used, asked, has_steps };
            if let Some((_, it)) = self.fillings.iter_mut().find(|it| it.0 == limit.of) {
                it.reading(&reading);
            } else if self.fillings.len() < LIMITS {
                let mut filling = Filling::default();
                filling.reading(&reading);
                self.fillings.push((limit.of, filling));
            }
        }
    }
}

impl Session {
    /// Applies a reading of the host's memory.
    pub(super) fn host_memory(&mut self, it: &HostMemory, at: Stamp) {
        let begun = *self.host.begun.get_or_insert(at);
        let steps = |it: &Process| it.is_alive() && it.devices.iter().any(|on| on.step.is_some());
        let steps: Vec<u32> = self.processes.iter().filter(|it| steps(it)).filter_map(|it| it.pid).collect();
        self.host.count_kills(it, at);
        self.host.judge_limits(it, &steps, at);
        self.host.judge_shm(it, at, at.since(begun) / 1_000_000);
        self.host.judge_workers(it, at);
        self.host.trees.retain(|pid, _| it.processes.iter().any(|job| job.pid == *pid));
        let mut memory = it.clone();
        for job in &mut memory.processes {
            if let Some(tree) = job.tree.take() {
                self.host.trees.insert(job.pid, tree);
            }
        }
        self.host.memory = Some(Reading { at, value: memory });
    }

    /// Returns what each watched process and its workers hold, by pid.
    pub fn own_memory(&self) -> BTreeMap<u32, OwnMemory<'_>> {
        let Some(memory) = &self.host.memory else { return BTreeMap::new() };
        let of = |pid: u32| {
            let process = self.processes.iter().filter(|it| it.is_alive()).find(|it| it.pid == Some(pid));
            // The host's allocator is one for all devices.
            let counters = process.into_iter().flat_map(|it| &it.devices).map(|it| it.counters);
            let held = counters.filter_map(|it| Some((it.pinned_reserved?, it.pinned_active))).max();
            held.filter(|it| it.0 > 0)
        };
        let jobs = memory.value.processes.iter();
        jobs.map(|job| {
            let tree = self.host.trees.get(&job.pid);
            (job.pid, OwnMemory { job: Some(job), tree, pinned: of(job.pid) })
        })
        .collect()
    }
}
