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
    /// Bytes a step by which retained memory grows beside it, all the time; 0 where it does not.
    pub kept_per_step: u64,
    /// The most bytes by which it can still grow, where that is known: what is frozen has a size.
    pub left: Option<u64>,
}

impl CountedParts {
    /// Returns the bytes of gradients and optimizer state that come if every weight is trained as those that are.
    fn untrained(&self) -> Option<u64> {
        let Parts { weights, gradients, optimizer, .. } = self.parts;
        let frozen = u128::from(weights.saturating_sub(gradients));
        let beside = u128::from(gradients) + u128::from(optimizer);
        u64::try_from((frozen * beside).checked_div(u128::from(gradients))?).ok()
    }
}

/// Returns which part grew between two counts. An earlier count shows whether retained memory grew before as well.
fn grown(from: &CountedParts, to: &CountedParts, before: Option<&CountedParts>) -> Option<GrownPart> {
    let steps = to.step?.checked_sub(from.step?).filter(|it| *it > 0)?;
    let [weights, gradients, optimizer, retained] = gained(from, to);
    let model = weights + gradients + optimizer;
    let all = model + retained;
    let whole = if weights * NEARLY_NONE < model { "trained" } else { "model" };
    let is_beside = |it: i128| it * NEARLY_NONE >= all;
    let is_kept = is_beside(retained) && before.is_some_and(|it| is_growing(it, from)) && model > 0;
    let mut named =
        Parts::TABLE.iter().map(|it| it.0).chain([whole]).zip([weights, gradients, optimizer, retained, model]);
    let most = named.find(|it| it.1 * MOST_OF_IT.1 >= all * MOST_OF_IT.0);
    let (name, bytes) = most.or_else(|| is_kept.then_some((whole, model)))?;
    let a_step = |bytes: i128| u64::try_from(bytes / i128::from(steps)).ok();
    let kept_per_step = if is_kept && name != "retained" { a_step(retained)? } else { 0 };
    let left = to.untrained().filter(|_| name == "trained");
    let found = GrownPart { name, bytes_per_step: a_step(bytes)?, kept_per_step, left };
    (all > 0).then_some(found)
}

/// Returns by how much each part of [`Parts::TABLE`] grew between two counts.
fn gained(from: &CountedParts, to: &CountedParts) -> [i128; 4] {
    let [before, now] = [from, to].map(|it| it.parts.values().map(i128::from));
    std::array::from_fn(|at| now[at] - before[at])
}

/// Whether retained memory has a part of the growth between two counts.
fn is_growing(from: &CountedParts, to: &CountedParts) -> bool {
    let gained = gained(from, to);
    from.step < to.step && gained[3] > 0 && gained[3] * NEARLY_NONE >= gained.iter().sum()
}

impl OnDevice {
    /// Returns which part grows since a step, in the later half of the steps if it is known there: a model that became
    /// larger once does not hide what grows since then. Where only one count came since, the one before it is compared
    /// with that. `None` without two counts, or growth between them, or a part that has most of it, unless both the
    /// model and retained memory grow in each half.
    pub fn grown_part(&self, since: u64) -> Option<GrownPart> {
        let is_settled = |it: &&CountedParts| it.step.is_some_and(|step| step >= since.min(SETTLED));
        let to = self.counts.last()?;
        let later = |at: u64| self.counts.iter().find(|it| it.step.is_some_and(|step| step >= at));
        let earlier = |at: u64| self.counts.iter().rev().find(|it| it.step.is_some_and(|step| step <= at));
        let from = later(since).filter(|it| it.step < to.step).or_else(|| earlier(since).filter(is_settled))?;
        let middle = from.step?.max(since) + to.step?.saturating_sub(from.step?.max(since)) / 2;
        let half = earlier(middle).filter(|it| it.step >= from.step);
        half.and_then(|it| grown(it, to, Some(from))).or_else(|| grown(from, to, None))
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

    fn part(name: &'static str, bytes_per_step: u64) -> GrownPart {
        GrownPart { name, bytes_per_step, kept_per_step: 0, left: None }
    }

    #[test]
    fn a_leak_beside_a_model_that_grows_is_seen_where_it_lasts() {
        let of = |parts: &[[u64; 4]]| {
            let mut on = OnDevice::new(0, DeviceId("GPU-0".into()));
            (0..).zip(parts).for_each(|(at, it)| counted(&mut on, 10 * at, *it));
            on.grown_part(0)
        };
        let model =
            |kept: u64, bytes: u64| GrownPart { kept_per_step: kept * MIB / 10, ..part("model", bytes * MIB / 10) };
        let grows = |at: u64| [100 + 10 * at, 100 + 10 * at, 200 + 20 * at];
        let with = |retained: [u64; 3]| {
            let at = |it: usize| grows(it as u64);
            std::array::from_fn::<_, 3, _>(|it| [at(it)[0], at(it)[1], at(it)[2], retained[it]])
        };
        assert_eq!(of(&with([10, 20, 30])), Some(model(10, 40)), "most of it is the model's");
        assert_eq!(of(&with([10, 50, 90])), Some(model(40, 40)), "neither has most of it");
        assert_eq!(of(&with([10, 10, 20])), Some(model(0, 40)), "a copy that is made once");
        assert_eq!(of(&with([10, 11, 12])), Some(model(0, 40)), "what varies");
    }

    #[test]
    fn what_is_no_longer_frozen_has_an_end() {
        let mut on = OnDevice::new(0, DeviceId("GPU-0".into()));
        for (step, parts) in [(10, [100, 20, 40, 5]), (20, [100, 30, 60, 5]), (30, [100, 40, 80, 5])] {
            counted(&mut on, step, parts);
        }
        let found = GrownPart { left: Some(180 * MIB), ..part("trained", 3 * MIB) };
        assert_eq!(on.grown_part(0), Some(found), "60 MiB of gradients, and twice as much of state");
    }

    #[test]
    fn the_part_that_grows_is_told_apart_from_the_others() {
        let mut on = OnDevice::new(0, DeviceId("GPU-0".into()));
        assert_eq!(on.grown_part(0), None);
        counted(&mut on, 1, [10, 10, 0, 1]);
        counted(&mut on, 2, [10, 10, 20, 1]);
        assert_eq!(on.grown_part(0), Some(part("optimizer", 20 * MIB)));
        assert_eq!(on.grown_part(2), None, "only one count, when the optimizer has begun");
        counted(&mut on, 12, [11, 9, 20, 61]);
        assert_eq!(on.grown_part(2), Some(part("retained", 6 * MIB)));
        counted(&mut on, 22, [31, 29, 60, 61]);
        let late = part("model", 8 * MIB);
        assert_eq!(on.grown_part(20), Some(late), "the count before is compared where growth was noticed late");
        let all = part("model", 8 * MIB);
        assert_eq!(on.grown_part(12), Some(all), "a larger model");
        counted(&mut on, 26, [31, 33, 68, 61]);
        assert_eq!(
            on.grown_part(22).map(|it| (it.name, it.bytes_per_step)),
            Some(("trained", 3 * MIB)),
            "layers are no longer frozen"
        );
        counted(&mut on, 27, [41, 39, 60, 81]);
        assert_eq!(on.grown_part(22), None, "no part has most of it");
        counted(&mut on, 32, [31, 29, 60, 51]);
        assert_eq!(on.grown_part(27), None, "it falls");
        for (step, parts) in [(40, [40, 40, 80, 51]), (44, [40, 40, 80, 55]), (60, [40, 40, 80, 71])] {
            counted(&mut on, step, parts);
        }
        let leak = part("retained", MIB);
        assert_eq!(on.grown_part(32), Some(leak), "the model became larger once, and what is kept grows since");
        for step in 100..1000 {
            counted(&mut on, step, [step, 0, 0, 0]);
        }
        assert!(on.counts.len() <= COUNTS, "{}", on.counts.len());
        assert_eq!(on.grown_part(90), Some(part("weights", MIB)));
        counted(&mut on, 3, [1, 1, 1, 1]);
        assert_eq!((on.counts.len(), on.grown_part(0)), (1, None), "steps began again");
    }
}
