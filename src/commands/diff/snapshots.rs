//! Compares two memory snapshots: what grew, by call stack.

use super::{
    Unit, is_worse,
    page::{self, ComparisonRow},
};
use crate::{
    commands::report::plain_page,
    facts::{
        text::{Foreign, escape_json},
        units::{Bytes, counted},
    },
    model::trace::{Frame, Totals, Trace},
};
use serde_json::{Value, json};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// Stacks listed in the text.
const LISTED: usize = 20;

/// The compared figures of a device, and whether more is worse.
type Figure = (&'static str, fn(&Totals) -> Option<u64>, bool);
const FIGURES: [Figure; 5] = [
    ("allocated", |it| Some(it.allocated), true),
    ("reserved", |it| Some(it.reserved), true),
    ("stuck", |it| Some(it.stuck), false),
    ("cached", Totals::cached_in_expandable, false),
    ("releasable", |it| Some(it.releasable), false),
];

/// Two snapshots, compared.
pub struct Snapshots {
    devices: Vec<Device>,
}

/// A device of both.
struct Device {
    ordinal: u32,
    a: Totals,
    b: Totals,
    worse: Vec<bool>,
    /// Differences: what grew, largest first, then what shrank.
    stacks: Vec<Stack>,
}

/// The live blocks of one call stack in both.
#[derive(Clone, Default)]
struct Stack {
    /// The frames as text, innermost first; empty without a call stack.
    frames: Vec<String>,
    /// The same without the numbers of lines.
    functions: Vec<String>,
    /// The numbers of the lines, outermost first.
    numbers: Vec<u32>,
    /// The frames in a line.
    line: String,
    /// That of the first snapshot, if the stack's lines have moved since.
    before: Option<String>,
    bytes: [u64; 2],
    blocks: [u64; 2],
}

impl Stack {
    /// Returns by how many bytes the second has more.
    fn growth(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }
}

/// Compares two snapshots. `tolerance` is the share by which the second may have more than the first, from 0 to 1.
pub fn snapshots(a: &Trace, b: &Trace, tolerance: f64) -> Snapshots {
    let ordinals: BTreeSet<u32> = a.ordinals().into_iter().chain(b.ordinals()).collect();
    Snapshots { devices: ordinals.into_iter().map(|it| Device::new(a, b, it, tolerance)).collect() }
}

impl Device {
    fn new(a: &Trace, b: &Trace, ordinal: u32, tolerance: f64) -> Self {
        let mut all: BTreeMap<Vec<String>, Stack> = BTreeMap::new();
        for (which, trace) in [a, b].into_iter().enumerate() {
            let (stacks, shown) = (&trace.stacks, trace.stacks.shown());
            for share in trace.live(ordinal) {
                let numbers = shown(share.stack);
                let lines = |line: fn(Frame) -> Frame| {
                    let frames = numbers.iter().rev().filter_map(|it| stacks.frames.get(*it));
                    frames.map(|it| stacks.place(&line(it))).collect::<Vec<_>>()
                };
                let frames = lines(|it| it);
                let stack = all.entry(frames.clone()).or_insert_with(|| Stack {
                    frames,
                    functions: lines(|it| Frame { line: 0, ..it }),
                    numbers: numbers.iter().filter_map(|it| Some(stacks.frames.get(*it)?.line)).collect(),
                    line: stacks.line(share.stack),
                    ..Stack::default()
                });
                stack.bytes[which] = stack.bytes[which].saturating_add(share.bytes);
                stack.blocks[which] = stack.blocks[which].saturating_add(share.blocks);
            }
        }
        let mut stacks: Vec<Stack> = pair(all.into_values().collect())
            .into_iter()
            .filter(|it| it.bytes[0] != it.bytes[1] || it.blocks[0] != it.blocks[1])
            .collect();
        sort(&mut stacks);
        let [a, b] = [a, b].map(|trace| Totals::of(trace, trace.segments_on(ordinal)));
        let worse = FIGURES.iter().map(|(_, of, judged)| {
            let [a, b] = [&a, &b].map(|it| of(it).map(|bytes| bytes as f64));
            *judged && is_worse(Unit::Bytes, a, b, tolerance)
        });
        Self { ordinal, a, b, worse: worse.collect(), stacks }
    }
}

impl Snapshots {
    /// Returns the exit code: 0 if the second has no more, 1 if it has.
    pub fn code(&self) -> u8 {
        u8::from(self.devices.iter().flat_map(|device| &device.worse).any(|worse| *worse))
    }

    /// Returns the result as text, with its last newline.
    pub fn text(&self) -> String {
        // Writing into a String cannot fail.
        let mut out = String::new();
        for device in &self.devices {
            let title = format!("device {}", device.ordinal);
            let _ = writeln!(out, "{title:<26} {:>16} {:>16}  change", "first", "second");
            for ComparisonRow { name, both: [a, b], change, is_worse } in device.figures() {
                let mark = if is_worse { "  more than tolerated" } else { "" };
                let _ = writeln!(out, "{name:<26} {a:>16} {b:>16}  {change}{mark}");
            }
            device.write_stacks(&mut out);
        }
        if self.devices.is_empty() {
            out.push_str("nothing was allocated on any device in either\n");
        }
        out
    }

    /// Returns the result as JSON (schema 1), with its last newline: a device's `figures` and `stacks`, of both
    /// snapshots, in bytes.
    pub fn json(&self) -> String {
        let device = |it: &Device| {
            let both = |of: &fn(&Totals) -> Option<u64>| json!({"a": of(&it.a), "b": of(&it.b)});
            let figures = FIGURES.iter().map(|(name, of, _)| ((*name).to_owned(), both(of)));
            let stack = |stack: &Stack| {
                let [[a, b], [m, n]] = [stack.bytes, stack.blocks];
                json!({"frames": stack.frames, "before": stack.before, "bytes": {"a": a, "b": b}, "blocks": {"a": m, "b": n}})
            };
            json!({
                "device": it.ordinal,
                "figures": figures.collect::<serde_json::Map<String, Value>>(),
                "stacks": it.stacks.iter().map(stack).collect::<Vec<_>>(),
            })
        };
        let verdict = if self.code() == 0 { "pass" } else { "fail" };
        let devices = self.devices.iter().map(device).collect::<Vec<_>>();
        escape_json(&format!("{:#}\n", json!({"schema": SCHEMA, "verdict": verdict, "devices": devices})))
    }
}

impl Snapshots {
    /// Returns the result as a self-contained page; `names` are those of the two files.
    pub fn html(&self, names: &[Foreign; 2]) -> String {
        let mut out = page::beginning(self.code(), names);
        for device in &self.devices {
            let _ = writeln!(out, "<h2>Device {}</h2>", device.ordinal);
            page::table(&mut out, "figure", &device.figures());
            let stacks = device.rows();
            let rows = stacks.iter().take(LISTED).map(|it| {
                let both =
                    [0, 1].map(|which| format!("{} in {}", Bytes(it.bytes[which]), counted(it.blocks[which], "block")));
                ComparisonRow { name: it.line.clone(), both, change: change(it.growth()), is_worse: false }
            });
            let rows: Vec<ComparisonRow> = rows.collect();
            if rows.is_empty() {
                out.push_str("<p>The same live blocks by call stack.</p>\n");
            } else {
                page::table(&mut out, "live blocks that differ, by call stack", &rows);
            }
            let rest = stacks.len().saturating_sub(LISTED) as u64;
            if rest > 0 {
                let _ = writeln!(out, "<p class=\"faint\">{} not listed</p>", counted(rest, "other stack"));
            }
        }
        plain_page("two memory snapshots compared", out)
    }
}

impl Device {
    /// Returns the figures that either snapshot has.
    fn figures(&self) -> Vec<ComparisonRow> {
        let row = |((name, of, _), is_worse): (&Figure, &bool)| {
            let both = [&self.a, &self.b].map(*of);
            let [a, b] = both.map(|it| i128::from(it.unwrap_or(0)));
            let words = both.map(|it| it.map_or_else(|| "–".to_owned(), |bytes| Bytes(bytes).to_string()));
            let row =
                ComparisonRow { name: (*name).to_owned(), both: words, change: change(b - a), is_worse: *is_worse };
            both.iter().any(Option::is_some).then_some(row)
        };
        FIGURES.iter().zip(&self.worse).filter_map(row).collect()
    }

    /// Returns the stacks, one for each text.
    fn rows(&self) -> Vec<Stack> {
        let mut rows: Vec<Stack> = Vec::new();
        for it in &self.stacks {
            let same = |row: &&mut Stack| row.line == it.line && row.before == it.before;
            match rows.iter_mut().find(same) {
                Some(row) => {
                    for which in [0, 1] {
                        row.bytes[which] = row.bytes[which].saturating_add(it.bytes[which]);
                        row.blocks[which] = row.blocks[which].saturating_add(it.blocks[which]);
                    }
                }
                None => rows.push(it.clone()),
            }
        }
        sort(&mut rows);
        rows
    }

    fn write_stacks(&self, out: &mut String) {
        if self.stacks.is_empty() {
            out.push_str("the same live blocks by call stack\n");
            return;
        }
        out.push_str("live blocks that differ, by call stack:\n");
        let stacks = self.rows();
        for it in stacks.iter().take(LISTED) {
            let blocks = format!("{} → {}", it.blocks[0], counted(it.blocks[1], "block"));
            let before = it.before.as_ref().filter(|before| **before != it.line);
            let before = before.map_or_else(String::new, |it| format!("  (before: {it})"));
            let _ = writeln!(out, "  {:>11} {blocks:>16}  {}{before}", change(it.growth()), it.line);
        }
        let rest = stacks.get(LISTED..).unwrap_or_default();
        if !rest.is_empty() {
            let sum = rest.iter().map(Stack::growth).sum();
            let _ = writeln!(out, "  {:>11} {:>16}  {}", change(sum), "", counted(rest.len() as u64, "other stack"));
        }
    }
}

/// Sorts what grew first, then what shrank.
fn sort(stacks: &mut [Stack]) {
    stacks.sort_by_key(|it| (it.growth() < 0, Reverse(it.growth().unsigned_abs())));
}

/// Formats bytes with their sign.
fn change(bytes: i128) -> String {
    let size = Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "same".to_owned(),
        1.. => format!("+{size}"),
        _ => format!("−{size}"),
    }
}

/// Most stacks of the same functions in both snapshots together; the work grows with the square.
const GROUP_MAX: usize = 400;

/// Pairs the stacks that only the first snapshot has with those that only the second one has: those whose lines have
/// moved between two versions of a program.
///
/// Stacks of the same functions belong together. Within them the order of the lines stays, so of all pairings in that
/// order the one counts under which the fewest bytes change.
fn pair(all: Vec<Stack>) -> Vec<Stack> {
    let mut groups: BTreeMap<Vec<String>, Vec<Stack>> = BTreeMap::new();
    for it in all {
        groups.entry(it.functions.clone()).or_default().push(it);
    }
    groups.into_values().flat_map(paired).collect()
}

fn paired(mut group: Vec<Stack>) -> Vec<Stack> {
    let only = |which: usize| group.iter().filter(|it| it.blocks[1 - which] == 0).count();
    // Where one of them has nothing of its own, nothing has moved: a stack came, or went.
    if only(0) == 0 || only(1) == 0 || group.len() > GROUP_MAX {
        return group;
    }
    group.sort_by(|a, b| a.numbers.cmp(&b.numbers));
    let of = |which: usize| group.iter().filter(move |it| it.blocks[which] > 0).collect::<Vec<_>>();
    let (a, b) = (of(0), of(1));
    pairs(&a, &b)
        .into_iter()
        .map(|pair| match pair {
            (Some(a), Some(b)) if a.numbers != b.numbers => Stack {
                before: Some(a.line.clone()),
                bytes: [a.bytes[0], b.bytes[1]],
                blocks: [a.blocks[0], b.blocks[1]],
                ..b.clone()
            },
            (Some(it), Some(_)) => it.clone(),
            (Some(it), None) => Stack { bytes: [it.bytes[0], 0], blocks: [it.blocks[0], 0], ..it.clone() },
            (None, Some(it)) => Stack { bytes: [0, it.bytes[1]], blocks: [0, it.blocks[1]], ..it.clone() },
            (None, None) => Stack::default(),
        })
        .collect()
}

/// A stack of each snapshot, or one of either that has no counterpart.
type Pair<'a> = (Option<&'a Stack>, Option<&'a Stack>);

/// Returns the pairing in order with the least change; of equal ones, the one with the most unchanged lines.
fn pairs<'a>(a: &[&'a Stack], b: &[&'a Stack]) -> Vec<Pair<'a>> {
    // The least change of the first stacks of both, by how many; then how many lines of them differ.
    let mut costs = vec![vec![(0_u128, 0_u64); b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            costs[i][j] = steps(a, b, i, j).map(|it| plus(costs[it.0][it.1], it.2)).min().unwrap_or_default();
        }
    }
    let (mut i, mut j, mut out) = (a.len(), b.len(), Vec::new());
    while let Some((before_i, before_j, _)) = steps(a, b, i, j).find(|it| plus(costs[it.0][it.1], it.2) == costs[i][j])
    {
        let last = |all: &[&'a Stack], from: usize, to: usize| all.get(from..to)?.first().copied();
        out.push((last(a, before_i, i), last(b, before_j, j)));
        (i, j) = (before_i, before_j);
    }
    out.reverse();
    out
}

type Cost = (u128, u64);

fn plus(a: Cost, b: Cost) -> Cost {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

/// The ways to pair the last of so many stacks: with each other, or one of them with none. Each is what is left, and
/// the cost.
fn steps<'a>(a: &'a [&Stack], b: &'a [&Stack], i: usize, j: usize) -> impl Iterator<Item = (usize, usize, Cost)> + 'a {
    let last_a = i.checked_sub(1).and_then(|it| a.get(it)).map(|it| (it.bytes[0], &it.numbers));
    let last_b = j.checked_sub(1).and_then(|it| b.get(it)).map(|it| (it.bytes[1], &it.numbers));
    let both = last_a
        .zip(last_b)
        .map(|((from, old), (to, new))| (i - 1, j - 1, (u128::from(from.abs_diff(to)), u64::from(old != new))));
    let gone = last_a.map(|(bytes, _)| (i - 1, j, (u128::from(bytes), 1)));
    let new = last_b.map(|(bytes, _)| (i, j - 1, (u128::from(bytes), 1)));
    [both, gone, new].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of one function, by its line and its bytes in both.
    fn stack(function: &str, line: u32, bytes: [u64; 2]) -> Stack {
        Stack {
            functions: vec![function.to_owned()],
            numbers: vec![line],
            line: format!("{function}:{line}"),
            bytes,
            blocks: bytes.map(|it| u64::from(it > 0)),
            ..Stack::default()
        }
    }

    fn paired(all: &[(u32, [u64; 2])]) -> Vec<(String, Option<String>, [u64; 2])> {
        let all = all.iter().map(|(line, bytes)| stack("step", *line, *bytes)).collect();
        pair(all).into_iter().map(|it| (it.line, it.before, it.bytes)).collect()
    }

    fn moved(line: &str, before: &str, bytes: [u64; 2]) -> (String, Option<String>, [u64; 2]) {
        (line.to_owned(), Some(before.to_owned()), bytes)
    }

    fn stayed(line: &str, bytes: [u64; 2]) -> (String, Option<String>, [u64; 2]) {
        (line.to_owned(), None, bytes)
    }

    #[test]
    fn lines_that_moved_are_the_same_stacks_also_where_one_meets_the_place_of_another() {
        // Two lines more above: 12 is now what 10 was.
        let all = [(10, [500, 0]), (12, [80, 510]), (14, [0, 80])];
        assert_eq!(paired(&all), [moved("step:12", "step:10", [500, 510]), moved("step:14", "step:12", [80, 80])]);
        // A new line in between.
        let all = [(10, [500, 0]), (20, [80, 0]), (11, [0, 500]), (15, [0, 9]), (22, [0, 80])];
        let expected =
            [moved("step:11", "step:10", [500, 500]), stayed("step:15", [0, 9]), moved("step:22", "step:20", [80, 80])];
        assert_eq!(paired(&all), expected);
    }

    #[test]
    fn a_new_or_dropped_stack_is_no_move_and_other_functions_are_others() {
        let all = [(10, [500, 500]), (20, [0, 80])];
        assert_eq!(paired(&all), [stayed("step:10", [500, 500]), stayed("step:20", [0, 80])]);
        let both = pair(vec![stack("step", 10, [500, 0]), stack("other", 12, [0, 500])]);
        assert!(both.iter().all(|it| it.before.is_none()) && both.len() == 2);
    }
}
