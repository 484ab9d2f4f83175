//! The durations of steps as JSON: µs of host time between step boundaries, without synchronisation.

use super::{Pace, Stretch};
use serde_json::{Value, json};

impl Pace {
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
