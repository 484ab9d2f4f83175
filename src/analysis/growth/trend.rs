//! The direction of the latest steps: a robust slope over a window, for the line beside the curve.

use std::collections::VecDeque;

/// Steps that the slope looks back over.
pub const WINDOW: usize = 512;

/// First steps of a run that are not judged: optimizers make their state, libraries their workspaces.
pub const WARM_UP: u64 = 10;

/// Steps needed before anything is said.
pub const ENOUGH: usize = 32;

/// Blocks that the window is reduced to before slopes are taken.
const BLOCKS: usize = 32;

/// Share of pairs of blocks that must agree on the direction, ties counting against: one jump of the level
/// makes at most half of them agree, so that a jump is not called growth.
const AGREEMENT: f64 = 0.8;

/// The latest steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recent {
    kept: VecDeque<StepValue>,
}

/// A value at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepValue {
    /// Steps completed, from 1.
    pub step: u64,
    /// The value, in bytes.
    pub bytes: u64,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trend {
    /// Too few steps after the warm-up to say anything.
    TooFew {
        /// Steps seen after the warm-up.
        have: usize,
    },
    /// No direction that holds.
    Flat {
        /// Steps looked at.
        steps: u64,
    },
    /// Rises by this much a step.
    Growing {
        /// Bytes a step, above 0.
        per_step: f64,
        /// Steps looked at.
        steps: u64,
    },
    /// Falls by this much a step.
    Shrinking {
        /// Bytes a step, below 0.
        per_step: f64,
        /// Steps looked at.
        steps: u64,
    },
}

impl Recent {
    /// Takes one more; its step lies above the last one.
    pub(super) fn push(&mut self, sample: StepValue) {
        if self.kept.len() == WINDOW {
            self.kept.pop_front();
        }
        self.kept.push_back(sample);
    }

    /// The latest value.
    pub(super) fn latest(&self) -> Option<StepValue> {
        self.kept.back().copied()
    }

    /// What the latest steps say.
    pub(super) fn trend(&self) -> Trend {
        let from = self.kept.partition_point(|it| it.step <= WARM_UP);
        let have = self.kept.len() - from;
        let (Some(first), Some(last)) = (self.kept.get(from), self.kept.back()) else {
            return Trend::TooFew { have };
        };
        if have < ENOUGH {
            return Trend::TooFew { have };
        }
        let steps = last.step - first.step + 1;
        let points = self.blocks(from);
        let (slope, agreement) = theil_sen(&points);
        if agreement >= AGREEMENT && slope > 0.0 {
            Trend::Growing { per_step: slope, steps }
        } else if agreement <= -AGREEMENT && slope < 0.0 {
            Trend::Shrinking { per_step: slope, steps }
        } else {
            Trend::Flat { steps }
        }
    }

    /// The window in blocks of consecutive samples, each as (mean step, median bytes): a spike inside a
    /// block moves neither.
    fn blocks(&self, from: usize) -> Vec<(f64, f64)> {
        let have = self.kept.len() - from;
        let count = have.min(BLOCKS);
        let mut points = Vec::with_capacity(count);
        let mut values = Vec::with_capacity(have / count.max(1) + 1);
        for block in 0..count {
            let (start, end) = (from + block * have / count, from + (block + 1) * have / count);
            values.clear();
            values.extend(self.kept.range(start..end).map(|it| it.bytes as f64));
            let middle = self.kept.range(start..end).map(|it| it.step as f64).sum::<f64>() / values.len() as f64;
            if let Some(median) = median(&mut values) {
                points.push((middle, median));
            }
        }
        points
    }
}

/// The median slope over all pairs of points, and the balance of rising and falling pairs, from -1 to 1.
fn theil_sen(points: &[(f64, f64)]) -> (f64, f64) {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    let mut balance = 0.0;
    for (i, (x, y)) in points.iter().enumerate() {
        for (later_x, later_y) in points.iter().skip(i + 1) {
            let rise = later_y - y;
            if rise != 0.0 {
                balance += rise.signum();
            }
            slopes.push(rise / (later_x - x).max(1.0));
        }
    }
    let pairs = slopes.len().max(1) as f64;
    (median(&mut slopes).unwrap_or(0.0), balance / pairs)
}

fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, high, _) = values.select_nth_unstable_by(values.len() / 2, f64::total_cmp);
    let low = below.iter().copied().reduce(f64::max).filter(|_| even);
    Some(low.map_or(*high, |low| f64::midpoint(low, *high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn trend(values: impl IntoIterator<Item = u64>) -> Trend {
        let mut state = Recent::default();
        for (step_number, bytes) in (1..).zip(values) {
            state.push(StepValue { step: step_number, bytes });
        }
        state.trend()
    }

    /// A cheap repeatable noise from 0 to 1023.
    fn noise(at: u64) -> u64 {
        at.wrapping_mul(6_364_136_223_846_793_005).rotate_left(23) % 1024
    }

    #[test]
    fn a_steady_leak_is_measured_to_the_byte() {
        assert_eq!(
            trend((0..600).map(|it| 100 * MIB + it * 4 * MIB)),
            Trend::Growing { per_step: 4_194_304.0, steps: 512 }
        );
    }

    #[test]
    fn a_small_leak_is_found_under_noise() {
        let leak = trend((0..600).map(|it| 100 * MIB + it * 512 + noise(it) * 16));
        let Trend::Growing { per_step, .. } = leak else { panic!("{leak:?}") };
        assert!((per_step - 512.0).abs() < 32.0, "{per_step}");
    }

    #[test]
    fn noise_warm_up_jumps_and_spikes_are_flat() {
        assert_eq!(trend((0..600).map(|it| 100 * MIB + noise(it) * 1024)), Trend::Flat { steps: 512 });
        assert_eq!(trend((0..60).map(|it| it.min(10) * MIB)), Trend::Flat { steps: 50 });
        assert_eq!(trend((0..600).map(|it| if it < 300 { MIB } else { 9 * MIB })), Trend::Flat { steps: 512 });
        assert_eq!(trend((0..600).map(|it| if it % 50 == 0 { 90 * MIB } else { MIB })), Trend::Flat { steps: 512 });
        assert_eq!(trend(std::iter::repeat_n(MIB, 600)), Trend::Flat { steps: 512 });
    }

    #[test]
    fn shrinking_and_too_few_are_said() {
        assert!(matches!(trend((0..600).map(|it| (1000 - it) * MIB)), Trend::Shrinking { steps: 512, .. }));
        assert_eq!(trend(0..20), Trend::TooFew { have: 10 });
        assert_eq!(trend([]), Trend::TooFew { have: 0 });
    }

    #[test]
    fn a_strided_history_gives_the_same_slope() {
        let mut state = Recent::default();
        for it in (1..40_000).step_by(64) {
            state.push(StepValue { step: it, bytes: it * 100 });
        }
        assert_eq!(state.trend(), Trend::Growing { per_step: 100.0, steps: 511 * 64 + 1 });
    }

    #[test]
    fn extremes_do_not_panic() {
        let values = [0, u64::MAX, 1, u64::MAX - 1];
        let mut state = Recent::default();
        for it in 0..2000_u64 {
            let place = usize::try_from(it).unwrap();
            state.push(StepValue { step: it * (u64::MAX / 2000), bytes: values[place % 4] });
            let _ = state.trend();
        }
    }
}
