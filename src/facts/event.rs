//! Everything that can happen, with the time as a field. Sources produce nothing else.
//!
//! A recording is these events written as lines; a probe's events are lines of the wire.

/// What was measured to save memory.
pub mod advised;
/// What memory consists of at the highest moment of a step.
pub mod anatomy;
mod ending;
mod gap;
/// Answers of replays.
pub mod replayed;
/// A sample's line, read in one pass.
pub mod sample;
use crate::facts::{
    figures,
    host_memory::{HostMemory, Room},
    maker::Maker,
    metrics::Changes,
    text::{self, Foreign, is_unsafe},
    units::{Bytes, Stamp},
};
pub use advised::Advised;
pub use anatomy::PeakMoment;
pub use ending::{ending, failure, killed_by, unsuccessful};
pub use gap::{Gap, Steps};
use gpuwatch_probe::wire::limits;
pub use gpuwatch_probe::wire::{self, Line};
pub use replayed::Replayed;
use serde::{Deserialize, Deserializer, Serialize};
use wire::{Sample, Sites};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time, on the clock that all processes of a boot share.
    pub at: Stamp,
    /// What happened.
    pub fact: Fact,
}

/// A device by the driver's UUID (`GPU-…`, `MIG-…`). It joins what NVML reports with what probes report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(#[serde(deserialize_with = "limits::text::<_, { limits::DEVICE_TEXT_MAX }>")] pub String);

/// Prefix of the names of devices without a UUID; the driver's begin with `GPU-` or `MIG-`.
const BY_INDEX: &str = "index-";

impl DeviceId {
    /// Names a device that the driver counts but does not identify, such as one that is lost.
    pub fn by_index(index: u32) -> Self {
        Self(format!("{BY_INDEX}{index}"))
    }

    /// Names a MIG device that the driver counts but does not identify.
    pub fn mig_by_index(index: u32, slot: u32) -> Self {
        Self(format!("{BY_INDEX}{index}-mig-{slot}"))
    }

    /// Returns whether the driver has not identified the device.
    pub fn is_by_index(&self) -> bool {
        self.0.starts_with(BY_INDEX)
    }
}

/// A probe, numbered by the source when it first appears; a process keeps its number when it reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProbeId(pub u32);

/// A request for a capture: which lines allocate the memory that grows?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// The probe that receives it.
    pub probe: ProbeId,
    /// Steps to compare; at least 1.
    pub steps: u64,
    /// When memory is expected to rise; `None` if it rises all the time or the pattern is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rises: Option<Rises>,
    /// Whether gpuwatch asks because it saw growth, not because a user asked.
    #[serde(default)]
    pub growth: bool,
    /// Whether the garbage collector runs once, so that the answer can report what it frees.
    #[serde(default)]
    pub collect: bool,
}

/// Rises at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rises {
    /// Steps from one to the next.
    pub every: u64,
    /// The step of one rise.
    pub last: u64,
    /// How many steps early or late a rise may come.
    pub slack: u64,
}

impl CaptureRequest {
    /// Returns the request's line on the wire, with its newline.
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
    /// One second passed. Alerts are delivered and screens age on this event.
    Second,
    /// The state of NVML.
    Driver(DriverState),
    /// The state of the kernel's driver for the devices of a maker that is read without NVML.
    KernelDriver {
        /// The maker.
        maker: Maker,
        /// The driver's state.
        state: DriverState,
    },
    /// What is on this machine, where the driver shows no device or other users have probes. It is not recorded.
    Surroundings(Box<Surroundings>),
    /// A device was found, or its description changed.
    Device(DeviceInfo),
    /// A device is gone from the driver's list.
    DeviceGone {
        /// The device.
        device: DeviceId,
    },
    /// A device's memory, or why it could not be read.
    Memory {
        /// The device.
        device: DeviceId,
        /// The figures.
        reading: Result<DeviceMemory, ReadError>,
    },
    /// A device's metrics that changed since the last such fact; now and then all of them, for readers that begin
    /// later.
    Metrics {
        /// The device.
        device: DeviceId,
        /// The metrics whose values differ from those of the reading before.
        changes: Changes,
    },
    /// All processes on a device, or why the driver did not list them.
    Processes {
        /// The device.
        device: DeviceId,
        /// The processes and their memory.
        reading: Result<Vec<ProcessUse>, ReadError>,
    },
    /// A process's figures that changed since the last such fact; now and then all of them, for readers that begin
    /// later.
    Figures {
        /// Its pid on this host.
        pid: u32,
        /// The device that the figures are about; `None` for those of the host.
        device: Option<DeviceId>,
        /// The figures whose values differ from those of the reading before.
        changes: figures::Changes,
    },
    /// The host's memory, its limits, and what the watched processes and their workers hold.
    HostMemory(Box<HostMemory>),
    /// A process on a device, as this host's /proc describes it.
    Process(ProcessInfo),
    /// A process ended.
    ProcessGone {
        /// Its pid on this host.
        pid: u32,
    },
    /// A probe was found and answered.
    ProbeFound {
        /// The probe.
        probe: ProbeId,
        /// Its process as the kernel translates it (`SO_PEERCRED`); `None` from another pid namespace.
        pid: Option<u32>,
        /// The socket's path.
        socket: Foreign,
    },
    /// A probe sent a line.
    Probe {
        /// The probe.
        probe: ProbeId,
        /// The line.
        line: Box<Line>,
    },
    /// A probe's connection ended without a bye, or could not be opened.
    ProbeGone {
        /// The probe.
        probe: ProbeId,
        /// The reason and the next step, for the user.
        why: Foreign,
    },
    /// A notice for the user in gpuwatch's own words, such as a squatted directory or a refused socket.
    Notice(Foreign),
    /// How many items a source skips now because there are more than it reads.
    Unread {
        /// What kind of item.
        what: Unread,
        /// How many.
        count: u64,
    },
    /// A recording lacks what happened from this event's stamp on, for a while.
    Gap(Gap),
    /// A replay of a job's allocations has an answer, or none.
    Replayed(Box<Replayed>),
    /// The highest moment of a step was traced.
    PeakMoment(Box<PeakMoment>),
    /// What would save memory in the job was measured.
    Advised(Box<Advised>),
    /// The command that `gpuwatch run` started has ended.
    JobEnded {
        /// Exit code, if it exited.
        code: Option<i32>,
        /// Signal number, if it died by one.
        signal: Option<i32>,
    },
}

/// Items that a source may skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unread {
    /// Probes' sockets.
    Sockets,
    /// Names in a socket directory.
    Names,
    /// An item that a later release counts.
    #[serde(other)]
    Other,
}

/// The state of a driver: NVML, or the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum DriverState {
    /// It answers.
    Up {
        /// Driver version, as NVML or the kernel reports it.
        version: Option<Foreign>,
    },
    /// A call has not returned.
    Stalled {
        /// When the call began.
        since: Stamp,
    },
    /// It is missing or refused; the text gives the reason and the next step.
    Absent {
        /// The reason and the next step.
        why: Foreign,
    },
    /// Switched off by the user.
    Off,
}

/// Why the driver gave no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadError {
    /// This user lacks the permission.
    NoPermission,
    /// This device or driver does not support it.
    NotSupported,
    /// The device fell off the bus.
    Lost,
    /// The device sleeps to save power, and a reading would wake it.
    Suspended,
    /// Any other error, in the driver's words.
    Other(Foreign),
}

/// A device's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its UUID.
    pub id: DeviceId,
    /// NVML's index, or the maker's own; the number that users know.
    pub index: u32,
    /// Product name.
    pub name: Foreign,
    /// The parent device of a MIG device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeviceId>,
    /// Who makes it.
    #[serde(default, skip_serializing_if = "Maker::is_default")]
    pub maker: Maker,
}

/// A device's memory. Without the driver's reserve in `used`, `used + free + reserved = total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// The device's total memory.
    pub total: Bytes,
    /// Used by processes; with an old driver (`reserved` is `None`) it includes the driver's reserve.
    pub used: Bytes,
    /// Free.
    pub free: Bytes,
    /// The driver's reserve; `None` where only NVML's first memory call exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Bytes>,
    /// The system's memory, if the device shares it and has none of its own: then the other figures are the system's,
    /// and `free` is what can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unified: Option<Unified>,
}

/// What a device that shares the system's memory has beside the figures of every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unified {
    /// The part of `free` that is page cache: the kernel drops it when memory is needed.
    pub cache: Bytes,
    /// The system's swap.
    #[serde(default)]
    pub swap: Room,
}

/// One process on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// The pid that NVML reports: the host's pid, also inside a container.
    pub pid: u32,
    /// Its memory; `None` where the driver does not report it (WSL, MIG without permission).
    pub used: Option<Bytes>,
}

/// Most bytes of a command line from /proc; a probe may send a longer one.
pub const PROCESS_ARGV_MAX: usize = 8 << 10;

/// Most arguments of a command line from /proc.
pub const PROCESS_ARGUMENTS_MAX: usize = 256;

/// Most processes read from one device's list.
pub const PROCESSES_MAX: usize = 4096;

fn argv<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Foreign>, D::Error> {
    Ok(command_line(limits::argv(from)?))
}

/// Cuts a command line to its limits.
pub fn command_line(all: impl IntoIterator<Item = String>) -> Vec<Foreign> {
    let kept = limits::arguments(all, PROCESS_ARGV_MAX, PROCESS_ARGUMENTS_MAX);
    kept.into_iter().map(Foreign::new).collect()
}

/// Most ancestors of a process.
pub const ANCESTORS_MAX: usize = 8;

fn ancestors<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Ancestor>, D::Error> {
    let mut all = Vec::<Ancestor>::deserialize(from)?;
    all.truncate(ANCESTORS_MAX);
    Ok(all)
}

/// A process from which another one descends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Its pid on this host.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub name: Foreign,
}

/// A process's description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of recordings")]
pub struct ProcessInfo {
    /// Its pid on this host.
    pub pid: u32,
    /// Its start in the kernel's clock ticks since boot. Pid and start together identify a process.
    pub start_ticks: u64,
    /// The command line, cut to [`PROCESS_ARGV_MAX`] and [`PROCESS_ARGUMENTS_MAX`].
    #[serde(deserialize_with = "argv")]
    pub argv: Vec<Foreign>,
    /// The user's name, or the uid if it has no name.
    pub user: Foreign,
    /// Whether it runs in another pid namespace than gpuwatch (a container, seen from the host).
    pub contained: bool,
    /// Whether a signal (`SIGSTOP`, Ctrl-Z) has suspended it, or a debugger holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// Whether it has ended, and the kernel or the driver still lists it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// Whether a launcher started it as one of several ranks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rank: bool,
    /// Whether the launcher that started it as one of several ranks has ended before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// The pid of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Its ancestors, the parent first, without the host's first process.
    #[serde(default, deserialize_with = "ancestors", skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
    /// Its start, µs of Unix time, to the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_us: Option<u64>,
    /// The batch job and container that it belongs to: `slurm 4242, docker 0123456789ab`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Foreign>,
    /// The variables of its environment that matter for device memory, as `NAME=value`, as they were at its start; cut
    /// to the limits of a command line.
    #[serde(default, deserialize_with = "argv", skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<Foreign>,
}

impl ProcessInfo {
    /// Returns whether its program is a Python.
    pub fn is_python(&self) -> bool {
        self.argv.first().is_some_and(|program| program.raw().contains("python"))
    }

    /// Returns the commands that give it a probe: the first one now, the other one from its next start on. What has
    /// ended or is suspended answers nothing; a launcher starts its ranks; what has to be escaped cannot be pasted.
    pub fn commands_for_a_probe(&self) -> Vec<String> {
        let words = || self.argv.iter().map(Foreign::raw);
        let can_run = !self.rank && !self.argv.is_empty() && !words().any(|it| it.chars().any(is_unsafe));
        let attach = self.is_python().then(|| format!("gpuwatch attach {}", self.pid));
        let run = can_run.then(|| format!("gpuwatch run -- {}", text::command(words(), text::COMMAND_MAX)));
        attach.into_iter().chain(run).filter(|_| !self.ended && !self.suspended).collect()
    }
}

/// The process that writes a recording, identified so that no other process of its host matches, also after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritingProcess {
    /// The kernel's id of the boot.
    #[serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>")]
    pub boot_id: String,
    /// Inode number of the process's pid namespace.
    pub pid_namespace: u64,
    /// Its pid.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Event {
    /// Returns the probe's line, if the event carries one.
    pub fn line(&self) -> Option<(ProbeId, &Line)> {
        if let Fact::Probe { probe, line } = &self.fact { Some((*probe, line)) } else { None }
    }

    /// Returns the sample, if the event carries one.
    pub fn sample(&self) -> Option<(ProbeId, &Sample)> {
        let (probe, line) = self.line()?;
        if let Line::Sample(sample) = line { Some((probe, sample)) } else { None }
    }

    /// Returns the capture's answer, if the event carries one.
    pub fn sites(&self) -> Option<(ProbeId, &Sites)> {
        let (probe, line) = self.line()?;
        if let Line::Sites(sites) = line { Some((probe, sites)) } else { None }
    }

    /// Returns whether the probe ends with this event: by a bye, or because the connection broke.
    pub fn ends_probe(&self) -> bool {
        matches!(self.fact, Fact::ProbeGone { .. }) || self.line().is_some_and(|(_, it)| matches!(it, Line::Bye(_)))
    }
}

/// Returns the time at which a probe made a line; `None` for lines without a stamp.
pub fn stamp_of(line: &Line) -> Option<Stamp> {
    line.at_us().map(Stamp)
}

impl ReadError {
    /// Returns the name that scripts and monitoring systems know it by.
    pub fn id(&self) -> &'static str {
        match self {
            Self::NoPermission => "no_permission",
            Self::NotSupported => "not_supported",
            Self::Lost => "lost",
            Self::Suspended => "suspended",
            Self::Other(_) => "other",
        }
    }

    /// Returns what is wrong with a maker's device and, where gpuwatch knows one, the next step. The driver's own words
    /// come escaped.
    pub fn parts(&self, maker: Maker) -> (String, Option<&'static str>) {
        let row = maker.row();
        let (what, next) = match self {
            Self::NoPermission => ("no permission", Some(row.permission)),
            Self::NotSupported => ("this device or driver does not have it", None),
            Self::Lost => ("the device fell off the bus", Some(row.lost)),
            Self::Suspended => ("suspended to save power", Some("its figures return when something uses it")),
            Self::Other(words) => return (words.to_string(), None),
        };
        (what.to_owned(), next)
    }

    /// Describes what is wrong with a maker's device, with the next step.
    pub fn words(&self, maker: Maker) -> String {
        let (what, next) = self.parts(maker);
        next.map_or(what.clone(), |next| format!("{what}; {next}"))
    }
}

/// A request's line, with its newline, and the probe that receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The probe.
    pub probe: ProbeId,
    /// The line.
    pub line: String,
}

/// What a window has beside the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowDetail {
    /// Nothing.
    #[default]
    Events,
    /// Call stacks, and which blocks are weights, gradients and optimizer state; it ends when the job has been paused
    /// for 50 ms.
    Stacks,
    /// The same, however long the pauses are.
    StacksAtAnyCost,
}

/// A request for a window: a trace of the allocations of some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRequest {
    /// The probe that receives it.
    pub probe: ProbeId,
    /// The number in the name of the trace's file; at least 1.
    pub id: u32,
    /// Steps to trace; at least 1.
    pub steps: u64,
    /// What it has beside the events.
    pub detail: WindowDetail,
    /// Whether gpuwatch asks because it raised an alert, not because a user asked.
    pub alert: bool,
}

impl From<CaptureRequest> for Request {
    fn from(it: CaptureRequest) -> Self {
        Self { probe: it.probe, line: it.line() }
    }
}

impl From<WindowRequest> for Request {
    fn from(it: WindowRequest) -> Self {
        let alert = if it.alert { " why=alert" } else { "" };
        let stacks = match it.detail {
            WindowDetail::Events => "",
            WindowDetail::Stacks => " with=stacks",
            WindowDetail::StacksAtAnyCost => " with=stacks pauses=long",
        };
        Self { probe: it.probe, line: format!("window id={} steps={}{stacks}{alert}\n", it.id, it.steps) }
    }
}

/// What is there, apart from the driver's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// NVIDIA's graphics devices on the PCI bus; `None` where the bus cannot be read.
    pub gpus: Option<u32>,
    /// Makers of GPUs on the PCI bus that are read from the kernel's files, and that no driver of the kernel drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undriven: Vec<Maker>,
    /// Version of the loaded kernel module.
    pub module: Option<Foreign>,
    /// Whether the driver's device files are there (`/dev/nvidia0` and on).
    pub has_files: bool,
    /// Whether the driver's library (NVML) is there; `None` before it was opened.
    pub has_library: Option<bool>,
    /// Whether the driver refused this user.
    pub is_refused: bool,
    /// What runs this container: `docker`, `podman`, …; `None` outside of one.
    pub container: Option<Foreign>,
    /// Within WSL, whether Windows shares its GPU (`/dev/dxg`); `None` elsewhere.
    pub wsl: Option<bool>,
    /// The distribution's short name (`ID` in os-release).
    pub system: Option<Foreign>,
    /// Users whose probes have sockets here that this user may not read.
    pub others: Vec<Foreign>,
}
