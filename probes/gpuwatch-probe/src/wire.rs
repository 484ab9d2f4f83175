//! The wire, version 1: one JSON object per line, `type` first; every line that a probe can send.
//!
//! Integers only; bytes, microseconds of `CLOCK_MONOTONIC`. A missing field means unknown; unknown fields and types are
//! ignored. Counters are current or cumulative, never deltas, so that a lost line costs resolution but not accuracy.

mod counters;
mod encode;
mod json;
pub mod limits;
mod parts;
mod sites;

pub use counters::{Counter, Counters, Group, Label, Torch, Unit};
pub use encode::encode;
pub(crate) use encode::{encode_sites, sample as encode_sample};
pub(crate) use json::quoted;
pub use parts::Parts;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
pub use sites::{Frame, Holder, Owner, PARTS_MAX, Place, SITES_MAX, Site, Sites};

/// The major version of the wire that this crate implements.
pub const PROTOCOL: u32 = 1;

/// The longest line either side accepts, in bytes, its newline included.
pub const LINE_MAX: usize = 1 << 20;

/// One line from a probe.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "type", rename_all = "snake_case"))]
pub enum Line {
    /// The probe's description: the first line of every connection, repeated when it changes (a new device).
    Hello(Hello),
    /// The counters of one device at one instant.
    Sample(Sample),
    /// A mark of the job: an epoch, a phase.
    Mark(Mark),
    /// An allocation failed for good.
    Oom(Oom),
    /// The framework's message about it, which it creates after its observers ran.
    OomMessage(OomMessage),
    /// Which lines allocate what grows, and what holds it.
    Sites(Sites),
    /// Samples that the probe dropped before they reached its history.
    Lost(Lost),
    /// What the following backlog covers.
    History(History),
    /// The backlog is complete; live lines follow.
    Live(Live),
    /// The probe ends properly.
    Bye(Bye),
    /// A request that the probe does not know or does not allow.
    Refused(Refused),
    /// A type that this release does not know; ignored, as the wire requires.
    #[cfg_attr(feature = "serde", serde(other))]
    Unknown,
}

impl Line {
    /// Returns its sequence number; `None` if it has none.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Sample(it) => it.seq,
            Self::Mark(it) => it.seq,
            Self::Oom(it) => it.seq,
            Self::OomMessage(it) => it.seq,
            Self::Sites(it) => it.seq,
            Self::Lost(it) => it.seq,
            Self::Bye(it) => it.seq,
            Self::Hello(_) | Self::History(_) | Self::Live(_) | Self::Refused(_) | Self::Unknown => None,
        }
    }

    /// Returns its stamp, µs of `CLOCK_MONOTONIC`; `None` if it has none.
    pub fn at_us(&self) -> Option<u64> {
        match self {
            Self::Hello(it) => Some(it.monotonic_us),
            Self::Sample(it) => Some(it.at_us),
            Self::Mark(it) => Some(it.at_us),
            Self::Oom(it) => Some(it.at_us),
            Self::OomMessage(it) => Some(it.at_us),
            Self::Sites(it) => Some(it.at_us),
            Self::Lost(it) => Some(it.at_us),
            Self::Bye(it) => Some(it.at_us),
            Self::History(_) | Self::Live(_) | Self::Refused(_) | Self::Unknown => None,
        }
    }

    /// Returns every stamp in it, to convert it to another clock.
    pub fn stamps_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let (one, other) = match self {
            Self::Hello(it) => (Some(&mut it.monotonic_us), None),
            Self::Sample(it) => (Some(&mut it.at_us), None),
            Self::Mark(it) => (Some(&mut it.at_us), None),
            Self::Oom(it) => (Some(&mut it.at_us), None),
            Self::OomMessage(it) => (Some(&mut it.at_us), None),
            Self::Sites(it) => (Some(&mut it.at_us), None),
            Self::Lost(it) => (Some(&mut it.at_us), None),
            Self::Bye(it) => (Some(&mut it.at_us), None),
            Self::History(it) => (Some(&mut it.from_us), Some(&mut it.to_us)),
            Self::Live(_) | Self::Refused(_) | Self::Unknown => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// Returns the process's ordinal of the device that its figures belong to.
    pub fn device(&self) -> Option<u32> {
        match self {
            Self::Sample(it) => Some(it.device),
            Self::Oom(it) => Some(it.device),
            _ => None,
        }
    }
}

/// A probe's description, with its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Hello {
    /// The last sequence number assigned when this was sent.
    pub seq: u64,
    /// Major version of the wire.
    pub protocol: u32,
    /// Name and version of the probe, as in `gpuwatch-probe/0.1.0`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::TEXT_MAX }>"))]
    pub probe: String,
    /// The probe's unique name: 128 bits in hexadecimal, chosen at its start and the same on all its sockets.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub instance: Option<String>,
    /// The process's own pid, which differs from the host's in a container.
    pub pid: u32,
    /// Start of the process, µs of the wall clock (Unix time).
    pub start_us: Option<u64>,
    /// When the probe was started in a running job, µs of the wall clock (Unix time). Earlier steps are unknown.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attached_us: Option<u64>,
    /// The first step that a probe counted which was started in a running job: 1, or the optimizer's own count.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attached_step: Option<u64>,
    /// Host name.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::TEXT_MAX }>"))]
    pub host: String,
    /// The command line.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::argv"))]
    pub argv: Vec<String>,
    /// Working directory.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub cwd: Option<String>,
    /// `torch`, `jax`, `cudarc`, …
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub framework: Option<String>,
    /// The framework's own version text.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub framework_version: Option<String>,
    /// `native`, `cudaMallocAsync`, …
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub backend: Option<String>,
    /// `PYTORCH_CUDA_ALLOC_CONF` or its like, as the framework read it.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub allocator_conf: Option<String>,
    /// The run: 128 bits in hexadecimal, inherited by environment.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub run: Option<String>,
    /// How often the launcher has restarted this run.
    pub restart: Option<u64>,
    /// Global rank.
    pub rank: Option<u64>,
    /// Rank on this host.
    pub local_rank: Option<u64>,
    /// Number of ranks of the run.
    pub world_size: Option<u64>,
    /// Address and port of the launcher's master, the same on all machines of a run.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::NAME_MAX }>"))]
    pub master: Option<String>,
    /// The scheduler's job.
    pub job: Option<Job>,
    /// `ready` if the job can capture sites, otherwise why not. Absent: it cannot.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::TEXT_MAX }>"))]
    pub sites: Option<String>,
    /// The size with which a step fitted after attempts that ran out of memory, as in `batch = 1282`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::NAME_MAX }>"))]
    pub fitted: Option<String>,
    /// The devices this process can use, by its own ordinals.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, { limits::DEVICES_MAX }>"))]
    pub devices: Vec<Device>,
    /// `CLOCK_MONOTONIC` when this line was made, in µs.
    pub monotonic_us: u64,
    /// Wall clock at the same instant, µs of Unix time.
    pub unix_us: u64,
}

impl Hello {
    /// What [`Self::sites`] is if the job can capture them.
    const READY: &str = "ready";

    /// Whether the job can capture sites.
    #[must_use]
    pub fn can_capture(&self) -> bool {
        self.sites.as_deref() == Some(Self::READY)
    }

    /// Why the job cannot capture sites; `None` if it can, or if its probe does not say.
    #[must_use]
    pub fn capture_refusal(&self) -> Option<&str> {
        self.sites.as_deref().filter(|it| *it != Self::READY)
    }
}

/// A scheduler's job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Job {
    /// `slurm`, `pbs`, `lsf`, `kubernetes`, …
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::TEXT_MAX }>"))]
    pub scheduler: String,
    /// The job's id there.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::TEXT_MAX }>"))]
    pub id: String,
}

/// A device as the probed process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Device {
    /// The process's own ordinal.
    pub ordinal: u32,
    /// The driver's UUID (`GPU-…`, `MIG-…`), the only name by which devices are joined.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::DEVICE_TEXT_MAX }>"))]
    pub uuid: Option<String>,
    /// Product name.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::DEVICE_TEXT_MAX }>"))]
    pub name: Option<String>,
    /// Total bytes as CUDA reports them.
    pub total: Option<u64>,
}

/// When in the job's life a sample was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Edge {
    /// After an optimizer step.
    Step,
    /// Between steps, about once a second.
    #[default]
    Tick,
    /// The job called `step()` itself.
    Call,
}

impl Edge {
    /// Returns its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Tick => "tick",
            Self::Call => "call",
        }
    }
}

/// The counters of one device at one instant, in bytes unless noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Sample {
    /// Sequence number, one higher with every line of this probe.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// Ordinal, as in [`Hello::devices`].
    pub device: u32,
    /// When in the job's life it was taken.
    pub edge: Edge,
    /// Steps completed, from 1; `None` before the first one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub step: Option<u64>,
    /// What the allocated bytes consist of, where it was counted at this very instant.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub parts: Option<Parts>,
    /// The counters.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub counters: Counters,
}

/// A mark of the job.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Mark {
    /// Sequence number.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// Its name.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>"))]
    pub name: String,
    /// Its number, if it has one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub value: Option<i64>,
}

/// Most groups of equal blocks in an [`Oom`].
pub const GROUPS_MAX: usize = 32;

/// Most frames in an [`Oom`].
pub const FRAMES_MAX: usize = 12;

/// An allocation failed for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Oom {
    /// Sequence number.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Steps completed.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub step: Option<u64>,
    /// The requested bytes.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub tried: Option<u64>,
    /// Free bytes of the device.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub device_free: Option<u64>,
    /// The capacity, or the smaller limit that the job set.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub limit: Option<u64>,
    /// The allocator's largest unused block, in bytes.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub largest_free: Option<u64>,
    /// The live blocks as (size in bytes, count), largest total first; at most [`GROUPS_MAX`].
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, GROUPS_MAX>"))]
    pub blocks: Vec<(u64, u64)>,
    /// Number of live blocks of other sizes.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub other_blocks: Option<u64>,
    /// Their total bytes.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub other_bytes: Option<u64>,
    /// The call stack of the request, from the innermost frame of user code outwards; at most [`FRAMES_MAX`].
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, FRAMES_MAX>"))]
    pub frames: Vec<Frame>,
    /// The innermost library frame that the first of them called, if any.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub library: Option<Frame>,
    /// What the job was doing: `forward`, `backward`, `optimizer`, `placement` (a module is moved to the device),
    /// `inference` if no gradients are recorded, or `outside` of these.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub phase: Option<String>,
    /// If the job handles or keeps an error that keeps memory: bytes of live blocks that were live at the error before
    /// as well.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub again_bytes: Option<u64>,
    /// The framework's message, if known.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::MESSAGE_MAX }>"))]
    pub message: Option<String>,
}

/// The framework's message about a failed allocation: it belongs to the latest [`Oom`] of its device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct OomMessage {
    /// Sequence number.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// The text.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::MESSAGE_MAX }>"))]
    pub message: String,
}

/// Dropped lines: the queue was full, or the viewer was slower than the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Lost {
    /// Sequence number; absent if the loss affects only this connection.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of lines about out-of-memory errors, which the process's error file may have.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub failures: Option<u64>,
}

/// What the following backlog covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct History {
    /// First stamp, µs of `CLOCK_MONOTONIC`.
    pub from_us: u64,
    /// Last stamp.
    pub to_us: u64,
    /// The backlog has one of every `stride` samples; 1 is all of them.
    pub stride: u64,
}

/// The backlog is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Live {
    /// The last sequence number sent or skipped.
    pub seq: u64,
}

/// The probe ends properly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Bye {
    /// Sequence number.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// [`EXIT`], or why it ended before its process: `stop`, `detach`, …
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>"))]
    pub reason: String,
}

/// The reason of a [`Bye`] with which the process ends too.
pub const EXIT: &str = "exit";

/// A request refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Refused {
    /// The reason.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>"))]
    pub reason: String,
}
