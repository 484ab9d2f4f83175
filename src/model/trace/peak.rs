//! Live blocks by call stack: at the end of a trace, and at its peak.

use super::{Block, Segment, StackId, State, Trace};
use hashbrown::HashMap;

/// Live blocks that one call stack requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The call stack; the empty one if it is unknown.
    pub stack: StackId,
    /// Their bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The live blocks after one event of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The event's index in the device's trace.
    pub event: usize,
    /// Its time, in µs since 1970.
    pub unix_us: Option<u64>,
    /// Requested bytes that are live.
    pub bytes: u64,
    /// Bytes in blocks that predate the trace.
    pub older: u64,
    /// The blocks by call stack, largest first.
    pub shares: Vec<Share>,
}

impl Trace {
    /// Returns a device's live blocks by call stack, the largest share first.
    pub fn live(&self, device: u32) -> Vec<Share> {
        self.live_in(self.segments_on(device))
    }

    /// Returns the live blocks of some segments by stack, the largest share first.
    pub fn live_in<'a>(&self, segments: impl Iterator<Item = &'a Segment>) -> Vec<Share> {
        self.shares(segments.flat_map(|it| self.blocks_of(it)).filter(|it| it.state == State::Live))
    }

    /// Returns blocks by stack, the largest share first.
    pub fn shares<'a>(&self, blocks: impl Iterator<Item = &'a Block>) -> Vec<Share> {
        shares(blocks.map(|it| (it.stack, it.size)))
    }

    /// Returns the peak of a device's trace; `None` if nothing was allocated or freed.
    ///
    /// Counts requested bytes, because a trace lacks the blocks' sizes.
    pub fn peak(&self, device: u32) -> Option<Moment> {
        let history = self.history(device);
        history.moment(self, device, history.peak?)
    }

    /// Returns the live blocks after an event of a device's trace, by its place there: address, bytes asked for, stack.
    pub fn live_after(&self, device: u32, event: usize) -> Vec<(u64, u64, StackId)> {
        self.history(device).blocks(event).collect()
    }
}

/// Returns blocks by stack, the largest share first.
pub(super) fn shares(blocks: impl Iterator<Item = (StackId, u64)>) -> Vec<Share> {
    let mut sums: HashMap<StackId, Share> = HashMap::new();
    for (stack, bytes) in blocks {
        let share = sums.entry(stack).or_insert(Share { stack, ..Share::default() });
        share.bytes = share.bytes.saturating_add(bytes);
        share.blocks += 1;
    }
    let mut all: Vec<_> = sums.into_values().collect();
    all.sort_by_key(|it| (std::cmp::Reverse(it.bytes), it.stack));
    all
}
