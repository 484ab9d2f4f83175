//! The figures of ranks that a screen of many machines compares: one table for the screen, its key, its sources and
//! the documents. Values are in base units, as in the exposition for Prometheus.

use crate::facts::units::{self, Bytes};

/// One figure of the table.
#[derive(Clone, Copy, Debug)]
pub struct RankFigureRow {
    /// The figure.
    pub figure: RankFigure,
    /// Its name in flags and documents.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// Which end is bad.
    pub worse: Worse,
    /// Its label on the screen.
    pub label: &'static str,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A part of a whole, from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes in each step.
    BytesPerStep,
    /// Seconds.
    Seconds,
    /// Steps.
    Steps,
    /// Degrees Celsius.
    Celsius,
}

/// Which end of a figure is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// The highest value.
    High,
    /// The lowest value.
    Low,
}

macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $name:literal = $figure:ident($unit:ident, $worse:ident, $label:literal))+) => {
        /// A figure of a rank.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RankFigure {
            $($(#[doc = $doc])+ $figure,)+
        }

        impl RankFigure {
            /// Every figure, in the order of the enum and of the key.
            pub const TABLE: &'static [RankFigureRow] = &[$(RankFigureRow {
                figure: Self::$figure,
                name: $name,
                meaning: concat!($($doc),+).trim_ascii(),
                unit: Unit::$unit,
                worse: Worse::$worse,
                label: $label,
            }),+];
        }
    };
}

figures! {
    /// The part of the device's memory that is in use, by all its processes, as the driver counts it.
    "device" = Device(Share, High, "device")
    /// Live allocations.
    "allocated" = Allocated(Bytes, High, "allocated")
    /// Memory that the allocator holds from the driver.
    "reserved" = Reserved(Bytes, High, "reserved")
    /// The part of reserved memory that is not in use.
    "unused" = Unused(Share, High, "unused")
    /// Growth of memory, 0 without any.
    "growth" = Growth(BytesPerStep, High, "per step")
    /// Time until growth fills the device; unknown without growth.
    "full" = Full(Seconds, Low, "full in")
    /// The typical time of a step.
    "step-time" = StepTime(Seconds, High, "step time")
    /// Steps behind the median of its job.
    "behind" = Behind(Steps, High, "behind")
    /// The part of time in which a kernel runs on the device.
    "utilisation" = Utilisation(Share, Low, "utilisation")
    /// Temperature of the device.
    "temperature" = Temperature(Celsius, High, "temperature")
}

#[expect(clippy::derivable_impls, reason = "the macro above has no place for the attribute")]
impl Default for RankFigure {
    fn default() -> Self {
        Self::Device
    }
}

impl RankFigure {
    /// Returns what the table says of it: name, unit, and which end is bad.
    pub fn row(self) -> &'static RankFigureRow {
        let [first, ..] = Self::TABLE else { unreachable!("the table has rows") };
        // The table is in the order of the enum, so there always is a row; a test checks that.
        Self::TABLE.get(self as usize).unwrap_or(first)
    }

    /// Returns the figure of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|it| it.name == name).map(|it| it.figure)
    }

    /// Returns the next one, or the one before.
    #[must_use]
    pub fn next(self, forward: bool) -> Self {
        let count = Self::TABLE.len();
        let place = self as usize + if forward { 1 } else { count - 1 };
        Self::TABLE.get(place % count).map_or(self, |it| it.figure)
    }

    /// Formats a value.
    pub fn format(self, value: f64) -> String {
        match self.row().unit {
            Unit::Share => format!("{:.0} %", value * 100.0),
            Unit::Bytes => Bytes(units::whole(value)).to_string(),
            Unit::BytesPerStep if value > 0.0 => units::per_step(value),
            Unit::BytesPerStep => "flat".to_owned(),
            Unit::Seconds => units::brief(units::whole(value * 1e6)),
            Unit::Steps => units::counted(units::whole(value), "step"),
            Unit::Celsius => format!("{value:.0} °C"),
        }
    }

    /// Returns how bad a value is: the higher, the worse.
    pub fn badness(self, value: f64) -> f64 {
        match self.row().worse {
            Worse::High => value,
            Worse::Low => -value,
        }
    }

    /// Returns the smallest difference between two ranks that matters.
    pub(super) fn least(self) -> f64 {
        match self.row().unit {
            Unit::Share => 0.05,
            Unit::Bytes => 64.0 * 1_048_576.0,
            Unit::BytesPerStep => 1024.0,
            Unit::Seconds => 0.005,
            Unit::Steps => 2.0,
            Unit::Celsius => 5.0,
        }
    }
}

/// The known figures of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures([Option<f64>; RankFigure::TABLE.len()]);

impl Figures {
    /// Returns a figure; `None` if it is unknown.
    pub fn get(&self, figure: RankFigure) -> Option<f64> {
        self.0.get(figure as usize).copied().flatten()
    }

    /// Sets a figure. A value that is not a number is unknown.
    pub fn set(&mut self, figure: RankFigure, value: Option<f64>) {
        if let Some(it) = self.0.get_mut(figure as usize) {
            *it = value.filter(|it| it.is_finite());
        }
    }
}

impl FromIterator<(RankFigure, Option<f64>)> for Figures {
    fn from_iter<T: IntoIterator<Item = (RankFigure, Option<f64>)>>(values: T) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|(figure, value)| all.set(figure, value));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_with_names_of_its_own() {
        let mut figure = RankFigure::default();
        for (place, row) in RankFigure::TABLE.iter().enumerate() {
            assert_eq!((row.figure as usize, figure, figure.row().name), (place, row.figure, row.name));
            assert_eq!(RankFigure::named(row.name), Some(figure));
            assert!(row.meaning.ends_with('.') && row.label.len() <= 12, "{}", row.name);
            assert_eq!(figure.next(true).next(false), figure);
            figure = figure.next(true);
        }
        assert_eq!((figure, RankFigure::named("nothing")), (RankFigure::default(), None));
        let labels: BTreeSet<_> = RankFigure::TABLE.iter().map(|it| it.label).collect();
        assert_eq!(labels.len(), RankFigure::TABLE.len());
    }

    #[test]
    fn values_have_their_units_and_no_value_is_unknown() {
        for (figure, value, text) in [
            (RankFigure::Device, 0.874, "87 %"),
            (RankFigure::Allocated, 1_610_612_736.0, "1.50 GiB"),
            (RankFigure::Growth, 4_194_304.0, "+4.00 MiB/step"),
            (RankFigure::Growth, 0.0, "flat"),
            (RankFigure::Full, 7_200.0, "2 h"),
            (RankFigure::StepTime, 0.098, "98 ms"),
            (RankFigure::Behind, 1.0, "1 step"),
            (RankFigure::Temperature, 71.2, "71 °C"),
        ] {
            assert_eq!(figure.format(value), text);
        }
        let mut all = Figures::default();
        all.set(RankFigure::Device, Some(f64::NAN));
        all.set(RankFigure::Behind, Some(3.0));
        assert_eq!((all.get(RankFigure::Device), all.get(RankFigure::Behind)), (None, Some(3.0)));
    }
}
