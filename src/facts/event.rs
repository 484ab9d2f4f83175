//! Everything that can happen, with the time as a field: the only words a source may say.
//!
//! A recording is this vocabulary written down, and the probes' part of it is the wire itself.

mod parts;
mod words;

use crate::facts::{
    text::Foreign,
    units::{Bytes, Stamp},
};
use gpuwatch_probe::wire::limits;
pub use gpuwatch_probe::wire::{self, Line};
pub use parts::stamp_of;
use serde::{Deserialize, Deserializer, Serialize};
pub use words::{ending, failure};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, on the clock that all processes of a boot share.
    pub at: Stamp,
    /// What.
    pub fact: Fact,
}

/// A device by the driver's UUID (`GPU-…`, `MIG-…`): what NVML and probes are joined by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(#[serde(deserialize_with = "limits::text::<_, { limits::DEVICE_TEXT_MAX }>")] pub String);

/// A probe, numbered by the source at first sight; the same process keeps its number when it reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProbeId(pub u32);

/// What a probe is asked: for the lines that allocate what grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub probe: ProbeId,
    /// Over how many steps it is to compare; at least 1.
    pub steps: u64,
    /// When it is to be expected that memory rises; `None` where that is all the time, or not known.
    pub rises: Option<Rises>,
    /// No person asks, but growth was seen.
    pub growth: bool,
    /// The collector is to run once, so that what it frees can be told.
    pub collect: bool,
}

/// Rises at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rises {
    /// Steps from one to the next.
    pub every: u64,
    /// The step of one of them.
    pub last: u64,
    /// By how many steps one may come early or late.
    pub slack: u64,
}

impl Ask {
    /// Its line on the wire, the newline included.
    pub fn line(&self) -> String {
        let rises = self
            .rises
            .map_or_else(String::new, |it| format!(" every={} rise={} slack={}", it.every, it.last, it.slack));
        let growth = if self.growth { " why=growth" } else { "" };
        let collect = if self.collect { " collect=1" } else { "" };
        format!("sites steps={}{rises}{growth}{collect}\n", self.steps)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A second of time went by: what goes stale, goes stale on this and on nothing else.
    Second,
    /// How NVML itself is.
    Driver(DriverState),
    /// A device was seen, or what is known of it changed.
    Device(DeviceInfo),
    /// A device is gone from the driver's list.
    DeviceGone {
        /// Which.
        device: DeviceId,
    },
    /// A device's memory, or why it could not be read.
    Memory {
        /// Which.
        device: DeviceId,
        /// The figures.
        reading: Result<DeviceMemory, Trouble>,
    },
    /// How busy and how warm a device is.
    Load {
        /// Which.
        device: DeviceId,
        /// The figures, each absent where the driver does not say.
        load: Load,
    },
    /// The processes on a device, or why they could not be read. The list is whole.
    Processes {
        /// Which.
        device: DeviceId,
        /// Who, and how much.
        reading: Result<Vec<ProcessUse>, Trouble>,
    },
    /// Who a process on a device is, as this host's /proc says.
    Process(ProcessInfo),
    /// A process is no more.
    ProcessGone {
        /// Its number here.
        pid: u32,
    },
    /// A probe was found and answered.
    ProbeFound {
        /// Its number.
        probe: ProbeId,
        /// Its process as the kernel translates it for us (`SO_PEERCRED`); `None` from another pid namespace.
        pid: Option<u32>,
        /// The socket's path.
        socket: Foreign,
    },
    /// A line of a probe.
    Probe {
        /// Its number.
        probe: ProbeId,
        /// What it said.
        line: Box<Line>,
    },
    /// A probe's connection ended without a bye, or never became one.
    ProbeGone {
        /// Its number.
        probe: ProbeId,
        /// In words for the user: the reason and the next step.
        why: Foreign,
    },
    /// Something a user should know, in our own words: a squatted directory, a refused socket.
    Notice(Foreign),
    /// How many of something a source leaves unread now, as there are more than it reads.
    Unread {
        /// What.
        what: Unread,
        /// How many.
        count: u64,
    },
    /// The command that `gpuwatch run` started has ended.
    JobEnded {
        /// Exit code, if it exited.
        code: Option<i32>,
        /// Signal number, if it died by one.
        signal: Option<i32>,
    },
}

/// What a source leaves unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unread {
    /// Probes' sockets.
    Sockets,
    /// Names in a socket directory.
    Names,
    /// Something that a later release counts.
    #[serde(other)]
    Other,
}

/// How NVML itself is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum DriverState {
    /// It answers.
    Up {
        /// Driver version, as NVML says it.
        version: Option<Foreign>,
    },
    /// A call has not come back since.
    Stalled {
        /// When the call began.
        since: Stamp,
    },
    /// There is none, or it refused; the words name the reason and the next step.
    Absent {
        /// Why.
        why: Foreign,
    },
    /// Switched off by the user.
    Off,
}

/// Why the driver gave no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// This user may not ask.
    NoPermission,
    /// This device or driver does not have it.
    NotSupported,
    /// The device fell off the bus.
    Lost,
    /// Any other answer of the driver, in its own words.
    Other(Foreign),
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its UUID.
    pub id: DeviceId,
    /// NVML's index: the number users know it by.
    pub index: u32,
    /// Product name.
    pub name: Foreign,
    /// For a MIG device, the one it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeviceId>,
}

/// A device's memory. With the driver's own reserve apart, `used + free + reserved = total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Bytes,
    /// In use by processes; with an old driver (`reserved` unknown) the driver's reserve is in it.
    pub used: Bytes,
    /// Free.
    pub free: Bytes,
    /// The driver's own; `None` where only the old call exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Bytes>,
}

/// How busy and how warm a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Percent of time that a kernel ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_percent: Option<u32>,
    /// Percent of time that memory was read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u32>,
    /// Degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub celsius: Option<u32>,
    /// Milliwatts drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// Milliwatts allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_mw: Option<u32>,
    /// Percent of the fan's full speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fan_percent: Option<u32>,
    /// Uncorrected ECC errors since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_errors: Option<u64>,
}

/// One process on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// NVML's number for it (the host's, also when asked inside a container).
    pub pid: u32,
    /// Its memory; `None` where the driver does not say (WSL, MIG without permission).
    pub used: Option<Bytes>,
}

/// Bytes of a command line that the kernel tells; a probe may tell more of its own.
pub const PROCESS_ARGV_MAX: usize = 8 << 10;

/// Arguments of it.
pub const PROCESS_ARGUMENTS_MAX: usize = 256;

/// Processes that are taken of one device's list.
pub const PROCESSES_MAX: usize = 4096;

fn argv<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Foreign>, D::Error> {
    Ok(command_line(limits::argv(from)?))
}

/// A command line within its limits.
pub fn command_line(all: impl IntoIterator<Item = String>) -> Vec<Foreign> {
    let kept = limits::arguments(all, PROCESS_ARGV_MAX, PROCESS_ARGUMENTS_MAX);
    kept.into_iter().map(Foreign::new).collect()
}

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its number here.
    pub pid: u32,
    /// Start, in the kernel's clock ticks since boot: with the pid, its identity.
    pub start_ticks: u64,
    /// The command line, cut to [`PROCESS_ARGV_MAX`] and [`PROCESS_ARGUMENTS_MAX`].
    #[serde(deserialize_with = "argv")]
    pub argv: Vec<Foreign>,
    /// The user's name, or number.
    pub user: Foreign,
    /// Whether it lives in another pid namespace than we do (a container, seen from the host).
    pub contained: bool,
    /// Whether a signal (`SIGSTOP`, Ctrl-Z) has suspended it, or a debugger holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

/// The process that writes a recording: what tells it from every other one of its host, also after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritingProcess {
    /// The kernel's name for its boot.
    #[serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>")]
    pub boot_id: String,
    /// Inode number of the pid namespace that its number is of.
    pub pid_namespace: u64,
    /// Its number.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
}
