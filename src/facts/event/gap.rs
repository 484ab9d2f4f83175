//! What a recording lacks of a stretch of time, because its file could not be written.

use crate::facts::{
    text::Foreign,
    units::{Stamp, counted, duration, separated},
};
use serde::{Deserialize, Serialize};

/// A hole in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gap {
    /// When it ends; it begins at the stamp of its event.
    pub until_us: Stamp,
    /// How many events are missing.
    pub lost: u64,
    /// The first and the last step among them; `None` if there is no step.
    pub steps: Option<Steps>,
    /// Why the file could not be written.
    pub why: Foreign,
}

/// Steps, the first and the last one included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Steps {
    /// Returns the smallest range with both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

impl Gap {
    /// Returns a hole from the beginning of this one, which began at `at`, to the end of another one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            until_us: self.until_us.max(other.until_us),
            lost: self.lost.saturating_add(other.lost),
            steps: self.steps.into_iter().chain(other.steps).reduce(Steps::and),
            why: if other.why.raw().is_empty() { self.why } else { other.why },
        }
    }

    /// Describes what is missing: `steps 2,163–41,000 are missing`, `12 events of 3 s are missing`.
    pub fn missing(&self, since: Stamp) -> String {
        match self.steps {
            Some(Steps { first, last }) if first == last => format!("step {} is missing", separated(first)),
            Some(Steps { first, last }) => format!("steps {}–{} are missing", separated(first), separated(last)),
            None => {
                let are = if self.lost == 1 { "is" } else { "are" };
                format!("{} of {} {are} missing", counted(self.lost, "event"), duration(self.until_us.since(since)))
            }
        }
    }

    /// The same with the reason.
    pub fn words(&self, since: Stamp) -> String {
        format!("{} from the recording: {}", self.missing(since), self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_names_the_missing_steps() {
        let steps = |first, last| Gap { lost: 9, steps: Some(Steps { first, last }), ..Gap::default() };
        assert_eq!(steps(2163, 41_000).missing(Stamp(0)), "steps 2,163–41,000 are missing");
        assert_eq!(steps(7, 7).missing(Stamp(0)), "step 7 is missing");
        let events = Gap { until_us: Stamp(9_000_000), lost: 12, why: "it was full".into(), ..Gap::default() };
        assert_eq!(events.words(Stamp(6_000_000)), "12 events of 3 s are missing from the recording: it was full");
        let both = steps(5, 9).and(steps(2, 7)).and(events);
        assert_eq!((both.steps, both.lost, both.until_us), (Some(Steps { first: 2, last: 9 }), 30, Stamp(9_000_000)));
    }
}
