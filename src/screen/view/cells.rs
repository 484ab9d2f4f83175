//! Formats figures and foreign text for a given width: right-aligned, never cut within a number.

use crate::facts::{
    text::{self, Foreign},
    units::{self, Bytes},
};
use ratatui::text::{Line, Span};

/// Shown for an unknown value.
pub(super) const UNKNOWN: &str = "–";

/// Units of bytes.
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Most characters read of foreign text: longer text never fits a screen.
const FOREIGN_MAX: usize = 600;

/// Formats bytes in GiB with two decimals, from 1 GiB on; smaller ones, whose changes these would hide, in their own
/// unit.
pub(super) fn bytes(value: Option<Bytes>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(Bytes(it)) if (1 << 30..10_000 << 30).contains(&it) => format!("{:.2} GiB", it as f64 / 1_073_741_824.0),
        Some(it) => it.to_string(),
    }
}

/// Formats a value of an axis in the unit, and with the decimals, of the label at its top: `0.88 GiB` below `1.20 GiB`.
pub(super) fn in_unit_of(label: &str, value: u64) -> String {
    let Some((number, unit)) = label.rsplit_once(' ') else { return bytes(Some(Bytes(value))) };
    let size = (0..).zip(UNITS).find(|it| it.1 == unit).map_or(1, |it| 1_u64 << (10 * it.0));
    let decimals = number.split_once('.').map_or(0, |it| it.1.len());
    let share = value as f64 / size as f64;
    // What is not nothing does not look like it.
    let shown = |decimals: &usize| format!("{share:.decimals$}").bytes().any(|it| (b'1'..=b'9').contains(&it));
    let decimals = if value == 0 { 0 } else { (decimals..12).find(shown).unwrap_or(decimals) };
    format!("{share:.decimals$} {unit}")
}

/// Formats a rate per step without the unit, which the column's title has: three digits, for lack of room.
pub(super) fn rate(per_step: f64) -> String {
    units::signed(per_step, 3, "")
}

/// Formats a share in percent; 0 % and 100 % only for none and all.
pub(super) fn percent(part: Option<Bytes>, whole: Option<Bytes>) -> String {
    let Some((part, whole)) = part.zip(whole).filter(|(_, whole)| whole.0 > 0) else { return UNKNOWN.to_owned() };
    share(Some(part.0 as f64 / whole.0 as f64))
}

/// Formats a share from 0 to 1 in percent.
pub(super) fn share(share: Option<f64>) -> String {
    match share {
        Some(it) if it.is_finite() && it > 0.0 && it < 0.005 => "<1 %".to_owned(),
        Some(it) if it.is_finite() && it > 0.995 && it < 1.0 => "99 %".to_owned(),
        Some(it) if it.is_finite() => format!("{:.0} %", it * 100.0),
        _ => UNKNOWN.to_owned(),
    }
}

/// Formats a value with its unit, or the sign for unknown.
pub(super) fn known(value: Option<impl ToString>, unit: &str) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string() + unit)
}

/// Formats a duration in µs as `1:02:03`.
pub(super) fn clock(us: u64) -> String {
    let seconds = us / 1_000_000;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Escapes foreign text, up to the width of a screen.
pub(super) fn foreign(text: &Foreign) -> String {
    raw(text.raw())
}

/// The same for text from the wire.
pub(super) fn raw(text: &str) -> String {
    Foreign::new(text.chars().take(FOREIGN_MAX).collect::<String>()).to_string()
}

/// Formats a command line, escaped and quoted where a shell needs quotes.
pub(super) fn command<'a>(words: impl Iterator<Item = &'a str>) -> String {
    text::command(words, FOREIGN_MAX)
}

/// Returns the columns of a text.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to fit and ends it with `…`; a number that would be cut, or separated from its unit, is dropped
/// completely.
pub(super) fn elide(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 1;
    for c in text.chars() {
        taken += width(c.encode_utf8(&mut [0; 4]));
        if taken > columns {
            out.truncate(uncut(text, &out, c));
            break;
        }
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// Returns how much of the kept text, before this character, is outside a figure.
fn uncut(text: &str, kept: &str, next: char) -> usize {
    let figure = |c: char| c.is_ascii_digit() || c == '.';
    if figure(next) {
        return kept.trim_end_matches(figure).len();
    }
    let number = kept.trim_end_matches(|c| "KMGTiB".contains(c)).trim_end_matches(' ');
    let after = text.get(number.len()..).unwrap_or_default();
    let after = after.strip_prefix(' ').unwrap_or_default();
    let unit = UNITS.iter().find(|it| after.starts_with(**it));
    let is_parted = number.ends_with(figure) && unit.is_some_and(|it| number.len() + 1 + it.len() > kept.len());
    if is_parted { number.trim_end_matches(figure).len() } else { kept.len() }
}

/// Cuts a line to fit: elides the span that does not, and drops the rest.
pub(super) fn fitting<'a>(line: &Line<'a>, columns: usize) -> Line<'a> {
    let mut out = Line { spans: Vec::with_capacity(line.spans.len()), ..line.clone() };
    let mut left = columns;
    for span in &line.spans {
        let taken = span.width();
        if taken <= left {
            out.spans.push(span.clone());
            left -= taken;
            continue;
        }
        let text = elide(span.content.trim_end(), left);
        out.spans.push(Span::styled(text, span.style));
        break;
    }
    out
}

/// Wraps a text between words, but not between a number and its unit; elides a word that is too long.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let is_unit = UNITS.iter().any(|it| word.split(|c: char| !c.is_alphabetic()).next() == Some(it));
        let is_number = |it: &&mut String| it.ends_with(|c: char| c.is_ascii_digit());
        match words.last_mut().filter(is_number).filter(|it| is_unit && width(it) + 1 + width(word) <= columns) {
            Some(number) => {
                number.push(' ');
                number.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for word in &words {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(elide(word, columns)),
        }
    }
    lines
}

/// Formats a figure for a column: right-aligned, or `…` if it does not fit.
pub(super) fn right(figure: &str, columns: usize) -> String {
    let taken = width(figure);
    if taken > columns {
        return format!("{:>columns$}", if columns > 0 { "…" } else { "" });
    }
    format!("{}{figure}", " ".repeat(columns - taken))
}

/// Formats a text for a column: left-aligned, elided.
pub(super) fn left(text: &str, columns: usize) -> String {
    let mut out = elide(text, columns);
    out.push_str(&" ".repeat(columns.saturating_sub(width(&out))));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    #[test]
    fn bytes_keep_one_unit_where_that_is_precise_enough() {
        let cases = [
            (0, "0 B"),
            (64 << 20, "64.00 MiB"),
            (128 << 20, "128.0 MiB"),
            (1000 << 20, "1000 MiB"),
            (1536 << 20, "1.50 GiB"),
            (150_754_820_096, "140.40 GiB"),
        ];
        for (value, text) in cases {
            assert_eq!(bytes(Some(Bytes(value))), text);
        }
        assert_eq!(bytes(None), "–");
    }

    #[test]
    fn one_axis_has_one_unit() {
        let beside = |high: u64, value: u64| in_unit_of(&bytes(Some(Bytes(high))), value);
        assert_eq!(beside(2 << 30, 2 << 30), bytes(Some(Bytes(2 << 30))));
        assert_eq!([beside(2 << 30, 9 << 20), beside(2 << 30, 0)], ["0.01 GiB", "0 GiB"]);
        assert_eq!([beside(9 << 20, 700 << 10), beside(900, 300)], ["0.68 MiB", "300 B"]);
        assert_eq!(beside(20 << 40, 900 << 30), "0.88 TiB");
        assert_eq!([beside(100 << 20, 5 << 20), beside(3 << 30, 300 << 10)], ["5.0 MiB", "0.0003 GiB"]);
    }

    #[test]
    fn rates_fit_their_column() {
        let cases =
            [(4.0 * MIB, "+4.00 MiB"), (59.41 * MIB, "+59.4 MiB"), (123.4 * MIB, "+123 MiB"), (-512.0, "-512 B")];
        for (rate_, text) in cases {
            assert_eq!(rate(rate_), text);
        }
        for power in 0..63 {
            let rate = rate(1.999_9 * 2_f64.powi(power));
            assert!(width(&rate) <= 9 || power > 50, "{rate}");
        }
    }

    #[test]
    fn no_number_is_cut_and_no_text_is_too_long() {
        assert_eq!(right("140.40 GiB", 11), " 140.40 GiB");
        assert_eq!(right("140.40 GiB", 9), "        …");
        assert_eq!(elide("训练训练", 5), "训练…");
        assert_eq!(elide("had 12.34 GiB", 7), "had …");
        for columns in 10..14 {
            assert_eq!(elide("had 12.34 GiB of it", columns), "had …");
        }
        assert_eq!(elide("had 12.34 GiB of it", 14), "had 12.34 GiB…");
        assert_eq!(elide("Gaps of GPUs", 5), "Gaps…");
        assert_eq!(wrapped("one  two three", 9), ["one  two", "three"]);
        assert_eq!(wrapped("unbreakable", 4), ["unb…"]);
        assert_eq!((elide("abc", 0), left("a", 3)), (String::new(), "a  ".to_owned()));
    }

    #[test]
    fn a_share_is_zero_only_when_it_is_nothing() {
        assert_eq!(percent(Some(Bytes(1)), Some(Bytes(10_000))), "<1 %");
        assert_eq!(percent(Some(Bytes(9_999)), Some(Bytes(10_000))), "99 %");
        assert_eq!(percent(Some(Bytes(0)), Some(Bytes(0))), "–");
    }
}
