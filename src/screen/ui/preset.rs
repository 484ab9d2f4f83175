//! The presets of the overview: which boxes each has. One table for the screen, flags, help and documents.

use super::{Scope, Ui};
use crate::model::session::Session;
use clap::{ValueEnum, builder::PossibleValue};

/// A choice of boxes for the overview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Where memory goes, and what grows.
    #[default]
    Memory,
    /// How fast the ranks train, and what slows them down.
    Training,
    /// The state of the devices.
    Hardware,
    /// Every device and process in a line.
    Compact,
}

/// A box of the overview. On the screen, they follow each other in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The devices.
    Devices,
    /// The ladder of the selected device, and the unused part of reserved memory.
    Ladder,
    /// Growth of the selected process's memory.
    Growth,
    /// The timeline of the selected process.
    Run,
    /// The time of steps, with the device's metrics below.
    Pace,
    /// The course of the device's metrics.
    Course,
    /// The device's metrics.
    Metrics,
    /// The processes.
    Processes,
    /// The open alerts.
    Alerts,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct PresetRow {
    /// The preset.
    pub preset: Preset,
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// Its boxes, the most important first: those at the end fold away first.
    pub boxes: &'static [Part],
    /// Which processes it lists at first.
    pub scope: Scope,
    /// Whether its process list has columns of figures, which gpuwatch reads for all processes then.
    pub figures: bool,
}

impl Part {
    /// Returns its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Ladder => "ladder",
            Self::Growth => "growth",
            Self::Run => "timeline",
            Self::Pace => "step time",
            Self::Course => "course of metrics",
            Self::Metrics => "metrics",
            Self::Processes => "processes",
            Self::Alerts => "alerts",
        }
    }
}

impl Preset {
    /// Every preset, in the order of the key.
    pub const TABLE: &'static [PresetRow] = &[
        PresetRow {
            preset: Self::Memory,
            name: "memory",
            shows: "where the memory of the selected device goes, and what grows",
            boxes: &[Part::Devices, Part::Ladder, Part::Processes, Part::Growth, Part::Alerts, Part::Run],
            scope: Scope::Selected,
            figures: false,
        },
        PresetRow {
            preset: Self::Training,
            name: "training",
            shows: "how long the steps of each rank take, and what slows them down",
            boxes: &[Part::Devices, Part::Processes, Part::Pace, Part::Alerts, Part::Growth],
            scope: Scope::All,
            figures: true,
        },
        PresetRow {
            preset: Self::Hardware,
            name: "hardware",
            shows: "clocks, power, temperatures and links of the devices, and their course",
            boxes: &[Part::Devices, Part::Metrics, Part::Course, Part::Processes, Part::Alerts],
            scope: Scope::Selected,
            figures: false,
        },
        PresetRow {
            preset: Self::Compact,
            name: "compact",
            shows: "a line for each device, and one for each process",
            boxes: &[Part::Devices, Part::Processes, Part::Alerts],
            scope: Scope::All,
            figures: true,
        },
    ];

    /// Returns what the table says of it: its name and its boxes.
    pub fn row(self) -> &'static PresetRow {
        let [first, ..] = Self::TABLE else { unreachable!("the table has rows") };
        // The table is in the order of the enum, so there always is a row; a test checks that.
        Self::TABLE.get(self as usize).unwrap_or(first)
    }

    /// Returns the next one.
    fn next(self) -> Self {
        Self::TABLE.get(self as usize + 1).map_or(Self::Memory, |it| it.preset)
    }
}

impl ValueEnum for Preset {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Memory, Self::Training, Self::Hardware, Self::Compact]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.row().name).help(self.row().shows))
    }
}

impl Ui {
    /// Shows a preset, with the processes that it lists at first.
    pub fn show_preset(&mut self, preset: Preset) {
        (self.preset, self.scope) = (preset, preset.row().scope);
    }

    /// Shows the next preset.
    pub(super) fn next_preset(&mut self, session: &Session) {
        self.show_preset(self.preset.next());
        self.row_of_device(session);
        let row = self.preset.row();
        self.show_message(format!("{}: {}", row.name, row.shows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_key_with_names_of_its_own() {
        let mut preset = Preset::default();
        for (place, row) in Preset::TABLE.iter().enumerate() {
            assert_eq!((row.preset as usize, preset, preset.row().name), (place, row.preset, row.name));
            assert!(row.boxes.starts_with(&[Part::Devices]) && row.boxes.contains(&Part::Processes), "{}", row.name);
            preset = preset.next();
        }
        assert_eq!(preset, Preset::Memory);
        let names = Preset::TABLE.iter().map(|it| it.preset).collect::<Vec<_>>();
        assert_eq!(Preset::value_variants(), names);
    }
}
