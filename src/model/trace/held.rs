//! The state of an allocator, as events change it: segments by their addresses, and live blocks.

use super::{Action, Event, StackId, Trace};
use std::{collections::BTreeMap, ops::Range};

/// The allocator's granule; a block's bytes are a multiple of it.
const ROUNDING: u64 = 512;
/// The bytes of segments for small requests.
const SMALL_SEGMENT: u64 = 2 << 20;

/// Segments without their blocks, and blocks without their segments, of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatorState {
    /// Segments, by their addresses.
    pub segments: BTreeMap<u64, Segment>,
    /// The bytes of live blocks, by their addresses.
    pub live: BTreeMap<u64, u64>,
}

impl AllocatorState {
    /// Returns the state of a device's allocator at the end of a trace.
    pub fn at_end(trace: &Trace, device: u32) -> Self {
        let mut held = Self::default();
        for it in trace.segments_on(device) {
            held.segments.insert(it.address, Segment { blocks: 0..0, ..it.clone() });
            let blocks =
                trace.blocks_of(it).iter().filter(|it| matches!(it.state, BlockState::Live | BlockState::Pending));
            held.live.extend(blocks.map(|it| (it.address, it.size)));
        }
        held
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event) {
        let (Some(address), Some(size)) = (event.address, event.size) else { return };
        match event.action {
            Action::Alloc => drop(self.live.insert(address, size.next_multiple_of(ROUNDING))),
            Action::FreeCompleted => drop(self.live.remove(&address)),
            Action::SegmentAlloc | Action::SegmentMap => self.give(event, address, size),
            Action::SegmentFree | Action::SegmentUnmap => self.take(address, size),
            _ => {}
        }
    }

    /// Undoes an event.
    pub fn undo(&mut self, event: &Event) {
        let (Some(address), Some(size)) = (event.address, event.size) else { return };
        match event.action {
            Action::Alloc => drop(self.live.remove(&address)),
            Action::FreeCompleted => drop(self.live.insert(address, size.next_multiple_of(ROUNDING))),
            Action::SegmentAlloc | Action::SegmentMap => self.take(address, size),
            Action::SegmentFree | Action::SegmentUnmap => self.give(event, address, size),
            _ => {}
        }
    }

    /// Adds its segments and blocks to a trace, as those of a device.
    pub fn put(self, device: u32, trace: &mut Trace) {
        let mut live = self.live.into_iter().peekable();
        for mut segment in self.segments.into_values() {
            let end = segment.address.saturating_add(segment.size);
            let first = trace.blocks.len();
            while let Some((address, size)) = live.next_if(|it| it.0 < end) {
                if address >= segment.address {
                    trace.blocks.push(Block { address, size, state: BlockState::Live, ..Block::default() });
                }
            }
            let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
            segment.blocks = number(first)..number(trace.blocks.len());
            trace.segments.push(Segment { device: Some(device), ..segment });
        }
    }

    /// Removes a range; what is around it stays.
    fn take(&mut self, address: u64, size: u64) {
        let Some((_, found)) = self.segments.range(..=address).next_back() else { return };
        let (found, end) = (found.clone(), address.saturating_add(size));
        let last = found.address.saturating_add(found.size);
        if address >= last {
            return;
        }
        self.segments.remove(&found.address);
        if found.address < address {
            self.segments.insert(found.address, Segment { size: address - found.address, ..found.clone() });
        }
        if end < last {
            self.segments.insert(end, Segment { address: end, size: last - end, ..found });
        }
    }

    /// Adds a range; a part of an expandable segment joins its neighbours.
    fn give(&mut self, event: &Event, address: u64, size: u64) {
        let mut it = Segment {
            address,
            size,
            stream: event.stream.unwrap_or(0),
            is_small: size == SMALL_SEGMENT,
            is_expandable: matches!(event.action, Action::SegmentMap | Action::SegmentUnmap),
            pool: event.pool,
            ..Segment::default()
        };
        if it.is_expandable {
            let end = address.saturating_add(size);
            if self.segments.get(&end).is_some_and(|next| next.is_expandable) {
                it.size += self.segments.remove(&end).map_or(0, |next| next.size);
            }
            if let Some((_, before)) = self.segments.range_mut(..address).next_back()
                && before.is_expandable
                && before.address + before.size == address
            {
                before.size += it.size;
                return;
            }
        }
        self.segments.insert(address, it);
    }
}

/// The state of a block.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum BlockState {
    /// In use by the program.
    Live,
    /// Freed by the program; another stream may still use it.
    Pending,
    /// Free for the next request.
    Free,
    /// A state that this release does not know.
    #[default]
    #[strum(serialize = "unknown")]
    Other,
}

impl BlockState {
    /// All of them, in their order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its address on the device.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The requested bytes.
    pub requested: Option<u64>,
    /// Whether it is live, pending or free.
    pub state: BlockState,
    /// The call stack that requested it.
    pub stack: StackId,
}

/// A piece of memory that the allocator has from the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The device's ordinal; `None` for pinned host memory.
    pub device: Option<u32>,
    /// Its address on the device.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes in live blocks, as the allocator counts them.
    pub allocated: Option<u64>,
    /// Bytes in live and pending blocks, as the allocator counts them.
    pub active: Option<u64>,
    /// Requested bytes of its live blocks.
    pub requested: Option<u64>,
    /// The stream that it serves.
    pub stream: u64,
    /// Whether it serves small requests (up to 1 MiB).
    pub is_small: bool,
    /// Whether it is an expandable segment.
    pub is_expandable: bool,
    /// The pool's index in the trace; `None` where the trace has no pools.
    pub pool: Option<u32>,
    /// The call stack of the request that it was allocated for.
    pub stack: StackId,
    /// Its blocks, by index in the trace.
    pub blocks: Range<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: Action, address: u64, size: u64) -> Event {
        Event { action, address: Some(address), size: Some(size), ..Event::default() }
    }

    #[test]
    fn parts_of_an_expandable_segment_are_one_range() {
        let mut held = AllocatorState::default();
        for (address, size) in [(10, 10), (30, 10), (20, 10)] {
            held.apply(&event(Action::SegmentMap, address, size));
        }
        let ranges = |held: &AllocatorState| held.segments.values().map(|it| (it.address, it.size)).collect::<Vec<_>>();
        assert_eq!(ranges(&held), [(10, 30)]);
        held.apply(&event(Action::SegmentUnmap, 15, 10));
        assert_eq!(ranges(&held), [(10, 5), (25, 15)]);
        held.undo(&event(Action::SegmentUnmap, 15, 10));
        assert_eq!(ranges(&held), [(10, 30)]);
    }

    #[test]
    fn events_undone_leave_what_was_there_before() {
        let mut held = AllocatorState::default();
        held.apply(&event(Action::SegmentAlloc, 4096, 2 << 20));
        held.apply(&event(Action::Alloc, 4096, 100));
        let before = held.clone();
        let events = [
            event(Action::FreeCompleted, 4096, 100),
            event(Action::Alloc, 8192, 700),
            event(Action::SegmentAlloc, 40 << 20, 20 << 20),
        ];
        for it in &events {
            held.apply(it);
        }
        let mut trace = Trace::default();
        held.clone().put(3, &mut trace);
        assert_eq!((held.live.get(&8192), trace.blocks.len(), trace.segments.len()), (Some(&1024), 1, 2));
        assert_eq!(AllocatorState::at_end(&trace, 3).live, held.live);
        for it in events.iter().rev() {
            held.undo(it);
        }
        assert_eq!(held, before);
    }
}
