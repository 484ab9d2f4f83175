//! A straight line through points, one at a time: slope and how sure it is.

use serde::{Deserialize, Serialize};

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
    /// Sums over neighbours: dx², dx·dy, dy².
    steps: (f64, f64, f64),
}

impl Line {
    pub(super) fn push(&mut self, x: f64, y: f64) {
        self.count += 1.0;
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

    /// How many points.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Units of y per unit of x, and the half width of its 95 % interval.
    ///
    /// Neighbouring residuals are alike where the series is a staircase or wanders; their likeness is read
    /// from the squared differences of neighbours (von Neumann 1941) and widens the interval as for a
    /// process of first order.
    pub(super) fn slope(&self) -> Option<(f64, f64)> {
        if self.count < 3.0 || self.xx <= 0.0 {
            return None;
        }
        let slope = self.xy / self.xx;
        let rest = (self.yy - slope * self.xy).max(0.0);
        let steps = (self.steps.2 - 2.0 * slope * self.steps.1 + slope * slope * self.steps.0).max(0.0);
        let alike = if rest > 0.0 { (1.0 - steps / (2.0 * rest)).clamp(0.0, 0.99) } else { 0.0 };
        let spread = (rest / (self.count - 2.0) / self.xx * (1.0 + alike) / (1.0 - alike)).sqrt();
        (slope.is_finite() && spread.is_finite()).then_some((slope, 2.0 * spread))
    }
}
