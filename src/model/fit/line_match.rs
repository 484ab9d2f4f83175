//! Pairs the lines of two versions of a program, by function, source and bytes: line numbers, names and the order of
//! functions may differ without a difference in memory.

use super::baseline::PeakLine;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The least similarity of two lines of one function that are versions of one line, from 0 to 1.
const SIMILAR: f64 = 0.5;

/// By which two lines are the same; `None` of a line that has no such key.
type Key = fn(&PeakLine) -> Option<String>;

/// From the surest to the weakest. Those with bytes find lines whose names have changed.
const KEYS: [(Key, bool); 8] = [
    (in_place, true),
    (in_place, false),
    (in_function, true),
    (in_function, false),
    (by_text, true),
    (by_function, true),
    (anywhere, true),
    (by_text, false),
];

/// The same statement in the same function of the same file.
fn in_place(it: &PeakLine) -> Option<String> {
    Some(format!("{}\0{}", it.path, in_function(it)?))
}

/// The same statement in a function of that name: of a file that was moved.
fn in_function(it: &PeakLine) -> Option<String> {
    Some(format!("{}\0{}", it.function, by_text(it)?))
}

/// The same statement: of a function that was renamed, or that it was moved to.
fn by_text(it: &PeakLine) -> Option<String> {
    (!it.text.is_empty()).then(|| it.text.clone())
}

/// Another statement in the same function.
fn by_function(it: &PeakLine) -> Option<String> {
    (!it.function.is_empty()).then(|| format!("{}\0{}", it.path, it.function))
}

/// Any statement.
fn anywhere(it: &PeakLine) -> Option<String> {
    (!it.parts.is_empty()).then(String::new)
}

/// Pairs lines before and now; each line is in one pair, alone if it has no counterpart.
pub(super) fn pairs<'a>(
    before: &'a [PeakLine],
    now: &'a [PeakLine],
) -> Vec<(Option<&'a PeakLine>, Option<&'a PeakLine>)> {
    let mut old: Vec<Option<&PeakLine>> = before.iter().map(Some).collect();
    let mut new: Vec<Option<&PeakLine>> = now.iter().map(Some).collect();
    let mut pairs = Vec::new();
    for (key, has_bytes) in KEYS {
        let key = |it: &PeakLine| {
            let bytes = if has_bytes { format!("{:?}", it.parts) } else { String::new() };
            Some(format!("{}\0{bytes}", key(it)?))
        };
        let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
        for (at, line) in old.iter().enumerate() {
            if let Some(key) = line.and_then(key) {
                places.entry(key).or_default().push_back(at);
            }
        }
        for line in &mut new {
            let Some(place) = line.and_then(key).and_then(|it| places.get_mut(&it)?.pop_front()) else { continue };
            pairs.push((old.get_mut(place).and_then(Option::take), line.take()));
        }
    }
    let (mut old, mut new) = (old.into_iter().flatten().collect::<Vec<_>>(), new.into_iter().flatten().collect());
    moved(&mut old, &mut new);
    let (mut old, mut new): (Vec<_>, Vec<_>) =
        (old.into_iter().map(Some).collect(), new.into_iter().map(Some).collect());
    edited(&mut old, &mut new, &mut pairs);
    let (mut old, mut new) = (old.into_iter().flatten().collect::<Vec<_>>(), new.into_iter().flatten().collect());
    moved(&mut old, &mut new);
    pairs.extend(old.into_iter().map(|it| (Some(it), None)));
    pairs.extend(new.into_iter().map(|it| (None, Some(it))));
    pairs
}

/// Pairs statements of one function that resemble each other most.
fn edited<'a>(
    old: &mut [Option<&'a PeakLine>],
    new: &mut [Option<&'a PeakLine>],
    pairs: &mut Vec<(Option<&'a PeakLine>, Option<&'a PeakLine>)>,
) {
    let mut found = Vec::new();
    for (at, one) in old.iter().enumerate() {
        for (with, other) in new.iter().enumerate() {
            let Some((one, other)) = one.zip(*other).filter(|it| it.0.function == it.1.function) else { continue };
            let alike = similarity(&one.text, &other.text) + if one.path == other.path { 1e-3 } else { 0.0 };
            if alike >= SIMILAR {
                found.push((alike, at, with));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    for (_, at, with) in found {
        let (Some(one), Some(other)) = (old.get_mut(at), new.get_mut(with)) else { continue };
        if one.is_some() && other.is_some() {
            pairs.push((one.take(), other.take()));
        }
    }
}

/// Removes lines that hold together, in each part, what others held before: a statement that became several, or the
/// other way round.
fn moved(old: &mut Vec<&PeakLine>, new: &mut Vec<&PeakLine>) {
    let functions: HashSet<String> = new.iter().map(|it| it.function.clone()).collect();
    let by_function = functions.iter().map(|it| Some(it.as_str())).chain([None]);
    for function in by_function {
        let is_meant = |it: &PeakLine| function.is_none_or(|name| it.function == name);
        let sums = |lines: &[&PeakLine]| {
            let mut sums: BTreeMap<String, u64> = BTreeMap::new();
            for (part, bytes) in lines.iter().filter(|it| is_meant(it)).flat_map(|it| &it.parts) {
                let sum = sums.entry(part.clone()).or_default();
                *sum = sum.saturating_add(*bytes);
            }
            sums
        };
        if sums(old) == sums(new) {
            old.retain(|it| !is_meant(it));
            new.retain(|it| !is_meant(it));
        }
    }
}

/// Returns which part of their words two texts have in common, from 0 to 1.
fn similarity(one: &str, other: &str) -> f64 {
    let count = |text: &str| {
        let mut words: HashMap<String, u32> = HashMap::new();
        for it in words_of(text) {
            *words.entry(it).or_default() += 1;
        }
        words
    };
    let (one, other) = (count(one), count(other));
    let common: u32 = one.iter().map(|(word, times)| (*times).min(other.get(word).copied().unwrap_or(0))).sum();
    let all: u32 = one.values().chain(other.values()).sum();
    if all == 0 { 0.0 } else { 2.0 * f64::from(common) / f64::from(all) }
}

/// Names, numbers and single signs.
fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_word = false;
    for letter in text.chars().filter(|it| !it.is_whitespace()) {
        let belongs = letter.is_alphanumeric() || letter == '_';
        match words.last_mut() {
            Some(last) if belongs && is_word => last.push(letter),
            _ => words.push(letter.to_string()),
        }
        is_word = belongs;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: &str, function: &str, text: &str, bytes: u64) -> PeakLine {
        let path = at.split(':').next().unwrap_or_default().to_owned();
        PeakLine {
            line: at.to_owned(),
            path,
            function: function.to_owned(),
            text: text.to_owned(),
            parts: BTreeMap::from([("activations".to_owned(), bytes)]),
            ..PeakLine::default()
        }
    }

    /// What is different: the line now (or before), and by how many bytes.
    fn differences(before: &[PeakLine], now: &[PeakLine]) -> Vec<(String, i64)> {
        let bytes = |line: Option<&PeakLine>| line.map_or(0, |it| i64::try_from(it.bytes()).unwrap());
        let mut all: Vec<_> = pairs(before, now)
            .into_iter()
            .map(|(old, new)| (new.or(old).unwrap().line.clone(), bytes(new) - bytes(old)))
            .filter(|it| it.1 != 0)
            .collect();
        all.sort();
        all
    }

    #[test]
    fn sums_beyond_any_memory_are_as_high_as_a_number_can_be() {
        let most = ["x", "y"].map(|text| line("a.py:3", "f", text, u64::MAX));
        let few = ["z", "w"].map(|text| line("b.py:3", "g", text, 1));
        assert_eq!(pairs(&most, &few).len(), 4);
        assert_eq!(pairs(&few, &most).len(), 4);
    }

    #[test]
    fn edits_that_change_no_memory_pair_every_line() {
        let before = [
            line("a.py:3", "Net.forward", "h = self.up(x)", 10),
            line("a.py:4", "Net.forward", "h = self.act(h)", 10),
            line("a.py:9", "step", "y = net(x)", 7),
        ];
        let none: Vec<(String, i64)> = Vec::new();
        let cases = [
            (
                "moved",
                [
                    ("b.py:13", "Net.forward", "h = self.up(x)"),
                    ("b.py:14", "Net.forward", "h = self.act(h)"),
                    ("b.py:2", "step", "y = net(x)"),
                ],
            ),
            (
                "renamed",
                [
                    ("a.py:3", "Block.forward", "hidden = self.up(x)"),
                    ("a.py:4", "Block.forward", "hidden = self.act(hidden)"),
                    ("a.py:9", "train", "out = model(batch)"),
                ],
            ),
            (
                "extracted",
                [
                    ("a.py:3", "Net._up", "return self.up(x)"),
                    ("a.py:7", "Net.forward", "h = self.act(h)"),
                    ("a.py:9", "step", "y = net(x)"),
                ],
            ),
        ];
        for (name, now) in cases {
            let sizes = [10, 10, 7].into_iter();
            let now: Vec<_> = now.iter().zip(sizes).map(|(it, size)| line(it.0, it.1, it.2, size)).collect();
            assert_eq!(differences(&before, &now), none, "{name}");
        }
        let split = [
            line("a.py:3", "Net.forward", "h = self.up(x)", 10),
            line("a.py:4", "Net.forward", "a = self.gate(h)", 4),
            line("a.py:5", "Net.forward", "b = a * 2", 6),
            line("a.py:9", "step", "y = net(x)", 7),
        ];
        assert_eq!(differences(&before, &split), none, "one statement became two");
    }

    #[test]
    fn the_changed_line_is_found_among_moved_ones() {
        let before = [
            line("a.py:3", "Net.__init__", "self.up = nn.Linear(64, 256)", 10),
            line("a.py:4", "Net.__init__", "self.down = nn.Linear(256, 64)", 10),
            line("a.py:9", "step", "y = net(x)", 7),
        ];
        let now = [
            line("a.py:5", "Net.__init__", "self.up = nn.Linear(64, 512)", 20),
            line("a.py:6", "Net.__init__", "self.down = nn.Linear(256, 64)", 10),
            line("a.py:11", "step", "y = net(x)", 7),
            line("a.py:12", "step", "kept.append(y.clone())", 7),
        ];
        let expected = vec![("a.py:12".to_owned(), 7), ("a.py:5".to_owned(), 10)];
        assert_eq!(differences(&before, &now), expected);
        let gone = differences(&now, &before);
        assert_eq!(gone, [("a.py:12".to_owned(), -7), ("a.py:3".to_owned(), -10)]);
    }

    #[test]
    fn repeated_statements_are_paired_in_their_order() {
        let of = |sizes: &[u64]| -> Vec<PeakLine> {
            sizes.iter().enumerate().map(|(at, it)| line(&format!("a.py:{at}"), "f", "x = g(x)", *it)).collect()
        };
        assert_eq!(differences(&of(&[1, 2, 3]), &of(&[1, 2, 8, 3])), [("a.py:2".to_owned(), 8)]);
        assert_eq!(differences(&of(&[5, 5]), &of(&[5, 9])), [("a.py:1".to_owned(), 4)]);
    }
}
