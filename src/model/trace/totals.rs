//! Totals of an allocator's memory: what is live, stuck and free, and whether a request would fit.

use super::{BlockState, Segment, Trace};
use std::collections::BTreeMap;

/// Totals of a device's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of segments.
    pub segments: u64,
    /// Number of expandable segments.
    pub expandable: u64,
    /// Bytes of the segments.
    pub reserved: u64,
    /// Bytes of live blocks.
    pub allocated: u64,
    /// Bytes in blocks that the program freed and a stream may still use.
    pub pending: u64,
    /// Requested bytes of live and pending blocks; `None` if one block lacks them.
    pub requested: Option<u64>,
    /// Free bytes in segments that also have used blocks, except for expandable segments and private pools.
    pub stuck: u64,
    /// Free bytes in expandable segments that also have used blocks, outside private pools. What of it could be given
    /// back depends on the pages, which a snapshot does not have.
    pub cached: u64,
    /// Bytes of segments that are entirely free, outside private pools.
    pub releasable: u64,
    /// Free bytes in pools of CUDA graphs.
    pub graph_pools_free: u64,
    /// Free bytes in other private pools.
    pub mem_pools_free: u64,
    /// Bytes of segments of private pools.
    pub private_pools: u64,
    /// The largest free block.
    pub largest_free: u64,
}

impl Totals {
    /// Returns the totals of some segments of a trace.
    pub fn of<'a>(trace: &Trace, segments: impl IntoIterator<Item = &'a Segment>) -> Self {
        let mut sums = Self { requested: Some(0), ..Self::default() };
        for segment in segments {
            sums.add(trace, segment);
        }
        sums
    }

    /// Returns all free bytes.
    pub fn free(&self) -> u64 {
        let pools = self.graph_pools_free.saturating_add(self.mem_pools_free);
        [self.stuck, self.cached, self.releasable].into_iter().fold(pools, u64::saturating_add)
    }

    /// Returns the free bytes in used expandable segments; `None` without any such segment.
    pub fn cached_in_expandable(&self) -> Option<u64> {
        (self.expandable > 0).then_some(self.cached)
    }

    fn add(&mut self, trace: &Trace, segment: &Segment) {
        let blocks = trace.blocks_of(segment);
        let sum = |state| blocks.iter().filter(|it| it.state == state).map(|it| it.size).fold(0, u64::saturating_add);
        let (live, pending, free) = (sum(BlockState::Live), sum(BlockState::Pending), sum(BlockState::Free));
        let add = |to: &mut u64, bytes: u64| *to = to.saturating_add(bytes);
        self.segments += 1;
        self.expandable += u64::from(segment.is_expandable);
        add(&mut self.reserved, segment.size);
        add(&mut self.allocated, live);
        add(&mut self.pending, pending);
        let unused = match trace.free_in(segment) {
            Free::Stuck => &mut self.stuck,
            Free::Cached => &mut self.cached,
            Free::Releasable => &mut self.releasable,
            Free::GraphPool => &mut self.graph_pools_free,
            Free::MemPool => &mut self.mem_pools_free,
        };
        add(unused, free);
        if trace.is_private(segment) {
            add(&mut self.private_pools, segment.size);
        }
        for block in blocks {
            match block.state {
                BlockState::Free => self.largest_free = self.largest_free.max(block.size),
                _ => self.requested = self.requested.zip(block.requested).map(|(a, b)| a.saturating_add(b)),
            }
        }
    }
}

/// What can become of a segment's free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// They cannot be given back, because the segment has used blocks.
    Stuck,
    /// Pages without used blocks can be given back; a snapshot does not have the pages.
    Cached,
    /// The whole segment is free.
    Releasable,
    /// They are kept for CUDA graphs.
    GraphPool,
    /// They are kept for a pool that the program made.
    MemPool,
}

/// How an allocator would serve a request, by PyTorch's rules (`CUDACachingAllocator.cpp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// From a free block.
    Block {
        /// That block's bytes.
        size: u64,
    },
    /// From a new segment of the driver.
    Segment {
        /// The segment's bytes.
        size: u64,
        /// The largest free block, which is too small.
        largest: u64,
    },
}

const MIB: u64 = 1 << 20;

/// Requests up to this are served from small segments.
const SMALL_MAX: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
/// Requests below this are served from segments of one size.
const LARGE_MIN: u64 = 10 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
/// All other segments are rounded up to a multiple of this.
const GRANULE: u64 = 2 * MIB;
const ROUNDING: u64 = 512;

impl Trace {
    /// Returns whether a segment belongs to a private pool.
    pub fn is_private(&self, segment: &Segment) -> bool {
        segment.pool.and_then(|it| self.pools.get(it)).is_some_and(|it| it != (0, 0))
    }

    /// Returns what can become of a segment's free bytes.
    ///
    /// The id of a pool that a capture made has only the first number, that of a pool that the program made
    /// (`torch.cuda.MemPool`, `torch.cuda.graph_pool_handle`) only the second.
    pub fn free_in(&self, segment: &Segment) -> Free {
        let is_used =
            self.blocks_of(segment).iter().any(|it| matches!(it.state, BlockState::Live | BlockState::Pending));
        match segment.pool.and_then(|it| self.pools.get(it)) {
            Some((1.., 0)) => Free::GraphPool,
            Some((_, 1..)) => Free::MemPool,
            _ if !is_used => Free::Releasable,
            _ if segment.is_expandable => Free::Cached,
            _ => Free::Stuck,
        }
    }

    /// Returns the ordinals of the devices that have segments or events.
    pub fn ordinals(&self) -> Vec<u32> {
        let traced = (0..).zip(&self.devices).filter(|it| !it.1.is_empty()).map(|it| it.0);
        let mut all: Vec<u32> = self.segments.iter().filter_map(|it| it.device).chain(traced).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the segments of a device.
    pub fn segments_on(&self, device: u32) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |it| it.device == Some(device))
    }

    /// Returns the stream that has most of a device's memory.
    pub fn main_stream(&self, device: u32) -> Option<u64> {
        let mut sums = BTreeMap::new();
        for it in self.segments_on(device) {
            let sum: &mut u64 = sums.entry(it.stream).or_default();
            *sum = sum.saturating_add(it.size);
        }
        // If several are equal, take the first, which is usually the default stream.
        sums.into_iter().rev().max_by_key(|it| it.1).map(|it| it.0)
    }

    /// Returns how the allocator would serve a request on a stream, outside private pools. `largest_split` is the
    /// setting `max_split_size`, if set.
    pub fn fit(&self, device: u32, stream: u64, bytes: u64, largest_split: Option<u64>) -> Fit {
        let bytes = bytes.max(1).checked_next_multiple_of(ROUNDING).unwrap_or(u64::MAX);
        let is_small = bytes <= SMALL_MAX;
        let split = largest_split.unwrap_or(u64::MAX);
        // A block that must not be split cannot serve a request that would split it, nor one that would waste a
        // segment.
        let serves = |block: u64| {
            block >= bytes
                && (is_small || if bytes < split { block < split } else { block < bytes.saturating_add(LARGE_SEGMENT) })
        };
        let pool = self.segments_on(device);
        let pool = pool.filter(|it| it.stream == stream && it.is_small == is_small && !self.is_private(it));
        let free = pool.flat_map(|it| self.blocks_of(it)).filter(|it| it.state == BlockState::Free).map(|it| it.size);
        let (mut best, mut largest) = (None, 0);
        for block in free {
            largest = largest.max(block);
            if serves(block) {
                best = Some(best.map_or(block, |it: u64| it.min(block)));
            }
        }
        let size = match bytes {
            _ if is_small => SMALL_SEGMENT,
            0..LARGE_MIN => LARGE_SEGMENT,
            _ => bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX),
        };
        best.map_or(Fit::Segment { size, largest }, |size| Fit::Block { size })
    }
}
