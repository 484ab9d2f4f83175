//! Units: bytes and stamps as types, and how gpuwatch writes them.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// A byte count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// An instant in µs of `CLOCK_MONOTONIC`, which all processes of a boot share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Returns the µs since `earlier`, or 0 if it lies in the future.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Bytes {
    /// The difference, or `None` when it would be negative.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// The sum, capped at the largest count.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

const UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for Bytes {
    /// Writes at least three significant digits, in the binary unit that keeps the number under 1,024: `1.50 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0, 4, ""))
    }
}

/// Returns ` on rank 3` or ` on ranks 0 to 3, 6`; nothing of a job without ranks.
pub fn on_ranks(ranks: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for rank in ranks {
        match runs.last_mut().filter(|it| it.1 + 1 == *rank) {
            Some(run) => run.1 = *rank,
            None => runs.push((*rank, *rank)),
        }
    }
    let run = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let words = runs.iter().map(run).collect::<Vec<_>>().join(", ");
    match ranks {
        [] => String::new(),
        [one] => format!(" on rank {one}"),
        _ => format!(" on ranks {words}"),
    }
}

/// Formats a signed rate such as `+4.00 MiB/step`.
pub fn per_step(bytes: f64) -> String {
    signed(bytes, 4, "/step")
}

/// Formats a signed size with the given number of digits, at most two of them decimals, and a suffix after the unit.
pub fn signed(bytes: f64, digits: usize, suffix: &str) -> String {
    if !bytes.is_finite() {
        return "–".to_owned();
    }
    let sign = if bytes < 0.0 { "-" } else { "+" };
    format!("{sign}{}", scaled(whole(bytes.abs()), digits, suffix))
}

/// Rounds to the nearest whole number: 0 for negative numbers and NaN, capped at the largest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, and NaN gives 0")]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Formats a count with its noun: `1 step`, `12 steps`, `2 processes`.
pub fn counted(count: u64, noun: &str) -> String {
    let ending = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

/// Formats a count with separators: `41,000`.
pub fn separated(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|it| str::from_utf8(it).ok()).collect();
    groups.join(",")
}

/// Formats a duration in µs: `7 s`, `3 min`, `5 h`, `9 d`, `over 100 years`.
pub fn duration(us: u64) -> String {
    match us / 1_000_000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s @ 172_800..CENTURY_S => format!("{} d", s / 86_400),
        // A forecast, or stamps of a clock that jumps.
        CENTURY_S.. => "over 100 years".to_owned(),
    }
}

/// 36,500 days.
const CENTURY_S: u64 = 36_500 * 86_400;

/// Formats a ratio: `1.4 ×`. Every screen rounds it alike.
pub fn times(ratio: f64) -> String {
    format!("{ratio:.1} ×")
}

/// Formats a short time in µs: `850 µs`, `98 ms`, `1.20 s`.
pub fn brief(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..100_000_000 => format!("{:.2} s", us as f64 / 1e6),
        _ => duration(us),
    }
}

/// Formats a pause: `250 ms`, `2 s`.
pub fn pause(it: Duration) -> String {
    match it.as_millis() {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

/// Parses a size such as `512`, `1.5MiB` or `70 GB`.
///
/// # Errors
/// Fails if there is no number or the unit is unknown.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().context("a size begins with a number")?;
    let size: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => bail!("the unit must be one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"),
    };
    Ok(whole(number * size as f64))
}

fn scaled(bytes: u64, digits: usize, suffix: &str) -> String {
    // A number that would round up to 1024 belongs to the next unit.
    let unit = UNITS.iter().find(|(_, size)| bytes as f64 / *size as f64 >= if *size == 1 { 0.0 } else { 0.999_5 });
    let (name, size) = unit.copied().unwrap_or(("B", 1));
    let value = bytes as f64 / size as f64;
    // Rounding must not add a digit either.
    let whole = [9.995, 99.95, 999.5].iter().filter(|it| value >= **it).count() + 1;
    let decimals = if size == 1 { 0 } else { digits.saturating_sub(whole).min(2) };
    format!("{value:.decimals$} {name}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_the_unit_that_fits() {
        let cases = [
            (0, "0 B"),
            (512, "512 B"),
            (1023, "1023 B"),
            (1 << 20, "1.00 MiB"),
            (1536 << 20, "1.50 GiB"),
            (150_754_820_096, "140.4 GiB"),
            (u64::MAX, "16777216 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn durations_use_the_largest_whole_unit() {
        let cases = [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172_800, "2 d")];
        for (s, text) in cases {
            assert_eq!(duration(s * 1_000_000), text);
        }
        assert_eq!([CENTURY_S * 1_000_000 - 1, u64::MAX].map(duration), ["36499 d", "over 100 years"]);
    }

    #[test]
    fn one_is_counted_in_the_singular() {
        let texts =
            [counted(0, "step"), counted(1, "step"), counted(2, "step"), counted(1, "process"), counted(3, "process")];
        assert_eq!(texts, ["0 steps", "1 step", "2 steps", "1 process", "3 processes"]);
    }

    #[test]
    fn ranks_are_listed_in_words() {
        let of = |ranks: &[u64]| on_ranks(ranks);
        assert_eq!([of(&[]), of(&[7])], ["", " on rank 7"]);
        assert_eq!([of(&[0, 1]), of(&[0, 2, 3])], [" on ranks 0, 1", " on ranks 0, 2, 3"]);
        assert_eq!(of(&[0, 1, 2, 5, 7, 8, 9]), " on ranks 0 to 2, 5, 7 to 9");
    }

    #[test]
    fn rates_carry_their_sign() {
        assert_eq!(per_step(4_194_304.0), "+4.00 MiB/step");
        assert_eq!(per_step(-512.0), "-512 B/step");
        assert_eq!(per_step(f64::NAN), "–");
    }
}
