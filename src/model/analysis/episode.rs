//! A span of growth: raised once, kept up to date while it lasts, resolved when it ended.

use crate::facts::units::Stamp;
use serde::{Deserialize, Serialize};

/// What may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// Live allocations of the framework's allocator.
    Allocated,
    /// What that allocator holds from the driver.
    Reserved,
    /// What the driver charges to the process beyond `Reserved`: contexts, communicators, other libraries.
    Driver,
    /// What the device lost and no process can be charged with.
    Device,
    /// Page-locked host memory of the framework's host allocator.
    Pinned,
    /// Resident host memory of the process.
    Host,
}

impl Resource {
    /// Every resource, in the order of the list above.
    pub const ALL: [Self; 6] = [Self::Allocated, Self::Reserved, Self::Driver, Self::Device, Self::Pinned, Self::Host];

    /// What people read: the rung of the ladder that grows, or which of the host's memory does.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Driver => "non-torch",
            Self::Device => "others",
            Self::Pinned => "pinned",
            Self::Host => "host",
        }
    }

    /// What programs read: its name in JSON, which never changes.
    pub fn id(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Device => "device",
            it => it.name(),
        }
    }
}

/// What growth is measured over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Axis {
    /// Steps of the job.
    #[default]
    Steps,
    /// Seconds since the first sample, for a job that counts no steps: wherever an episode says step, read second.
    Seconds,
}

/// A span of growth of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// What grows.
    pub resource: Resource,
    /// What its steps are.
    pub axis: Axis,
    /// The step at which growth began, as well as can be told.
    pub since_step: u64,
    /// The step at which it was raised: never moves once it is set.
    pub first_alert_step: u64,
    /// When it was raised.
    pub first_alert_at: Stamp,
    /// The latest step it rests on.
    pub last_step: u64,
    /// How it ended; `None` while it lasts.
    pub resolved: Option<Resolved>,
    /// Bytes a step, above 0.
    pub bytes_per_step: f64,
    /// Between which bytes a step lie with a confidence of 95 %.
    pub interval: (f64, f64),
    /// Live blocks a step; `None` where the backend counts none, or where the resource has none.
    pub blocks_per_step: Option<f64>,
    /// Bytes gained since `since_step`.
    pub gained: u64,
}

/// The end of a span of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The step at which it was seen to have ended.
    pub step: u64,
    /// When.
    pub at: Stamp,
    /// In which way.
    pub end: End,
}

/// In which way growth ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It rose no more.
    Plateau,
    /// What had been gained was given back.
    Released,
    /// The count of steps began anew.
    Restarted,
}
