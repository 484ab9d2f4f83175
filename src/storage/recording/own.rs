//! Facts other than probes' lines, as a recording stores them: in separate types, so that the program's types may
//! change while old files stay readable.

use crate::facts::{
    event::{
        Advised, DeviceId, DeviceInfo, DeviceMemory, DriverState, Fact, Gap, PROCESSES_MAX, PeakMoment, ProbeId,
        ProcessInfo, ProcessUse, ReadError, Replayed, Unread,
        replayed::{About, Comparison, Cost},
    },
    figures,
    host_memory::HostMemory,
    maker::Maker,
    metrics::{Changes, Metrics},
    text::Foreign,
    units::Stamp,
};
use gpuwatch_probe::wire::limits;
use serde::{Deserialize, Deserializer, Serialize};

/// Every `type` of [`Own`].
pub(super) const OWN_TYPES: [&str; 21] = [
    "driver",
    "kernel_driver",
    "device",
    "device_gone",
    "memory",
    "load",
    "metrics",
    "processes",
    "figures",
    "host_memory",
    "process",
    "process_gone",
    "probe_found",
    "probe_gone",
    "notice",
    "unread",
    "gap",
    "replayed",
    "peak_moment",
    "advised",
    "job_ended",
];

/// A fact and its time.
#[derive(Serialize, Deserialize)]
pub(super) struct Stamped {
    pub(super) at_us: Stamp,
    #[serde(flatten)]
    pub(super) own: Own,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Own {
    Driver(DriverState),
    KernelDriver {
        maker: Maker,
        #[serde(flatten)]
        state: DriverState,
    },
    Device(DeviceInfo),
    DeviceGone {
        device: DeviceId,
    },
    Memory {
        device: DeviceId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory: Option<DeviceMemory>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trouble: Option<ReadError>,
    },
    /// All metrics of earlier releases, in each line.
    Load {
        device: DeviceId,
        load: Metrics,
    },
    Metrics {
        device: DeviceId,
        metrics: Changes,
    },
    Processes {
        device: DeviceId,
        #[serde(default, deserialize_with = "list", skip_serializing_if = "Option::is_none")]
        processes: Option<Vec<ProcessUse>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trouble: Option<ReadError>,
    },
    Figures {
        pid: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<DeviceId>,
        figures: figures::Changes,
    },
    HostMemory(Box<HostMemory>),
    Process(ProcessInfo),
    ProcessGone {
        pid: u32,
    },
    ProbeFound {
        from: ProbeId,
        pid: Option<u32>,
        socket: Foreign,
    },
    ProbeGone {
        from: ProbeId,
        why: Foreign,
    },
    Notice {
        text: Foreign,
    },
    Unread {
        what: Unread,
        count: u64,
    },
    Gap(Gap),
    Replayed {
        from: ProbeId,
        device: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finding: Option<About>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comparison: Option<Box<Comparison>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Foreign>,
        #[serde(default)]
        cost: Cost,
    },
    PeakMoment(Box<PeakMoment>),
    Advised(Box<Advised>),
    JobEnded {
        code: Option<i32>,
        signal: Option<i32>,
    },
}

/// Reads a device's list of processes, if there is one.
fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<ProcessUse>>, D::Error> {
    limits::list::<_, _, PROCESSES_MAX>(from).map(Some)
}

impl Own {
    /// Converts a fact for storage; `None` for a probe's line and for facts that are not stored.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        Some(match fact.clone() {
            Fact::Second | Fact::Surroundings(_) | Fact::Probe { .. } => return None,
            Fact::Driver(state) => Self::Driver(state),
            Fact::KernelDriver { maker, state } => Self::KernelDriver { maker, state },
            Fact::Device(info) => Self::Device(info),
            Fact::DeviceGone { device } => Self::DeviceGone { device },
            Fact::Memory { device, reading } => {
                let (memory, trouble) = split(reading);
                Self::Memory { device, memory, trouble }
            }
            Fact::Metrics { device, changes } => Self::Metrics { device, metrics: changes },
            Fact::Processes { device, reading } => {
                let (processes, trouble) = split(reading);
                Self::Processes { device, processes, trouble }
            }
            Fact::Figures { pid, device, changes } => Self::Figures { pid, device, figures: changes },
            Fact::HostMemory(it) => Self::HostMemory(it),
            Fact::Process(info) => Self::Process(info),
            Fact::ProcessGone { pid } => Self::ProcessGone { pid },
            Fact::ProbeFound { probe, pid, socket } => Self::ProbeFound { from: probe, pid, socket },
            Fact::ProbeGone { probe, why } => Self::ProbeGone { from: probe, why },
            Fact::Notice(text) => Self::Notice { text },
            Fact::Unread { what, count } => Self::Unread { what, count },
            Fact::Gap(it) => Self::Gap(it),
            Fact::Replayed(it) => {
                let Replayed { probe, device, finding, result, cost } = *it;
                let (comparison, why) = split(result);
                Self::Replayed { from: probe, device, finding, comparison, why, cost }
            }
            Fact::PeakMoment(it) => Self::PeakMoment(it),
            Fact::Advised(it) => Self::Advised(it),
            Fact::JobEnded { code, signal } => Self::JobEnded { code, signal },
        })
    }

    /// Converts it back; `None` if it has neither a figure nor a reason why there is none.
    pub(super) fn into_fact(self) -> Option<Fact> {
        Some(match self {
            Self::Driver(state) => Fact::Driver(state),
            Self::KernelDriver { maker, state } => Fact::KernelDriver { maker, state },
            Self::Device(info) => Fact::Device(info),
            Self::DeviceGone { device } => Fact::DeviceGone { device },
            Self::Memory { device, memory, trouble } => Fact::Memory { device, reading: join(memory, trouble)? },
            Self::Load { device, load } => Fact::Metrics { device, changes: load.into() },
            Self::Metrics { device, metrics } => Fact::Metrics { device, changes: metrics },
            Self::Processes { device, processes, trouble } => {
                Fact::Processes { device, reading: join(processes, trouble)? }
            }
            Self::Figures { pid, device, figures } => Fact::Figures { pid, device, changes: figures },
            Self::HostMemory(it) => Fact::HostMemory(it),
            Self::Process(info) => Fact::Process(info),
            Self::ProcessGone { pid } => Fact::ProcessGone { pid },
            Self::ProbeFound { from, pid, socket } => Fact::ProbeFound { probe: from, pid, socket },
            Self::ProbeGone { from, why } => Fact::ProbeGone { probe: from, why },
            Self::Notice { text } => Fact::Notice(text),
            Self::Unread { what, count } => Fact::Unread { what, count },
            Self::Gap(it) => Fact::Gap(it),
            Self::Replayed { from: probe, device, finding, comparison, why, cost } => {
                let result = join(comparison, why)?;
                Fact::Replayed(Box::new(Replayed { probe, device, finding, result, cost }))
            }
            Self::PeakMoment(it) => Fact::PeakMoment(it),
            Self::Advised(it) => Fact::Advised(it),
            Self::JobEnded { code, signal } => Fact::JobEnded { code, signal },
        })
    }
}

fn split<T, E>(reading: Result<T, E>) -> (Option<T>, Option<E>) {
    match reading {
        Ok(value) => (Some(value), None),
        Err(trouble) => (None, Some(trouble)),
    }
}

fn join<T, E>(value: Option<T>, trouble: Option<E>) -> Option<Result<T, E>> {
    value.map(Ok).or(trouble.map(Err))
}
