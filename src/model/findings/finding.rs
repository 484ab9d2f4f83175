//! One finding: what is wrong, how much it matters, why, and what to do.

use crate::{
    facts::{
        event::{DeviceId, ProbeId, Replayed},
        units::Stamp,
    },
    model::{
        analysis::{
            cause::Cause,
            culprit::Culprit,
            episode::{Axis, Resource, Stairs},
            evidence::Evidence,
            severity::Severity,
        },
        session::{Session, process::Process},
    },
};

/// The kind of a finding.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::EnumString,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// Memory grows from step to step.
    Growth,
    /// Memory rises and is released, again and again.
    Sawtooth,
    /// Much of what the allocator holds is stuck.
    Fragmentation,
    /// The device is nearly full, and stays so.
    Pressure,
    /// An allocation failed for good.
    Oom,
    /// The allocator flushes its cache to serve a request, or releases it in every step.
    Retries,
    /// A process holds memory on a device that it does not train on.
    ExtraContext,
    /// One rank holds much more than the others.
    Imbalance,
    /// The device is slowed down or needs service.
    Hardware,
    /// Steps take longer than before.
    Slowdown,
    /// Steps have stopped, and nothing in the process moves.
    Stall,
    /// One rank is slower than the others.
    SlowRank,
    /// A process that does nothing holds device memory.
    IdleMemory,
    /// Host memory is going to run out.
    HostFull,
    /// The workers of a process take more and more host memory.
    WorkerGrowth,
    /// `/dev/shm` is almost full.
    ShmFull,
    /// The kernel killed a process because host memory ran out.
    OomKilled,
}

impl Kind {
    /// Every kind, in the order of the list above.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name in reports and files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The user's rule for a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Standing {
    /// No rule: it counts, is judged, and raises an alert from warning on.
    #[default]
    Usual,
    /// It counts and is judged but raises no alert.
    Silenced,
    /// Expected: it is only shown.
    Allowed,
}

impl Standing {
    /// Returns its name in reports and files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The process that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One with a probe.
    Probe(ProbeId),
    /// One that the driver lists, by its pid.
    Listed(Option<u32>),
}

/// The parts of a finding that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its kind.
    pub kind: Kind,
    /// Its process.
    pub subject: Subject,
    /// The device's number in the process.
    pub ordinal: Option<u32>,
    /// What grows.
    pub resource: Option<Resource>,
    /// The cause, if it decides what findings of this kind are.
    pub cause: Option<Cause>,
    /// The step of its first alert. After a restart of the steps, another one may have the same.
    pub step: u64,
    /// When that was.
    pub at: Stamp,
}

/// A finding: raised once, updated while it lasts, resolved when it ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// How much it matters now.
    pub severity: Severity,
    /// The user's rule for it.
    pub standing: Standing,
    /// The cause, as far as the analysis can determine it now.
    pub cause: Cause,
    /// The remedy for its cause, in one line.
    pub advice: &'static str,
    /// The remedy for this very case, if more is known than its cause.
    pub own_remedy: Option<String>,
    /// The resource that grows; `None` for kinds without one.
    pub resource: Option<Resource>,
    /// The device; `None` for host memory.
    pub device: Option<DeviceId>,
    /// The process's own ordinal of the device.
    pub ordinal: Option<u32>,
    /// The probe of its process; `None` if it is judged by what the driver lists, with or without a probe.
    pub probe: Option<ProbeId>,
    /// Its process: the pid on this host, or the pid the probe reports.
    pub pid: Option<u32>,
    /// Its rank in its run.
    pub rank: Option<u64>,
    /// The unit of its steps.
    pub axis: Axis,
    /// The step at which it began, as far as known; 0 is before the first step.
    pub since_step: u64,
    /// The first step that its probe counted, if the probe was started in a running job.
    pub attached_step: Option<u64>,
    /// The step at which gpuwatch raised it; it never changes.
    pub first_alert_step: u64,
    /// When gpuwatch raised it.
    pub first_alert_at: Stamp,
    /// The step at which gpuwatch saw its end; `None` while it lasts.
    pub resolved_step: Option<u64>,
    /// When gpuwatch saw its end.
    pub resolved_at: Option<Stamp>,
    /// Growth in bytes a step.
    pub bytes_per_step: Option<f64>,
    /// Growth in live blocks a step; `None` where they are not counted.
    pub blocks_per_step: Option<f64>,
    /// The stairs by which it grows, if it does.
    pub stairs: Option<Stairs>,
    /// Steps until the device is full; `None` if it does not grow or the limit is unknown.
    pub full_in_steps: Option<u64>,
    /// The same in µs, if the duration of a step is known.
    pub full_in_us: Option<u64>,
    /// Its figures.
    pub evidence: Evidence,
    /// The line that allocates what grows, and its holder, if a capture found it.
    pub culprit: Option<Box<Culprit>>,
    /// What happened and why, in one sentence; only out-of-memory errors have one.
    pub sentence: Option<String>,
    /// The growth that led to it.
    pub led_by: Option<Identity>,
    /// The finding that it follows from. Views show that one first, and fixing it fixes this one.
    pub follows: Option<Identity>,
    /// µs until its resource is exhausted, with an assumed limit if none is known: it orders findings of one severity.
    pub ends_us: u64,
    /// More details, a line each.
    pub account: Vec<String>,
    /// What would save memory, measured, or the command that measures it; a line each.
    pub saving: Vec<String>,
    /// What a replay under other allocator settings shows, or why there is none.
    pub replayed: Option<Box<Replayed>>,
    /// The limit of the host's memory that it is about, in words: `the cgroup of Slurm job 4242`.
    pub limit: Option<String>,
    /// Whether samples are missing from its data.
    pub approximate: bool,
}

impl Finding {
    /// Creates a finding of which only the kind, the cause, the figures, and step and time of the alert are known.
    pub(super) fn new(kind: Kind, cause: Cause, evidence: Evidence, (step, at): (u64, Stamp)) -> Self {
        Self {
            kind,
            severity: Severity::Info,
            standing: Standing::Usual,
            cause,
            advice: cause.advice(),
            own_remedy: None,
            resource: None,
            device: None,
            ordinal: None,
            probe: None,
            pid: None,
            rank: None,
            axis: Axis::Steps,
            since_step: step,
            attached_step: None,
            first_alert_step: step,
            first_alert_at: at,
            resolved_step: None,
            resolved_at: None,
            bytes_per_step: None,
            blocks_per_step: None,
            stairs: None,
            full_in_steps: None,
            full_in_us: None,
            evidence,
            culprit: None,
            sentence: None,
            led_by: None,
            follows: None,
            ends_us: u64::MAX,
            account: Vec::new(),
            saving: Vec::new(),
            replayed: None,
            limit: None,
            approximate: false,
        }
    }

    /// Returns the memory that it is about: what grows, what is stuck or released, what fills the device.
    pub fn memory(&self) -> Option<Resource> {
        self.resource.or(match self.kind {
            Kind::Fragmentation | Kind::Retries => Some(Resource::Reserved),
            Kind::Pressure => Some(Resource::Allocated),
            _ => None,
        })
    }

    /// Returns whether it lasts.
    pub fn is_active(&self) -> bool {
        self.resolved_step.is_none()
    }

    /// Returns what identifies it while its figures change.
    pub fn identity(&self) -> Identity {
        Identity {
            kind: self.kind,
            subject: self.subject(),
            ordinal: self.ordinal,
            resource: self.resource,
            cause: matches!(self.kind, Kind::Hardware | Kind::Retries | Kind::HostFull).then_some(self.cause),
            step: self.first_alert_step,
            at: self.first_alert_at,
        }
    }

    /// Returns the process that it is about.
    pub fn subject(&self) -> Subject {
        self.probe.map_or(Subject::Listed(self.pid), Subject::Probe)
    }

    /// Returns whether it is about this process.
    pub fn is_of(&self, process: &Process) -> bool {
        self.probe.map_or(self.pid.is_some() && self.pid == process.pid, |it| it == process.probe)
    }

    /// Returns its process, if it has a probe.
    pub fn process<'s>(&self, session: &'s Session) -> Option<&'s Process> {
        session.processes.iter().find(|it| self.is_of(it))
    }

    /// Returns whether it is growth that accompanies other growth, and no leak of its own.
    pub fn is_companion(&self) -> bool {
        self.follows.is_some_and(|it| it.kind == Kind::Growth)
    }

    /// Returns whether the process's own memory grows, not a neighbour's on the same device.
    pub fn is_own_growth(&self) -> bool {
        self.kind == Kind::Growth && self.resource != Some(Resource::Device)
    }

    /// Whether it is about the host's memory, and not a device's.
    pub fn is_on_host(&self) -> bool {
        matches!(self.resource, Some(Resource::Host | Resource::Pinned))
            || matches!(self.kind, Kind::HostFull | Kind::WorkerGrowth | Kind::ShmFull)
    }

    /// Returns the remedy in one line: its own; the culprit's, if it has the same cause or keeps the graph; otherwise
    /// its cause's.
    pub fn remedy(&self) -> &str {
        if let Some(own) = &self.own_remedy {
            return own;
        }
        let of_graph = |it: &Culprit| self.cause == Cause::GraphRetained && it.grad;
        let culprit = self.culprit.as_ref().filter(|it| it.cause == self.cause || of_graph(it));
        culprit.map_or(self.advice, |it| &it.advice)
    }

    /// Returns whether the user expects it.
    pub fn is_allowed(&self) -> bool {
        self.standing == Standing::Allowed
    }
}

/// Most names that are named.
const NAMED: usize = 4;

/// Joins names, and counts those that are too many; `None` without any.
pub fn names(each: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = each.collect();
    let more = all.len().saturating_sub(NAMED);
    let shown = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match (all.len(), more) {
        (0, _) => None,
        (_, 0) => Some(shown),
        _ => Some(format!("{shown} and {more} more")),
    }
}
