//! Units of metrics, and how values are written.

use crate::facts::units::{self, Bytes};

/// The unit of a metric. Every value is a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent.
    Percent,
    /// Degrees Celsius.
    Celsius,
    /// Milliwatts.
    Milliwatts,
    /// Megahertz.
    Megahertz,
    /// A size, or a size per second.
    Bytes,
    /// A number of items.
    Count,
    /// Seconds.
    Seconds,
    /// A performance state.
    State,
    /// A set of [`Reason`]s.
    Reasons,
    /// 0 or 1.
    YesNo,
    /// 0 (off) or 1 (on).
    Switch,
    /// NVML's `nvmlComputeMode_t`.
    ComputeMode,
}

/// Why clocks are below their highest: a bit of `nvmlClocksThrottleReasons`.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The bit.
    pub bit: u64,
    /// In words.
    pub words: &'static str,
    /// Its letter in a row of the course of a device, if it slows the device down.
    pub sign: char,
    /// Whether the device is slowed down by heat or lack of power, and not by a setting or lack of work.
    pub is_slowdown: bool,
}

impl Reason {
    /// Every reason, the gravest first.
    pub const TABLE: [Self; 9] = [
        Self { bit: 0x40, words: "hardware thermal slowdown", sign: 'T', is_slowdown: true },
        Self { bit: 0x20, words: "thermal slowdown", sign: 't', is_slowdown: true },
        Self { bit: 0x80, words: "power brake", sign: 'B', is_slowdown: true },
        Self { bit: 0x8, words: "hardware slowdown", sign: 'H', is_slowdown: true },
        Self { bit: 0x4, words: "power cap", sign: 'P', is_slowdown: true },
        Self { bit: 0x10, words: "sync boost", sign: ' ', is_slowdown: false },
        Self { bit: 0x2, words: "clock setting", sign: ' ', is_slowdown: false },
        Self { bit: 0x100, words: "display clock setting", sign: ' ', is_slowdown: false },
        Self { bit: 0x1, words: "idle", sign: ' ', is_slowdown: false },
    ];

    /// Returns the reasons in a set.
    pub fn of(bits: u64) -> impl Iterator<Item = &'static Self> {
        Self::TABLE.iter().filter(move |it| bits & it.bit != 0)
    }
}

impl Unit {
    /// Returns its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Celsius => "°C",
            Self::Milliwatts => "mW",
            Self::Megahertz => "MHz",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Seconds => "s",
            Self::State => "state",
            Self::Reasons => "bits",
            Self::YesNo | Self::Switch => "0 or 1",
            Self::ComputeMode => "mode",
        }
    }

    /// Formats a value: `97 %`, `512 W`, `P0`, `power cap`. A frequency has no unit, because its label has it.
    pub fn format(self, value: u64) -> String {
        match self {
            Self::Bytes => Bytes(value).to_string(),
            Self::Seconds => units::duration(value.saturating_mul(1_000_000)),
            Self::State => format!("P{value}"),
            Self::Reasons => reasons(value),
            Self::YesNo => if value == 0 { "no" } else { "yes" }.to_owned(),
            Self::Switch => if value == 0 { "off" } else { "on" }.to_owned(),
            Self::ComputeMode => compute_mode(value),
            Self::Percent | Self::Celsius | Self::Milliwatts | Self::Megahertz | Self::Count => {
                format!("{}{}", self.number(value), self.suffix())
            }
        }
    }

    /// Formats a value and the one behind it: `512/700 W`.
    pub fn format_both(self, value: u64, behind: u64) -> String {
        format!("{}/{}", self.number(value), self.format(behind))
    }

    fn number(self, value: u64) -> u64 {
        if self == Self::Milliwatts { value / 1000 } else { value }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Percent => " %",
            Self::Celsius => " °C",
            Self::Milliwatts => " W",
            _ => "",
        }
    }
}

fn reasons(bits: u64) -> String {
    let known = Reason::TABLE.iter().fold(0, |all, it| all | it.bit);
    let other = (bits & !known != 0).then_some("another reason");
    let words: Vec<_> = Reason::of(bits).map(|it| it.words).chain(other).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn compute_mode(value: u64) -> String {
    match value {
        0 => "default".to_owned(),
        1 => "one thread".to_owned(),
        2 => "prohibited".to_owned(),
        3 => "exclusive".to_owned(),
        other => format!("mode {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_words_and_units() {
        let cases = [
            (Unit::Percent, 97, "97 %"),
            (Unit::Milliwatts, 512_300, "512 W"),
            (Unit::State, 2, "P2"),
            (Unit::Reasons, 0, "nothing"),
            (Unit::Reasons, 0x24, "thermal slowdown, power cap"),
            (Unit::Reasons, 1 << 40 | 1, "idle, another reason"),
            (Unit::Switch, 1, "on"),
            (Unit::Seconds, 540, "9 min"),
            (Unit::ComputeMode, 9, "mode 9"),
            (Unit::Bytes, 1 << 30, "1.00 GiB"),
        ];
        for (unit, value, words) in cases {
            assert_eq!(unit.format(value), words);
        }
        assert_eq!(Unit::Milliwatts.format_both(512_300, 700_000), "512/700 W");
        assert_eq!(Unit::Megahertz.format_both(1410, 1980), "1410/1980");
    }
}
