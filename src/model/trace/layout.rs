//! Segments that the allocator holds, and the blocks in them.

use super::StackId;
use std::ops::Range;

/// What became of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The program has it.
    Live,
    /// The program gave it back; another stream may still use it.
    Pending,
    /// It can be given to the next who asks.
    Free,
    /// A state that this release has no name for.
    #[default]
    Other,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// The bytes that were asked for.
    pub requested: Option<u64>,
    /// Whose it is.
    pub state: State,
    /// Who asked for it.
    pub stack: StackId,
}

/// A piece of memory that the allocator has from the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The device's ordinal; `None` of pinned host memory.
    pub device: Option<u32>,
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes in live blocks, as the allocator counts them.
    pub allocated: Option<u64>,
    /// Bytes in live and pending blocks, as the allocator counts them.
    pub active: Option<u64>,
    /// Bytes that were asked for in live blocks.
    pub requested: Option<u64>,
    /// The stream that it serves.
    pub stream: u64,
    /// Whether it serves small requests (up to 1 MiB).
    pub is_small: bool,
    /// Whether memory can be mapped to its end.
    pub is_expandable: bool,
    /// Its pool, by its place among the trace's; `None` where pools are not told.
    pub pool: Option<u32>,
    /// Who asked for what it was taken for.
    pub stack: StackId,
    /// Its blocks, by their places among the trace's.
    pub blocks: Range<u32>,
}
