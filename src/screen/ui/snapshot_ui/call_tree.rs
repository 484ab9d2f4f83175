//! The call tree: which of its calls are listed, and which is selected.

use super::{Page, SnapshotUi};
use crate::{
    model::trace::{Call, Tree},
    screen::ui::{Motion, moved},
};
use std::collections::BTreeSet;

/// Calls with at least one of so many parts of all bytes are open at first.
const OPENED: u64 = 10;

/// A call of the tree as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// The call, by its place in the tree.
    pub call: usize,
    /// How far it is indented.
    pub depth: usize,
    /// Whether its calls are listed below; `None` where it has none.
    pub is_open: Option<bool>,
}

impl SnapshotUi {
    /// The rows of the tree, from the top. The only call of a call is not indented.
    pub fn rows(&self) -> Vec<CallRow> {
        let tree = &self.profile.tree;
        let mut rows = Vec::new();
        let mut waiting: Vec<(usize, usize)> = calls(tree, 0).iter().rev().map(|call| (*call, 0)).collect();
        while let Some((call, depth)) = waiting.pop() {
            let inner = calls(tree, call);
            let is_open = self.opened.contains(&call);
            rows.push(CallRow { call, depth, is_open: (!inner.is_empty()).then_some(is_open) });
            if is_open {
                let depth = depth + usize::from(inner.len() > 1);
                waiting.extend(inner.iter().rev().map(|call| (*call, depth)));
            }
        }
        rows
    }

    /// Opens the large calls of a new tree, and selects the first one that calls several.
    pub(super) fn begin_tree(&mut self) {
        self.opened = BTreeSet::new();
        (self.root, self.base.scroll) = (0, 0);
        let tree = &self.profile.tree;
        let least = tree.get(0).map_or(0, |it| it.bytes) / OPENED;
        let is_large = |it: &Call| it.bytes >= least.max(1) && !it.calls.is_empty();
        self.opened = tree.calls.iter().enumerate().filter(|(_, it)| is_large(it)).map(|it| it.0).collect();
        // A call with only one call below it is of less interest than that one.
        self.call = calls(tree, 0).first().and_then(|call| chain(tree, *call).last().copied()).unwrap_or(0);
    }

    /// Opens a call, and below it those that are the only ones.
    fn open(&mut self, call: usize) {
        let below = chain(&self.profile.tree, call);
        self.opened.extend(below);
    }

    pub(super) fn toggle(&mut self) {
        if self.page == Page::Flame {
            self.root = if self.root == self.call { 0 } else { self.call };
            return;
        }
        if self.opened.remove(&self.call) {
            return;
        }
        self.open(self.call);
    }

    pub(super) fn travel_stacks(&mut self, motion: Motion) {
        let rows = self.rows();
        let here = rows.iter().position(|it| it.call == self.call).unwrap_or(0);
        let row = rows.get(here);
        match motion {
            Motion::Right if row.is_some_and(|it| it.is_open == Some(false)) => self.open(self.call),
            Motion::Right => self.select(&rows, here + 1),
            Motion::Left if row.is_some_and(|it| it.is_open == Some(true)) => {
                self.opened.remove(&self.call);
            }
            Motion::Left => self.call = caller(&self.profile.tree, self.call),
            Motion::Up | Motion::Down | Motion::First | Motion::Last | Motion::PageUp | Motion::PageDown => {
                self.select(&rows, moved(motion, here));
            }
        }
    }

    fn select(&mut self, rows: &[CallRow], place: usize) {
        if let Some(row) = rows.get(place.min(rows.len().saturating_sub(1))) {
            self.call = row.call;
        }
    }

    /// Selects a call; in the list, those that it is in are opened.
    pub(super) fn select_call(&mut self, call: usize) {
        if self.profile.tree.get(call).is_none() {
            return;
        }
        self.call = call;
        let mut at = call;
        while let Some(outer) = self.profile.tree.get(at).map(|it| it.caller).filter(|it| *it != at) {
            self.opened.insert(outer);
            at = outer;
        }
    }

    pub(super) fn travel_flame(&mut self, motion: Motion) {
        let tree = &self.profile.tree;
        let outer = caller(tree, self.call);
        let beside = tree.get(self.call).map_or(0, |it| it.caller);
        let sisters = calls(tree, beside);
        let here = sisters.iter().position(|it| *it == self.call).unwrap_or(0);
        let next = match motion {
            Motion::Up if self.call != self.root => Some(outer),
            Motion::Down => calls(tree, self.call).first().copied(),
            Motion::Left => here.checked_sub(1).and_then(|it| sisters.get(it)).copied(),
            Motion::Right => sisters.get(here + 1).copied(),
            Motion::First => calls(tree, self.root).first().copied(),
            Motion::Last => chain_of_largest(tree, self.call),
            Motion::Up | Motion::PageUp | Motion::PageDown => None,
        };
        // Calls next to the graph's first call are not in the graph.
        if let Some(next) = next.filter(|_| self.call != self.root || !matches!(motion, Motion::Left | Motion::Right)) {
            self.select_call(next);
        }
    }
}

fn calls(tree: &Tree, call: usize) -> &[usize] {
    tree.get(call).map(|it| &it.calls[..]).unwrap_or_default()
}

/// The call that a call is in; itself where that is the root.
fn caller(tree: &Tree, call: usize) -> usize {
    tree.get(call).map(|it| it.caller).filter(|it| *it > 0).unwrap_or(call)
}

/// A call, and below it those that are the only ones.
fn chain(tree: &Tree, call: usize) -> Vec<usize> {
    std::iter::successors(Some(call), |call| match calls(tree, *call) {
        [only] => Some(*only),
        _ => None,
    })
    .collect()
}

/// The innermost of the largest calls below a call.
fn chain_of_largest(tree: &Tree, call: usize) -> Option<usize> {
    std::iter::successors(Some(call), |call| calls(tree, *call).first().copied()).last()
}
