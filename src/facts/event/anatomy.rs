//! What a process's memory consisted of at the highest moment of a step.

use super::{Event, Fact, ProbeId};
use crate::facts::{text::Foreign, units::Stamp};
use gpuwatch_probe::wire::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most lines that are kept of a moment, those with the most bytes.
pub const LINES_MAX: usize = 32;

/// What a live block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum AnatomyPart {
    /// Parameters.
    Weights,
    /// Gradients of parameters.
    Gradients,
    /// What optimizers keep between steps.
    Optimizer,
    /// Made outside of backward and of optimizers: activations, inputs, outputs.
    Activations,
    /// Made in backward or by an optimizer, for this step.
    Temporaries,
    /// From before the trace, workspaces, and what is not known.
    Other,
}

impl AnatomyPart {
    /// Every part with its words.
    pub const WORDS: [(Self, &'static str); 6] = [
        (Self::Weights, "weights"),
        (Self::Gradients, "gradients"),
        (Self::Optimizer, "optimizer state"),
        (Self::Activations, "activations, inputs and outputs"),
        (Self::Temporaries, "temporaries of backward and step"),
        (Self::Other, "buffers, caches, workspaces, unknown"),
    ];

    /// Returns the words for a name in JSON; the name itself where it is of a later release.
    pub fn words(name: &str) -> &str {
        Self::WORDS.iter().find(|it| it.0.name() == name).map_or(name, |it| it.1)
    }

    /// Returns the part with a name in JSON.
    pub fn named(name: &str) -> Option<Self> {
        Self::WORDS.iter().map(|it| it.0).find(|it| it.name() == name)
    }

    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// When in a step a block was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StepPhase {
    /// Before the trace.
    Before,
    /// In the forward function of a module.
    Forward,
    /// Outside of modules, or in a module for losses: inputs, the loss.
    Loss,
    /// In backward.
    Backward,
    /// In an optimizer's step.
    Optimizer,
}

impl StepPhase {
    /// Every phase with its words.
    pub const WORDS: [(Self, &'static str); 5] = [
        (Self::Before, "before the trace"),
        (Self::Forward, "in forward"),
        (Self::Loss, "outside of modules and in the loss"),
        (Self::Backward, "in backward"),
        (Self::Optimizer, "in the optimizer's step"),
    ];

    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns it in words: `in backward`.
    pub fn words(self) -> &'static str {
        Self::WORDS.iter().find(|it| it.0 == self).map_or("", |it| it.1)
    }
}

/// What a device's highest moment consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anatomy {
    /// The step in which it was; `None` if no step ended in the trace and more was allocated at some time before: the
    /// step may have had a higher moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Bytes of all live blocks, which is the sum of the parts.
    pub allocated: u64,
    /// Bytes by part; those without any are absent.
    pub parts: BTreeMap<AnatomyPart, u64>,
    /// The phase of the allocation that made it the highest; `None` where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<StepPhase>,
    /// The same bytes by the phase in which they were allocated.
    #[serde(default)]
    pub phases: BTreeMap<StepPhase, u64>,
    /// The lines that allocated blocks, the one with the most bytes first.
    #[serde(deserialize_with = "limits::list::<_, _, LINES_MAX>")]
    pub lines: Vec<LineShare>,
}

impl Anatomy {
    /// Whether it is known what any of the bytes are.
    pub fn is_known(&self) -> bool {
        self.parts.keys().any(|it| *it != AnatomyPart::Other)
    }
}

/// What one line of the job allocated and is live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineShare {
    /// The line, as `train.py:88`.
    pub line: Foreign,
    /// Bytes of the live blocks.
    pub bytes: u64,
    /// How many they are.
    pub blocks: u64,
    /// The part of most of these bytes.
    pub part: AnatomyPart,
    /// The module in whose forward function most of these bytes were allocated, as `layers.*.mlp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<Foreign>,
}

/// The highest moment of a step of a process, as traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakMoment {
    /// The probe of the process.
    #[serde(rename = "from")]
    pub probe: ProbeId,
    /// The process's own ordinal of the device.
    pub device: u32,
    /// What was live.
    #[serde(flatten)]
    pub anatomy: Anatomy,
    /// What the trace cost.
    #[serde(default)]
    pub cost: PeakCost,
}

/// What the trace of a step cost its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeakCost {
    /// Whole steps that were traced.
    pub steps: u64,
    /// How long the trace lasted, in ms.
    pub ms: u64,
    /// How often PyTorch wrote down what it had recorded.
    pub snapshots: u64,
    /// The longest pause, in µs.
    pub longest_pause_us: u64,
    /// All pauses together, in µs.
    pub paused_us: u64,
}

impl PeakMoment {
    /// Returns it as an event.
    pub fn event(self, at: Stamp) -> Event {
        Event { at, fact: Fact::PeakMoment(Box::new(self)) }
    }
}
