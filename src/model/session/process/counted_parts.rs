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

/// Counts of a device that are kept. Of more, every other one stays.
const COUNTS: usize = 64;

/// A part grows if it has this share of the growth.
const MOST_OF_IT: (i128, i128) = (3, 4);

/// Weights do not grow if they have less than one part in so many of the model's growth.
const NEARLY_NONE: i128 = 20;

/// From this step on, optimizers have what they make at first.
const SETTLED: u64 = 4;

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

/// What has most of the growth of allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrownPart {
    /// A part of [`Parts::TABLE`]; or `model` for all but retained memory, `trained` where the weights do not grow.
    pub name: &'static str,
    /// Its bytes a step.
    pub bytes_per_step: u64,
}

/// Returns which part grew between two counts.
fn grown(from: &CountedParts, to: &CountedParts) -> Option<GrownPart> {
    let steps = to.step?.checked_sub(from.step?).filter(|it| *it > 0)?;
    let gained = |now: u64, before: u64| i128::from(now) - i128::from(before);
    let of = |it: &Parts| [it.weights, it.gradients, it.optimizer, it.retained];
    let mut grown: Vec<(i128, &'static str)> = of(&to.parts)
        .into_iter()
        .zip(of(&from.parts))
        .zip(Parts::TABLE)
        .map(|((now, before), (name, _))| (gained(now, before), name))
        .collect();
    let all: i128 = grown.iter().map(|it| it.0).sum();
    let model = grown.iter().filter(|it| it.1 != "retained").map(|it| it.0).sum();
    let weights = grown.iter().filter(|it| it.1 == "weights").map(|it| it.0).sum::<i128>();
    grown.push((model, if weights * NEARLY_NONE < model { "trained" } else { "model" }));
    let (bytes, name) = grown.into_iter().find(|it| it.0 * MOST_OF_IT.1 >= all * MOST_OF_IT.0)?;
    let bytes_per_step = u64::try_from(bytes / i128::from(steps)).ok()?;
    (all > 0).then_some(GrownPart { name, bytes_per_step })
}

impl OnDevice {
    /// Returns which part grows since a step, in the later half of the steps if it is known there: a model that became
    /// larger once does not hide what grows since then. Where only one count came since, the one before it is compared
    /// with that. `None` without two counts, or growth between them, or a part
    /// that has most of it.
    pub fn grown_part(&self, since: u64) -> Option<GrownPart> {
        let is_settled = |it: &&CountedParts| it.step.is_some_and(|step| step >= since.min(SETTLED));
        let to = self.counts.last()?;
        let later = |at: u64| self.counts.iter().find(|it| it.step.is_some_and(|step| step >= at));
        let earlier = |at: u64| self.counts.iter().rev().find(|it| it.step.is_some_and(|step| step <= at));
        let from = later(since).filter(|it| it.step < to.step).or_else(|| earlier(since).filter(is_settled))?;
        let middle = from.step?.max(since) + to.step?.saturating_sub(from.step?.max(since)) / 2;
        let half = earlier(middle).filter(|it| it.step >= from.step);
        half.and_then(|it| grown(it, to)).or_else(|| grown(from, to))
    }

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
            self.counts.clear();
        }
        let is_whole = |it: &Parts| it.sum().is_some() && it.sum() == sample.counters.allocated;
        if let Some(parts) = sample.parts.filter(is_whole) {
            let counted = CountedParts { parts, step: sample.step, at };
            self.parts = Some(counted);
            if self.counts.len() >= COUNTS {
                let mut place = 0;
                self.counts.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
            }
            self.counts.push(counted);
        } else if !self.is_between_steps {
            self.retain_more(sample, at);
        }
    }

    /// Takes what else is allocated at the end of a step as retained: the next count may be many steps away.
    fn retain_more(&mut self, sample: &Sample, at: Stamp) {
        let Some(Parts { weights, gradients, optimizer, .. }) = self.parts.map(|it| it.parts) else { return };
        let allocated = sample.counters.allocated;
        let parts = allocated.and_then(|it| Parts::of(it, [weights, gradients, optimizer]));
        self.parts = parts.map(|parts| CountedParts { parts, step: sample.step, at }).or(self.parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::DeviceId;

    const MIB: u64 = 1 << 20;

    /// What is retained at the end of the latest step is not transient in the next one, however old the count is.
    #[test]
    fn what_a_job_keeps_since_the_count_is_retained() {
        let mut on = OnDevice::new(0, DeviceId("GPU-0".into()));
        counted(&mut on, 4, [10, 20, 30, 40]);
        let ends = |on: &mut OnDevice, step, edge, mib: u64| {
            let counters = Counters { allocated: Some(mib * MIB), ..Counters::default() };
            on.take_parts(&Sample { step: Some(step), edge, counters, ..Sample::default() }, Stamp(step));
            on.parts.map(|counted| counted.parts.values().map(|bytes| bytes / MIB))
        };
        assert_eq!(ends(&mut on, 5, Edge::Tick, 500), Some([10, 20, 30, 40]));
        assert_eq!(ends(&mut on, 5, Edge::Step, 340), Some([10, 20, 30, 280]));
        assert_eq!(ends(&mut on, 6, Edge::Step, 50), Some([10, 20, 30, 280]), "less than the model: no account");
        assert_eq!(on.counts.len(), 1);
    }

    fn counted(on: &mut OnDevice, step: u64, parts: [u64; 4]) {
        let [weights, gradients, optimizer, retained] = parts.map(|it| it * MIB);
        let parts = Parts { weights, gradients, optimizer, retained };
        let counters = Counters { allocated: parts.sum(), ..Counters::default() };
        let sample = Sample { step: Some(step), edge: Edge::Step, parts: Some(parts), counters, ..Sample::default() };
        on.take_parts(&sample, Stamp(step));
        on.step = Some(step);
    }

    #[test]
    fn the_part_that_grows_is_told_apart_from_the_others() {
        let mut on = OnDevice::new(0, DeviceId("GPU-0".into()));
        assert_eq!(on.grown_part(0), None);
        counted(&mut on, 1, [10, 10, 0, 1]);
        counted(&mut on, 2, [10, 10, 20, 1]);
        assert_eq!(on.grown_part(0), Some(GrownPart { name: "optimizer", bytes_per_step: 20 * MIB }));
        assert_eq!(on.grown_part(2), None, "only one count, when the optimizer has begun");
        counted(&mut on, 12, [11, 9, 20, 61]);
        assert_eq!(on.grown_part(2), Some(GrownPart { name: "retained", bytes_per_step: 6 * MIB }));
        counted(&mut on, 22, [31, 29, 60, 61]);
        let late = GrownPart { name: "model", bytes_per_step: 8 * MIB };
        assert_eq!(on.grown_part(20), Some(late), "the count before is compared where growth was noticed late");
        let all = GrownPart { name: "model", bytes_per_step: 8 * MIB };
        assert_eq!(on.grown_part(12), Some(all), "a larger model");
        counted(&mut on, 26, [31, 33, 68, 61]);
        let trained = GrownPart { name: "trained", bytes_per_step: 3 * MIB };
        assert_eq!(on.grown_part(22), Some(trained), "layers are no longer frozen");
        counted(&mut on, 27, [41, 39, 60, 81]);
        assert_eq!(on.grown_part(22), None, "no part has most of it");
        counted(&mut on, 32, [31, 29, 60, 51]);
        assert_eq!(on.grown_part(27), None, "it falls");
        for (step, parts) in [(40, [40, 40, 80, 51]), (44, [40, 40, 80, 55]), (60, [40, 40, 80, 71])] {
            counted(&mut on, step, parts);
        }
        let leak = GrownPart { name: "retained", bytes_per_step: MIB };
        assert_eq!(on.grown_part(32), Some(leak), "the model became larger once, and what is kept grows since");
        for step in 100..1000 {
            counted(&mut on, step, [step, 0, 0, 0]);
        }
        assert!(on.counts.len() <= COUNTS, "{}", on.counts.len());
        assert_eq!(on.grown_part(90), Some(GrownPart { name: "weights", bytes_per_step: MIB }));
        counted(&mut on, 3, [1, 1, 1, 1]);
        assert_eq!((on.counts.len(), on.grown_part(0)), (1, None), "steps began again");
    }
}
