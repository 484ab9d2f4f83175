//! A condition with hysteresis: raised when it has lasted, resolved when it has been gone for longer.
//!
//! It has two thresholds (a Schmitt trigger) and two waits, counted in observations. Each time it is raised doubles the
//! next wait.

use crate::facts::units::Stamp;
use serde::{Deserialize, Serialize};

/// Most spells remembered; the oldest goes first.
pub const SPELLS: usize = 4;

/// Most doublings of the wait.
const DOUBLINGS: u32 = 6;

/// The band of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Band {
    /// The condition holds.
    High,
    /// The condition stays as it was.
    Between,
    /// The condition does not hold.
    Low,
}

impl Band {
    /// Returns `High` from one threshold on, `Low` below another.
    pub fn of(measure: f64, high: f64, low: f64) -> Self {
        if measure >= high {
            Self::High
        } else if measure < low {
            Self::Low
        } else {
            Self::Between
        }
    }
}

/// Waits, in observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// In the high band without one in the low band, before it is first raised.
    pub on: u32,
    /// In the low band without one in the high band, before it is resolved.
    pub off: u32,
}

/// A time during which the condition held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatchPeriod {
    /// The step of the first observation in the high band.
    pub since_step: u64,
    /// The step at which it was raised; it never changes.
    pub first_alert_step: u64,
    /// When it was raised.
    pub first_alert_at: Stamp,
    /// The step and time at which it was resolved; `None` while it lasts.
    pub resolved: Option<(u64, Stamp)>,
    /// The highest measure.
    pub worst: f64,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latch {
    held: u32,
    since: u64,
    worst: f64,
    raised: u32,
    spells: Vec<LatchPeriod>,
}

impl Latch {
    /// Applies an observation: its band, its measure, its step and time.
    pub fn step(&mut self, patience: Patience, (band, measure): (Band, f64), step: u64, at: Stamp) {
        let wanted = if self.is_active() { Band::Low } else { Band::High };
        if band == wanted {
            if self.held == 0 {
                (self.since, self.worst) = (step, measure);
            }
            self.held = self.held.saturating_add(1);
        } else if band != Band::Between {
            self.held = 0;
        }
        self.worst = self.worst.max(measure);
        if let Some(spell) = self.spells.last_mut().filter(|it| it.resolved.is_none()) {
            spell.worst = spell.worst.max(measure);
            if self.held >= patience.off {
                self.end(step, at);
            }
        } else if self.held >= patience.on.saturating_mul(1 << self.raised.min(DOUBLINGS)) {
            self.held = 0;
            self.raised = self.raised.saturating_add(1);
            if self.spells.len() == SPELLS {
                self.spells.remove(0);
            }
            let (since_step, worst) = (self.since.min(step), self.worst);
            self.spells.push(LatchPeriod {
                since_step,
                first_alert_step: step,
                first_alert_at: at,
                resolved: None,
                worst,
            });
        }
    }

    /// Resolves the condition, because the job started again.
    pub fn end(&mut self, step: u64, at: Stamp) {
        self.held = 0;
        if let Some(spell) = self.spells.last_mut().filter(|it| it.resolved.is_none()) {
            spell.resolved = Some((step, at));
        }
    }

    /// Returns whether it lasts.
    pub fn is_active(&self) -> bool {
        self.spells.last().is_some_and(|it| it.resolved.is_none())
    }

    /// Returns the latest spells, oldest first.
    pub fn spells(&self) -> &[LatchPeriod] {
        &self.spells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { on: 3, off: 5 };

    fn fed(measures: impl IntoIterator<Item = f64>) -> Latch {
        let mut latch = Latch::default();
        for (step, it) in (1..).zip(measures) {
            latch.step(PATIENCE, (Band::of(it, 0.8, 0.5), it), step, Stamp(step * 1000));
        }
        latch
    }

    #[test]
    fn it_is_raised_once_it_lasted_and_resolved_once_it_was_gone() {
        let it = fed([0.1, 0.9, 0.85, 0.95]);
        assert_eq!(it.spells().len(), 1);
        let spell = it.spells()[0];
        assert_eq!((spell.since_step, spell.first_alert_step, spell.resolved), (2, 4, None));
        assert_eq!((spell.first_alert_at, spell.worst), (Stamp(4000), 0.95));
        let it = fed([0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1]);
        assert!(it.is_active(), "four of five");
        let it = fed([0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1]);
        assert_eq!(it.spells()[0].resolved, Some((8, Stamp(8000))));
    }

    #[test]
    fn a_condition_that_comes_and_goes_neither_raises_nor_flaps() {
        assert!(fed((0..900).map(|it| if it % 3 == 0 { 0.1 } else { 0.9 })).spells().is_empty());
        let between = fed((0..900).map(|it| if it < 3 { 0.9 } else { 0.6 + 0.05 * f64::from(it % 3) }));
        assert!(between.spells().len() == 1 && between.is_active());
        let swinging = fed((0..900).map(|it| if it % 2 == 0 { 0.79 } else { 0.9 }));
        assert_eq!((swinging.spells().len(), swinging.is_active()), (1, true));
    }

    #[test]
    fn each_time_asks_for_more_and_few_are_kept() {
        // Three high and five low ones, repeatedly: raised once, because the second time needs six.
        assert_eq!(fed((0..900).map(|it| if it % 8 < 3 { 0.9 } else { 0.1 })).spells().len(), 1);
        let long = fed((0..90_000).map(|it| if it % 900 < 450 { 0.9 } else { 0.1 }));
        assert_eq!(long.spells().len(), SPELLS);
        assert!(long.spells().windows(2).all(|it| it[0].resolved.is_some_and(|end| end.0 <= it[1].since_step)));
    }

    #[test]
    fn an_end_from_outside_resolves_and_forgets() {
        let mut it = fed([0.9, 0.9, 0.9]);
        it.end(1, Stamp(9));
        assert_eq!(it.spells()[0].resolved, Some((1, Stamp(9))));
        it.step(PATIENCE, (Band::High, f64::NAN), 0, Stamp(0));
        assert!(!it.is_active() && it.spells().len() == 1);
    }
}
