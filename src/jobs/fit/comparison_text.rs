//! What differs from a baseline: as text for a terminal of 80 columns, as Markdown, as JSON.

use crate::{
    facts::{
        event::anatomy::AnatomyPart,
        text::{Foreign, escape_json},
        units::{self, Bytes},
    },
    model::{
        anatomy::Change,
        fit::{
            Comparison,
            baseline::{Growth, PeakLine, SavedCulprit},
            comparison::{ChangedLine, Over},
        },
    },
};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Lines that a text shows.
const SHOWN: usize = 12;

/// Lines that Markdown shows before the folded rest.
const SHOWN_FIRST: usize = 8;

/// Columns of a line's source, on a terminal and in Markdown.
const SOURCE: usize = 64;
const SOURCE_IN_MARKDOWN: usize = 120;

/// What is shown of what grows.
const CULPRITS: usize = 2;

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// Columns before the details of a line.
const INDENT: usize = 14;

/// Returns the comparison as JSON, schema 1.
pub fn json(it: &Comparison) -> String {
    let is_known = it.doubt.is_none();
    let parts: Map<String, Value> =
        it.parts.iter().map(|(name, change)| (name.clone(), json!(change.difference()))).collect();
    let line = |it: &ChangedLine| {
        json!({
            "line": it.line.line, "bytes": it.bytes(), "parts": it.parts, "function": it.line.function,
            "text": it.line.text, "module": it.line.module, "holder": it.line.holder, "calls": it.line.calls,
            "was": it.was, "gone": it.is_gone,
        })
    };
    let lines: Vec<Value> = it.lines.iter().map(line).collect();
    let difference = is_known.then(|| {
        json!({
            "allocated": it.allocated.difference(),
            "reserved": it.reserved.difference(),
            "device": it.device.difference(),
        })
    });
    let out = json!({
        "schema": 1,
        "within": it.is_within(),
        "budget": it.budget,
        "difference": difference,
        "parts": parts,
        "lines": lines,
        "growth": { "before": it.growth.0, "now": it.growth.1 },
        "why": it.doubt,
        "notes": it.notes,
        "not_compared": it.not_compared,
    });
    escape_json(&out.to_string()) + "\n"
}

/// Returns one sentence: `over the budget of 0 B: allocated +12.00 MiB (+3.4 %)`.
pub fn title(it: &Comparison) -> String {
    if let Some(doubt) = &it.doubt {
        return format!("cannot compare: {}", Foreign::new(doubt.lines().next().unwrap_or_default()));
    }
    let over = it.over();
    let shown = |name: &str, it: Change| {
        let share = it.difference() as f64 * 100.0 / it.before.max(1) as f64;
        format!("{name} {} ({share:+.1} %)", bytes(it.difference()))
    };
    let words: Vec<String> = over
        .iter()
        .map(|which| match which {
            Over::Allocated => shown("allocated", it.allocated),
            Over::Reserved => shown("reserved", it.reserved),
            Over::Growth => growth(&it.growth),
        })
        .collect();
    let budget = Bytes(it.budget);
    match words.is_empty() {
        false => format!("over the budget of {budget}: {}", words.join("; ")),
        true if it.allocated.difference() == 0 => "no more than the baseline".to_owned(),
        true => format!("within the budget of {budget}: {}", shown("allocated", it.allocated)),
    }
}

/// Returns the comparison as text, with its last newline.
pub fn text(it: &Comparison) -> String {
    // Writing into a String cannot fail.
    let mut out = wrapped(&title(it), 0);
    if it.doubt.is_some() {
        return out;
    }
    let _ = writeln!(out, "\n{:34}{:>14}{:>14}{:>14}", "peak", "baseline", "now", "difference");
    for (name, change) in totals(it) {
        row(&mut out, name, change);
    }
    for (name, change) in &it.parts {
        row(&mut out, &format!("  {}", Foreign::new(AnatomyPart::words(name))), *change);
    }
    if !it.lines.is_empty() {
        out.push_str("\nlines that hold more or less at the peak:\n");
    }
    for line in largest(it, SHOWN) {
        let place = wrapped(&Foreign::new(place(line)).to_string(), INDENT);
        let _ = write!(out, "{:>12}  {}", bytes(line.bytes()), place.trim_start());
        if !line.line.text.is_empty() {
            let _ = writeln!(out, "{:INDENT$}{}", "", Foreign::new(shortened(&line.line.text, SOURCE)));
        }
        out.push_str(&wrapped(&Foreign::new(parts(line)).to_string(), INDENT));
        for detail in details(&line.line) {
            out.push_str(&wrapped(&Foreign::new(detail).to_string(), INDENT));
        }
        if !line.line.calls.is_empty() {
            out.push_str(&wrapped(
                &Foreign::new(format!("called at {}", line.line.calls.join(", "))).to_string(),
                INDENT,
            ));
        }
    }
    if it.lines.len() > SHOWN {
        let _ = writeln!(out, "{:INDENT$}and {} more; --json has all", "", it.lines.len() - SHOWN);
    }
    closing(&mut out, it, "");
    out
}

/// Returns the comparison as Markdown for a comment on a pull request.
pub fn markdown(it: &Comparison) -> String {
    let mark = match it.is_within() {
        Some(true) => "✅",
        Some(false) => "❌",
        None => "❔",
    };
    let mut out = format!("### {mark} GPU memory: {}\n", escaped(&title(it)));
    if it.doubt.is_some() {
        return out;
    }
    out.push_str("\n| peak | baseline | now | difference |\n|---|---:|---:|---:|\n");
    let parts_of = it.parts.iter().map(|(name, change)| (AnatomyPart::words(name), *change));
    for (name, change) in totals(it).into_iter().chain(parts_of) {
        let (before, now) = (Bytes(change.before), Bytes(change.now));
        let _ = writeln!(out, "| {} | {before} | {now} | {} |", escaped(name), bytes(change.difference()));
    }
    if !it.lines.is_empty() {
        out.push_str("\n| bytes | line | source | part |\n|---:|---|---|---|\n");
        for line in largest(it, SHOWN_FIRST) {
            let source = Foreign::new(shortened(&line.line.text, SOURCE_IN_MARKDOWN))
                .to_string()
                .replace('`', "'")
                .replace('|', "\\|");
            let words: Vec<String> = std::iter::once(parts(line)).chain(details(&line.line)).collect();
            let (place, parts) = (escaped(&place(line)), escaped(&words.join("; ")));
            let _ = writeln!(out, "| {} | {place} | `{source}` | {parts} |", bytes(line.bytes()));
        }
    }
    closing(&mut out, it, "- ");
    out
}

fn totals(it: &Comparison) -> [(&'static str, Change); 3] {
    [
        (if it.is_measured { "on the device" } else { "on the device, as estimated" }, it.device),
        ("reserved by the allocator", it.reserved),
        ("allocated", it.allocated),
    ]
}

fn row(out: &mut String, name: &str, it: Change) {
    let (before, now) = (Bytes(it.before).to_string(), Bytes(it.now).to_string());
    let _ = writeln!(out, "{name:34}{before:>14}{now:>14}{:>14}", bytes(it.difference()));
}

/// What follows the tables.
fn closing(out: &mut String, it: &Comparison, bullet: &str) {
    let mut lines = Vec::new();
    let rate = |growth: &Option<Growth>| growth.as_ref().map(|it| it.bytes);
    if rate(&it.growth.0) != rate(&it.growth.1) {
        lines.push(growth(&it.growth));
        if let Some(now) = &it.growth.1 {
            let of = |it: &SavedCulprit| [now.sentence(it), format!("remedy: {}", it.advice)];
            lines.extend(now.culprits.iter().take(CULPRITS).flat_map(of));
        }
    }
    lines.extend(it.notes.clone());
    lines.extend(it.not_compared.iter().map(|it| format!("not compared: {it}")));
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        if bullet.is_empty() {
            out.push_str(&wrapped(&Foreign::new(line).to_string(), 0));
        } else {
            let _ = writeln!(out, "{bullet}{}", escaped(&line));
        }
    }
}

/// The lines that changed by the most bytes, in their order.
fn largest(it: &Comparison, count: usize) -> impl Iterator<Item = &ChangedLine> {
    let mut sizes: Vec<u64> = it.lines.iter().map(|it| it.bytes().unsigned_abs()).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes.get(count.saturating_sub(1)).copied().unwrap_or(0);
    it.lines.iter().filter(move |it| it.bytes().unsigned_abs() >= least).take(count)
}

/// `model.py:211 in LMHead.forward (was model.py:200)`.
fn place(it: &ChangedLine) -> String {
    let function = Some(&it.line.function).filter(|it| !it.is_empty() && *it != "<module>");
    let function = function.map_or_else(String::new, |it| format!(" in {it}"));
    let was = match &it.was {
        _ if it.is_gone => ", of the baseline".to_owned(),
        Some(was) => format!(" (was {was})"),
        None => String::new(),
    };
    format!("{}{function}{was}", it.line.line)
}

/// `activations +3.00 MiB, weights +1.00 MiB`.
fn parts(it: &ChangedLine) -> String {
    let words = |(name, size): (&String, &i64)| match it.parts.len() {
        1 => AnatomyPart::words(name).to_owned(),
        _ => format!("{} {}", AnatomyPart::words(name), bytes(*size)),
    };
    it.parts.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// What is known of a line beside its parts: `module blocks.*`, ``held by local `logits` of train()``.
pub(super) fn details(it: &PeakLine) -> impl Iterator<Item = String> {
    let module = it.module.as_ref().map(|it| format!("module {it}"));
    module.into_iter().chain(it.holder.as_ref().map(|it| format!("held by {it}")))
}

fn growth((before, now): &(Option<Growth>, Option<Growth>)) -> String {
    let rate = |it: &Growth| units::per_step(it.bytes as f64) + &units::on_ranks(&it.ranks);
    let at = |it: &Growth| it.line.as_ref().map_or_else(String::new, |line| format!(" at {line}"));
    match (before, now) {
        (None, Some(now)) => format!("grows {}{}; the baseline does not grow", rate(now), at(now)),
        (Some(before), Some(now)) => format!("grows {}{}; the baseline {}", rate(now), at(now), rate(before)),
        (Some(before), None) => format!("does not grow; the baseline does, {}", rate(before)),
        (None, None) => "does not grow".to_owned(),
    }
}

fn bytes(difference: i64) -> String {
    if difference == 0 { "0 B".to_owned() } else { units::signed(difference as f64, 4, "") }
}

fn shortened(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns - 1).chain(['…']).collect()
}

/// Breaks a text between words into lines of a terminal, each after so many spaces; the second and later ones two more.
pub(super) fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column == 0 {
            let _ = write!(out, "{:indent$}", "");
            column = indent;
        } else if column + 1 + width > COLUMNS {
            let _ = write!(out, "\n{:indent$}  ", "");
            column = indent + 2;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out + "\n"
}

/// Text that Markdown shows as it is.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in Foreign::new(text).to_string().chars() {
        if matches!(letter, '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '#' | '@' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fit::{Baseline, Budget, comparison::compare};

    fn compared() -> Comparison {
        let answer = |head: u64, line: u32, text: &str| {
            let whole = json!({
                "schema": 1, "fits": "yes", "torch": "2.9.1", "devices": [{"name": "RTX 4090"}],
                "peak": {
                    "allocated": (3_u64 << 20) + head, "wanted": 22_u64 << 20, "device": 400_u64 << 20,
                    "parts": {"activations": head, "weights": 3_u64 << 20},
                    "lines": [
                        {"line": format!("model.py:{line}"), "path": "model.py", "function": "LMHead.forward",
                         "module": "head", "holder": "local `logits` of train()",
                         "text": text, "parts": {"activations": head}, "calls": ["train.py:7"]},
                        {"line": "model.py:9", "path": "model.py", "function": "LMHead.__init__",
                         "text": "self.out = nn.Linear(64, 64)", "parts": {"weights": 3_u64 << 20}, "calls": []},
                    ],
                    "outside": [{"name": "CUDA context"}],
                },
            });
            Baseline::parse(&whole.to_string()).unwrap().usable().unwrap()
        };
        let now = answer(6 << 20, 212, "logits = self.out(h).float() | 0");
        compare(&answer(2 << 20, 211, "logits = self.out(h)"), &now, Budget::Share(0.005))
    }

    #[test]
    fn a_text_fits_a_terminal_and_names_part_line_and_what_is_not_compared() {
        let text = text(&compared());
        for part in [
            "over the budget of 25.60 KiB: allocated +4.00 MiB (+80.0 %)\n",
            "activations, inputs and outputs",
            "+4.00 MiB  model.py:212 in LMHead.forward (was model.py:211)\n",
            "              logits = self.out(h).float() | 0\n",
            "              module head\n              held by local `logits` of train()\n",
            "not compared: CUDA context: estimated, outside the allocator\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|it| it.chars().count() <= 80), "{text}");
        assert!(!text.contains("model.py:9"), "{text}");
    }

    #[test]
    fn markdown_shows_foreign_text_as_it_is() {
        let text = markdown(&compared());
        assert!(text.starts_with("### ❌ GPU memory: over the budget"), "{text}");
        assert!(
            text.contains(
                "| model.py:212 in LMHead.forward (was model.py:211) | `logits = self.out(h).float() \\| 0` |"
            ),
            "{text}"
        );
        assert_eq!(escaped("<b>@all|*x*_\u{1b}"), "\\<b\\>\\@all\\|\\*x\\*\\_\\\\u{1b}");
    }

    #[test]
    fn json_has_the_documented_fields() {
        let value: Value = serde_json::from_str(&json(&compared())).unwrap();
        assert_eq!((&value["schema"], &value["within"]), (&json!(1), &json!(false)));
        assert_eq!(value["difference"], json!({"allocated": 4 << 20, "reserved": 0, "device": 0}));
        assert_eq!(value["parts"], json!({"activations": 4 << 20}));
        assert_eq!(
            (&value["lines"][0]["line"], &value["lines"][0]["bytes"]),
            (&json!("model.py:212"), &json!(4 << 20))
        );
        let doubtful = Comparison { doubt: Some("x".to_owned()), ..compared() };
        let value: Value = serde_json::from_str(&json(&doubtful)).unwrap();
        assert_eq!((&value["within"], &value["difference"]), (&Value::Null, &Value::Null));
    }
}
