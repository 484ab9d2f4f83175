//! Pairs call stacks whose lines have moved between two versions of a program.
//!
//! Stacks of the same functions belong together. Within them the order of the lines stays, so of all pairings in that
//! order the one counts under which the fewest bytes change.

use super::Stack;
use std::collections::BTreeMap;

/// Most stacks of the same functions in both snapshots together; the work grows with the square.
const GROUP_MAX: usize = 400;

/// Pairs the stacks that only the first snapshot has with those that only the second one has.
pub(super) fn pair(all: Vec<Stack>) -> Vec<Stack> {
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
