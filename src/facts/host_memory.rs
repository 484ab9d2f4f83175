//! A host's memory as the kernel reports it: the machine's, the limits of control groups, `/dev/shm`, and what jobs
//! and their workers hold. Sizes are bytes; what the kernel does not report is absent.

use crate::facts::{text::Foreign, units::Bytes};
use gpuwatch_probe::wire::limits;
use serde::{Deserialize, Deserializer, Serialize};

/// Most control groups in one reading.
pub const GROUPS_MAX: usize = 64;

/// Most processes in one reading.
pub const PROCESSES_MAX: usize = 64;

/// Most workers of a process that are listed one by one; the sums have all of them.
pub const WORKERS_MAX: usize = 64;

/// One reading of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// The whole machine.
    pub machine: MachineMemory,
    /// The file system at `/dev/shm`, through which the workers of a `DataLoader` send batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<Room>,
    /// The control groups of the watched processes that have a limit, and those that the processes are in.
    #[serde(default, deserialize_with = "groups", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupMemory>,
    /// The watched processes.
    #[serde(default, deserialize_with = "processes", skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<JobMemory>,
}

fn groups<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<GroupMemory>, D::Error> {
    limits::list::<_, _, GROUPS_MAX>(from)
}

fn processes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<JobMemory>, D::Error> {
    limits::list::<_, _, PROCESSES_MAX>(from)
}

fn workers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkerMemory>, D::Error> {
    limits::list::<_, _, WORKERS_MAX>(from)
}

/// A size, and how much of it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The size.
    pub size: Bytes,
    /// The used part.
    pub used: Bytes,
}

impl Room {
    /// Returns the part that is not used.
    pub fn free(self) -> Bytes {
        Bytes(self.size.0.saturating_sub(self.used.0))
    }
}

/// The machine's memory, from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineMemory {
    /// All of it.
    pub total: Bytes,
    /// What nothing uses.
    pub free: Bytes,
    /// What processes can get without swapping: free memory, and the page cache that the kernel can drop.
    pub available: Bytes,
    /// Shared memory and tmpfs, also in `/dev/shm`.
    #[serde(default)]
    pub shared: Bytes,
    /// The kernel's own memory that it cannot give back.
    #[serde(default)]
    pub kernel: Bytes,
    /// Swap.
    #[serde(default)]
    pub swap: Room,
    /// Processes that the kernel has killed for memory since boot, in any control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

/// A control group's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMemory {
    /// Its path below the hierarchy's root.
    pub path: Foreign,
    /// The batch job or container that it is of: `slurm 4242`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Foreign>,
    /// At this the kernel kills; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Bytes>,
    /// From this on the kernel slows the group down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Bytes>,
    /// What is charged to it.
    pub current: Bytes,
    /// Page cache and slabs that the kernel can drop.
    #[serde(default)]
    pub reclaimable: Bytes,
    /// Shared memory and tmpfs.
    #[serde(default)]
    pub shared: Bytes,
    /// The kernel's memory for it that it cannot give back.
    #[serde(default)]
    pub kernel: Bytes,
    /// Its swap: the limit (that of the machine, if it has none) and the used part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Room>,
    /// Processes in it that the kernel has killed for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

/// A watched process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    /// Its pid on this host.
    pub pid: u32,
    /// The control groups that it is in, by place in the reading, the innermost first.
    #[serde(default, deserialize_with = "places", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
    /// Resident memory of its own, which no file backs (`RssAnon`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<Bytes>,
    /// What it may write without asking for more (`VmData`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Bytes>,
    /// Its address space and the limit of that (`RLIMIT_AS`), if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_space: Option<Room>,
    /// Its pages and those of its workers. Reading them is costly, so most readings lack them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeMemory>,
}

fn places<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    limits::list::<_, _, GROUPS_MAX>(from)
}

/// The pages of a process and its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeMemory {
    /// The process itself.
    pub own: Pages,
    /// Its descendants, apart from watched ones and theirs: how many there are.
    #[serde(default)]
    pub workers: u64,
    /// Their sum.
    #[serde(default)]
    pub of_workers: Pages,
    /// The largest of them, by pid.
    #[serde(default, deserialize_with = "workers", skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<WorkerMemory>,
}

/// A worker's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerMemory {
    /// Its pid on this host.
    pub pid: u32,
    /// Its pages.
    pub pages: Pages,
}

/// The pages of one process, or of several, from `/proc/PID/smaps_rollup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Resident, also what other processes share.
    pub resident: Bytes,
    /// Resident, and in no other process (`Private_Clean` and `Private_Dirty`).
    pub private: Bytes,
    /// Its share of resident memory that no file backs: of a page in three processes, a third.
    pub anonymous: Bytes,
    /// Its share of resident shared memory and tmpfs.
    pub shared: Bytes,
    /// Its share of swap.
    #[serde(default)]
    pub swap: Bytes,
}

impl Pages {
    /// Returns the sum with those of another process.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            resident: self.resident.plus(other.resident),
            private: self.private.plus(other.private),
            anonymous: self.anonymous.plus(other.anonymous),
            shared: self.shared.plus(other.shared),
            swap: self.swap.plus(other.swap),
        }
    }
}
