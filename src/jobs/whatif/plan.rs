//! Converts a device's trace to the operations of a replay: as recorded, with the earlier layout, and with other
//! settings, from the live blocks alone.

use super::{
    operations::{Operation, Operations},
    recorded::{Recorded, recorded},
};
use crate::model::trace::{self, Action, Segment, Trace};
use std::collections::{HashMap, HashSet};

const MIB: u64 = 1 << 20;
/// How many times in a row a window is replayed from its live blocks: fragmentation needs time to build up.
const ROUNDS: usize = 6;
/// The largest request that small segments serve.
const SMALL_MAX: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
/// From this size on, a request gets a segment of its own size.
const LARGE_MIN: u64 = 10 * MIB;

/// One device's trace, ready for replay.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) device: u32,
    /// Number of events in its trace.
    pub(super) events: usize,
    pub(super) recorded: Recorded,
    /// Whether the trace begins without any memory.
    pub(super) complete: bool,
    /// Starts from the recorded layout.
    pub(super) as_recorded: Operations,
    /// Starts from the live blocks alone; the same without live blocks. A window is repeated.
    pub(super) from_live: Operations,
}

/// Plans a device's replay. With `all_emptied`, releases that may be a retry's count as the program's.
///
/// # Errors
/// Describes why its trace cannot be replayed.
pub(super) fn plan(trace: &Trace, device: u32, all_emptied: bool) -> Result<Plan, String> {
    let range = trace.devices.get(device as usize).cloned().unwrap_or_default();
    let events = range.len();
    if !trace.events.range(range.clone()).any(|it| it.action == Action::Alloc) {
        return Err("it has no trace of allocations: call torch.cuda.memory._record_memory_history() when the job \
                    begins"
            .to_owned());
    }
    let is_private = |pool: Option<u32>| pool.and_then(|it| trace.pools.get(it)).is_some_and(|it| it != (0, 0));
    if trace.segments_on(device).any(|it| is_private(it.pool))
        || trace.events.range(range).any(|it| is_private(it.pool))
    {
        return Err("it has private memory pools (CUDA graphs), which are not replayed".to_owned());
    }
    let recorded = recorded(trace, device, all_emptied)
        .ok_or("its segments contradict its trace, which releases or takes more than there is")?;
    let held = start(trace, device);
    let complete = recorded.start == 0 && held.is_empty();
    let mut as_recorded = Writer::new(trace, device);
    as_recorded.layout(&held)?;
    as_recorded.trace(&recorded);
    let mut from_live = Writer::new(trace, device);
    from_live.live(&held);
    from_live.trace(&recorded);
    let rounds = if complete || !recorded.is_late() { 1 } else { ROUNDS };
    for _ in 1..rounds {
        from_live.again(&held);
        from_live.events(&recorded);
    }
    let (as_recorded, from_live) = (as_recorded.out, from_live.out);
    Ok(Plan { device, events, recorded, complete, as_recorded, from_live })
}

struct Writer<'a> {
    source: &'a Trace,
    device: u32,
    out: Operations,
    /// The slots of live blocks, by recorded address.
    slots: HashMap<u64, u32>,
    /// The addresses of blocks that are live since before the first event.
    old: HashSet<u64>,
    /// Indices of the recorded streams; the default stream is the first.
    streams: HashMap<u64, u32>,
}

impl<'a> Writer<'a> {
    fn new(source: &'a Trace, device: u32) -> Self {
        let streams = HashMap::from([(0, 0)]);
        Self { source, device, out: Operations::default(), slots: HashMap::new(), old: HashSet::new(), streams }
    }

    fn stream(&mut self, of: u64) -> u32 {
        let next = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        *self.streams.entry(of).or_insert(next)
    }

    /// Allocates a block without an address.
    fn fill(&mut self, size: u64, stream: u32) -> u32 {
        let slot = self.out.slot();
        self.out.push(Operation::Allocate { slot, size, stream }, 0);
        slot
    }

    /// Rebuilds segments with live blocks in their places: first all segments as one block, then splits each into
    /// blocks and gaps, and frees the gaps last.
    fn layout(&mut self, held: &[Held]) -> Result<(), String> {
        let mut whole = Vec::new();
        let mut grown = HashSet::new();
        for it in held {
            let stream = self.stream(it.stream);
            let is_usual = match it.size {
                _ if it.is_expandable => grown.insert((stream, it.is_small)),
                SMALL_SEGMENT => it.is_small,
                LARGE_SEGMENT => true,
                size => !it.is_small && size >= LARGE_MIN && size % SMALL_SEGMENT == 0,
            };
            if !is_usual {
                return Err("the layout before its first event cannot be rebuilt: it has segments that PyTorch's \
                            default allocator does not make, or an expandable segment with holes"
                    .to_owned());
            }
            whole.push(match (it.is_expandable, it.is_small) {
                (true, _) => Vec::new(),
                (false, true) => vec![self.fill(SMALL_MAX, stream), self.fill(SMALL_MAX, stream)],
                (false, false) => vec![self.fill(it.size, stream)],
            });
        }
        let mut fillers = Vec::new();
        for (it, whole) in held.iter().zip(whole) {
            let stream = self.stream(it.stream);
            for slot in whole {
                self.out.push(Operation::Free { slot }, 0);
            }
            for piece in pieces(it) {
                let slot = self.fill(piece.size, stream);
                match piece.address {
                    Some(address) => drop(self.slots.insert(address, slot)),
                    None => fillers.push(slot),
                }
            }
        }
        for slot in fillers {
            self.out.push(Operation::Free { slot }, 0);
        }
        Ok(())
    }

    /// Allocates only the live blocks, by ascending address.
    fn live(&mut self, held: &[Held]) {
        for it in held {
            let stream = self.stream(it.stream);
            for (address, size) in &it.blocks {
                if self.old.insert(*address) {
                    let slot = self.fill(*size, stream);
                    self.slots.insert(*address, slot);
                }
            }
        }
    }

    /// Restores the live blocks of the start after the last event.
    fn again(&mut self, held: &[Held]) {
        let mut new: Vec<_> = self.slots.keys().copied().filter(|it| !self.old.contains(it)).collect();
        new.sort_unstable();
        for it in new {
            self.free(it, 0);
        }
        self.live(held);
    }

    /// Adds the events of the trace, and counts peaks from the first one on.
    fn trace(&mut self, recorded: &Recorded) {
        self.out.push(Operation::Ready, 0);
        self.events(recorded);
    }

    /// What the trace has, event by event.
    fn events(&mut self, recorded: &Recorded) {
        let range = self.source.devices.get(self.device as usize).cloned().unwrap_or_default();
        let mut emptied = recorded.emptied.iter().copied().peekable();
        for (at, event) in self.source.events.range(range).enumerate() {
            if emptied.next_if_eq(&at).is_some() {
                self.out.push(Operation::Empty, at);
            }
            let (size, stream) = (event.size.unwrap_or(0), event.stream.unwrap_or(0));
            match (event.action, event.address) {
                (Action::Alloc, Some(address)) if size > 0 => {
                    self.free(address, at);
                    let (slot, stream) = (self.out.slot(), self.stream(stream));
                    self.slots.insert(address, slot);
                    self.out.push(Operation::Allocate { slot, size, stream }, at);
                }
                (Action::FreeCompleted, Some(address)) => self.free(address, at),
                (Action::Oom, _) if size > 0 => {
                    let stream = self.stream(stream);
                    self.out.push(Operation::Attempt { size, stream }, at);
                }
                _ => {}
            }
        }
    }

    fn free(&mut self, address: u64, at: usize) {
        self.old.remove(&address);
        if let Some(slot) = self.slots.remove(&address) {
            self.out.push(Operation::Free { slot }, at);
        }
    }
}

/// A live block, or, without an address, a gap.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    address: Option<u64>,
    size: u64,
}

fn pieces(it: &Held) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = it.address;
    let gap = |pieces: &mut Vec<Piece>, mut size: u64| {
        while size > 0 {
            let part = if it.is_small { size.min(SMALL_MAX) } else { size };
            pieces.push(Piece { address: None, size: part });
            size -= part;
        }
    };
    for (address, size) in &it.blocks {
        gap(&mut pieces, address.saturating_sub(at));
        pieces.push(Piece { address: Some(*address), size: *size });
        at = address.saturating_add(*size);
    }
    gap(&mut pieces, it.address.saturating_add(it.size).saturating_sub(at));
    pieces
}

/// A free remainder up to this is not split off a large block.
const UNSPLIT: u64 = MIB;

/// Memory that the allocator had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) is_small: bool,
    pub(super) is_expandable: bool,
    /// Live blocks, by ascending address: their addresses and bytes.
    pub(super) blocks: Vec<(u64, u64)>,
}

/// Returns the memory held before a device's first event, by ascending address.
pub(super) fn start(trace: &Trace, device: u32) -> Vec<Held> {
    let mut held = trace::AllocatorState::at_end(trace, device);
    let range = trace.devices.get(device as usize).cloned().unwrap_or_default();
    for event in range.rev().filter_map(|it| trace.events.get(it)) {
        held.undo(&event);
    }
    let mut all: Vec<_> = held.segments.into_values().map(Held::from).collect();
    for (address, size) in held.live {
        let before = all.partition_point(|it| it.address <= address);
        let segment = before.checked_sub(1).and_then(|it| all.get_mut(it));
        if let Some(it) = segment.filter(|it| address < it.address.saturating_add(it.size)) {
            it.blocks.push((address, size));
        }
    }
    all.iter_mut().for_each(fit);
    all
}

impl From<Segment> for Held {
    fn from(it: Segment) -> Self {
        let Segment { address, size, stream, is_small, is_expandable, .. } = it;
        Self { address, size, stream, is_small, is_expandable, blocks: Vec::new() }
    }
}

/// Sets the sizes of blocks: no more than there is room for, including a remainder that is never split off.
fn fit(it: &mut Held) {
    let end = it.address.saturating_add(it.size);
    let ends: Vec<u64> = it.blocks.iter().skip(1).map(|it| it.0).chain([end]).collect();
    for (block, end) in it.blocks.iter_mut().zip(ends) {
        let room = end.saturating_sub(block.0);
        let keeps = !it.is_small && room.saturating_sub(block.1) <= UNSPLIT;
        block.1 = if keeps { room } else { block.1.min(room) };
    }
    it.blocks.retain(|it| it.1 > 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::Segment;
    use crate::model::trace::{Action, Block, BlockState, Event};

    #[test]
    fn a_trace_becomes_what_was_asked_for() {
        use Operation::{Allocate, Attempt, Empty, Free, Ready};
        let mut trace = Trace::default();
        let mut push = |action, address, size, stream| {
            let event =
                Event { action, address: Some(address), size: Some(size), stream: Some(stream), ..Event::default() };
            trace.events.push(&event);
        };
        push(Action::SegmentAlloc, 40 * MIB, 2 * MIB, 7);
        push(Action::Alloc, 40 * MIB, 100, 7);
        push(Action::FreeRequested, 40 * MIB, 100, 7);
        push(Action::FreeCompleted, 40 * MIB, 100, 7);
        push(Action::SegmentFree, 40 * MIB, 2 * MIB, 7);
        push(Action::Alloc, 90 * MIB, 300, 0);
        push(Action::Oom, 3, 5000, 7);
        trace.devices.push(0..7);
        trace.segments.push(Segment {
            device: Some(0),
            address: 90 * MIB,
            size: 2 * MIB,
            is_small: true,
            ..Segment::default()
        });
        let it = plan(&trace, 0, false).unwrap();
        let asked = [
            Ready,
            Allocate { slot: 0, size: 100, stream: 1 },
            Free { slot: 0 },
            Empty,
            Allocate { slot: 0, size: 300, stream: 0 },
            Attempt { size: 5000, stream: 1 },
        ];
        let all = it.from_live.all();
        assert_eq!(all[..6], asked);
        // Half of its peak was there before: it is repeated.
        assert_eq!((all.len(), &all[6..8]), (6 + 5 * 6, &[Free { slot: 0 }, asked[1]][..]));
        assert!(!it.complete && it.from_live.event(5) == Some(6));
        // The segment of two MiB was there before, entirely free.
        let layout = [
            Allocate { slot: 0, size: MIB, stream: 0 },
            Allocate { slot: 1, size: MIB, stream: 0 },
            Free { slot: 0 },
            Free { slot: 1 },
        ];
        assert_eq!(it.as_recorded.all()[..4], layout);
        let none = plan(&Trace::default(), 0, false).unwrap_err();
        assert!(none.contains("no trace of allocations"), "{none}");
    }

    #[test]
    fn a_segment_is_cut_into_its_blocks_and_what_is_between_them() {
        let sizes =
            |it: &Held| pieces(it).iter().map(|piece| (piece.address.is_some(), piece.size)).collect::<Vec<_>>();
        let blocks = vec![(3 * MIB, 512), (3 * MIB + 1024, MIB)];
        let small = Held { address: 2 * MIB, size: 4 * MIB, is_small: true, blocks, ..Held::default() };
        let rest = MIB - 1024;
        assert_eq!(sizes(&small), [(false, MIB), (true, 512), (false, 512), (true, MIB), (false, MIB), (false, rest)]);
        assert_eq!(sizes(&Held { size: 20 * MIB, ..Held::default() }), [(false, 20 * MIB)]);
    }

    #[test]
    fn events_are_undone_from_the_end() {
        let mut trace = Trace::default();
        let mut push = |action, address, size| {
            trace.events.push(&Event { action, address: Some(address), size: Some(size), ..Event::default() });
        };
        push(Action::FreeCompleted, 40 * MIB, 3 * MIB - 7);
        push(Action::SegmentFree, 100 * MIB, 2 * MIB);
        push(Action::SegmentAlloc, 80 * MIB, 20 * MIB);
        push(Action::Alloc, 80 * MIB, 5 * MIB);
        trace.devices.push(0..4);
        let block = |address, state| Block { address: address * MIB, size: 5 * MIB, state, ..Block::default() };
        trace.blocks = vec![block(48, BlockState::Pending), block(53, BlockState::Free), block(80, BlockState::Live)];
        let segment = |address, blocks| Segment {
            device: Some(0),
            address: address * MIB,
            size: 20 * MIB,
            blocks,
            ..Segment::default()
        };
        trace.segments = vec![segment(40, 0..2), segment(80, 2..3)];
        let all = start(&trace, 0);
        assert_eq!(all.iter().map(|it| (it.address / MIB, it.size / MIB)).collect::<Vec<_>>(), [(40, 20), (100, 2)]);
        assert_eq!(all[0].blocks, [(40 * MIB, (3 * MIB - 7).next_multiple_of(512)), (48 * MIB, 5 * MIB)]);
        assert!(all[1].is_small && all[1].blocks.is_empty());
    }
}
