//! Whether memory grows from step to step: every resource of one process on one device, an observation at a time.

mod trend;

pub use self::trend::{ENOUGH, StepValue, Trend, WARM_UP, WINDOW};

use crate::{
    analysis::{
        curve::Curve,
        episode::{Axis, End, Episode, Resolved, Resource},
    },
    units::Stamp,
};
use std::collections::VecDeque;
use trend::Recent;

/// Episodes kept; the oldest that ended goes first.
pub const EPISODES: usize = 64;

/// What one process on one device was seen to hold at one instant. Bytes unless said otherwise; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Steps completed, at the boundary of a step; `None` between steps.
    pub step: Option<u64>,
    /// When.
    pub at: Stamp,
    /// Live allocations.
    pub allocated: Option<u64>,
    /// Live allocations, a count.
    pub blocks: Option<u64>,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Growth {
    axis: Option<Axis>,
    last: Option<(u64, Stamp)>,
    recent: Recent,
    curve: Curve,
    episodes: VecDeque<Episode>,
    forgotten: u64,
}

/// Takes one more observation. A step said again changes nothing; one that falls back is a restart.
#[must_use]
pub fn step(mut state: Growth, seen: &Observation) -> Growth {
    let Some(step) = seen.step else { return state };
    match state.last {
        Some((last, _)) if step == last => return state,
        Some((last, at)) if step < last && seen.at <= at => return state,
        Some((last, _)) if step < last => state.restart(step, seen.at),
        _ => {}
    }
    state.axis = Some(Axis::Steps);
    state.last = Some((step, seen.at));
    if let Some(bytes) = seen.allocated {
        state.curve.push(step, bytes);
        state.recent.push(StepValue { step, bytes });
        if step.is_multiple_of(16) {
            state.judge(step, seen.at);
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
        self.forgotten
    }

    /// What growth is measured over; `None` before anything was seen.
    pub fn axis(&self) -> Option<Axis> {
        self.axis
    }

    /// Live allocations over the whole run, at a growing stride.
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// The latest live allocations.
    pub fn latest(&self) -> Option<StepValue> {
        self.recent.latest()
    }

    /// What the latest steps say of live allocations.
    pub fn trend(&self) -> Trend {
        self.recent.trend()
    }

    fn restart(&mut self, step: u64, at: Stamp) {
        self.recent = Recent::default();
        for it in self.episodes.iter_mut().filter(|it| it.resolved.is_none()) {
            it.resolved = Some(Resolved { step, at, end: End::Restarted });
        }
    }

    fn judge(&mut self, step: u64, at: Stamp) {
        let open = self.episodes.iter_mut().find(|it| it.resolved.is_none());
        match (self.recent.trend(), open) {
            (Trend::Growing { per_step, .. }, Some(it)) => {
                it.last_step = step;
                it.bytes_per_step = per_step;
                it.interval = (per_step, per_step);
            }
            (Trend::Growing { per_step, steps }, None) => self.raise(Episode {
                resource: Resource::Allocated,
                axis: Axis::Steps,
                since_step: step.saturating_sub(steps),
                first_alert_step: step,
                first_alert_at: at,
                last_step: step,
                resolved: None,
                bytes_per_step: per_step,
                interval: (per_step, per_step),
                blocks_per_step: None,
                gained: 0,
            }),
            (_, Some(it)) => it.resolved = Some(Resolved { step, at, end: End::Plateau }),
            _ => {}
        }
    }

    fn raise(&mut self, episode: Episode) {
        if self.episodes.len() == EPISODES {
            let oldest = self.episodes.iter().position(|it| it.resolved.is_some()).unwrap_or(0);
            self.episodes.remove(oldest);
            self.forgotten += 1;
        }
        self.episodes.push_back(episode);
    }
}
