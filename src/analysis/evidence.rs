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
            Unit::PerStep => write!(f, "{name} {:.3}", self.value),
            Unit::Count => write!(f, "{name} {:.0}", self.value),
            Unit::Times => write!(f, "{name} {:.1} ×", self.value),
            Unit::Share => write!(f, "{name} {:.0} %", self.value * 100.0),
        }
    }
}
