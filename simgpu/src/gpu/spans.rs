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

/// Where bytes come from; of several, the first in this order decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A kernel may have written them, which computes nothing here.
    #[default]
    Computed,
    /// Ranks that are absent sent some of them: what a present rank sends was taken for it.
    Assumed,
    /// The program copied them in.
    Copied,
}

/// The bytes that still hold what was copied in, because no kernel can have written there since.
#[derive(Default)]
pub(super) struct Copies {
    launches: u64,
    /// The spans that were copied in when the number of launches was `at`: nothing can have written there since.
    fresh: Spans,
    /// Those of them that consist of what the program itself copied in.
    copied: Spans,
    at: u64,
}

impl Copies {
    /// A kernel, or a library call that stands for one, may have written anything.
    pub(super) fn launched(&mut self) {
        self.launches += 1;
    }

    /// Where bytes come from.
    pub(super) fn origin(&self, at: usize, len: usize) -> Origin {
        match self.at == self.launches && self.fresh.contains(at, len) {
            true if self.copied.contains(at, len) => Origin::Copied,
            true => Origin::Assumed,
            false => Origin::Computed,
        }
    }

    /// Bytes of that origin were written by a copy.
    pub(super) fn written(&mut self, at: usize, len: usize, origin: Origin) {
        if self.at != self.launches {
            (self.fresh, self.copied) = (Spans::default(), Spans::default());
            self.at = self.launches;
        }
        let put = |into: &mut Spans, is_in: bool| if is_in { into.add(at, len) } else { into.remove(at, len) };
        put(&mut self.fresh, origin > Origin::Computed);
        put(&mut self.copied, origin == Origin::Copied);
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
    fn bytes_come_from_where_the_least_certain_of_them_do() {
        let mut copies = Copies::default();
        copies.written(0, 8, Origin::Copied);
        copies.written(8, 8, Origin::Assumed);
        copies.written(16, 8, Origin::Computed);
        let of = |copies: &Copies, at, len| copies.origin(at, len);
        assert_eq!(
            [of(&copies, 0, 8), of(&copies, 4, 8), of(&copies, 8, 16)],
            [Origin::Copied, Origin::Assumed, Origin::Computed]
        );
        copies.launched();
        assert_eq!(of(&copies, 0, 8), Origin::Computed, "a kernel may have written there");
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
