//! Events as columns: about 37 bytes each.

use super::StackId;

/// What the allocator did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Gave a block away.
    Alloc,
    /// Was given a block back, which a stream may still use.
    FreeRequested,
    /// Has the block again.
    FreeCompleted,
    /// Took a segment from the driver.
    SegmentAlloc,
    /// Gave a segment back to the driver.
    SegmentFree,
    /// Took memory for a part of an expandable segment.
    SegmentMap,
    /// Gave memory of an expandable segment back.
    SegmentUnmap,
    /// Could not give a block.
    Oom,
    /// Was asked for a snapshot.
    Snapshot,
    /// Was given a note by the program.
    Annotate,
    /// Something that this release has no name for.
    #[default]
    Other,
}

impl Action {
    /// Every action with PyTorch's word for it.
    pub const WORDS: [(&'static str, Self); 11] = [
        ("alloc", Self::Alloc),
        ("free_requested", Self::FreeRequested),
        ("free_completed", Self::FreeCompleted),
        ("segment_alloc", Self::SegmentAlloc),
        ("segment_free", Self::SegmentFree),
        ("segment_map", Self::SegmentMap),
        ("segment_unmap", Self::SegmentUnmap),
        ("oom", Self::Oom),
        ("snapshot", Self::Snapshot),
        ("annotate", Self::Annotate),
        // Releases before 2.0 know of one way to free.
        ("free", Self::FreeCompleted),
    ];
}

/// One event, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Where; of an out-of-memory error, the bytes that were free on the device.
    pub address: Option<u64>,
    /// Bytes: those asked for (blocks, before rounding) or those of the segment.
    pub size: Option<u64>,
    /// The stream, as the driver's pointer.
    pub stream: Option<u64>,
    /// µs since 1970.
    pub unix_us: Option<u64>,
    /// Who asked for it.
    pub stack: StackId,
    /// The pool, by its place among the trace's; `None` where pools are not told.
    pub pool: Option<u32>,
}

/// Many events, each part of them in a column.
#[derive(Clone, Debug, Default)]
pub struct Events {
    actions: Vec<Action>,
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    streams: Vec<u32>,
    times: Vec<u64>,
    stacks: Vec<StackId>,
    pools: Vec<u32>,
    /// The streams that a column's numbers stand for.
    all_streams: super::Distinct<u64>,
}

/// What stands in a column where nothing is known. It is no address, and nobody allocates as much.
const UNKNOWN: u64 = u64::MAX;
const UNKNOWN_SHORT: u32 = u32::MAX;

impl Events {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Appends an event, and returns its place.
    pub fn push(&mut self, it: &Event) -> usize {
        let stream = it.stream.map_or(UNKNOWN_SHORT, |it| self.all_streams.id(it));
        self.actions.push(it.action);
        self.addresses.push(it.address.unwrap_or(UNKNOWN));
        self.sizes.push(it.size.unwrap_or(UNKNOWN));
        self.streams.push(stream);
        self.times.push(it.unix_us.unwrap_or(UNKNOWN));
        self.stacks.push(it.stack);
        self.pools.push(it.pool.unwrap_or(UNKNOWN_SHORT));
        self.actions.len() - 1
    }

    /// Returns the event at a place.
    pub fn get(&self, at: usize) -> Option<Event> {
        let known = |it: &u64| Some(*it).filter(|value| *value != UNKNOWN);
        Some(Event {
            action: *self.actions.get(at)?,
            address: known(self.addresses.get(at)?),
            size: known(self.sizes.get(at)?),
            stream: self.all_streams.get(*self.streams.get(at)?),
            unix_us: known(self.times.get(at)?),
            stack: *self.stacks.get(at)?,
            pool: Some(*self.pools.get(at)?).filter(|it| *it != UNKNOWN_SHORT),
        })
    }

    /// Returns the events of a range, in order.
    pub fn range(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = Event> {
        range.map_while(|it| self.get(it))
    }

    /// Returns the streams that events name, in the order in which they came up.
    pub fn streams(&self) -> &[u64] {
        self.all_streams.values()
    }
}
