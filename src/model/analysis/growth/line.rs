//! A straight line through points, one at a time: its slope and confidence.

use serde::{Deserialize, Serialize};

/// Rises needed for a pace.
const RISES: u64 = 8;

/// Least squares with running means (Welford 1962), in constant memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
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

impl Line {
    pub(super) fn push(&mut self, x: f64, y: f64) {
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
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Returns units of y per unit of x from the first rise to the latest, for a line that never falls: memory that
    /// only grows needs no estimate. For random events this is the likeliest rate (a walk's drift).
    pub(super) fn climbed(&self) -> Option<f64> {
        let ((x, y), (to_x, to_y)) = self.rose?;
        (!self.fell && self.rises >= RISES && to_x > x).then(|| (to_y - y) / (to_x - x))
    }

    /// Returns rises per unit of x, from the first to the latest; 0 with fewer than two.
    pub(super) fn pace(&self) -> f64 {
        let rises = self.rises.saturating_sub(1) as f64;
        self.rose.filter(|it| it.1.0 > it.0.0).map_or(0.0, |((x, _), (to_x, _))| rises / (to_x - x))
    }

    /// Returns units of y per unit of x, and the half width of its 95 % interval.
    ///
    /// Neighbouring residuals are correlated if the series is a staircase or wanders. Their correlation is estimated
    /// from the squared differences of neighbours (von Neumann 1941) and widens the interval as for a first-order
    /// process. With few residuals the estimate is too low by a known bias (Kendall 1954; Marriott and Pope 1954),
    /// which is added.
    pub(super) fn slope(&self) -> Option<(f64, f64)> {
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
            let (mut line, mut y) = (Line::default(), 0.0);
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
            let mut line = Line::default();
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
        let mut line = Line::default();
        assert!(line.pace().abs() < 1e-9);
        for x in 0..=100 {
            line.push(f64::from(x), f64::from(x / 4 * 4 + x / 40));
        }
        assert!((line.pace() - 0.25).abs() < 1e-9);
    }
}
