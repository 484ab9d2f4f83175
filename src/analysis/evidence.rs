//! Figures that a finding rests on, which a person can check.

use crate::units::{self, Bytes};
use std::fmt;

/// Named figures, in the order in which they are worth reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The figures.
    pub figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Its name in files: lower case, words joined by `_`.
    pub name: &'static str,
    /// Its value, finite.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes a step.
    BytesPerStep,
    /// Things a step.
    PerStep,
    /// Bytes a second, of a job that counts no steps; the name says step all the same.
    BytesPerSecond,
    /// Things a second, of such a job.
    PerSecond,
    /// Things.
    Count,
    /// A share of a whole, from 0 to 1.
    Share,
    /// So many times something else.
    Times,
}

impl Evidence {
    /// Adds a figure; one that is no number is left out, as it is not known.
    pub fn add(&mut self, name: &'static str, value: f64, unit: Unit) {
        if value.is_finite() {
            self.figures.push(Figure { name, value, unit });
        }
    }

    /// A figure by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|it| it.name == name).map(|it| it.value)
    }
}

impl fmt::Display for Figure {
    /// `bytes per block 4.00 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.replace('_', " ");
        match self.unit {
            Unit::Bytes => write!(f, "{name} {}", Bytes(units::whole(self.value))),
            Unit::BytesPerStep => {
                let name = name.strip_suffix(" per step").unwrap_or(&name);
                write!(f, "{name} {}", units::per_step(self.value))
            }
            Unit::BytesPerSecond => {
                let name = name.strip_suffix(" per step").unwrap_or(&name);
                write!(f, "{name} {}", units::per_step(self.value).replace("/step", "/s"))
            }
            Unit::PerSecond => write!(f, "{} {:.3}", name.replace("per step", "per second"), self.value),
            Unit::PerStep => write!(f, "{name} {:.3}", self.value),
            Unit::Count => write!(f, "{name} {:.0}", self.value),
            Unit::Times => write!(f, "{name} {:.1} ×", self.value),
            Unit::Share => write!(f, "{name} {:.0} %", self.value * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_written_in_its_unit() {
        let written = |name, value, unit| Figure { name, value, unit }.to_string();
        assert_eq!(written("interval_low", 2048.0, Unit::BytesPerStep), "interval low +2.00 KiB/step");
        assert_eq!(written("allocated_per_step", 2048.0, Unit::BytesPerStep), "allocated +2.00 KiB/step");
        assert_eq!(written("allocated_per_step", -512.0, Unit::BytesPerSecond), "allocated -512 B/s");
        assert_eq!(written("blocks_per_step", 0.5, Unit::PerStep), "blocks per step 0.500");
        assert_eq!(written("blocks_per_step", 0.5, Unit::PerSecond), "blocks per second 0.500");
        assert_eq!(written("time_of_a_step", 2.345, Unit::Times), "time of a step 2.3 ×");
        assert_eq!(written("stuck_at_most", 0.42, Unit::Share), "stuck at most 42 %");
        let mut evidence = Evidence::default();
        evidence.add("nothing", f64::NAN, Unit::Bytes);
        assert_eq!((evidence.get("nothing"), evidence.figures.len()), (None, 0));
    }
}
