//! What a finding is called, in our own words and numbers alone: how fast, where, when it is full.

use super::{Finding, Standing};
use crate::{
    analysis::episode::{Axis, Resource},
    units,
};

impl Finding {
    /// `warning`, and what the user asked of it: `warning, silenced`.
    pub fn weight(&self) -> String {
        format!("{}{}", self.severity.name(), self.aside())
    }

    /// `, silenced`, `, expected`; nothing where nothing was asked.
    pub fn aside(&self) -> String {
        match self.standing {
            Standing::Usual => String::new(),
            Standing::Allowed => ", expected".to_owned(),
            Standing::Silenced => ", silenced".to_owned(),
        }
    }

    /// `+4.00 MiB/step`, `/s` where the job counts no steps, with `≈` where samples are missing.
    pub fn slope(&self) -> Option<String> {
        let rate = units::per_step(self.bytes_per_step?);
        let rate = match self.axis {
            Axis::Steps => rate,
            Axis::Seconds => rate.replace("/step", "/s"),
        };
        Some(format!("{}{rate}", if self.approximate { "≈" } else { "" }))
    }

    /// `reserved +4.00 MiB/step`; live memory is what is meant where nothing is named.
    pub fn growth(&self) -> Option<String> {
        let slope = self.slope()?;
        Some(match self.resource {
            Some(Resource::Allocated) | None => slope,
            Some(other) => format!("{} {slope}", other.name()),
        })
    }

    /// `full in 16270 steps, 27 min`, or as much of it as is known.
    pub fn forecast(&self) -> Option<String> {
        let steps = self.full_in_steps.map(steps);
        let both: Vec<String> = steps.into_iter().chain(self.full_in_us.map(units::duration)).collect();
        (!both.is_empty()).then(|| format!("full in {}", both.join(", ")))
    }

    /// `step 12`, or the second where the job counts no steps.
    pub fn place(&self, step: u64) -> String {
        match self.axis {
            Axis::Steps => format!("step {step}"),
            Axis::Seconds => format!("second {step}"),
        }
    }
}

/// A count that may be very large: `16270 steps`, `4.2 M steps`.
fn steps(count: u64) -> String {
    match count {
        0..1_000_000 => units::counted(count, "step"),
        1_000_000..1_000_000_000 => format!("{:.1} M steps", count as f64 / 1e6),
        _ => "over 1000 M steps".to_owned(),
    }
}
