//! One finding: what is wrong, how much it matters, why, and what to do.

use crate::{
    facts::{
        event::{DeviceId, ProbeId},
        units::Stamp,
    },
    model::analysis::{
        cause::Cause,
        culprit::Culprit,
        episode::{Axis, Resource},
        evidence::Evidence,
        severity::Severity,
    },
};

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The allocator flushes its cache to go on, or gives it back in every step.
    Retries,
    /// A process holds memory on a device that it does not train on.
    ExtraContext,
    /// One rank holds much more than the others.
    Imbalance,
}

impl Kind {
    /// Every kind, in the order of the list above.
    pub const ALL: [Self; 8] = [
        Self::Growth,
        Self::Sawtooth,
        Self::Fragmentation,
        Self::Pressure,
        Self::Oom,
        Self::Retries,
        Self::ExtraContext,
        Self::Imbalance,
    ];

    /// Its name in reports and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Growth => "growth",
            Self::Sawtooth => "sawtooth",
            Self::Fragmentation => "fragmentation",
            Self::Pressure => "pressure",
            Self::Oom => "oom",
            Self::Retries => "retries",
            Self::ExtraContext => "extra-context",
            Self::Imbalance => "imbalance",
        }
    }
}

/// What the user asked of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: it counts, is judged, and is told from warning on.
    #[default]
    Usual,
    /// It counts and is judged, and nobody is told.
    Silenced,
    /// It is expected: shown, and nothing else.
    Allowed,
}

impl Standing {
    /// Its name in reports and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Silenced => "silenced",
            Self::Allowed => "allowed",
        }
    }
}

/// What a finding is known by: its identity, which never changes.
pub type Identity = (Kind, ProbeId, Option<u32>, Option<Resource>, u64, Stamp);

/// Something found: raised once, kept up to date while it lasts, resolved when it ended.
///
/// `kind`, `probe`, `ordinal`, `resource` and `first_alert_step` never change: together they are its identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: Kind,
    /// How much it matters now.
    pub severity: Severity,
    /// What the user asked of it.
    pub standing: Standing,
    /// Why, as well as can be told now.
    pub cause: Cause,
    /// What to do about its cause, in one line.
    pub advice: &'static str,
    /// What grows; `None` for kinds that are not about one resource.
    pub resource: Option<Resource>,
    /// The device; `None` where it is about host memory.
    pub device: Option<DeviceId>,
    /// The process's own number for the device.
    pub ordinal: Option<u32>,
    /// The probe whose process it is about.
    pub probe: ProbeId,
    /// That process, by our number for it, else by its own.
    pub pid: Option<u32>,
    /// Its rank in its run.
    pub rank: Option<u64>,
    /// What the steps of this finding are.
    pub axis: Axis,
    /// The step at which it began, as well as can be told; 0 is before the first one.
    pub since_step: u64,
    /// The step at which it was raised: never moves.
    pub first_alert_step: u64,
    /// When it was raised.
    pub first_alert_at: Stamp,
    /// The step at which it was seen to have ended; `None` while it lasts.
    pub resolved_step: Option<u64>,
    /// When.
    pub resolved_at: Option<Stamp>,
    /// Growth in bytes a step.
    pub bytes_per_step: Option<f64>,
    /// Growth in live blocks a step; `None` where they are not counted.
    pub blocks_per_step: Option<f64>,
    /// Steps until the device is full; `None` where it does not grow or no limit is known.
    pub full_in_steps: Option<u64>,
    /// The same in µs, where the time of a step is known.
    pub full_in_us: Option<u64>,
    /// The figures it rests on.
    pub evidence: Evidence,
    /// Which line allocates what grows and who keeps it, where a probe looked for it.
    pub culprit: Option<Box<Culprit>>,
    /// What happened and why, in one sentence; out-of-memory errors have one.
    pub sentence: Option<String>,
    /// The growth that led to it.
    pub led_by: Option<Identity>,
    /// What it follows from: views lead with that one, and fixing it mends this one.
    pub follows: Option<Identity>,
    /// When what it takes is used up, µs from now, with an assumed limit where none is known: findings of one severity are
    /// ordered by it.
    pub ends_us: u64,
    /// What else is to be said of it, in words, a line each.
    pub account: Vec<String>,
    /// Whether samples are missing in what it rests on.
    pub approximate: bool,
}

impl Finding {
    /// Whether it lasts.
    pub fn is_active(&self) -> bool {
        self.resolved_step.is_none()
    }

    /// Its identity.
    pub fn identity(&self) -> Identity {
        (self.kind, self.probe, self.ordinal, self.resource, self.first_alert_step, self.first_alert_at)
    }

    /// Whether it is growth that comes with other growth, and is no leak of its own.
    pub fn is_beside(&self) -> bool {
        self.follows.is_some_and(|it| it.0 == Kind::Growth)
    }

    /// Whether memory of the process itself grows: not a neighbour's on the same device.
    pub fn is_own_growth(&self) -> bool {
        self.kind == Kind::Growth && self.resource != Some(Resource::Device)
    }

    /// What to do, in one line: about the culprit's own line, where it is of the same cause or keeps the graph that is.
    pub fn remedy(&self) -> &str {
        let of_graph = |it: &Culprit| self.cause == Cause::GraphRetained && it.grad;
        let culprit = self.culprit.as_ref().filter(|it| it.cause == self.cause || of_graph(it));
        culprit.map_or(self.advice, |it| &it.advice)
    }

    /// Whether the user expects it, so that nothing follows from it.
    pub fn is_allowed(&self) -> bool {
        self.standing == Standing::Allowed
    }
}
