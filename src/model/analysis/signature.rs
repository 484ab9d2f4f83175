//! The course of all counters over a span of steps, which identifies a cause.

mod rises;

use super::{episode::Resource, growth::Growth, packed::Packed};
use crate::model::statistics;
use crate::{
    facts::{
        event::{self, wire::Counters},
        units::Stamp,
    },
    model::analysis::{
        episode::Episode,
        packed::{self, Numbers},
    },
};
pub use rises::Rises;
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
pub struct CounterHistory {
    recent: Packed<CounterRow, NUMBERS>,
    whole: Packed<CounterRow, NUMBERS>,
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

impl CounterHistory {
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
        let row = CounterRow::new(step, at, counters);
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
        statistics::median(pairs.map(|((step, at), (later, then))| then.since(*at) / (later - step).max(1)))
    }

    /// Returns the live bytes at each kept step, oldest first, and the highest peak of live bytes among these steps.
    pub fn live(&self) -> (Vec<(u64, u64)>, Option<u64>) {
        let rows = self.rows(0, u64::MAX);
        let live = rows.iter().filter_map(|it| Some((it.step, it.get(Counter::Allocated)?))).collect();
        (live, rows.iter().filter_map(|it| it.get(Counter::Peak)).max())
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
        let slope =
            |value: fn(&CounterRow) -> Option<u64>| slope(&stretches, |row| value(row).map(|value| value as f64));
        Signature {
            steps: end.step - first.step,
            allocated: slope(|it| it.get(Counter::Allocated)),
            peak: slope(|it| it.get(Counter::Peak)),
            blocks: slope(|it| it.get(Counter::Blocks)),
            pending: slope(|it| it.get(Counter::Active)?.checked_sub(it.get(Counter::Allocated)?)),
            reserved: slope(|it| it.get(Counter::Reserved)),
            cached: slope(|it| it.get(Counter::Reserved)?.checked_sub(it.get(Counter::Active)?)),
            inactive_split: slope(|it| it.get(Counter::InactiveSplit)),
            private_pools: slope(|it| it.get(Counter::PrivatePools)),
            device_allocs: slope(|it| it.get(Counter::DeviceAllocs)),
            device_frees: slope(|it| it.get(Counter::DeviceFrees)),
            reserved_rise: rises::of_reserved(&rows),
            rises: rises::rises(&rows),
        }
    }

    fn rows(&self, since: u64, last: u64) -> Vec<CounterRow> {
        let recent_from = self.recent.oldest().map_or(u64::MAX, |it| it.step);
        let older = self.whole.iter().filter(|it| it.step < recent_from);
        let mut rows = Vec::with_capacity(self.whole.len() + self.recent.len());
        rows.extend(older.chain(&self.recent).filter(|it| (since..=last).contains(&it.step)));
        rows
    }

    /// Returns how regularly live memory rose over an episode; `None` if it did not, or not often enough.
    pub fn cadence(&self, episode: &Episode) -> Option<event::Rises> {
        let rows = self.rows(episode.since_step, episode.last_step);
        let from = self.recent.oldest();
        let latest = || rows.iter().filter(|it| from.is_some_and(|first| it.step >= first.step));
        // The latest rows cover every step. Older rows are further apart and show rarer rises.
        let of_latest = rises(&latest().copied().collect::<Vec<_>>());
        let of_all = rises(&rows);
        let is_sparse = of_all.len() * 2 < rows.len();
        cadence(&of_latest).or_else(|| cadence(&of_all).filter(|_| is_sparse))
    }
}

/// What identifies an episode: after a restart, another one may be raised at the same step.
fn name(episode: &Episode) -> (Resource, u64, Stamp) {
    (episode.resource, episode.first_alert_step, episode.first_alert_at)
}

/// Splits rows into stretches of equal length along the axis, without empty ones.
fn stretches(rows: &[CounterRow]) -> Vec<&[CounterRow]> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
    let width = (last.step - first.step) / STRETCHES as u64 + 1;
    rows.chunk_by(|a, b| (a.step - first.step) / width == (b.step - first.step) / width).collect()
}

/// The median slope over all pairs of the stretches' medians, each at the mean of its steps.
fn slope(stretches: &[&[CounterRow]], value: impl Fn(&CounterRow) -> Option<f64>) -> Option<f64> {
    let mut points = Vec::with_capacity(stretches.len());
    for rows in stretches {
        let middle = rows.iter().map(|it| it.step as f64).sum::<f64>() / rows.len() as f64;
        if let Some(median) = statistics::median_f64(rows.iter().filter_map(&value)) {
            points.push((middle, median));
        }
    }
    statistics::median_slope(&points)
}

/// The counters that a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    Requested,
    Allocated,
    Peak,
    Blocks,
    Active,
    Reserved,
    InactiveSplit,
    PrivatePools,
    DeviceAllocs,
    DeviceFrees,
}

/// Their number.
const ALL: usize = Counter::DeviceFrees as usize + 1;

/// Numbers of a packed row.
const NUMBERS: usize = 3 + ALL;

/// The counters at one position of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct CounterRow {
    step: u64,
    at: Stamp,
    /// A bit for each known counter.
    known: u16,
    values: [u64; ALL],
}

impl CounterRow {
    /// Takes what a row has from the counters of a step.
    fn new(step: u64, at: Stamp, counters: &Counters) -> Self {
        let all: [Option<u64>; ALL] = [
            counters.requested,
            counters.allocated,
            counters.allocated_peak,
            counters.blocks,
            counters.active,
            counters.reserved,
            counters.inactive_split,
            counters.private_pools,
            counters.device_allocs,
            counters.device_frees,
        ];
        let known = all.iter().rev().fold(0, |bits, it| bits << 1 | u16::from(it.is_some()));
        Self { step, at, known, values: all.map(Option::unwrap_or_default) }
    }

    /// Returns a counter; `None` if it is unknown.
    fn get(&self, it: Counter) -> Option<u64> {
        let place = it as usize;
        self.values.get(place).copied().filter(|_| self.known & 1 << place != 0)
    }
}

impl Numbers<NUMBERS> for CounterRow {
    fn numbers(&self) -> [u64; NUMBERS] {
        packed::numbers([self.step, self.at.0, self.known.into()].into_iter().chain(self.values))
    }

    fn of_numbers(&[step, at, known, values @ ..]: &[u64; NUMBERS]) -> Self {
        Self { step, at: Stamp(at), known: u16::try_from(known).unwrap_or(0), values }
    }
}

/// Rises needed for a period.
const ENOUGH: usize = 3;

/// Rises closer together than this share of the longest distance count as one.
const APART: u64 = 4;

/// If a rise comes earlier or later than this share of the period, there is no period.
const REGULAR: u64 = 3;

/// A rise: after the first of these steps, at the latest at the second.
type Span = (u64, u64);

/// Lasting rises of the count of live blocks, or of live bytes if the count does not rise.
fn rises(rows: &[CounterRow]) -> Vec<Span> {
    let of_blocks = lasting(rows, |it| it.get(Counter::Blocks));
    if of_blocks.is_empty() { lasting(rows, |it| it.get(Counter::Allocated)) } else { of_blocks }
}

/// Rises of a series' floor, which is the lowest of all later values.
fn lasting(rows: &[CounterRow], value: impl Fn(&CounterRow) -> Option<u64>) -> Vec<Span> {
    let (mut floor, mut out) = (u64::MAX, Vec::new());
    for pair in rows.windows(2).rev() {
        let [old, new] = pair else { continue };
        let (Some(before), Some(after)) = (value(old), value(new)) else { continue };
        let high = floor.min(after);
        floor = high.min(before);
        if floor < high {
            out.push((old.step, new.step));
        }
    }
    out.reverse();
    out
}

fn cadence(rises: &[Span]) -> Option<event::Rises> {
    let longest = rises.windows(2).filter_map(|it| it.last()?.1.checked_sub(it.first()?.1)).max()?;
    let mut apart: Vec<Span> = Vec::new();
    for rise in rises {
        match apart.last_mut() {
            Some(last) if (rise.1 - last.1) * APART < longest => last.1 = rise.1,
            _ => apart.push(*rise),
        }
    }
    let (first, last) = (*apart.first()?, *apart.last()?);
    if apart.len() < ENOUGH {
        return None;
    }
    let count = apart.len() as u64 - 1;
    let every = (last.1 - first.1 + count / 2) / count;
    let off = |(place, it): (usize, &Span)| {
        let due = last.1.saturating_sub(every * (count - place as u64));
        // The rise happened at any of these steps but the first.
        due.abs_diff(it.1).max(due.abs_diff(it.0 + 1))
    };
    let slack = apart.iter().enumerate().map(off).max()?;
    (slack * REGULAR < every).then_some(event::Rises { every, last: last.1, slack })
}

#[cfg(test)]
mod tests {
    //! The signature of a trail of counters.

    use super::*;
    use crate::model::analysis::growth::{self, Observation};
    use std::collections::BTreeSet;

    /// Counters with this many live blocks of 1 KiB each, for which 1,000 bytes were requested.
    fn counters(blocks: u64) -> Counters {
        Counters {
            blocks: Some(blocks),
            allocated: Some(blocks * 1024),
            active: Some(blocks * 1024),
            requested: Some(blocks * 1000),
            reserved: Some(1 << 30),
            ..Counters::default()
        }
    }

    /// The signature of this many steps; `shape` gives the blocks at a step and its duration.
    fn signature(steps: u64, shape: impl Fn(u64) -> (u64, u64)) -> Signature {
        let mut trail = CounterHistory::default();
        let mut at = 0;
        for step in 1..=steps {
            let (blocks, took) = shape(step);
            at += took;
            trail.push(step, Stamp(at), &counters(blocks));
        }
        trail.over(1, steps)
    }

    #[test]
    fn a_clean_leak_rises_by_the_same_each_time() {
        let it = signature(200, |step| (100 + step / 10 * 3, 1000)).rises.unwrap();
        assert_eq!((it.count, it.steps, it.blocks, it.bytes, it.requested), (20, 199, 3, Some(3072), Some(3000)));
        assert!(it.are_clear() && (it.time.unwrap() - 1.0).abs() < 1e-9, "{it:?}");
    }

    #[test]
    fn the_time_of_a_step_with_a_rise_is_set_against_the_others() {
        let it = signature(200, |step| (100 + step / 10 * 3, if step % 10 == 0 { 2500 } else { 1000 })).rises.unwrap();
        assert!((it.time.unwrap() - 2.5).abs() < 1e-9, "{it:?}");
        let too_few = signature(200, |step| (100 + step / 80 * 3, 1000)).rises.unwrap();
        assert_eq!(too_few.time, None, "{too_few:?}");
    }

    #[test]
    fn a_lift_for_one_step_is_not_a_rise_and_a_breathing_series_is_not_clear() {
        assert_eq!(signature(205, |step| (100 + u64::from(step % 50 == 0) * 9, 1000)).rises, None);
        let sawtooth = signature(200, |step| (100 + step + step % 20, 1000)).rises.unwrap();
        assert!(!sawtooth.are_clear(), "{sawtooth:?}");
        assert_eq!(signature(0, |_| (0, 0)).rises, None);
    }

    #[test]
    fn hostile_counts_neither_break_it_nor_give_nan() {
        let it = signature(300, |step| (if step % 2 == 0 { u64::MAX / 1024 } else { step }, step % 3));
        let rises = it.rises.unwrap();
        assert!(rises.kept.is_finite() && rises.time.is_none_or(f64::is_finite), "{rises:?}");
        assert!(it.allocated.is_some_and(f64::is_finite));
    }

    #[test]
    fn a_lasting_episode_s_signature_is_hardly_behind_and_the_last_one_stays() {
        let (mut trail, mut growth) = (CounterHistory::default(), Growth::default());
        let mut see = |step: u64, at: u64, blocks: u64| {
            let counters = counters(blocks);
            let Counters { allocated, requested, blocks, .. } = counters;
            let seen =
                Observation { step: Some(step), at: Stamp(at), allocated, requested, blocks, ..Observation::default() };
            growth = growth::step(std::mem::take(&mut growth), &seen);
            trail.push(step, Stamp(at), &counters);
            trail.follow(&growth);
            let at = trail.taken.first().map(|taken| taken.last);
            growth.episodes().last().map(|it| (*it, trail.signature(it), at))
        };
        let mut taken = BTreeSet::new();
        let mut last = None;
        for step in 1..=2000 {
            last = see(step, step * 20_000, step * 3);
            if let Some((episode, signature, Some(at))) = last {
                let (span, behind) = (episode.last_step - episode.since_step, episode.last_step - at);
                assert!(behind <= 200 && behind * PARTS <= span + PARTS, "{behind} of {span}");
                assert!(signature.blocks.is_some_and(|it| (it / 3.0 - 1.0).abs() < 0.01), "{signature:?}");
                taken.insert(at);
            }
        }
        assert!((20..120).contains(&taken.len()), "{}", taken.len());
        let (_, before, _) = last.unwrap();
        let (episode, after, _) = see(1, 60_000_000, 3).unwrap();
        assert!(episode.resolved.is_some() && after == before, "a restart has no rows of it: {after:?}");
        // A leak that is raised at the same step of the next run has a signature of its own.
        let raised = (2..=400).find_map(|step| {
            let (it, signature, _) = see(step, 60_000_000 + step * 20_000, step * 5)?;
            it.resolved.is_none().then_some((it, signature))
        });
        let (again, signature) = raised.unwrap();
        assert_eq!((again.resource, again.first_alert_step), (episode.resource, episode.first_alert_step));
        assert!(signature.blocks.is_some_and(|it| (it / 5.0 - 1.0).abs() < 0.01), "{signature:?}");
    }

    #[test]
    fn a_row_has_the_counters_of_its_step_and_lacks_unknown_ones() {
        let counters =
            Counters { requested: Some(1), reserved: Some(0), device_frees: Some(u64::MAX), ..Counters::default() };
        let row = CounterRow::new(7, Stamp(9), &counters);
        assert_eq!((row.step, row.at), (7, Stamp(9)));
        let all =
            [Counter::Requested, Counter::Reserved, Counter::DeviceFrees, Counter::Allocated].map(|it| row.get(it));
        assert_eq!(all, [Some(1), Some(0), Some(u64::MAX), None]);
    }

    fn spans(steps: impl IntoIterator<Item = u64>, width: u64) -> Vec<Span> {
        steps.into_iter().map(|it| (it - width, it)).collect()
    }

    #[test]
    fn rises_at_regular_distances_have_a_period() {
        let every_25 = spans((1..=5).map(|it| 25 * it), 1);
        assert_eq!(cadence(&every_25), Some(event::Rises { every: 25, last: 125, slack: 0 }));
        // Some steps early or late.
        let shaken = spans([25, 51, 74, 101, 125], 1);
        assert_eq!(cadence(&shaken), Some(event::Rises { every: 25, last: 125, slack: 1 }));
        // Several rises of one evaluation.
        let twice = spans([24, 25, 49, 50, 74, 75], 1);
        assert_eq!(cadence(&twice), Some(event::Rises { every: 25, last: 75, slack: 1 }));
        // Rows that are far apart.
        assert_eq!(
            cadence(&spans([5008, 10_000, 15_008], 16)),
            Some(event::Rises { every: 5000, last: 15_008, slack: 23 })
        );
    }

    #[test]
    fn irregular_or_too_rare_rises_have_no_cadence() {
        assert_eq!(cadence(&[]), None);
        assert_eq!(cadence(&spans([25, 50], 1)), None);
        assert_eq!(cadence(&spans([10, 40, 50, 110], 1)), None);
        assert_eq!(cadence(&spans(1..=9, 1)), Some(event::Rises { every: 1, last: 9, slack: 0 }));
    }
}
