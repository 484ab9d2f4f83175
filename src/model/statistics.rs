//! Statistics: medians and quantiles, fits of lines, and chances. Each function names its source and what it does with
//! ties and with an even number of values.

use serde::{Deserialize, Serialize};

/// Returns the median of whole numbers; of an even number of values the upper one of the middle two, so that it is one
/// of the values. `None` without values.
pub fn median<T: Copy + Ord>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut all: Vec<T> = values.into_iter().collect();
    let middle = all.len() / 2;
    (!all.is_empty()).then(|| *all.select_nth_unstable(middle).1)
}

/// Returns the upper median, as [`median`] does, of numbers in the order of `f64::total_cmp`.
pub fn median_f64(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile_f64(values, 2)
}

/// Returns the lower one of the middle two of an even number of values; otherwise the median. `None` without values.
pub fn lower_median_f64(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.into_iter().collect();
    let middle = all.len().checked_sub(1)? / 2;
    Some(*all.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Returns the value with one of `parts` of all values below it, in the order of `f64::total_cmp`: the value at place
/// `count / parts`, rounded down, counted from 0. It is never interpolated. `None` without values; `parts` is at least
/// 2.
pub fn quantile_f64(values: impl IntoIterator<Item = f64>, parts: usize) -> Option<f64> {
    let mut all: Vec<f64> = values.into_iter().collect();
    let place = all.len() / parts;
    (!all.is_empty()).then(|| *all.select_nth_unstable_by(place, f64::total_cmp).1)
}

/// Returns the upper median of values that are in order already, whatever the order is. `None` without values.
pub fn middle<T: Copy>(sorted: &[T]) -> Option<T> {
    sorted.get(sorted.len() / 2).copied()
}

/// Returns the median slope over all pairs of points (Theil 1950, Sen 1968), the upper one of two. The points are in
/// the order of x; pairs with equal x do not count. `None` without a pair.
pub fn median_slope(points: &[(f64, f64)]) -> Option<f64> {
    let pairs = points.iter().enumerate().flat_map(|(place, (x, y))| {
        let later = points.iter().skip(place + 1).filter(move |(later, _)| later > x);
        later.map(move |(later, top)| (top - y) / (later - x))
    });
    median_f64(pairs)
}

/// Returns the chance of `count` or more independent events where `expected` are expected (the tail of Poisson's
/// distribution).
pub fn poisson_tail(count: usize, expected: f64) -> f64 {
    let (mut term, mut below) = ((-expected).exp(), 0.0);
    for it in 0..count {
        below += term;
        term *= expected / (it + 1) as f64;
    }
    1.0 - below
}

/// Rises needed for a pace.
const RISES: u64 = 8;

/// A straight line through points, one at a time: least squares with running means (Welford 1962), in constant memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineFit {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
    last: Option<(f64, f64)>,
    /// The first and the latest point above its predecessor.
    rose: Option<((f64, f64), (f64, f64))>,
    rises: u64,
    /// Whether a point was ever below its predecessor.
    fell: bool,
    /// Sums over neighbours: dx², dx·dy, dy².
    steps: (f64, f64, f64),
}

impl LineFit {
    /// Adds a point.
    pub fn push(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.fell |= self.last.is_some_and(|it| y < it.1);
        if self.last.is_some_and(|it| y > it.1) {
            self.rises += 1;
            self.rose = Some((self.rose.map_or((x, y), |it| it.0), (x, y)));
        }
        let (dx, dy) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += dx / self.count;
        self.mean_y += dy / self.count;
        self.xx += dx * (x - self.mean_x);
        self.xy += dx * (y - self.mean_y);
        self.yy += dy * (y - self.mean_y);
        if let Some((before_x, before_y)) = self.last.replace((x, y)) {
            let (dx, dy) = (x - before_x, y - before_y);
            self.steps.0 += dx * dx;
            self.steps.1 += dx * dy;
            self.steps.2 += dy * dy;
        }
    }

    /// Returns the number of points.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Returns units of y per unit of x from the first rise to the latest, for a line that never falls: memory that
    /// only grows needs no estimate. For random events this is the likeliest rate (a walk's drift).
    pub fn climbed(&self) -> Option<f64> {
        let ((x, y), (to_x, to_y)) = self.rose?;
        (!self.fell && self.rises >= RISES && to_x > x).then(|| (to_y - y) / (to_x - x))
    }

    /// Returns rises per unit of x, from the first to the latest; 0 with fewer than two.
    pub fn pace(&self) -> f64 {
        let rises = self.rises.saturating_sub(1) as f64;
        self.rose.filter(|it| it.1.0 > it.0.0).map_or(0.0, |((x, _), (to_x, _))| rises / (to_x - x))
    }

    /// Returns units of y per unit of x, and the half width of its 95 % interval.
    ///
    /// Neighbouring residuals are correlated if the series is a staircase or wanders. Their correlation is estimated
    /// from the squared differences of neighbours (von Neumann 1941) and widens the interval as for a first-order
    /// process. With few residuals the estimate is too low by a known bias (Kendall 1954; Marriott and Pope 1954),
    /// which is added.
    pub fn slope(&self) -> Option<(f64, f64)> {
        if self.count < 3.0 || self.xx <= 0.0 {
            return None;
        }
        let slope = self.xy / self.xx;
        let rest = (self.yy - slope * self.xy).max(0.0);
        let steps = (self.steps.2 - 2.0 * slope * self.steps.1 + slope * slope * self.steps.0).max(0.0);
        let seen = if rest > 0.0 { 1.0 - steps / (2.0 * rest) } else { 0.0 };
        let alike = (seen + (2.0 + 4.0 * seen.max(0.0)) / self.count).clamp(0.0, 0.99);
        let spread = (rest / (self.count - 2.0) / self.xx * (1.0 + alike) / (1.0 - alike)).sqrt();
        (slope.is_finite() && spread.is_finite()).then_some((slope, 2.0 * spread))
    }
}

/// A small generator of pseudo-random numbers for made-up jobs (splitmix64: Steele, Lea and Flood 2014).
#[cfg(test)]
pub(crate) struct Random(u64);

#[cfg(test)]
impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x5851_f42d_4c95_7f2d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// About normal, with a standard deviation of 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_without_aim_is_seldom_a_sure_line() {
        let mut random = 1_u64;
        let mut toss = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
        };
        let is_sure = |_: &u32| {
            let (mut line, mut y) = (LineFit::default(), 0.0);
            for x in 0..32 {
                y += toss();
                line.push(f64::from(x), y);
            }
            line.slope().is_some_and(|(slope, half)| slope.abs() > 3.0 * half)
        };
        let sure = (0..2000).filter(is_sure).count();
        assert!(sure < 150, "{sure} of 2000");
    }

    #[test]
    fn a_series_that_only_rises_is_counted_from_rise_to_rise() {
        let line = |events: &[u32], fall: u32| {
            let mut line = LineFit::default();
            for x in 0..100 {
                let kept = events.iter().filter(|it| **it <= x).count() as f64;
                line.push(f64::from(x), kept - f64::from(u8::from(x == fall)));
            }
            line.climbed()
        };
        let events = [3, 5, 11, 30, 31, 44, 60, 61, 73];
        assert_eq!(line(&events, 200), Some(8.0 / 70.0));
        assert_eq!((line(&events, 50), line(&events[..7], 200)), (None, None));
    }

    #[test]
    fn the_pace_counts_rises_of_any_height() {
        let mut line = LineFit::default();
        assert!(line.pace().abs() < 1e-9);
        for x in 0..=100 {
            line.push(f64::from(x), f64::from(x / 4 * 4 + x / 40));
        }
        assert!((line.pace() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn ties_and_even_numbers_of_values_have_one_rule() {
        assert_eq!((median([4_u64, 1, 3, 2]), median([2_u64]), median::<u64>([])), (Some(3), Some(2), None));
        assert_eq!((median_f64([4.0, 1.0, 3.0, 2.0]), lower_median_f64([4.0, 1.0, 3.0, 2.0])), (Some(3.0), Some(2.0)));
        assert_eq!((lower_median_f64([]), quantile_f64([], 4), middle::<u64>(&[])), (None, None, None));
        assert_eq!((quantile_f64([4.0, 1.0, 3.0, 2.0], 4), middle(&[9, 7, 5, 3])), (Some(2.0), Some(5)));
    }

    #[test]
    fn one_outlier_does_not_bend_the_median_slope() {
        let points = [(0.0, 0.0), (1.0, 2.0), (2.0, 4.0), (3.0, 90.0), (4.0, 8.0)];
        assert_eq!((median_slope(&points), median_slope(&points[..1])), (Some(2.0), None));
        assert_eq!(median_slope(&[(1.0, 2.0), (1.0, 4.0)]), None, "no distance");
    }

    #[test]
    fn the_chance_of_rare_events_is_that_of_poisson() {
        assert!((poisson_tail(0, 3.0) - 1.0).abs() < 1e-12);
        assert!((poisson_tail(1, 3.0) - (1.0 - (-3.0_f64).exp())).abs() < 1e-12);
    }
}
