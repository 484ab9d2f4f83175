//! A span of growth: raised once, updated while it lasts, resolved when it ends.

use crate::facts::units::Stamp;
use serde::{Deserialize, Serialize};

/// The resources that may grow.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Resource {
    /// Live allocations of the framework's allocator.
    Allocated,
    /// Memory that the allocator has reserved from the driver.
    Reserved,
    /// What the driver charges to the process beyond `Reserved`: contexts, communicators, other libraries.
    #[strum(serialize = "non-torch")]
    Driver,
    /// Used device memory that belongs to no known process.
    #[strum(serialize = "others")]
    Device,
    /// Page-locked host memory of the framework's host allocator.
    Pinned,
    /// Resident host memory of the process.
    Host,
}

impl Resource {
    /// Every resource, in the order above.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its displayed name: the rung of the ladder, or the part of host memory, that grows.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns its name in JSON, which never changes.
    pub fn id(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Device => "device",
            it => it.name(),
        }
    }
}

/// The unit that growth is measured over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Axis {
    /// Steps of the job.
    #[default]
    Steps,
    /// Seconds since the first sample, for a job that counts no steps. An episode's steps are then seconds.
    Seconds,
}

/// A span of growth of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// What grows.
    pub resource: Resource,
    /// The unit of its steps.
    pub axis: Axis,
    /// The step at which growth began, as far as the samples show.
    pub since_step: u64,
    /// The step at which gpuwatch raised it; it never changes.
    pub first_alert_step: u64,
    /// When gpuwatch raised it.
    pub first_alert_at: Stamp,
    /// The step of the latest sample it includes.
    pub last_step: u64,
    /// How it ended; `None` while it lasts.
    pub resolved: Option<Resolved>,
    /// Bytes per step, above 0.
    pub bytes_per_step: f64,
    /// The 95 % confidence interval of the bytes per step.
    pub interval: (f64, f64),
    /// Live blocks per step; `None` where the backend or the resource has no count.
    pub blocks_per_step: Option<f64>,
    /// Bytes gained since `since_step`.
    pub gained: u64,
    /// Its stairs, if it rises by about the same at about the same distance.
    #[serde(default)]
    pub stairs: Option<Stairs>,
}

/// Rises of about the same height at about the same distance: what an epoch, a fold or an evaluation leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stairs {
    /// Bytes of a rise.
    pub bytes: u64,
    /// Live blocks of a rise.
    pub blocks: u64,
    /// From one rise to the next, on the axis.
    pub every: u64,
    /// Where the latest rise was.
    pub last: u64,
    /// How much earlier or later a rise may come.
    pub slack: u64,
}

/// The end of a span of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The step at which gpuwatch saw the end.
    pub step: u64,
    /// When gpuwatch saw the end.
    pub at: Stamp,
    /// How it ended.
    pub end: End,
}

/// How growth ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Memory stopped rising.
    Plateau,
    /// The job released what it had gained.
    Released,
    /// The step count started again.
    Restarted,
}
