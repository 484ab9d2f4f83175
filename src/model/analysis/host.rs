//! A host's memory: the limits that end a job, and a ladder for each, whose rungs sum to it.
//!
//! The kernel kills when a limit is reached and nothing can be dropped any more. So the page cache, which it can drop,
//! is no use of memory here, and free swap is room. Of several limits on the way from a process to the machine, the one
//! with the least room counts.

/// When a limit is reached, if memory continues to rise.
pub mod filling;
/// The table of the ladder's rungs.
mod rungs;
/// Workers that copy the pages of their parent.
pub mod workers;

use crate::facts::{
    host_memory::{GroupMemory, HostMemory, JobMemory, Room, TreeMemory},
    text::Foreign,
    units::Bytes,
};
pub use rungs::{HostRung, HostRungRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a limit limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LimitOf {
    /// The machine: memory and swap.
    Machine,
    /// A control group, by its path: at this the kernel kills.
    Group(String),
    /// The same: from this on the kernel slows the group down.
    Slowed(String),
    /// The file system at `/dev/shm`.
    Shm,
    /// The address space of a process, by its pid: more is refused.
    AddressSpace(u32),
}

impl LimitOf {
    /// Returns its name in JSON and metrics: `machine`, `cgroup`, `cgroup_high`, `dev_shm`, `address_space`.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Group(_) => "cgroup",
            Self::Slowed(_) => "cgroup_high",
            Self::Shm => "dev_shm",
            Self::AddressSpace(_) => "address_space",
        }
    }
}

/// A limit and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it limits.
    pub of: LimitOf,
    /// The limit, without swap.
    pub size: u64,
    /// What can be used before it is reached: the limit, and its swap.
    pub room: u64,
    /// What is used of that and cannot be dropped.
    pub used: u64,
}

impl Limit {
    /// Returns what is left until it is reached.
    pub fn left(&self) -> u64 {
        self.room.saturating_sub(self.used)
    }
}

/// Returns the limits of a host.
pub fn limits(host: &HostMemory) -> Vec<Limit> {
    let mut out = Vec::new();
    if let Some(it) = machine(host) {
        out.push(it);
    }
    for group in &host.groups {
        let held = group.current.0.saturating_sub(group.reclaimable.0);
        let swap = group.swap.unwrap_or_default();
        let limit = |of, size: Bytes, swap: Room| Limit {
            of,
            size: size.0,
            room: size.0.saturating_add(swap.size.0),
            used: held.saturating_add(swap.used.0),
        };
        let path = || group.path.raw().to_owned();
        out.extend(group.max.map(|it| limit(LimitOf::Group(path()), it, swap)));
        // A limit that slows down counts if it comes first.
        let high = group.high.filter(|high| group.max.is_none_or(|max| *high < max));
        out.extend(high.map(|it| limit(LimitOf::Slowed(path()), it, Room::default())));
    }
    let plain = |of, it: Room| Limit { of, size: it.size.0, room: it.size.0, used: it.used.0 };
    out.extend(host.shm.map(|it| plain(LimitOf::Shm, it)));
    out.extend(host.processes.iter().filter_map(|it| Some(plain(LimitOf::AddressSpace(it.pid), it.address_space?))));
    out
}

fn machine(host: &HostMemory) -> Option<Limit> {
    let it = &host.machine;
    (it.total.0 > 0).then(|| Limit {
        of: LimitOf::Machine,
        size: it.total.0,
        room: it.total.plus(it.swap.size).0,
        used: it.total.0.saturating_sub(it.available.0).saturating_add(it.swap.used.0),
    })
}

/// Returns the limit that a process reaches first, of those at which the kernel kills.
pub fn nearest(host: &HostMemory, pid: u32) -> Option<Limit> {
    let own = |it: &Limit| match &it.of {
        LimitOf::Machine => true,
        LimitOf::Group(path) => is_in(host, pid, path),
        LimitOf::Slowed(_) | LimitOf::Shm | LimitOf::AddressSpace(_) => false,
    };
    limits(host).into_iter().filter(own).min_by_key(Limit::left)
}

/// Returns whether a process is in a group.
pub fn is_in(host: &HostMemory, pid: u32, path: &str) -> bool {
    let groups = host.processes.iter().find(|it| it.pid == pid).map(|it| it.groups.as_slice()).unwrap_or_default();
    let group = |place: &u32| host.groups.get(usize::try_from(*place).ok()?);
    groups.iter().filter_map(group).any(|it| it.path.raw() == path)
}

/// Returns a group by its path.
pub fn group<'h>(host: &'h HostMemory, path: &str) -> Option<&'h GroupMemory> {
    host.groups.iter().find(|it| it.path.raw() == path)
}

/// Returns a limit in words: `the cgroup of Slurm job 4242`, `/dev/shm`; of a group without a job, the last part of its
/// path.
pub fn words(of: &LimitOf, host: &HostMemory) -> String {
    match of {
        LimitOf::Machine => "the machine's memory".to_owned(),
        LimitOf::Shm => "/dev/shm".to_owned(),
        LimitOf::AddressSpace(pid) => format!("the address space of pid {pid} (ulimit -v)"),
        LimitOf::Group(path) | LimitOf::Slowed(path) => {
            let place = group(host, path).and_then(|it| it.place.as_ref()).map(ToString::to_string);
            let first = place.as_deref().map(|it| it.split(", ").next().unwrap_or(it));
            match first.and_then(|it| it.split_once(' ')) {
                Some(("slurm", id)) => format!("the cgroup of Slurm job {id}"),
                Some((system @ ("pbs" | "lsf"), id)) => format!("the cgroup of {} job {id}", system.to_uppercase()),
                Some((tool, id)) => format!("the cgroup of {tool} container {id}"),
                None => match path.rsplit('/').next().filter(|it| !it.is_empty()) {
                    Some(name) => format!("the cgroup {}", Foreign::new(name)),
                    None => "the container's cgroup".to_owned(),
                },
            }
        }
    }
}

/// A watched process's part of its host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnMemory<'a> {
    /// What the kernel reports of the process.
    pub job: Option<&'a JobMemory>,
    /// Its pages and those of its workers, as last read.
    pub tree: Option<&'a TreeMemory>,
    /// Pinned memory that PyTorch holds, and the part of it that is in use.
    pub pinned: Option<(u64, Option<u64>)>,
}

/// A rung and its size; `None` if it is unknown, in which case its bytes are in an outer rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPart {
    /// The rung.
    pub rung: HostRung,
    /// Its size.
    pub bytes: Option<Bytes>,
}

/// The ladder of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLadder {
    /// The limit.
    pub limit: Limit,
    /// The processes whose memory it shows apart.
    pub pids: Vec<u32>,
    /// From the inside out; the sizes sum to the limit.
    pub parts: Vec<HostPart>,
}

impl HostLadder {
    /// Returns the size of a rung; `None` if it is unknown.
    pub fn get(&self, rung: HostRung) -> Option<u64> {
        self.parts.iter().find(|it| it.rung == rung)?.bytes.map(|it| it.0)
    }

    /// Returns the sum of all rungs.
    pub fn sum(&self) -> u64 {
        self.parts.iter().filter_map(|it| it.bytes).map(|it| it.0).sum()
    }
}

/// What is charged to a machine or a group, apart from processes.
struct Charged {
    current: u64,
    reclaimable: u64,
    shared: u64,
    kernel: u64,
}

/// Returns the ladder of the machine, then that of each group with a limit, with the processes that are watched.
pub fn ladders(host: &HostMemory, own: &BTreeMap<u32, OwnMemory>) -> Vec<HostLadder> {
    let of = |limit: Limit| {
        let (charged, pids) = match &limit.of {
            LimitOf::Machine => (of_machine(host), own.keys().copied().collect()),
            LimitOf::Group(path) => {
                let pids: Vec<u32> = own.keys().copied().filter(|pid| is_in(host, *pid, path)).collect();
                (of_group(group(host, path)?), pids)
            }
            LimitOf::Slowed(_) | LimitOf::Shm | LimitOf::AddressSpace(_) => return None,
        };
        let inside: Vec<&OwnMemory> = pids.iter().filter_map(|it| own.get(it)).collect();
        Some(HostLadder { parts: parts(limit.size, &charged, &inside), limit, pids })
    };
    limits(host).into_iter().filter_map(of).collect()
}

fn of_machine(host: &HostMemory) -> Charged {
    let it = &host.machine;
    let current = it.total.0.saturating_sub(it.free.0);
    let reclaimable = it.available.0.saturating_sub(it.free.0);
    Charged { current, reclaimable, shared: it.shared.0, kernel: it.kernel.0 }
}

fn of_group(it: &GroupMemory) -> Charged {
    Charged { current: it.current.0, reclaimable: it.reclaimable.0, shared: it.shared.0, kernel: it.kernel.0 }
}

/// Splits a limit into its rungs. The figures are of several moments, so what exceeds the limit is cut.
fn parts(size: u64, charged: &Charged, own: &[&OwnMemory]) -> Vec<HostPart> {
    let mut parts = Vec::new();
    let current = charged.current.min(size);
    let cache = charged.reclaimable.min(current);
    let mut left = current - cache;
    let mut take = |rung, bytes: Option<u64>| {
        let taken = bytes.map(|it| it.min(left));
        left -= taken.unwrap_or(0);
        parts.push(HostPart { rung, bytes: taken.map(Bytes) });
    };
    let sum = |of: &dyn Fn(&OwnMemory) -> Option<u64>| {
        let mut known = own.iter().filter_map(|it| of(it)).peekable();
        known.peek()?;
        Some(known.sum::<u64>())
    };
    // Without pages, the process's own counter has also what it shares with its workers.
    let process = sum(&|own| own.tree.map(|it| it.own.anonymous).or(own.job?.anonymous).map(|it| it.0));
    let workers = sum(&|own| Some(own.tree?.of_workers.anonymous.0));
    let (held, active) = (sum(&|own| Some(own.pinned?.0)), sum(&|own| own.pinned?.1));
    // The driver takes it from shared memory, PyTorch with cudaHostRegister from the heap.
    let of_shared = held.unwrap_or(0).min(charged.shared);
    let of_heap = held.unwrap_or(0) - of_shared;
    let cached = held.zip(active).map(|(held, active)| held.saturating_sub(active));
    take(HostRung::Process, process.map(|it| it.saturating_sub(of_heap)));
    take(HostRung::Pinned, held.map(|it| it - cached.unwrap_or(0).min(it)));
    take(HostRung::PinnedCache, cached);
    take(HostRung::Workers, workers);
    take(HostRung::Shared, Some(charged.shared.saturating_sub(of_shared)));
    take(HostRung::Kernel, Some(charged.kernel));
    take(HostRung::Others, Some(u64::MAX));
    parts.push(HostPart { rung: HostRung::PageCache, bytes: Some(Bytes(cache)) });
    parts.push(HostPart { rung: HostRung::Free, bytes: Some(Bytes(size - current)) });
    parts
}

#[cfg(test)]
mod tests {
    //! Tests of the host's ladder.

    use super::*;
    use crate::facts::host_memory::{MachineMemory, Pages, WorkerMemory};

    const GIB: u64 = 1 << 30;

    fn gib(it: u64) -> Bytes {
        Bytes(it * GIB)
    }

    fn host() -> HostMemory {
        let machine = MachineMemory {
            total: gib(256),
            free: gib(100),
            available: gib(150),
            shared: gib(6),
            kernel: gib(2),
            swap: Room { size: gib(8), used: gib(1) },
            oom_kills: Some(0),
        };
        let group = |path: &str, max| GroupMemory {
            path: path.into(),
            place: Some("slurm 4242".into()),
            max,
            current: gib(60),
            reclaimable: gib(10),
            shared: gib(4),
            kernel: gib(1),
            swap: Some(Room::default()),
            ..GroupMemory::default()
        };
        let tree = TreeMemory {
            own: Pages { anonymous: gib(20), private: gib(18), ..Pages::default() },
            workers: 2,
            of_workers: Pages { anonymous: gib(12), ..Pages::default() },
            each: vec![WorkerMemory::default(); 2],
        };
        let job = JobMemory { pid: 7, groups: vec![0, 1], tree: Some(tree), ..JobMemory::default() };
        HostMemory {
            machine,
            shm: Some(Room { size: gib(1), used: gib(1) }),
            groups: vec![group("/job_4242/step_0", None), group("/job_4242", Some(gib(64)))],
            processes: vec![job],
        }
    }

    fn own(host: &HostMemory, pinned: Option<(u64, Option<u64>)>) -> BTreeMap<u32, OwnMemory<'_>> {
        let job = host.processes.first().unwrap();
        [(7, OwnMemory { job: Some(job), tree: job.tree.as_ref(), pinned })].into()
    }

    fn sizes(ladder: &HostLadder) -> Vec<(&'static str, Option<u64>)> {
        ladder.parts.iter().map(|part| (part.rung.row().id, part.bytes.map(|it| it.0 / GIB))).collect()
    }

    #[test]
    fn the_rungs_sum_to_the_limit() {
        let host = host();
        let ladders = ladders(&host, &own(&host, Some((5 * GIB, Some(3 * GIB)))));
        let of: Vec<_> = ladders.iter().map(|it| it.limit.of.id()).collect();
        assert_eq!(of, ["machine", "cgroup"], "a group without a limit has no ladder");
        for it in &ladders {
            assert_eq!(it.sum(), it.limit.size);
            assert_eq!(it.pids, [7]);
        }
        // The driver's share of shared memory is 4 GiB of the group's 4, the rest of what is pinned lies in the heap.
        let expected = [
            ("process", Some(19)),
            ("pinned", Some(3)),
            ("pinned_cache", Some(2)),
            ("workers", Some(12)),
            ("shared", Some(0)),
            ("kernel", Some(1)),
            ("others", Some(13)),
            ("page_cache", Some(10)),
            ("free", Some(4)),
        ];
        assert_eq!(sizes(&ladders[1]), expected);
    }

    #[test]
    fn what_is_unknown_is_none_and_lies_in_an_outer_rung() {
        let mut host = host();
        host.processes[0].tree = None;
        let ladder = &ladders(&host, &own(&host, None))[1];
        assert_eq!(
            (ladder.get(HostRung::Process), ladder.get(HostRung::Workers), ladder.get(HostRung::Pinned)),
            (None, None, None)
        );
        assert_eq!((ladder.get(HostRung::Others), ladder.sum()), (Some(45 * GIB), 64 * GIB));
    }

    #[test]
    fn figures_of_several_moments_never_exceed_the_limit() {
        let mut host = host();
        host.processes[0].tree.as_mut().unwrap().own.anonymous = gib(500);
        host.groups[1].reclaimable = gib(90);
        for it in ladders(&host, &own(&host, Some((900 * GIB, None)))) {
            assert_eq!(it.sum(), it.limit.size, "{it:?}");
        }
    }

    #[test]
    fn the_limit_with_the_least_room_counts_and_the_page_cache_is_no_use() {
        let host = host();
        let nearest = nearest(&host, 7).unwrap();
        assert_eq!((nearest.of.clone(), nearest.left() / GIB), (LimitOf::Group("/job_4242".into()), 14));
        let machine = &limits(&host)[0];
        assert_eq!((machine.room / GIB, machine.used / GIB), (264, 107), "free swap is room");
        assert_eq!(super::nearest(&host, 8).unwrap().of, LimitOf::Machine, "a process of no group");
    }

    #[test]
    fn limits_are_named_as_users_know_them() {
        let mut host = host();
        let mut words = |place: Option<&str>| {
            host.groups[1].place = place.map(Into::into);
            super::words(&LimitOf::Group("/job_4242".into()), &host)
        };
        assert_eq!(words(Some("slurm 4242, docker 0123456789ab")), "the cgroup of Slurm job 4242");
        assert_eq!(words(Some("docker 0123456789ab")), "the cgroup of docker container 0123456789ab");
        assert_eq!(words(Some("pbs 9")), "the cgroup of PBS job 9");
        assert_eq!(words(None), "the cgroup job_4242");
        assert_eq!(super::words(&LimitOf::Shm, &host), "/dev/shm");
    }
}
