//! Jobs that span machines: which processes belong together, and one process for each rank.
//!
//! Processes belong to one job if they have the same run (`gpuwatch env` before the launcher), the same job of a batch
//! system, or the same master address; for the last two, the number of ranks must agree as well. A loopback address is
//! every machine's own and joins nothing.

use super::Cluster;
use crate::{
    facts::event::wire::{self, Hello},
    model::{
        analysis::strain,
        session::process::{OnDevice, ProbeState, Process},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// The processes of one job on all hosts.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The id that its ranks share, from `gpuwatch env` or `gpuwatch run`.
    pub run: Option<&'a str>,
    /// The batch system's job.
    pub scheduled: Option<&'a wire::Job>,
    /// The number of its ranks, as they report it.
    pub world_size: Option<u64>,
    /// Its processes, by rank.
    pub ranks: Vec<Rank<'a>>,
}

/// A process of a job, and its machine.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    /// The machine's place in the cluster.
    pub node: usize,
    /// The process, as the session has it.
    pub process: &'a Process,
}

/// What makes processes one job.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Run(&'a str),
    Scheduled(&'a str, &'a str, u64),
    Master(&'a str, u64),
}

impl<'a> Rank<'a> {
    /// Returns the process on the device where it wants most memory.
    pub fn on(&self) -> Option<&'a OnDevice> {
        let reported = self.process.devices.iter().filter(|it| it.first.is_some());
        reported.max_by_key(|it| strain::wanted(&it.counters))
    }

    /// Returns its global rank.
    pub fn rank(&self) -> Option<u64> {
        self.process.rank()
    }

    /// Returns its completed steps.
    pub fn step(&self) -> Option<u64> {
        self.process.devices.iter().filter_map(|it| it.step).max()
    }

    /// Returns the most bytes that it wants of a device.
    pub fn wanted(&self) -> Option<u64> {
        strain::wanted(&self.on()?.counters)
    }
}

impl Job<'_> {
    /// Returns what it goes by from moment to moment, also in another stream of a machine, where probes have other
    /// numbers.
    pub fn key(&self) -> String {
        self.name().unwrap_or_else(|| {
            let Some(Rank { node, process }) = self.ranks.first() else { return String::new() };
            let instance = process.hello.as_ref().and_then(|it| it.instance.clone());
            instance.unwrap_or_else(|| format!("{node} {:?}", process.any_pid()))
        })
    }

    /// Returns its name: the batch system's job, or its run; `None` if it has neither. The text is from outside.
    pub fn name(&self) -> Option<String> {
        let scheduled = self.scheduled.map(|it| format!("{} {}", it.scheduler, it.id));
        scheduled.or_else(|| self.run.map(|run| format!("run {run}")))
    }

    /// Returns the places of its machines.
    pub fn nodes(&self) -> BTreeSet<usize> {
        self.ranks.iter().map(|it| it.node).collect()
    }

    /// Returns the ranks that no machine reports; none if the number of ranks is unknown.
    pub fn missing(&self) -> Vec<u64> {
        let known: BTreeSet<u64> = self.ranks.iter().filter_map(Rank::rank).collect();
        // A hostile process may report any number.
        let all = self.world_size.unwrap_or(0).min(RANKS_MAX);
        if known.is_empty() { Vec::new() } else { (0..all).filter(|it| !known.contains(it)).collect() }
    }
}

/// Most ranks of a job whose absence is reported.
const RANKS_MAX: u64 = 1 << 16;

/// Returns the jobs of all machines, those with the most ranks first.
pub fn jobs(cluster: &Cluster) -> Vec<Job<'_>> {
    let all = processes(cluster);
    let mut groups = Groups::new(all.len());
    let mut first: BTreeMap<Key, usize> = BTreeMap::new();
    for (place, it) in all.iter().enumerate() {
        for key in it.process.hello.iter().flat_map(|hello| keys(hello)) {
            groups.join(place, *first.entry(key).or_insert(place));
        }
    }
    let mut members: BTreeMap<usize, Vec<Rank>> = BTreeMap::new();
    for (place, it) in all.iter().enumerate() {
        members.entry(groups.of(place)).or_default().push(*it);
    }
    let mut jobs: Vec<Job> = members.into_values().map(job).collect();
    jobs.sort_by_key(|it| (std::cmp::Reverse(it.ranks.len()), it.ranks.first().map(|rank| rank.node)));
    jobs
}

/// Returns every process that has introduced itself, each once with its latest probe, also if two names of the list are
/// of one machine.
fn processes(cluster: &Cluster) -> Vec<Rank<'_>> {
    let mut known = BTreeSet::new();
    let all = cluster.nodes.iter().enumerate();
    let all = all.flat_map(|(node, it)| it.session.processes.iter().map(move |process| Rank { node, process }));
    let is_latest = |it: &Rank| it.process.next.is_none();
    let is_readable =
        |it: &Rank| !matches!(it.process.life, ProbeState::Incompatible { .. }) && it.process.hello.is_some();
    let mut is_new = |it: &Rank| {
        let instance = it.process.hello.as_ref().and_then(|hello| hello.instance.as_deref());
        instance.is_none_or(|instance| known.insert(instance.to_owned()))
    };
    all.filter(is_latest).filter(is_readable).filter(|it| is_new(it)).collect()
}

fn keys(hello: &Hello) -> impl Iterator<Item = Key<'_>> {
    let run = hello.run.as_deref().map(Key::Run);
    let world = hello.world_size.filter(|it| *it > 1);
    // A pod is one machine's, whatever job it belongs to.
    let job = hello.job.as_ref().filter(|it| it.scheduler != "kubernetes");
    let scheduled = job.zip(world).map(|(job, world)| Key::Scheduled(&job.scheduler, &job.id, world));
    let master = hello.master.as_deref().filter(|it| !is_loopback(it));
    run.into_iter().chain(scheduled).chain(master.zip(world).map(|(master, world)| Key::Master(master, world)))
}

/// Whether an address with its port is the machine's own.
fn is_loopback(master: &str) -> bool {
    ["localhost", "127.", "::1", "[::1]", "0.0.0.0"].iter().any(|it| master.starts_with(it))
}

/// Makes a job of its processes: of each rank the living process, or the latest.
fn job(mut all: Vec<Rank<'_>>) -> Job<'_> {
    all.sort_by_key(|it| {
        (it.rank().unwrap_or(u64::MAX), !it.process.is_alive(), std::cmp::Reverse(it.process.last_line_at))
    });
    all.dedup_by(|later, kept| later.rank().is_some() && later.rank() == kept.rank());
    let hellos = || all.iter().filter_map(|it| it.process.hello.as_deref());
    Job {
        run: hellos().find_map(|it| it.run.as_deref()),
        scheduled: hellos().find_map(|it| it.job.as_ref()),
        world_size: hellos().find_map(|it| it.world_size),
        ranks: all,
    }
}

/// Sets that are joined.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn of(&self, mut place: usize) -> usize {
        while let Some(up) = self.0.get(place).filter(|it| **it != place) {
            place = *up;
        }
        place
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        if let Some(it) = self.0.get_mut(one.max(other)) {
            *it = one.min(other);
        }
    }
}
