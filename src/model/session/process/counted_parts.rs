//! What the allocated bytes of a process consisted of when its probe counted that last.

use super::OnDevice;
use crate::{
    facts::{
        event::wire::{Counters, Edge, Parts, Sample},
        units::Stamp,
    },
    model::analysis::ladder::OwnFigures,
};
use serde::{Deserialize, Serialize};

/// What allocated bytes consisted of at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedParts {
    /// The parts, which sum to the bytes that were allocated then.
    pub parts: Parts,
    /// The step.
    pub step: Option<u64>,
    /// When it ended.
    pub at: Stamp,
}

impl OnDevice {
    /// Returns the ladder's input for these counters, which are its latest ones.
    pub(in crate::model::session) fn figures(&self, counters: &Counters, expandable: bool, at: Stamp) -> OwnFigures {
        let parts = self.parts.map(|it| it.parts);
        OwnFigures { parts, is_between_steps: self.is_between_steps, ..OwnFigures::counted(counters, expandable, at) }
    }

    /// Takes what a sample says of the parts of its allocated bytes; forgets them when steps begin again.
    pub(super) fn take_parts(&mut self, sample: &Sample, at: Stamp) {
        self.is_between_steps = sample.edge == Edge::Tick;
        if self.step.zip(sample.step).is_some_and(|(before, now)| now < before) {
            self.parts = None;
        }
        let is_whole = |it: &Parts| it.sum().is_some() && it.sum() == sample.counters.allocated;
        if let Some(parts) = sample.parts.filter(is_whole) {
            self.parts = Some(CountedParts { parts, step: sample.step, at });
        }
    }
}
