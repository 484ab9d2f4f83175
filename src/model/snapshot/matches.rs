//! The blocks and segments of a device that a filter selects.
//!
//! A filter is a part of a call's place or file, or the whole name of a stream, a pool, a kind of segment, an address,
//! a state or a gap. Names match as a whole: `stream 1` is not `stream 10`, and `pool` finds the calls of pooling
//! layers.

use super::{Device, Piece, Snapshot};
use crate::model::trace::{Block, Segment, Share, StackId, State};
use std::collections::{BTreeMap, BTreeSet};

/// The blocks of a device that match a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Whether each call stack matches, by its number.
    stacks: Vec<bool>,
    /// Whether each block of the trace matches, by its place.
    blocks: Vec<bool>,
    /// The segments that match or have such blocks, by their places, with the number of these blocks and their bytes.
    segments: BTreeMap<usize, (u64, u64)>,
}

impl Matches {
    /// Returns whether a segment, by its place among the trace's, matches or has blocks that do.
    pub fn has_segment(&self, place: usize) -> bool {
        self.segments.contains_key(&place)
    }

    /// Returns whether a call stack matches.
    pub fn has_stack(&self, stack: StackId) -> bool {
        self.stacks.get(stack.0 as usize) == Some(&true)
    }

    /// Returns whether a block of a segment matches, by its place there.
    pub fn has_block(&self, segment: &Segment, place: usize) -> bool {
        self.blocks.get(segment.blocks.start as usize + place) == Some(&true)
    }

    /// Returns how many segments and blocks match, and the bytes of these blocks.
    pub fn counts(&self) -> [u64; 3] {
        let sum = |of: fn(&(u64, u64)) -> u64| self.segments.values().map(of).fold(0, u64::saturating_add);
        [self.segments.len() as u64, sum(|it| it.0), sum(|it| it.1)]
    }
}

impl Snapshot {
    /// Returns the blocks of a device that match a filter; `None` if the filter is empty.
    pub fn matches(&self, device: &Device, filter: &str) -> Option<Matches> {
        let name = filter.trim().to_lowercase();
        if name.is_empty() {
            return None;
        }
        let found = self.trace.stacks.matches(filter);
        let is_found = |frame: &u32| found.get(*frame as usize) == Some(&true);
        let numbers = (0..self.trace.stacks.count()).map(|it| StackId(u32::try_from(it).unwrap_or(u32::MAX)));
        let stacks = numbers.map(|it| self.trace.stacks.numbers(it).iter().any(is_found)).collect();
        let mut matches =
            Matches { stacks, blocks: vec![false; self.trace.blocks.len()], segments: BTreeMap::default() };
        for piece in &device.segments {
            self.match_segment(piece, &name, &mut matches);
        }
        Some(matches)
    }

    fn match_segment(&self, piece: &Piece, name: &str, matches: &mut Matches) {
        let Some(segment) = self.segment(piece) else { return };
        let is_named = self.segment_names(segment).iter().any(|it| it == name);
        let is_state = State::ALL.map(|it| self.state_names(piece, it).contains(&name));
        let (mut blocks, mut bytes) = (0, 0_u64);
        for (place, block) in (segment.blocks.start as usize..).zip(self.trace.blocks_of(segment)) {
            if is_named || is_state[block.state as usize] || matches.has_stack(block.stack) {
                if let Some(it) = matches.blocks.get_mut(place) {
                    *it = true;
                }
                blocks += 1;
                bytes = bytes.saturating_add(block.size);
            }
        }
        if is_named || blocks > 0 || matches.has_stack(segment.stack) {
            matches.segments.insert(piece.place, (blocks, bytes));
        }
    }

    /// Returns the live blocks of some segments by stack: those that match.
    pub(super) fn live_matches<'a>(
        &'a self,
        segments: impl Iterator<Item = &'a Segment>,
        matches: &Matches,
    ) -> Vec<Share> {
        let of = |segment: &'a Segment| {
            let blocks = self.trace.blocks_of(segment).iter().enumerate();
            blocks.filter(move |it| matches.has_block(segment, it.0)).map(|it| it.1)
        };
        let is_live = |it: &&Block| it.state == State::Live;
        self.trace.shares(segments.flat_map(of).filter(is_live))
    }

    /// Returns the names by which a filter finds segments and blocks of a device, in the order of the screens.
    pub fn filter_names(&self, device: &Device) -> Vec<String> {
        let segments = || device.segments.iter().filter_map(|it| self.segment(it));
        let streams: BTreeSet<u64> = segments().map(|it| it.stream).collect();
        let mut names: Vec<String> = streams.into_iter().map(stream_name).collect();
        let pools: BTreeSet<Option<u32>> = segments().map(|it| it.pool).collect();
        names.extend(pools.into_iter().filter_map(|it| self.pool_name(it)));
        let kinds: BTreeSet<&str> = segments().map(kind).collect();
        names.extend(kinds.into_iter().map(str::to_owned));
        let states = device.segments.iter().flat_map(|piece| {
            let blocks = self.segment(piece).map(|it| self.trace.blocks_of(it)).unwrap_or_default();
            let seen: BTreeSet<State> = blocks.iter().map(|it| it.state).collect();
            seen.into_iter().flat_map(move |it| self.state_names(piece, it))
        });
        let states: BTreeSet<&str> = states.collect();
        names.extend(states.into_iter().map(str::to_owned));
        names
    }

    /// Returns the name of a pool: `default pool`, `graph pool (1, 0)`, `private pool (0, 1)`; `None` where the
    /// snapshot lacks it.
    fn pool_name(&self, pool: Option<u32>) -> Option<String> {
        Some(match self.trace.pools.get(pool?)? {
            (0, 0) => "default pool".to_owned(),
            // Only a capture makes these.
            (a, 0) => format!("graph pool ({a}, 0)"),
            (a, b) => format!("private pool ({a}, {b})"),
        })
    }

    /// Returns the name of a stream's and pool's segments: `stream 0, private pool (0, 1)`.
    pub fn part_name(&self, stream: u64, pool: Option<u32>) -> String {
        let pool = self.pool_name(pool).map_or_else(String::new, |it| format!(", {it}"));
        stream_name(stream) + &pool
    }

    fn segment_names(&self, it: &Segment) -> Vec<String> {
        let mut names = vec![stream_name(it.stream), kind(it).to_owned(), format!("{:#x}", it.address)];
        names.extend(self.pool_name(it.pool));
        if self.trace.is_private(it) {
            names.push("private pool".to_owned());
        }
        names
    }

    /// The names of the blocks of a segment with a state.
    fn state_names(&self, piece: &Piece, state: State) -> [&'static str; 2] {
        [state.name(), self.gap(piece, state).row().name]
    }
}

fn stream_name(stream: u64) -> String {
    format!("stream {stream}")
}

/// Returns the kind of a segment.
pub fn kind(it: &Segment) -> &'static str {
    match (it.is_expandable, it.is_small) {
        (true, _) => "expandable",
        (_, true) => "small",
        _ => "large",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::{Frame, Trace};
    use std::sync::Arc;

    /// Two segments with a live and a free block each; the second one is of stream 10 and of a private pool.
    fn snapshot() -> Snapshot {
        let mut trace = Trace::default();
        let mut stack = |name: &str| {
            let texts = &mut trace.stacks.texts;
            let frame = Frame { name: texts.id(name.as_bytes()), file: texts.id(b"/job/model.py"), line: 7 };
            let frame = trace.stacks.frames.id(frame);
            trace.stacks.id(&[frame])
        };
        let stacks = [stack("max_pool"), stack("attention")];
        let [default, private] = [(0, 0), (0, 5)].map(|it| trace.pools.id(it));
        for (place, (stack, (stream, pool))) in stacks.into_iter().zip([(1, default), (10, private)]).enumerate() {
            let address = place as u64 * 4096;
            let begin = u32::try_from(trace.blocks.len()).unwrap();
            let block = |state, stack, offset| Block {
                address: address + offset,
                size: 1024,
                state,
                stack,
                ..Block::default()
            };
            trace.blocks.push(block(State::Live, stack, 0));
            trace.blocks.push(block(State::Free, StackId::default(), 1024));
            let (blocks, pool) = (begin..begin + 2, Some(pool));
            let segment = Segment { device: Some(0), address, size: 2048, stream, pool, blocks, ..Segment::default() };
            trace.segments.push(Segment { is_small: place == 0, ..segment });
        }
        Snapshot::new(Arc::new(trace), 0, None)
    }

    #[test]
    fn a_filter_finds_blocks_by_call_stream_pool_kind_address_and_state() {
        let snapshot = snapshot();
        let device = &snapshot.devices[0];
        let counts = |filter: &str| snapshot.matches(device, filter).unwrap().counts();
        for (filter, found) in [
            ("POOL", [1, 1, 1024]),
            ("model.py:7", [2, 2, 2048]),
            ("stream 1", [1, 2, 2048]),
            (" Stream 10 ", [1, 2, 2048]),
            ("stream", [0, 0, 0]),
            ("private pool", [1, 2, 2048]),
            ("private pool (0, 5)", [1, 2, 2048]),
            ("default pool", [1, 2, 2048]),
            ("small", [1, 2, 2048]),
            ("0x1000", [1, 2, 2048]),
            ("free", [2, 2, 2048]),
            ("stuck", [1, 1, 1024]),
            ("mem pools", [1, 1, 1024]),
            ("live", [2, 2, 2048]),
            ("no such call", [0, 0, 0]),
        ] {
            assert_eq!(counts(filter), found, "{filter}");
        }
        assert_eq!(snapshot.matches(device, "  "), None);
        // Every name that is offered finds something.
        let names = snapshot.filter_names(device);
        assert!(names.iter().all(|it| counts(it)[1] > 0), "{names:?}");
        assert!(["stream 10", "large", "stuck"].iter().all(|it| names.contains(&(*it).to_owned())), "{names:?}");
    }
}
