//! Segments that the allocator holds, and the blocks in them.

use super::StackId;
use std::ops::Range;

/// The state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// In use by the program.
    Live,
    /// Freed by the program; another stream may still use it.
    Pending,
    /// Free for the next request.
    Free,
    /// A state that this release does not know.
    #[default]
    Other,
}

impl State {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Live, Self::Pending, Self::Free, Self::Other];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Pending => "pending",
            Self::Free => "free",
            Self::Other => "unknown",
        }
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
    pub state: State,
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
