//! The tree of processes: each row of the list below its ancestors.

use crate::facts::event::Ancestor;
use std::collections::{BTreeMap, BTreeSet};

/// How processes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// A row for each.
    #[default]
    Rows,
    /// Below their ancestors.
    Tree,
}

/// A line of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch<'a> {
    /// Its indentation, with the lines that lead to it.
    pub prefix: String,
    /// What the line shows.
    pub of: Limb<'a>,
}

/// What a line of the tree shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limb<'a> {
    /// The row at this place.
    Row(usize),
    /// An ancestor that is not in the list.
    Ancestor(&'a Ancestor),
}

/// Sorts rows so that those of one ancestor follow each other; otherwise they keep their order. `path` returns the pids
/// from the oldest ancestor to the process of a row.
pub(super) fn sort<T>(rows: &mut [T], path: impl Fn(&T) -> Vec<u32>) {
    let mut order: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    for row in &*rows {
        let path = path(row);
        for end in 1..=path.len() {
            let next = order.len();
            order.entry(path.get(..end).unwrap_or_default().to_vec()).or_insert(next);
        }
    }
    rows.sort_by_cached_key(|row| {
        let path = path(row);
        let places = (1..=path.len()).map(|end| order.get(path.get(..end).unwrap_or_default()).copied());
        places.collect::<Vec<_>>()
    });
}

/// Returns the lines of sorted rows with these paths and ancestors. An ancestor has a line if it is a parent, or if
/// several branches lead from it.
pub(super) fn branches<'a>(rows: &[(Vec<u32>, &'a [Ancestor])]) -> Vec<Branch<'a>> {
    let shown = shown(rows.iter().map(|it| it.0.as_slice()));
    let listed: BTreeSet<u32> = rows.iter().filter_map(|it| it.0.last().copied()).collect();
    let mut lines: Vec<(usize, Limb)> = Vec::new();
    let mut before: Vec<u32> = Vec::new();
    for (place, (path, ancestors)) in rows.iter().enumerate() {
        let (_, above) = path.split_last().unwrap_or((&0, &[]));
        let chain: Vec<u32> = above.iter().copied().filter(|it| shown.contains(it)).collect();
        let same = chain.iter().zip(&before).take_while(|(one, other)| one == other).count();
        for (depth, pid) in chain.iter().enumerate().skip(same).filter(|(_, pid)| !listed.contains(pid)) {
            let ancestor = ancestors.iter().find(|it| it.pid == *pid);
            lines.extend(ancestor.map(|it| (depth, Limb::Ancestor(it))));
        }
        lines.push((chain.len(), Limb::Row(place)));
        before = chain;
        before.extend(path.last());
    }
    let depths: Vec<usize> = lines.iter().map(|it| it.0).collect();
    lines.into_iter().enumerate().map(|(at, (_, of))| Branch { prefix: prefix(&depths, at), of }).collect()
}

/// Returns the pids that have a line.
fn shown<'a>(paths: impl Iterator<Item = &'a [u32]>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut shown = BTreeSet::new();
    for path in paths {
        for pair in path.windows(2) {
            if let [parent, child] = pair {
                children.entry(*parent).or_default().insert(*child);
            }
        }
        shown.extend(path.iter().rev().take(2));
    }
    shown.extend(children.into_iter().filter(|(_, all)| all.len() > 1).map(|(parent, _)| parent));
    shown
}

/// Returns the lines that lead to a line: `│ ├─`.
fn prefix(depths: &[usize], at: usize) -> String {
    let (own, below) = (depths.get(at).copied().unwrap_or(0), depths.get(at + 1..).unwrap_or_default());
    let goes_on = |level: usize| below.iter().find(|it| **it <= level).is_some_and(|it| *it == level);
    let mut prefix = String::new();
    for level in 1..own {
        prefix.push_str(if goes_on(level) { "│  " } else { "   " });
    }
    if own > 0 {
        prefix.push_str(if goes_on(own) { "├─ " } else { "└─ " });
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lead_to_the_children_that_follow() {
        let depths = [0, 1, 2, 1, 0, 1];
        let all: Vec<String> = (0..depths.len()).map(|it| prefix(&depths, it)).collect();
        assert_eq!(all, ["", "├─ ", "│  └─ ", "└─ ", "", "└─ "]);
    }

    #[test]
    fn rows_of_one_ancestor_follow_each_other_in_their_order() {
        let mut rows = [vec![1, 7, 9], vec![1, 8], vec![1, 7, 5], vec![], vec![1, 7]];
        sort(&mut rows, Clone::clone);
        assert_eq!(rows, [vec![], vec![1, 7], vec![1, 7, 9], vec![1, 7, 5], vec![1, 8]]);
    }

    #[test]
    fn only_parents_and_forks_are_shown() {
        let paths: [&[u32]; 3] = [&[1, 10, 20, 30], &[1, 10, 20, 31], &[1, 40]];
        assert_eq!(shown(paths.into_iter()), [1, 20, 30, 31, 40].into_iter().collect());
        assert_eq!(shown([&[1, 2, 3, 4][..]].into_iter()), [3, 4].into_iter().collect());
    }
}
