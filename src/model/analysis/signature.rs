//! The course of all counters over a span of steps, which identifies a cause.

mod cadence;
mod rises;
mod row;

pub use rises::Rises;

use super::{
    episode::{Episode, Resource},
    growth::Growth,
    packed::Packed,
};
use crate::facts::{event::wire::Counters, units::Stamp};
use row::{Kept, NUMBERS, Row};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Latest rows kept individually.
const RECENT: usize = 256;

/// The latest rows that determine the current duration of a step.
const PACE: usize = 32;

/// Rows of the whole run kept at a growing stride.
const WHOLE: usize = 256;

/// A lasting episode's signature is taken again after this many µs, or sooner once the episode is longer by one of this
/// many parts: it takes longer than all else that a step costs.
const AGAIN_US: u64 = 4_000_000;
const PARTS: u64 = 16;

/// Stretches that a span is divided into before slopes are taken.
const STRETCHES: usize = 24;

/// The smallest block of PyTorch's allocator, in bytes.
pub const SMALLEST_BLOCK: u64 = 512;

/// The counters of a run: the latest rows individually, the whole run at a growing stride. Bounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trail {
    recent: Packed<Row, NUMBERS>,
    whole: Packed<Row, NUMBERS>,
    stride: u64,
    /// When the latest rows were taken.
    times: VecDeque<(u64, Stamp)>,
    taken: Vec<Taken>,
}

/// An episode's signature. That of a resolved one is from its end, because later rows are too coarse to take it again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Taken {
    episode: (Resource, u64, Stamp),
    is_final: bool,
    since: u64,
    last: u64,
    at: Stamp,
    signature: Signature,
}

impl Taken {
    /// Whether it is to be taken again.
    fn is_old(&self, it: &Episode, now: Stamp) -> bool {
        let longer = it.last_step.saturating_sub(self.last);
        let is_longer = longer.saturating_mul(PARTS) > it.last_step.saturating_sub(it.since_step);
        let is_due = it.since_step != self.since || is_longer || now.since(self.at) >= AGAIN_US && longer > 0;
        !self.is_final && (is_due || it.resolved.is_some())
    }
}

/// The slope of each counter per step over a span, robust against noise; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// Steps between its first and its last row.
    pub steps: u64,
    /// Live bytes.
    pub allocated: Option<f64>,
    /// The peak of live bytes.
    pub peak: Option<f64>,
    /// Live blocks.
    pub blocks: Option<f64>,
    /// Bytes freed that another stream still uses.
    pub pending: Option<f64>,
    /// Bytes reserved from the driver.
    pub reserved: Option<f64>,
    /// Reserved bytes that are not in use.
    pub cached: Option<f64>,
    /// The part of them stuck in split segments.
    pub inactive_split: Option<f64>,
    /// Bytes in private pools.
    pub private_pools: Option<f64>,
    /// Segments allocated from the driver.
    pub device_allocs: Option<f64>,
    /// Segments released to the driver.
    pub device_frees: Option<f64>,
    /// Bytes by which reserved memory rises each time; `None` if they vary.
    pub reserved_rise: Option<u64>,
    /// The rises of the count of live blocks.
    pub rises: Option<Rises>,
}

impl Signature {
    /// Returns the slope of what the allocator gives back before a request fails: whole free segments that are in no
    /// private pool; 0 if it is unknown, as where pools are not counted.
    pub fn releasable(&self) -> f64 {
        let Some((cached, pools)) = self.cached.zip(self.private_pools) else { return 0.0 };
        let split = self.inactive_split.unwrap_or(0.0).max(0.0);
        (cached - split - pools.max(0.0)).max(0.0)
    }
}

impl Trail {
    /// Adds the counters at a step. A step that falls starts again.
    pub fn push(&mut self, step: u64, at: Stamp, counters: &Counters) {
        match self.recent.newest() {
            Some(last) if step == last.step || (step < last.step && at <= last.at) => return,
            Some(last) if step < last.step => {
                let taken = std::mem::take(&mut self.taken).into_iter().map(|it| Taken { is_final: true, ..it });
                *self = Self { taken: taken.collect(), ..Self::default() };
            }
            _ => {}
        }
        let row = Row::new(step, at, counters);
        self.recent.push_within(RECENT, row);
        if self.times.len() == PACE {
            self.times.pop_front();
        }
        self.times.push_back((step, at));
        if self.whole.newest().is_none_or(|it| step - it.step >= self.stride) {
            self.whole.push(row);
        }
        if self.whole.len() > WHOLE {
            self.whole = self.whole.iter().step_by(2).collect();
            self.stride = self.stride.max(1).saturating_mul(2);
        }
    }

    /// Takes the signatures of episodes, and keeps them as long as the episodes are remembered.
    pub fn follow(&mut self, growth: &Growth) {
        let now = self.recent.newest().map_or(Stamp(0), |it| it.at);
        let is_of = |taken: &Taken, it: &Episode| taken.episode == name(it) && !taken.is_old(it, now);
        // Nearly always: this is called for each sample.
        if growth.episodes().count() == self.taken.len()
            && growth.episodes().zip(&self.taken).all(|(it, taken)| is_of(taken, it))
        {
            return;
        }
        let take = |it: &Episode| Taken {
            episode: name(it),
            is_final: it.resolved.is_some(),
            since: it.since_step,
            last: it.last_step,
            at: now,
            signature: self.over(it.since_step, it.last_step),
        };
        let taken = growth
            .episodes()
            .map(|it| self.taken.iter().find(|taken| is_of(taken, it)).copied().unwrap_or_else(|| take(it)));
        self.taken = taken.collect();
    }

    /// Returns the signature of an episode, as it was when it was taken last.
    pub fn signature(&self, episode: &Episode) -> Signature {
        let taken = self.taken.iter().find(|it| it.episode == name(episode));
        taken.map_or_else(|| self.over(episode.since_step, episode.last_step), |it| it.signature)
    }

    /// Returns the duration of a step in µs, the median of the latest; `None` before the second step.
    pub fn step_us(&self) -> Option<u64> {
        let pairs = self.times.iter().zip(self.times.iter().skip(1));
        let mut distances: Vec<u64> =
            pairs.map(|((step, at), (later, then))| then.since(*at) / (later - step).max(1)).collect();
        let middle = distances.len() / 2;
        (!distances.is_empty()).then(|| *distances.select_nth_unstable(middle).1)
    }

    /// Returns the live bytes at each kept step, oldest first, and the highest peak of live bytes among these steps.
    pub fn live(&self) -> (Vec<(u64, u64)>, Option<u64>) {
        let rows = self.rows(0, u64::MAX);
        let live = rows.iter().filter_map(|it| Some((it.step, it.get(Kept::Allocated)?))).collect();
        (live, rows.iter().filter_map(|it| it.get(Kept::Peak)).max())
    }

    /// Returns when the latest step ended.
    pub fn latest_at(&self) -> Option<Stamp> {
        self.times.back().map(|it| it.1)
    }

    /// The signature from one step to another, both included.
    fn over(&self, since: u64, last: u64) -> Signature {
        let rows = self.rows(since, last);
        let (Some(first), Some(end)) = (rows.first(), rows.last()) else { return Signature::default() };
        let stretches = stretches(&rows);
        let slope = |value: fn(&Row) -> Option<u64>| slope(&stretches, |row| value(row).map(|value| value as f64));
        Signature {
            steps: end.step - first.step,
            allocated: slope(|it| it.get(Kept::Allocated)),
            peak: slope(|it| it.get(Kept::Peak)),
            blocks: slope(|it| it.get(Kept::Blocks)),
            pending: slope(|it| it.get(Kept::Active)?.checked_sub(it.get(Kept::Allocated)?)),
            reserved: slope(|it| it.get(Kept::Reserved)),
            cached: slope(|it| it.get(Kept::Reserved)?.checked_sub(it.get(Kept::Active)?)),
            inactive_split: slope(|it| it.get(Kept::InactiveSplit)),
            private_pools: slope(|it| it.get(Kept::PrivatePools)),
            device_allocs: slope(|it| it.get(Kept::DeviceAllocs)),
            device_frees: slope(|it| it.get(Kept::DeviceFrees)),
            reserved_rise: rises::of_reserved(&rows),
            rises: rises::rises(&rows),
        }
    }

    fn rows(&self, since: u64, last: u64) -> Vec<Row> {
        let recent_from = self.recent.oldest().map_or(u64::MAX, |it| it.step);
        let older = self.whole.iter().filter(|it| it.step < recent_from);
        let mut rows = Vec::with_capacity(self.whole.len() + self.recent.len());
        rows.extend(older.chain(&self.recent).filter(|it| (since..=last).contains(&it.step)));
        rows
    }
}

/// What identifies an episode: after a restart, another one may be raised at the same step.
fn name(episode: &Episode) -> (Resource, u64, Stamp) {
    (episode.resource, episode.first_alert_step, episode.first_alert_at)
}

/// Splits rows into stretches of equal length along the axis, without empty ones.
fn stretches(rows: &[Row]) -> Vec<&[Row]> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
    let width = (last.step - first.step) / STRETCHES as u64 + 1;
    rows.chunk_by(|a, b| (a.step - first.step) / width == (b.step - first.step) / width).collect()
}

/// The median slope over all pairs of the stretches' medians (Theil 1950, Sen 1968).
fn slope(stretches: &[&[Row]], value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    let mut points = Vec::with_capacity(stretches.len());
    for rows in stretches {
        let mut values: Vec<f64> = rows.iter().filter_map(&value).collect();
        let middle = rows.iter().map(|it| it.step as f64).sum::<f64>() / rows.len() as f64;
        if let Some(median) = median(&mut values) {
            points.push((middle, median));
        }
    }
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (place, (x, y)) in points.iter().enumerate() {
        slopes.extend(
            points.iter().skip(place + 1).filter(|(later, _)| later > x).map(|(later, top)| (top - y) / (later - x)),
        );
    }
    median(&mut slopes)
}

/// The upper median.
fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests;
