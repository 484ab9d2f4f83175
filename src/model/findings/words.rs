//! What a finding is called, in our own words and numbers alone: how fast, where, when it is full.

use super::{Finding, Kind, Standing};
use crate::{
    facts::units,
    model::analysis::episode::{Axis, Resource},
};

/// Times count from here, µs.
const A_SECOND: u64 = 1_000_000;

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

    /// Its cause, where that says more than its kind.
    pub fn because(&self) -> Option<&'static str> {
        // `rank-imbalance` says no more than `imbalance`.
        let id = self.cause.id();
        Some(id).filter(|it| self.kind == Kind::Growth || !it.ends_with(self.kind.name()))
    }

    /// `full in 16270 steps, 27 min`, or as much of it as is known; nothing where there is no time left.
    pub fn forecast(&self) -> Option<String> {
        let steps = self.full_in_steps.filter(|it| *it > 0 && self.follows.is_none()).map(steps);
        let both: Vec<String> = steps.into_iter().chain(self.left()).collect();
        (!both.is_empty()).then(|| format!("full in {}", both.join(", ")))
    }

    /// `27 min` until the device is full; `None` where that is unknown, no time is left, or what it follows from has it.
    pub fn left(&self) -> Option<String> {
        let is_over = self.full_in_steps == Some(0) || self.follows.is_some();
        self.full_in_us.filter(|it| *it >= A_SECOND && !is_over).map(units::duration)
    }

    /// `out of memory at step 170`, `memory grows 1011 KiB per step`: what it is in a few words.
    pub fn brief(&self) -> String {
        let rate = self.slope().map_or_else(String::new, |it| {
            format!(" {}", it.replace('+', "").replace("/step", " per step").replace("/s", " per second"))
        });
        let who = self.rank.map_or_else(String::new, |it| format!(" (rank {it})"));
        let what = match (self.kind, self.resource) {
            (Kind::Oom, _) => format!("out of memory at {}", self.place(self.first_alert_step)),
            (Kind::Growth, Some(Resource::Host)) => format!("host memory grows{rate}"),
            (Kind::Growth, Some(Resource::Pinned)) => format!("pinned host memory grows{rate}"),
            (Kind::Growth, Some(Resource::Reserved)) => format!("reserved memory grows{rate}"),
            (Kind::Growth, Some(Resource::Driver)) => format!("memory outside the allocator grows{rate}"),
            (Kind::Growth, Some(Resource::Device)) => format!("other processes' memory grows{rate}"),
            (Kind::Growth, _) => format!("memory grows{rate}"),
            _ => self.cause.entry().title.to_owned(),
        };
        format!("{what}{who}")
    }

    /// `follows from growth of allocated`, `led to the error at step 200`; nothing where it stands for itself.
    pub fn following(&self) -> Option<String> {
        let (kind, _, _, resource, step, _) = self.follows?;
        Some(match (kind, self.kind, resource) {
            (Kind::Oom, Kind::Oom, _) => "the same error came again".to_owned(),
            (Kind::Oom, ..) => format!("led to the out-of-memory error at {}", self.place(step)),
            (_, _, resource) => format!("follows from growth of {}", resource.map_or("memory", Resource::name)),
        })
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
