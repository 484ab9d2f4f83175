//! Pairs the lines of two versions of a program, by function, source and bytes: line numbers, names and the order of
//! functions may differ without a difference in memory.

use super::baseline::PeakLine;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
};

/// The least similarity of two lines of one function that are versions of one line, from 0 to 1.
const SIMILAR: f64 = 0.5;

/// Most lines of a function on each side that are compared with each other: a file may list any number.
const COMPARED: usize = 64;

/// Words of a line that are compared.
const WORDS: usize = 64;

/// By which two lines are the same; `None` of a line that has no such key.
type Key = fn(&PeakLine) -> Option<String>;

/// From the surest to the weakest. Those with bytes find lines whose names have changed.
const KEYS: [(Key, bool); 10] = [
    (in_place, true),
    (in_module, true),
    (in_place, false),
    (in_function, true),
    (in_function, false),
    (by_text, true),
    (by_function, true),
    (anywhere, true),
    (by_text, false),
    (in_module, false),
];

/// The same statement in the same function of the same file; the same place, where that is all that is known of a line.
fn in_place(it: &PeakLine) -> Option<String> {
    if it.text.is_empty() && it.function.is_empty() {
        return Some(it.line.clone());
    }
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

/// Another place in the same module, where no more is known of a line.
fn in_module(it: &PeakLine) -> Option<String> {
    let parts: Vec<&String> = it.parts.keys().collect();
    (it.text.is_empty() && it.function.is_empty()).then(|| format!("{}\0{:?}\0{parts:?}", it.path, it.module))
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
    let mut numbers = HashMap::new();
    let mut functions: BTreeMap<&str, [Vec<Statement>; 2]> = BTreeMap::new();
    for (side, lines) in [&*old, &*new].into_iter().enumerate() {
        for (at, line) in lines.iter().enumerate().filter_map(|(at, it)| Some((at, (*it)?))) {
            let words = words_of(&line.text).take(WORDS).map(|it| number_of(it, &mut numbers));
            let statement = Statement { at, line, words: sorted(words.collect()) };
            if let Some(all) = functions.entry(&line.function).or_default().get_mut(side) {
                all.push(statement);
            }
        }
    }
    for [one, other] in functions.into_values() {
        let mut found = alike(&largest(one), &largest(other));
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (_, at, with) in found {
            let (Some(one), Some(other)) = (old.get_mut(at), new.get_mut(with)) else { continue };
            if one.is_some() && other.is_some() {
                pairs.push((one.take(), other.take()));
            }
        }
    }
}

/// A line, its place and its words as sorted numbers.
struct Statement<'a> {
    at: usize,
    line: &'a PeakLine,
    words: Vec<usize>,
}

/// Returns the statements that hold the most: each is compared with each of the other side.
fn largest(mut all: Vec<Statement<'_>>) -> Vec<Statement<'_>> {
    if all.len() > COMPARED {
        all.sort_by_key(|it| Reverse(it.line.bytes()));
        all.truncate(COMPARED);
    }
    all
}

/// Returns the pairs that resemble each other: by how much, and their places.
fn alike(old: &[Statement<'_>], new: &[Statement<'_>]) -> Vec<(f64, usize, usize)> {
    let all = old.iter().flat_map(|one| new.iter().map(move |other| (one, other)));
    let judged = all.map(|(one, other)| {
        let of_place = if one.line.path == other.line.path { 1e-3 } else { 0.0 };
        (similarity(&one.words, &other.words) + of_place, one.at, other.at)
    });
    judged.filter(|it| it.0 >= SIMILAR).collect()
}

/// Bytes by part.
type Sums<'a> = BTreeMap<&'a str, u64>;

/// Removes lines that hold together, in each part, what others held before: a statement that became several, or the
/// other way round.
fn moved(old: &mut Vec<&PeakLine>, new: &mut Vec<&PeakLine>) {
    let mut functions: HashMap<&str, [Sums<'_>; 2]> = HashMap::new();
    for (side, lines) in [&*old, &*new].into_iter().enumerate() {
        for line in lines {
            if let Some(sums) = functions.entry(&line.function).or_default().get_mut(side) {
                add(sums, line);
            }
        }
    }
    let is_left = |it: &&PeakLine| functions.get(it.function.as_str()).is_none_or(|[before, now]| before != now);
    old.retain(is_left);
    new.retain(is_left);
    let [before, now] = [&*old, &*new].map(|lines| {
        let mut sums = Sums::new();
        for it in lines {
            add(&mut sums, it);
        }
        sums
    });
    if before == now {
        old.clear();
        new.clear();
    }
}

fn add<'a>(sums: &mut Sums<'a>, line: &'a PeakLine) {
    for (part, bytes) in &line.parts {
        let sum = sums.entry(part).or_default();
        *sum = sum.saturating_add(*bytes);
    }
}

/// Returns which part of their words two texts have in common, from 0 to 1.
fn similarity(one: &[usize], other: &[usize]) -> f64 {
    let (mut left, mut right, mut common) = (one.iter().peekable(), other.iter().peekable(), 0);
    while let Some((a, b)) = left.peek().zip(right.peek()) {
        let order = a.cmp(b);
        common += usize::from(order.is_eq());
        if order.is_le() {
            left.next();
        }
        if order.is_ge() {
            right.next();
        }
    }
    let all = one.len() + other.len();
    if all == 0 { 0.0 } else { 2.0 * common as f64 / all as f64 }
}

/// Returns a number for a word, the same for each equal one.
fn number_of<'a>(word: &'a str, numbers: &mut HashMap<&'a str, usize>) -> usize {
    let next = numbers.len();
    *numbers.entry(word).or_insert(next)
}

fn sorted(mut words: Vec<usize>) -> Vec<usize> {
    words.sort_unstable();
    words
}

/// Names, numbers and single signs.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let is_letter = |it: char| it.is_alphanumeric() || it == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let end = if is_letter(first) { rest.find(|it| !is_letter(it)) } else { Some(first.len_utf8()) };
        let (word, after) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        rest = after;
        Some(word)
    })
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

    /// Lines of recordings have neither a function nor a source.
    #[test]
    fn lines_of_which_only_the_place_is_known_are_paired_by_it_or_by_their_module() {
        let of =
            |at: &str, module: &str, bytes| PeakLine { module: Some(module.to_owned()), ..line(at, "", "", bytes) };
        let before = [of("a.py:3", "head", 9), of("a.py:7", "body.*", 4), of("b.py:1", "norm", 2)];
        let edited = [of("a.py:3", "head", 11), of("a.py:7", "body.*", 4), of("b.py:1", "norm", 2)];
        assert_eq!(differences(&before, &edited), [("a.py:3".to_owned(), 2)]);
        // Four lines were added above, and one of the body holds more.
        let below = [of("a.py:7", "head", 9), of("a.py:11", "body.*", 5), of("b.py:1", "norm", 2)];
        assert_eq!(differences(&before, &below), [("a.py:11".to_owned(), 1)]);
    }

    #[test]
    fn sums_beyond_any_memory_are_as_high_as_a_number_can_be() {
        let most = ["x", "y"].map(|text| line("a.py:3", "f", text, u64::MAX));
        let few = ["z", "w"].map(|text| line("b.py:3", "g", text, 1));
        assert_eq!(pairs(&most, &few).len(), 4);
        assert_eq!(pairs(&few, &most).len(), 4);
    }

    /// What would take hours if each line were compared with each: of one function, or each of its own.
    #[test]
    fn a_file_of_any_number_of_lines_is_compared_at_once() {
        let many = |function: fn(u64) -> String, name: &str, extra: u64| -> Vec<PeakLine> {
            let of = |at| line(&format!("a.py:{at}"), &function(at), &format!("{name} = f({name}, {at})"), at + extra);
            (1..=20_000).map(of).collect()
        };
        let functions: [fn(u64) -> String; 3] =
            [|_| "f".to_owned(), |at| format!("f{at}"), |at| format!("f{}", at / COMPARED as u64)];
        for function in functions {
            let (old, new) = (many(function, "x", 0), many(function, "y", 200_000));
            let pairs = pairs(&old, &new);
            let count =
                |side: fn(&(Option<&PeakLine>, Option<&PeakLine>)) -> bool| pairs.iter().filter(|it| side(it)).count();
            assert_eq!([count(|it| it.0.is_some()), count(|it| it.1.is_some())], [20_000; 2]);
            assert!(count(|it| it.0.is_some() && it.1.is_some()) >= COMPARED);
        }
    }

    #[test]
    fn words_are_names_numbers_and_single_signs() {
        assert_eq!(
            words_of("  h_1 = über(x2)[3] ").collect::<Vec<_>>(),
            ["h_1", "=", "über", "(", "x2", ")", "[", "3", "]"]
        );
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
