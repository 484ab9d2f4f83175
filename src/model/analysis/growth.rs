//! Whether memory grows from step to step: every resource of one process on one device, an observation at a time.
//!
//! Each resource has a [`watch`](self::watch): the lowest values of stretches of 1, 2, 4, … samples
//! (`horizons`), runs of new highs among them that are more than chance (`climb`), the same of what is kept beside
//! whole multiples of the lengths' unit (`grid`), and, once such a run is found, a line through the samples (`line`)
//! and through the count of blocks (`per_block`), tooth against tooth under a sawtooth (`season`).
//!
//! # How growth is judged
//!
//! `analysis::growth` takes one observation at a time (`step(state, observation) -> state`) and watches six resources
//! of each process on each device. The allocator's counters are looked at only at the boundary of a step, always in the
//! same phase; what lies outside of it (pinned and host memory, the driver's figure, the device) is looked at whenever
//! it comes, as of the latest step. A job that counts no steps is watched by the second, after five minutes, and its
//! episodes say so.
//!
//! 1. **Floors.** Of each series the lowest values of stretches of 1, 2, 4, … samples are formed. What the job gives
//!    back within a stretch (lengths, evaluation, two optimizers in turn, a metric that is reset) is not in its lowest
//!    value: every period vanishes at some horizon. The count of live blocks is a series of its own: lengths do not
//!    show in it, so that 512 bytes a step are a straight line there under any noise.
//! 2. **Runs of new highs.** At each horizon a run is growth when it has 8 rises or more over 20 steps or more, spread
//!    over its time, none of them more than half of the gain (a jump of the level does not count), the later half
//!    having its part (saturation does not count), when it lies above what was lately reached and gained three times
//!    what was lately given back (a known sawtooth does not count).
//! 3. **Teeth.** Under a sawtooth of any period the lowest count after each fall is a series of its own (`teeth`).
//!    Three rises of it in a row, the last two at about the same pace, are growth.
//! 4. **Units.** What follows a batch's length has so many bytes a word. Once a few moves of the bytes asked for have a
//!    common divisor (Euclid) larger than rounding, their remainder is a series of its own: lengths, curricula, what an
//!    evaluation left and most teeth are whole multiples, and a tensor that grows beside them shows at its first step
//!    (`grid`). A remainder that comes again is a rise however large; others above half of the unit are falls; where
//!    one in eight falls, the unit is looked for again. A short run in whole units, with nothing beside it, is the
//!    lengths' own. Two lengths with different sizes a word have no unit.
//! 5. **Lines.** One tensor that grows under batches without a unit shows in neither lows nor counts. At each horizon a
//!    line goes through the latest 16 to 32 means (batch means); it is growth when its slope is 7.5 to 10 standard
//!    errors above 0, widened for residuals that follow each other, when it rises in every quarter to a new highest
//!    mean, and when the series is noise and not a walk: its second differences, in which a trend does not show, get
//!    smaller the longer the stretches (`trend`, `moves`).
//! 6. **Chance.** A breathing series makes new highs as well, `ln(t/s)` of them between `s` and `t`: as many as were
//!    seen have to be improbable. A walk without aim gets as far as the root of its steps: the run has to get four
//!    times further than the moves of the series explain, at the horizon that is surest of it.
//! 7. **Steps that grow.** Longer sentences or larger batches leave more behind where outputs are still alive. A step
//!    then holds three times as much in between (the old outputs, the new ones, their gradient), so that the highest
//!    live bytes rise further than what is left; a tensor that is kept is there twice at most. Such growth is not
//!    raised (`working_set`). Where an evaluation or the first steps needed more than the steps that grow, the highest
//!    does not show it.
//! 8. **Figures.** Where nothing ever fell, bytes a step are what was gained from the first rise to the latest over the
//!    steps between: events at random have no better rate. Elsewhere they are the surest of three lines since the
//!    start: through the samples, through the lowest of each stretch, through the lowest of each tooth; a jump of the
//!    level is taken out of them. Where lengths or teeth blur them, blocks a step times the bytes per block that recur
//!    between nearby steps, or, under a sawtooth, between a sample and the one at its place of the tooth before
//!    (seasonal differences, `season`).
//! 9. **The end.** No rise for three times the longest gap so far, or one far behind the pace so far, is a plateau;
//!    more than half of the gain given back is a release; a count of steps that falls back is a restart. Where a longer
//!    horizon continues to rise and gave nothing back, only a phase ended, and the growth is followed there. After a
//!    plateau the next run needs more evidence, so that a slow fill-up raises one alert.
//!
//! Reserved memory is not raised while allocated memory grows, which explains it. Host memory has the only floors in
//! bytes (4 MiB, a page a step): an interpreter's heap creeps by less. Work per step is constant on average and
//! logarithmic at most; memory is a few hundred rises per resource, whatever the run's length. `tests/it/corpus.rs`
//! judges all of this on 69 traces of real training loops (`tests/corpus`), on 66 others that nothing is fitted to
//! (`tests/traces`), on 41 variations of what is hardest (`tests/traces/varied`), and on loops made up from seeds
//! (`corpus/loops.rs`, over a model of PyTorch's allocator), of which odd seeds are for judging alone.

mod alert;
mod climb;
mod episodes;
mod grid;
mod horizons;
mod line;
mod moves;
mod per_block;
mod point;
mod season;
mod teeth;
mod trend;
mod watch;
mod working_set;

pub use self::episodes::EPISODES;

use crate::{
    facts::units::Stamp,
    model::analysis::{
        curve::Curve,
        episode::{Axis, Episode, Resource},
    },
};
use episodes::Episodes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use watch::{Change, Seen, Watch};

/// What one process on one device was seen to hold at one instant. Bytes unless said otherwise; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Steps completed, at the boundary of a step; `None` between steps.
    pub step: Option<u64>,
    /// When.
    pub at: Stamp,
    /// Live allocations.
    pub allocated: Option<u64>,
    /// What the job asked for of them, before rounding.
    pub requested: Option<u64>,
    /// Live allocations, a count.
    pub blocks: Option<u64>,
    /// The highest that live allocations ever were, within steps too.
    pub peak: Option<u64>,
    /// What the allocator holds from the driver.
    pub reserved: Option<u64>,
    /// What the driver charges to the process beyond `reserved`.
    pub driver: Option<u64>,
    /// What the device lost and no probed process can be charged with.
    pub device: Option<u64>,
    /// Page-locked host memory.
    pub pinned: Option<u64>,
    /// Resident host memory.
    pub host: Option<u64>,
}

/// What was seen so far, and what was found in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    axis: Option<Axis>,
    began: Stamp,
    now: Stamp,
    place: u64,
    curves: BTreeMap<Resource, Curve>,
    watches: Vec<Watch>,
    episodes: Episodes,
}

/// Takes one more observation.
///
/// Between steps the allocator's counters are in another phase than at a step's boundary, so that only what
/// lies outside of the allocator is looked at then, as of the latest step. A job that has not counted a step
/// yet is watched by the second. An observation said again changes nothing; a count of steps that falls back
/// is a restart: what lasts ends, and watching begins anew.
#[must_use]
pub fn step(mut state: Growth, seen: &Observation) -> Growth {
    let Some(place) = state.place_of(seen) else { return state };
    state.place = place;
    state.now = state.now.max(seen.at);
    let inside = seen.step.is_some() || state.axis == Some(Axis::Seconds);
    for resource in Resource::ALL {
        let value = match resource {
            Resource::Allocated => seen.allocated.filter(|_| inside),
            Resource::Reserved => seen.reserved.filter(|_| inside),
            Resource::Driver => seen.driver,
            Resource::Device => seen.device,
            Resource::Pinned => seen.pinned,
            Resource::Host => seen.host,
        };
        if let Some(value) = value {
            state.curves.entry(resource).or_default().push(place, value);
            let of_live = Seen { bytes: value, requested: seen.requested, blocks: seen.blocks, peak: seen.peak };
            let is_live = resource == Resource::Allocated;
            state.watch(resource, seen.at, if is_live { of_live } else { Seen { bytes: value, ..Seen::default() } });
        }
    }
    state
}

impl Growth {
    /// Every episode that is remembered, in the order in which they were raised.
    pub fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.episodes.iter()
    }

    /// How many episodes are no longer remembered.
    pub fn forgotten(&self) -> u64 {
        self.episodes.forgotten()
    }

    /// What growth is measured over; `None` before anything was seen.
    pub fn axis(&self) -> Option<Axis> {
        self.axis
    }

    /// A resource over the whole run since the latest restart, at a growing stride; `None` where it is unknown.
    pub fn curve(&self, resource: Resource) -> Option<&Curve> {
        self.curves.get(&resource)
    }

    /// How much of the axis live allocations were watched over, since the latest restart; 0 where they are unknown.
    pub fn watched(&self) -> u64 {
        self.watches.iter().find(|it| it.resource() == Resource::Allocated).map_or(0, Watch::span)
    }

    /// How much of that it is: `12 of 32 steps`, `7 of 300 s`.
    pub fn progress(&self) -> String {
        let unit = if self.axis == Some(Axis::Seconds) { "s" } else { "steps" };
        format!("{} of {} {unit}", self.watched(), self.enough())
    }

    /// How much of the axis has to be watched before it means something that no growth was found.
    pub fn enough(&self) -> u64 {
        match self.axis {
            Some(Axis::Seconds) => 300,
            _ => 32,
        }
    }

    /// The place on the axis that an observation has; `None` for one that was there before.
    fn place_of(&mut self, seen: &Observation) -> Option<u64> {
        const SECOND: u64 = 1_000_000;
        match (seen.step, self.axis) {
            (Some(step), Some(Axis::Steps)) => match step.cmp(&self.place) {
                std::cmp::Ordering::Greater => {}
                std::cmp::Ordering::Less if seen.at > self.now => self.restart(step, seen.at),
                _ => return None,
            },
            (Some(step), before) => {
                if before.is_some() {
                    self.restart(step, seen.at);
                }
                self.axis = Some(Axis::Steps);
            }
            (None, Some(Axis::Steps)) => return (seen.at >= self.now).then_some(self.place),
            (None, before) => {
                if before.is_none() {
                    self.axis = Some(Axis::Seconds);
                    self.began = seen.at;
                }
                return (before.is_none() || seen.at >= self.now).then(|| seen.at.since(self.began) / SECOND);
            }
        }
        seen.step
    }

    fn restart(&mut self, place: u64, at: Stamp) {
        self.watches.clear();
        self.curves.clear();
        self.episodes.restart(place, at);
    }

    fn watch(&mut self, resource: Resource, at: Stamp, seen: Seen) {
        let (place, axis) = (self.place, self.axis.unwrap_or_default());
        // What is kept alive is held from the driver too: one cause, one alarm.
        let explained = resource == Resource::Reserved
            && self.watches.iter().any(|it| it.resource() == Resource::Allocated && it.is_active());
        let index = self.watches.iter().position(|it| it.resource() == resource).unwrap_or_else(|| {
            self.watches.push(Watch::new(resource, axis));
            self.watches.len() - 1
        });
        let Some(it) = self.watches.get_mut(index) else { return };
        match it.push(place, seen, !explained) {
            None => {}
            Some(Change::Raised(it)) => self.episodes.raise(it.episode(resource, axis, place, at)),
            Some(Change::Lasts(it)) => self.episodes.go_on(resource, place, &it),
            Some(Change::Ended(end)) => {
                self.episodes.resolve(resource, place, at, end);
                if resource == Resource::Allocated
                    && let Some(it) = self.watches.iter_mut().find(|it| it.resource() == Resource::Reserved)
                {
                    it.begin_anew(place);
                }
            }
        }
    }
}
