//! Whether memory grows from step to step: every resource of one process on one device, an observation at a time.
//!
//! Each resource has a [`watch`](self::watch): the lowest values of stretches of 1, 2, 4, … samples
//! (`horizons`), runs of new highs among them that are more than chance (`climb`), the same of what is kept beside
//! whole multiples of the lengths' unit (`grid`), and, once such a run is found, a line through the samples (`line`)
//! and through the count of blocks (`per_block`), tooth against tooth under a sawtooth (`season`).

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
use watch::{Seen, Verdict, Watch};

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
            Some(Verdict::Raised(it)) => self.episodes.raise(it.episode(resource, axis, place, at)),
            Some(Verdict::Lasts(it)) => self.episodes.go_on(resource, place, &it),
            Some(Verdict::Ended(end)) => {
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
