//! What a replay of a job's allocations shows for a finding: which allocator settings would have saved memory.

use super::{Event, Fact, ProbeId};
use crate::facts::{
    text::Foreign,
    units::{Stamp, counted},
};
use serde::{Deserialize, Serialize};

/// How much settings must save in the replay of a window to be better, in percent. Smaller differences of a window may
/// be of the other sign in the whole run.
pub const WINDOW_SAVES_PERCENT: u64 = 10;

/// Steps of a window, unless a user wants others. Of a job whose batches differ in length, 3 of 25 windows of 20 steps
/// missed the better settings, and none of 25 windows of 50 steps.
pub const WINDOW_STEPS: u64 = 50;

/// An answer of a replay, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The probe of the process.
    pub probe: ProbeId,
    /// The process's own ordinal of the device.
    pub device: u32,
    /// The finding that it belongs to; `None` if a user asked.
    pub finding: Option<About>,
    /// The answer, or the reason why there is none and what to do, for the user.
    pub result: Result<Box<Comparison>, Foreign>,
    /// What it cost.
    pub cost: Cost,
}

impl Window {
    /// Describes that no settings save enough in it.
    pub fn without_advice(steps: Option<u64>) -> String {
        let part = steps.map_or_else(|| "this part of the run".to_owned(), |it| counted(it, "step"));
        format!(
            "no setting saves {WINDOW_SAVES_PERCENT} % or more in {part} without a need for a larger device; the sign of a smaller difference may change over the \
             whole run"
        )
    }
}

impl Replayed {
    /// Returns it as an event.
    pub fn event(self, at: Stamp) -> Event {
        Event { at, fact: Fact::Replayed(Box::new(self)) }
    }
}

/// Identifies a finding of a process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct About {
    /// The name of its kind.
    pub kind: Foreign,
    /// The id of its resource, for growth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Foreign>,
    /// The step at which gpuwatch raised it.
    pub step: u64,
}

/// The replays under the job's own settings and under the best other ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The replayed part of the run, if that is not all of it until `until_step`. Its figures show which settings are
    /// better; the whole run reserves other amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Replayed events of the device.
    pub events: u64,
    /// The last completed step that the trace contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_step: Option<u64>,
    /// Bytes of the device on which the run is replayed; `None` if unknown, and then nothing fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// How far the replay as recorded is off, in parts per million.
    pub error_ppm: u64,
    /// Under the job's own settings.
    pub current: Outcome,
    /// Under the best other settings; `None` if none is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Outcome>,
    /// Number of settings that were replayed, the job's own included.
    pub tried: u64,
}

/// A part of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Steps that it covers; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
}

/// What a run does under some settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// The settings, as in `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
    pub settings: Foreign,
    /// The most bytes that were live.
    pub peak_allocated: u64,
    /// The most bytes that the allocator reserved.
    pub peak_reserved: u64,
    /// Where memory runs out on a device of that size; `None` if the run fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_at: Option<Failure>,
    /// Bytes of the smallest device on which the run fits, the context included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_device: Option<u64>,
    /// Allocations that fitted only after the cache was released.
    pub retries: u64,
    /// Segments requested from the driver.
    pub cuda_mallocs: u64,
    /// Waits for the device.
    pub synchronisations: u64,
}

/// Where a run runs out of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The event's index in the device's trace.
    pub event: u64,
    /// The step, such as `step 12`, or the last range that the program began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Foreign>,
    /// The line that allocates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Foreign>,
}

/// What a trace and its replay cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// CPU time of the replays, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Bytes of the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_bytes: Option<u64>,
    /// CPU time of the job that writing the trace took, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_cpu_us: Option<u64>,
    /// How long the job paused for the trace in total, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_us: Option<u64>,
    /// Its longest pause, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_pause_us: Option<u64>,
}
