//! The allocator's state before a trace's first event: the state at the end, with all events undone.

use crate::model::trace::{Action, State, Trace};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// The allocator's granule; a block's bytes are a multiple of it.
const ROUNDING: u64 = 512;
/// The bytes of segments for small requests.
const SMALL_SEGMENT: u64 = 2 * MIB;
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
    let mut held = BTreeMap::new();
    let mut live = BTreeMap::new();
    for it in trace.segments_on(device) {
        let segment = Held {
            address: it.address,
            size: it.size,
            stream: it.stream,
            is_small: it.is_small,
            is_expandable: it.is_expandable,
            blocks: Vec::new(),
        };
        held.insert(it.address, segment);
        let blocks = trace.blocks_of(it).iter().filter(|it| matches!(it.state, State::Live | State::Pending));
        live.extend(blocks.map(|it| (it.address, it.size)));
    }
    let range = trace.devices.get(device as usize).cloned().unwrap_or_default();
    for event in range.rev().filter_map(|it| trace.events.get(it)) {
        let (Some(address), Some(size)) = (event.address, event.size) else { continue };
        match event.action {
            Action::Alloc => drop(live.remove(&address)),
            Action::FreeCompleted => drop(live.insert(address, size.next_multiple_of(ROUNDING))),
            Action::SegmentAlloc | Action::SegmentMap => take(&mut held, address, size),
            Action::SegmentFree | Action::SegmentUnmap => {
                let is_expandable = event.action == Action::SegmentUnmap;
                let stream = event.stream.unwrap_or(0);
                let is_small = size == SMALL_SEGMENT;
                give(&mut held, Held { address, size, stream, is_small, is_expandable, blocks: Vec::new() });
            }
            _ => {}
        }
    }
    let mut all: Vec<_> = held.into_values().collect();
    for (address, size) in live {
        let before = all.partition_point(|it| it.address <= address);
        let segment = before.checked_sub(1).and_then(|it| all.get_mut(it));
        if let Some(it) = segment.filter(|it| address < it.address.saturating_add(it.size)) {
            it.blocks.push((address, size));
        }
    }
    all.iter_mut().for_each(fit);
    all
}

/// Removes a range; what is around it stays.
fn take(held: &mut BTreeMap<u64, Held>, address: u64, size: u64) {
    let Some((_, found)) = held.range(..=address).next_back() else { return };
    let (found, end) = (found.clone(), address.saturating_add(size));
    let last = found.address.saturating_add(found.size);
    if address >= last {
        return;
    }
    held.remove(&found.address);
    if found.address < address {
        held.insert(found.address, Held { size: address - found.address, ..found.clone() });
    }
    if end < last {
        held.insert(end, Held { address: end, size: last - end, ..found });
    }
}

/// Adds a range; a part of an expandable segment joins its neighbours.
fn give(held: &mut BTreeMap<u64, Held>, mut it: Held) {
    if it.is_expandable {
        if let Some((_, next)) = held.range(it.address..).next().filter(|next| *next.0 == it.address + it.size) {
            let next = next.address;
            it.size += held.remove(&next).map_or(0, |it| it.size);
        }
        if let Some((_, before)) = held.range_mut(..it.address).next_back()
            && before.is_expandable
            && before.address + before.size == it.address
        {
            before.size += it.size;
            return;
        }
    }
    held.insert(it.address, it);
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
    use crate::model::trace::{Block, Event, Segment};

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
        trace.blocks = vec![block(48, State::Pending), block(53, State::Free), block(80, State::Live)];
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

    #[test]
    fn parts_of_an_expandable_segment_are_one_range() {
        let part = |address, size| Held { address, size, is_expandable: true, ..Held::default() };
        let mut held = BTreeMap::new();
        for (address, size) in [(10, 10), (30, 10), (20, 10)] {
            give(&mut held, part(address, size));
        }
        assert_eq!(held.values().collect::<Vec<_>>(), [&part(10, 30)]);
        take(&mut held, 15, 10);
        assert_eq!(held.values().collect::<Vec<_>>(), [&part(10, 5), &part(25, 15)]);
    }
}
