//! A value over a rising axis (steps, µs), over its whole course in bounded memory at a growing stride.

use super::{
    buckets::{Buckets, Merge},
    packed::{Numbers, Packed},
};
use serde::{Deserialize, Serialize};

/// Most buckets; when they run out, neighbours are merged and the stride doubles.
pub const BUCKETS: usize = 256;

/// What counts as a rise of the latest of so many parts of a run: at least one of [`LEAST_GAIN`] parts of the value, in
/// at least so many rises, with falls of at most one of [`MOST_FALL`] parts of the gain.
const LATEST: u64 = 4;
const LEAST_GAIN: u64 = 50;
const LEAST_RISES: u32 = 8;
const MOST_FALL: u64 = 8;

/// The lowest and highest value in one stretch of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The last position on the axis with a value.
    pub x: u64,
    /// Lowest value.
    pub low: u64,
    /// Highest value.
    pub high: u64,
    /// The value at `x`.
    pub last: u64,
}

impl Merge for Bucket {
    fn place(&self) -> u64 {
        self.x
    }

    fn merge(&mut self, newer: &Self) {
        *self = Self { low: self.low.min(newer.low), high: self.high.max(newer.high), ..*newer };
    }
}

impl Numbers<4> for Bucket {
    fn numbers(&self) -> [u64; 4] {
        [self.x, self.low, self.high.wrapping_sub(self.low), self.high.wrapping_sub(self.last)]
    }

    fn of_numbers(&[x, low, range, fall]: &[u64; 4]) -> Self {
        let high = low.wrapping_add(range);
        Self { x, low, high, last: high.wrapping_sub(fall) }
    }
}

/// A bounded curve. A part of the axis without values has no bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    buckets: Buckets<Packed<Bucket, 4>, BUCKETS>,
}

impl Curve {
    /// Returns an empty curve that never keeps more than one bucket per `stride` of the axis.
    pub fn with_stride(stride: u64) -> Self {
        Self { buckets: Buckets::with_stride(stride) }
    }

    /// Adds a value. A value for the newest position replaces the old one while each bucket has one position. Values
    /// for earlier positions are ignored, because merged buckets cannot be changed.
    pub fn push(&mut self, x: u64, value: u64) {
        let fresh = Bucket { x, low: value, high: value, last: value };
        let stride = self.buckets.stride();
        match self.buckets.newest_mut() {
            Some(newest) if x < newest.x => {}
            // A bucket of more than one place keeps the values of its other places.
            Some(newest) if x == newest.x && stride == 1 => *newest = fresh,
            _ => self.buckets.push(fresh),
        }
    }

    /// Returns the buckets, oldest first.
    pub fn buckets(&self) -> &Packed<Bucket, 4> {
        self.buckets.all()
    }

    /// Returns how much of the axis one bucket covers.
    pub fn stride(&self) -> u64 {
        self.buckets.stride()
    }

    /// Returns the positions of the first and the last value.
    pub fn ends(&self) -> Option<(u64, u64)> {
        Some((self.buckets().oldest()?.x, self.buckets().newest()?.x))
    }

    /// Whether the value rises now, since its lowest in the latest quarter of the run: several times, nearly without a
    /// fall, and not mostly at once. The value may only return to where it was, so that growth is judged elsewhere.
    pub fn rises(&self) -> bool {
        let Some((first, last)) = self.ends() else { return false };
        let from = last - (last - first) / LATEST;
        let (mut low, mut top, mut count, mut largest, mut fall) = (u64::MAX, 0, 0, 0, 0);
        for it in self.buckets().iter().filter(|it| it.x >= from) {
            if it.low <= low {
                (low, top, count, largest, fall) = (it.low, it.last, 0, 0, 0);
                continue;
            }
            fall = fall.max(top.saturating_sub(it.low));
            if let Some(rise) = it.high.checked_sub(top).filter(|rise| *rise > 0) {
                (top, count, largest) = (it.high, count + 1, largest.max(rise));
            }
        }
        let gain = top.saturating_sub(low);
        count >= LEAST_RISES && gain >= top / LEAST_GAIN && largest <= gain / 2 && fall <= gain / MOST_FALL
    }

    /// Fits a line of the given slope to the values from `since` on (least squares: through their mean) and returns its
    /// height at `since`; `None` without values.
    pub fn height(&self, since: u64, slope: f64) -> Option<f64> {
        let values = self.buckets().iter().filter(|it| it.x >= since);
        let (sum, count) = values
            .fold((0.0, 0_u32), |(sum, count), it| (sum + it.last as f64 - slope * (it.x - since) as f64, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// Returns the highest value in each of `columns` equal stretches of the axis; `None` for a stretch without values.
    pub fn highs(&self, columns: usize) -> Vec<Option<u64>> {
        let mut out = self.highs_to(self.ends().map_or(0, |it| it.1), columns);
        out.resize(columns, None);
        out
    }

    /// The same for an axis that ends at `last`; only as many columns as have a value or lie before one.
    pub fn highs_to(&self, last: u64, columns: usize) -> Vec<Option<u64>> {
        let Some((first, end)) = self.ends() else { return Vec::new() };
        let span = u128::from(last.max(end) - first) + 1;
        let column = |x: u64| usize::try_from(u128::from(x - first) * columns as u128 / span).unwrap_or(0);
        let mut out = vec![None; (column(end) + 1).min(columns)];
        for bucket in self.buckets() {
            if let Some(cell) = out.get_mut(column(bucket.x)) {
                *cell = (*cell).max(Some(bucket.high));
            }
        }
        out
    }

    /// Returns the index of the stretch, of `columns` equal ones, that a position is in; the nearest for one outside.
    pub fn column(&self, x: u64, columns: usize) -> usize {
        let Some((first, last)) = self.ends() else { return 0 };
        let place = u128::from(x.clamp(first, last) - first) * columns as u128;
        usize::try_from(place / (u128::from(last - first) + 1)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_kept_whole_in_bounded_memory() {
        let mut curve = Curve::default();
        for step in 1..=100_000 {
            curve.push(step, step * 10);
        }
        assert!(curve.buckets().len() <= BUCKETS);
        assert_eq!(curve.buckets().oldest().unwrap().low, 10);
        assert_eq!(curve.buckets().newest().unwrap().last, 1_000_000);
        assert_eq!(curve.highs(4).len(), 4);
        assert!(curve.highs(4).windows(2).all(|it| it[0] < it[1]));
    }

    #[test]
    fn a_repeated_place_replaces_and_an_earlier_one_is_ignored() {
        let mut curve = Curve::default();
        curve.push(1, 5);
        curve.push(2, 7);
        curve.push(2, 6);
        curve.push(1, 99);
        assert_eq!(curve.highs(2), [Some(5), Some(6)]);
    }

    #[test]
    fn a_flat_bucket_keeps_its_low_when_its_last_place_is_repeated() {
        let mut curve = Curve::with_stride(10);
        for x in [20, 21, 22] {
            curve.push(x, 5);
        }
        curve.push(22, 9);
        let bucket = curve.buckets().oldest().unwrap();
        assert_eq!((bucket.low, bucket.high, bucket.last), (5, 9, 9));
    }

    #[test]
    fn a_line_runs_through_the_middle_of_what_came_after_its_beginning() {
        let mut curve = Curve::default();
        for step in 1..=1000 {
            curve.push(step, if step < 500 { 7 } else { 1000 + (step - 500) * 10 + step % 2 });
        }
        let height = curve.height(500, 10.0).unwrap();
        assert!((1000.0..1001.5).contains(&height), "{height}");
        assert_eq!((curve.ends(), curve.height(1001, 10.0)), (Some((3, 1000)), None));
        assert_eq!((Curve::default().ends(), Curve::default().height(0, 1.0)), (None, None));
    }

    #[test]
    fn a_rise_is_neither_a_level_nor_a_jump_nor_noise_nor_a_fall() {
        let rises = |value: &dyn Fn(u64) -> u64| {
            let mut curve = Curve::default();
            (1..=3000).for_each(|step| curve.push(step, value(step)));
            curve.rises()
        };
        let noise = |step: u64| step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        assert!(rises(&|step| 5000 + step));
        // A cache that was released once and fills up again, segment by segment.
        assert!(rises(&|step| 9000 + step % 2000 / 20 * 20));
        assert!(!rises(&|_| 5000));
        assert!(!rises(&|step| 5000 + noise(step)));
        assert!(!rises(&|step| if step < 2900 { 5000 } else { 6000 }));
        assert!(!rises(&|step| 9000 - step));
        assert!(!rises(&|step| 5000 + step.min(2000)));
        assert!(!Curve::default().rises());
    }

    #[test]
    fn a_far_jump_costs_no_memory_and_no_time() {
        let mut curve = Curve::default();
        for x in [0, 1, u64::MAX - 1, u64::MAX] {
            curve.push(x, x);
        }
        assert_eq!(curve.highs(3), [Some(1), None, Some(u64::MAX)]);
        assert!(curve.highs(0).is_empty());
    }
}
