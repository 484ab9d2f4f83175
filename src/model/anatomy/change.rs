//! What is different between two moments, by part and by line.

use super::short;
use crate::facts::event::anatomy::{Anatomy, AnatomyPart, LineShare};
use std::cmp::Reverse;

/// Most lines in a comparison.
const CHANGED: usize = 8;

/// A figure before and now, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// In the first; 0 where it is not there.
    pub before: u64,
    /// In what is compared with it.
    pub now: u64,
}

impl Change {
    /// Returns by how much it is more now.
    pub fn difference(self) -> i64 {
        let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        signed(self.now).saturating_sub(signed(self.before))
    }
}

/// Compares two moments: returns every part, as `peak: activations`, then the lines whose bytes differ most, as `peak
/// at train.py:88`. A line that only one of them has is the other's line with the same part and module, or the same
/// bytes, in that file, if only one is: the file was edited above it.
pub fn changes(both: [Option<&Anatomy>; 2]) -> Vec<(String, Change)> {
    let [Some(first), Some(second)] = both else { return Vec::new() };
    let of = |it: &Anatomy, part| it.parts.get(&part).copied();
    let part = |part: AnatomyPart| {
        let (before, after) = (of(first, part), of(second, part));
        let change = Change { before: before.unwrap_or(0), now: after.unwrap_or(0) };
        (before.is_some() || after.is_some()).then(|| (format!("peak: {}", part.name()), change))
    };
    let mut all: Vec<(String, Change)> = AnatomyPart::WORDS.iter().filter_map(|it| part(it.0)).collect();
    let bytes = |it: Option<&LineShare>| it.map_or(0, |line| line.bytes);
    let mut lines: Vec<(String, Change)> = pairs(&first.lines, &second.lines)
        .into_iter()
        .map(|(before, after)| (named(before, after), Change { before: bytes(before), now: bytes(after) }))
        .filter(|it| it.1.difference() != 0)
        .collect();
    lines.sort_by_key(|it| Reverse(it.1.difference().unsigned_abs()));
    lines.truncate(CHANGED);
    all.append(&mut lines);
    all
}

/// Returns `peak at train.py:88 of layers.*`, or `peak at train.py:88, before :85`.
fn named(before: Option<&LineShare>, after: Option<&LineShare>) -> String {
    let Some(it) = after.or(before) else { return String::new() };
    let module = it.module.as_ref().map_or_else(String::new, |it| format!(" of {}", short(it)));
    let moved = before.filter(|old| old.line != it.line).map(|old| format!(", before :{}", place(old).1));
    format!("peak at {}{}{module}", short(&it.line), moved.unwrap_or_default())
}

/// Returns the file and the number of a line.
fn place(it: &LineShare) -> (&str, &str) {
    it.line.raw().rsplit_once(':').unwrap_or((it.line.raw(), ""))
}

type Pair<'a> = (Option<&'a LineShare>, Option<&'a LineShare>);

/// Joins the lines of two moments.
fn pairs<'a>(first: &'a [LineShare], second: &'a [LineShare]) -> Vec<Pair<'a>> {
    let (mut before, mut after): (Vec<_>, Vec<_>) = (first.iter().collect(), second.iter().collect());
    let mut pairs: Vec<Pair<'a>> = Vec::new();
    let is_same: [fn(&LineShare, &LineShare) -> bool; 3] = [
        |a, b| a.line == b.line,
        |a, b| (place(a).0, a.part, a.bytes, a.blocks) == (place(b).0, b.part, b.bytes, b.blocks),
        |a, b| a.module.is_some() && (place(a).0, a.part, &a.module) == (place(b).0, b.part, &b.module),
    ];
    for is_same in is_same {
        let mut rest = Vec::new();
        for old in std::mem::take(&mut before) {
            let of_it: Vec<usize> = (0..after.len()).filter(|at| is_same(old, after[*at])).collect();
            let rivals = first.iter().filter(|it| is_same(old, it)).count();
            match of_it[..] {
                [at] if rivals == 1 => pairs.push((Some(old), Some(after.remove(at)))),
                _ => rest.push(old),
            }
        }
        before = rest;
    }
    pairs.extend(before.into_iter().map(|it| (Some(it), None)));
    pairs.extend(after.into_iter().map(|it| (None, Some(it))));
    pairs
}

#[cfg(test)]
mod tests {
    use super::super::tests::share;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn two_moments_are_compared_line_by_line_though_lines_have_moved() {
        let moment = |lines: &[(&str, u64, Option<&str>)]| Anatomy {
            parts: BTreeMap::from([(AnatomyPart::Activations, lines.iter().map(|it| it.1).sum())]),
            lines: lines.iter().map(|it| share(it.0, it.1, it.2)).collect(),
            ..Anatomy::default()
        };
        let first = moment(&[
            ("a.py:10", 100, None),
            ("a.py:20", 300, Some("head")),
            ("a.py:30", 50, None),
            ("b.py:1", 7, None),
        ]);
        let second = moment(&[
            ("a.py:13", 100, None),
            ("a.py:23", 900, Some("head")),
            ("a.py:40", 60, None),
            ("b.py:1", 9, None),
        ]);
        let all: Vec<_> =
            changes([Some(&first), Some(&second)]).into_iter().map(|(name, it)| (name, it.before, it.now)).collect();
        let expected = [
            ("peak: activations", 457, 1069),
            ("peak at a.py:23, before :20 of head", 300, 900),
            ("peak at a.py:40", 0, 60),
            ("peak at a.py:30", 50, 0),
            ("peak at b.py:1", 7, 9),
        ];
        assert_eq!(all, expected.map(|(name, before, after)| (name.to_owned(), before, after)));
        assert_eq!(changes([None, Some(&second)]), []);
    }
}
