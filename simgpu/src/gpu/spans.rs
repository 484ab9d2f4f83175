//! A set of addresses as spans: added, removed, asked for, as many as are remembered.

use std::collections::BTreeMap;

/// Above this number the set drops all spans: it then has fewer, but no wrong ones.
const REMEMBERED: usize = 4096;

/// Ends by beginnings; no two spans touch.
#[derive(Default)]
pub(super) struct Spans(BTreeMap<usize, usize>);

impl Spans {
    /// Whether all of these addresses are in the set.
    pub(super) fn contains(&self, at: usize, len: usize) -> bool {
        self.0.range(..=at).next_back().is_some_and(|(_, end)| at.saturating_add(len) <= *end)
    }

    pub(super) fn add(&mut self, at: usize, len: usize) {
        let (mut start, mut end) = (at, at.saturating_add(len));
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to))
            && to >= start
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(start, end);
    }

    pub(super) fn remove(&mut self, at: usize, len: usize) {
        let end = at.saturating_add(len);
        while let Some((from, to)) = self.0.range(..end).next_back().map(|(from, to)| (*from, *to))
            && to > at
        {
            self.0.remove(&from);
            if from < at {
                self.0.insert(from, at);
            }
            if to > end {
                self.0.insert(end, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_grow_together_and_are_cut_apart() {
        let mut spans = Spans::default();
        spans.add(10, 10);
        spans.add(30, 10);
        assert!(spans.contains(10, 10) && !spans.contains(10, 11) && !spans.contains(9, 1) && !spans.contains(20, 5));
        spans.add(20, 10);
        assert!(spans.contains(10, 30), "what touches is one");
        spans.remove(15, 10);
        assert!(spans.contains(10, 5) && spans.contains(25, 15) && !spans.contains(14, 2) && !spans.contains(24, 1));
        spans.add(0, 100);
        assert!(spans.contains(0, 100) && spans.0.len() == 1);
        spans.remove(0, 100);
        assert!(spans.0.is_empty());
    }

    #[test]
    fn a_set_that_is_full_forgets() {
        let mut spans = Spans::default();
        for at in 0..=REMEMBERED {
            spans.add(at * 2, 1);
        }
        assert!(spans.contains(REMEMBERED * 2, 1) && !spans.contains(0, 1) && spans.0.len() == 1);
    }
}
