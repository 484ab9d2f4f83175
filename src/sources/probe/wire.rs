//! A line of the wire as text.

use crate::facts::{
    event::{Line, sample},
    text,
};

/// Parses a line, or describes what is wrong with it.
///
/// Python writes a lone surrogate as an escape that JSON allows and that no text can hold. Such halves become U+FFFD.
pub(super) fn line(text: &str) -> Result<Box<Line>, String> {
    if let Some(row) = sample::read(text) {
        return Ok(row.line);
    }
    let read = serde_json::from_str(text);
    let read = read.or_else(|e| without_halves(text).map_or(Err(e), |it| serde_json::from_str(&it)));
    read.map_err(|e| format!("sent a line that is not of the wire ({})", text::fault(&e)))
}

/// Replaces every lone surrogate (`\ud83d` without its other half); `None` if there is none.
fn without_halves(text: &str) -> Option<String> {
    let (mut out, mut rest, mut has_halves) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (before, escaped) = rest.split_at(at);
        let is_pair = escaped.get(6..).and_then(surrogate).is_some_and(|it| it >= 0xdc00);
        let length = match surrogate(escaped) {
            Some(0xd800..=0xdbff) if is_pair => 12,
            Some(_) => 6,
            None => 2,
        };
        let (escape, after) = escaped.split_at_checked(length)?;
        out.push_str(before);
        out.push_str(if length == 6 { "\\ufffd" } else { escape });
        has_halves |= length == 6;
        rest = after;
    }
    has_halves.then(|| out + rest)
}

/// Returns the surrogate that a text begins with.
fn surrogate(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok().filter(|it| (0xd800..=0xdfff).contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        match line(&format!("{{\"type\":\"mark\",\"at_us\":1,\"name\":\"{text}\"}}")).map(|it| *it) {
            Ok(Line::Mark(mark)) => mark.name,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn halves_of_surrogate_pairs_are_accepted() {
        let cases = [
            (r"a\udcffb", "a\u{fffd}b"),
            (r"\ud83d", "\u{fffd}"),
            (r"\ud83d\ude00\udcff", "\u{1f600}\u{fffd}"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\\udcff\udcff", "\\udcff\u{fffd}"),
            (r"\uDCFF\n", "\u{fffd}\n"),
        ];
        for (text, read) in cases {
            assert_eq!(name(text), read, "{text}");
        }
        for bad in [r#"{"type":"mark","name":"\udcf"}"#, r#"{"type":"mark","name":"\"#, "nonsense", ""] {
            assert!(line(bad).is_err(), "{bad}");
        }
    }
}
