//! Events as columns: about 37 bytes each.

use super::StackId;

/// An action of the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It allocated a block.
    Alloc,
    /// The program freed a block that a stream may still use.
    FreeRequested,
    /// It reclaimed the block.
    FreeCompleted,
    /// It allocated a segment from the driver.
    SegmentAlloc,
    /// It released a segment to the driver.
    SegmentFree,
    /// It mapped memory in an expandable segment.
    SegmentMap,
    /// It unmapped memory of an expandable segment.
    SegmentUnmap,
    /// It failed to allocate a block.
    Oom,
    /// The program requested a snapshot.
    Snapshot,
    /// The program added an annotation.
    Annotate,
    /// An action that this release does not know.
    #[default]
    Other,
}

impl Action {
    /// Every action with PyTorch's name for it.
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
        // Releases before 2.0 have only one kind of free.
        ("free", Self::FreeCompleted),
    ];
}

/// One event; a field is `None` where the trace lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The action.
    pub action: Action,
    /// The address; for an out-of-memory error, the free bytes on the device.
    pub address: Option<u64>,
    /// Bytes: the requested ones for a block (before rounding), or the segment's.
    pub size: Option<u64>,
    /// The stream, as the driver's pointer.
    pub stream: Option<u64>,
    /// µs since 1970.
    pub unix_us: Option<u64>,
    /// The call stack that requested it.
    pub stack: StackId,
    /// The pool's index in the trace; `None` where the trace has no pools.
    pub pool: Option<u32>,
}

/// Events stored column by column.
#[derive(Clone, Debug, Default)]
pub struct Events {
    actions: Vec<Action>,
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    streams: Vec<u32>,
    times: Vec<u64>,
    stacks: Vec<StackId>,
    pools: Vec<u32>,
    /// The streams that the column's numbers refer to.
    all_streams: super::Distinct<u64>,
}

/// Marks an unknown value in a column. It is neither a valid address nor a possible size.
const UNKNOWN: u64 = u64::MAX;
const UNKNOWN_SHORT: u32 = u32::MAX;

impl Events {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Appends an event and returns its index.
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

    /// Returns the event at an index.
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

    /// Returns the actions of a range of events, in order.
    pub fn actions(&self, range: std::ops::Range<usize>) -> &[Action] {
        self.actions.get(range).unwrap_or_default()
    }

    /// Returns the streams of all events, in order of first use.
    pub fn streams(&self) -> &[u64] {
        self.all_streams.values()
    }
}
