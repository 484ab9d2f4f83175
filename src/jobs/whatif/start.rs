//! The allocator's state before a trace's first event: the state at the end, with all events undone.

use crate::model::trace::{self, Segment, Trace};

const MIB: u64 = 1 << 20;
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
    use crate::model::trace::{Action, Block, BlockState, Event};

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
