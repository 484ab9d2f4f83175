//! How long steps take: host time between step boundaries, over the whole run in bounded memory.
//!
//! The probe stamps each boundary on the host after an optimizer step and never synchronises. One duration may
//! therefore be shorter than the device's work for that step, and the next one that waits for the device may be longer.
//! Averages over several steps agree with the device's pace, because the device's queue is bounded.
//!
//! Typical values are medians, and their spread is the median absolute deviation (MAD), so that single long steps
//! (checkpoints, evaluation, compilation) are outliers and do not move them.

mod slowdown;

use super::{
    buckets::{Buckets, Merge},
    packed::{Numbers, Packed},
};
use crate::facts::units::{self, Stamp};
use crate::model::statistics::median;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
pub use slowdown::{SlowPeriod, Slowdown};
use std::collections::VecDeque;

/// Most stretches of the whole run.
pub const STRETCHES: usize = 256;

/// The latest steps, which determine what is typical.
const RECENT: usize = 64;

/// The fewest steps from which something is typical.
pub const ENOUGH: usize = 16;

/// A step is an outlier from this many deviations above the median on, if it also takes half as long again.
const DEVIATIONS: f64 = 8.0;
const LONGER: f64 = 1.5;

/// More long steps in a row are a new pace.
const TOGETHER: u64 = 4;

/// The standard deviation of a normal distribution with a MAD of 1.
const SIGMA: f64 = 1.4826;

/// Stretches at each end of the run that the trend compares, and the fewest of a run with a trend.
const ENDS: usize = 4;
const LEAST: usize = 12;

/// The steps of one stretch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Its last step.
    pub step: u64,
    /// When that step completed.
    pub at: Stamp,
    /// Its number of steps.
    pub steps: u64,
    /// Their time, in µs.
    pub total_us: u64,
    /// The shortest step, in µs.
    pub low_us: u64,
    /// The longest step, in µs.
    pub high_us: u64,
}

impl Stretch {
    /// Returns the mean duration of its steps, in µs.
    pub fn mean_us(&self) -> u64 {
        self.total_us / self.steps.max(1)
    }
}

/// Numbers of a packed stretch.
const NUMBERS: usize = 6;

impl Numbers<NUMBERS> for Stretch {
    fn numbers(&self) -> [u64; NUMBERS] {
        [self.step, self.at.0, self.steps, self.total_us, self.low_us, self.high_us.wrapping_sub(self.low_us)]
    }

    fn of_numbers(&[step, at, steps, total_us, low_us, range]: &[u64; NUMBERS]) -> Self {
        Self { step, at: Stamp(at), steps, total_us, low_us, high_us: low_us.wrapping_add(range) }
    }
}

impl Merge for Stretch {
    fn place(&self) -> u64 {
        self.step
    }

    fn merge(&mut self, newer: &Self) {
        *self = Self {
            steps: self.steps.saturating_add(newer.steps),
            total_us: self.total_us.saturating_add(newer.total_us),
            low_us: self.low_us.min(newer.low_us),
            high_us: self.high_us.max(newer.high_us),
            ..*newer
        };
    }
}

/// What is typical of the latest steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typical {
    /// The median duration, in µs.
    pub us: u64,
    /// The median absolute deviation from it, in µs.
    pub spread_us: u64,
}

/// The durations of a run's steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    last: Option<(u64, Stamp)>,
    recent: VecDeque<u64>,
    stretches: Buckets<Packed<Stretch, NUMBERS>, STRETCHES>,
    outliers: u64,
    /// The longest of them: µs, and its step.
    longest: Option<(u64, u64)>,
    /// The long steps in a row up to the latest, and the longest of them.
    long: u64,
    longest_now: Option<(u64, u64)>,
    slowdown: Slowdown,
}

impl Pace {
    /// Takes the boundary after a step, with the highest live bytes so far. A step that falls starts again.
    pub fn step(&mut self, step: u64, at: Stamp, peak: Option<u64>) {
        match self.last {
            Some((last, then)) if step < last && at > then => {
                let slowdown = std::mem::take(&mut self.slowdown).restarted(step, at);
                *self = Self { slowdown, ..Self::default() };
            }
            Some((last, then)) if step <= last || at < then => return,
            Some((last, then)) => self.took(step, at, (step - last, at.since(then))),
            None => {}
        }
        self.slowdown.boundary(step, at, peak);
        self.last = Some((step, at));
    }

    /// Takes the time of the latest steps: of one, or of several if samples are missing.
    fn took(&mut self, step: u64, at: Stamp, (steps, total_us): (u64, u64)) {
        let us = total_us / steps;
        // No outlier is below this, and medians cost more.
        let may_be_long = self.recent.iter().min().is_some_and(|it| us as f64 > *it as f64 * LONGER);
        if may_be_long && self.typical().is_some_and(|it| it.is_exceeded_by(us)) {
            self.long = self.long.saturating_add(1);
            self.longest_now = self.longest_now.max(Some((us, step)));
        } else {
            self.judge_long();
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(us);
        self.stretches.push(Stretch { step, at, steps, total_us, low_us: us, high_us: us });
    }

    /// Counts the long steps that have just ended as outliers, unless they are so many that the pace has changed.
    fn judge_long(&mut self) {
        let (long, longest) = (std::mem::take(&mut self.long), self.longest_now.take());
        if long <= TOGETHER {
            self.outliers = self.outliers.saturating_add(long);
            self.longest = self.longest.max(longest);
        }
    }

    /// Returns the duration of the latest step, in µs.
    pub fn latest_us(&self) -> Option<u64> {
        self.recent.back().copied()
    }

    /// Returns the duration of a step in µs, if it is the latest one.
    pub fn of_latest(&self, step: u64) -> Option<u64> {
        self.latest_us().filter(|_| self.last.is_some_and(|(last, _)| last == step))
    }

    /// Returns what is typical of the latest steps; `None` while they are too few.
    pub fn typical(&self) -> Option<Typical> {
        let us = median(self.recent.iter().copied()).filter(|_| self.recent.len() >= ENOUGH)?;
        let spread_us = median(self.recent.iter().map(|it| it.abs_diff(us)))?;
        Some(Typical { us, spread_us })
    }

    /// Returns the run from its beginning, in stretches of equal numbers of steps.
    pub fn stretches(&self) -> &Packed<Stretch, NUMBERS> {
        self.stretches.all()
    }

    /// Returns the stretch that a step is in.
    pub fn at(&self, step: u64) -> Option<Stretch> {
        let mut all = self.stretches().iter();
        all.find(|it| it.step >= step).filter(|it| it.step.saturating_sub(it.steps) < step)
    }

    /// Returns the number of steps that took much longer than those before and after them.
    pub fn outliers(&self) -> u64 {
        self.outliers
    }

    /// Returns the longest of the outliers: its step and its duration in µs.
    pub fn longest(&self) -> Option<(u64, u64)> {
        self.longest.map(|(us, step)| (step, us))
    }

    /// Returns how long steps take at the end of the run against its beginning, as a ratio; `None` for a short run. The
    /// first stretch, which has the warm-up, does not count.
    pub fn trend(&self) -> Option<f64> {
        let all: Vec<Stretch> = self.stretches().iter().skip(1).collect();
        let all = Some(all).filter(|it| it.len() >= LEAST)?;
        let middle = |part: &[Stretch]| median(part.iter().map(Stretch::mean_us));
        let (first, last) = (middle(all.get(..ENDS)?)?, middle(all.get(all.len() - ENDS..)?)?);
        (first > 0).then(|| last as f64 / first as f64)
    }

    /// Returns the times in which steps took longer than before.
    pub fn slowdowns(&self) -> &[SlowPeriod] {
        self.slowdown.spells()
    }

    /// Fields: `latest_us`, `typical_us` (the median of the latest steps), `spread_us` (the median absolute deviation
    /// from it), `outliers` (steps that took much longer than those before), `longest` (`step` and `us` of the longest
    /// outlier), `trend` (a step at the end of the run against one at its beginning). `null` before the second step.
    pub fn json(&self) -> Value {
        let Some(latest) = self.latest_us() else { return Value::Null };
        let typical = self.typical();
        json!({
            "latest_us": latest,
            "typical_us": typical.map(|it| it.us),
            "spread_us": typical.map(|it| it.spread_us),
            "outliers": self.outliers(),
            "longest": self.longest().map(|(step, us)| json!({"step": step, "us": us})),
            "trend": self.trend(),
        })
    }

    /// Returns the whole run, an array for each stretch: its last step, when that step completed, the number of its
    /// steps, and their mean, shortest and longest duration.
    pub fn points(&self) -> Vec<Value> {
        let point = |it: Stretch| json!([it.step, it.at, it.steps, it.mean_us(), it.low_us, it.high_us]);
        self.stretches().iter().map(point).collect()
    }
}

impl Typical {
    fn is_exceeded_by(&self, us: u64) -> bool {
        let (typical, spread) = (self.us as f64, SIGMA * self.spread_us as f64);
        us as f64 > (typical * LONGER).max(typical + DEVIATIONS * spread)
    }

    /// Describes it as `98 ms ± 2 ms`; only the median if it has no spread.
    pub fn words(&self) -> String {
        let spread = if self.spread_us > 0 { format!(" ± {}", units::brief(self.spread_us)) } else { String::new() };
        format!("{}{spread}", units::brief(self.us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(durations: impl IntoIterator<Item = u64>) -> Pace {
        let (mut pace, mut at) = (Pace::default(), 0);
        pace.step(0, Stamp(0), None);
        for (step, us) in (1..).zip(durations) {
            at += us;
            pace.step(step, Stamp(at), None);
        }
        pace
    }

    #[test]
    fn a_long_run_is_whole_and_small() {
        let pace = run((1..=100_000).map(|step| if step == 777 { 9_000_000 } else { 100_000 }));
        assert!(pace.stretches().len() <= STRETCHES && pace.stretches().len() > STRETCHES / 3);
        assert_eq!(pace.stretches().iter().map(|it| it.steps).sum::<u64>(), 100_000);
        assert_eq!(pace.stretches().iter().map(|it| it.high_us).max(), Some(9_000_000));
        assert_eq!((pace.outliers(), pace.longest()), (1, Some((777, 9_000_000))));
        assert_eq!(pace.typical(), Some(Typical { us: 100_000, spread_us: 0 }));
        assert_eq!(pace.trend(), Some(1.0));
        let size = size_of::<Pace>() + pace.stretches().heap() + RECENT * 8;
        assert!(size <= 5 << 10, "{size}");
    }

    #[test]
    fn missing_samples_share_their_time() {
        let mut pace = run([100, 100]);
        pace.step(7, Stamp(700), None);
        assert_eq!(pace.latest_us(), Some(100));
        assert_eq!(pace.stretches().iter().map(|it| it.steps).collect::<Vec<_>>(), [1, 1, 5]);
        let places = [0, 1, 2, 3, 7, 8].map(|step| pace.at(step).map(|it| it.step));
        assert_eq!(places, [None, Some(1), Some(2), Some(7), Some(7), None]);
    }

    #[test]
    fn a_checkpoint_is_an_outlier_and_noise_is_none() {
        let noise = |step: u64| 100_000 + (step * 7919) % 20_000;
        assert_eq!(run((1..2000).map(noise)).outliers(), 0);
        let pace = run((1..=2000).map(|step| if step % 100 == 0 { 900_000 } else { noise(step) }));
        assert_eq!(pace.outliers(), 19, "the last one may be the first of many");
        assert_eq!(run((1..2000).map(|step| if step < 900 { 100 } else { 300 })).outliers(), 0, "a new pace");
        let typical = pace.typical().unwrap();
        assert!((105_000..115_000).contains(&typical.us) && typical.spread_us < 8_000, "{typical:?}");
    }

    #[test]
    fn a_count_that_falls_back_begins_again_and_a_repetition_is_ignored() {
        let mut pace = run([100; 50]);
        pace.step(50, Stamp(9_000), None);
        pace.step(3, Stamp(100), None);
        assert_eq!(pace.stretches().len(), 50);
        pace.step(3, Stamp(10_000), None);
        assert_eq!((pace.stretches().len(), pace.latest_us()), (0, None));
        pace.step(4, Stamp(10_200), None);
        assert_eq!(pace.latest_us(), Some(200));
    }

    proptest! {
        #[test]
        fn whatever_comes_nothing_overflows(moves in prop::collection::vec((any::<u64>(), any::<u64>()), 0..600)) {
            let mut pace = Pace::default();
            for (step, at) in moves {
                pace.step(step, Stamp(at), Some(at));
            }
            prop_assert!(pace.stretches().len() <= STRETCHES && pace.recent.len() <= RECENT);
            prop_assert!(pace.trend().is_none_or(f64::is_finite));
        }
    }
}
