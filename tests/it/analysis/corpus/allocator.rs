//! The figures of PyTorch's caching allocator: what requests of any size make of its counters.
//!
//! Sizes are rounded to 512 bytes. Requests up to 1 MiB come out of segments of 2 MiB, those up to 10 MiB out of
//! segments of 20 MiB, larger ones have a segment of their own, rounded to 2 MiB. The smallest free block that is large
//! enough is taken and split; what is freed is merged with its neighbours and never given back.

use gpuwatch::facts::event::wire::Counters;
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// A live block, by its segment and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle(usize, u64);

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    /// Bytes asked for; `None` where it is free.
    requested: Option<u64>,
}

/// A device's memory as PyTorch deals it out.
#[derive(Clone, Debug, Default)]
pub(super) struct Allocator {
    segments: Vec<u64>,
    blocks: BTreeMap<(usize, u64), Block>,
    /// Free blocks of the small and of the large pool, by size.
    free: [BTreeSet<(u64, usize, u64)>; 2],
    requested: u64,
    allocated: u64,
    live: u64,
    peak: u64,
    split: u64,
}

impl Allocator {
    pub(super) fn take(&mut self, bytes: u64) -> Handle {
        let size = bytes.max(1).next_multiple_of(512);
        let pool = usize::from(size > MIB);
        let place = self.free[pool].range((size, 0, 0)..).next().copied();
        let (whole, segment, at) = place.unwrap_or_else(|| self.segment(pool, size));
        self.release(pool, (whole, segment, at));
        let rest = whole - size;
        let cut = if pool == 0 { rest >= 512 } else { rest > MIB };
        let size = if cut { size } else { whole };
        if cut {
            self.offer(pool, (rest, segment, at + size));
        }
        self.blocks.insert((segment, at), Block { size, requested: Some(bytes) });
        self.requested += bytes;
        self.allocated += size;
        self.live += 1;
        self.peak = self.peak.max(self.allocated);
        Handle(segment, at)
    }

    pub(super) fn give(&mut self, Handle(segment, mut at): Handle) {
        let block = self.blocks.remove(&(segment, at)).expect("a live block");
        let pool = usize::from(self.segments[segment] != 2 * MIB);
        self.requested -= block.requested.expect("a live block");
        self.allocated -= block.size;
        self.live -= 1;
        let mut size = block.size;
        let is_free = |it: &Block| it.requested.is_none();
        if let Some(next) = self.blocks.get(&(segment, at + size)).copied().filter(is_free) {
            self.release(pool, (next.size, segment, at + size));
            size += next.size;
        }
        let before = self.blocks.range((segment, 0)..(segment, at)).next_back().map(|(key, it)| (key.1, *it));
        if let Some((place, it)) = before.filter(|it| is_free(&it.1)) {
            self.release(pool, (it.size, segment, place));
            (at, size) = (place, size + it.size);
        }
        self.offer(pool, (size, segment, at));
    }

    /// Returns its counters as a sample has them.
    pub(super) fn counters(&self) -> Counters {
        Counters {
            requested: Some(self.requested),
            allocated: Some(self.allocated),
            active: Some(self.allocated),
            inactive_split: Some(self.split),
            reserved: Some(self.segments.iter().sum()),
            allocated_peak: Some(self.peak),
            blocks: Some(self.live),
            segments: Some(self.segments.len() as u64),
            device_allocs: Some(self.segments.len() as u64),
            device_frees: Some(0),
            ..Counters::default()
        }
    }

    /// A new segment, as one free block.
    fn segment(&mut self, pool: usize, size: u64) -> (u64, usize, u64) {
        let whole = match pool {
            0 => 2 * MIB,
            _ if size < 10 * MIB => 20 * MIB,
            _ => size.next_multiple_of(2 * MIB),
        };
        self.segments.push(whole);
        let block = (whole, self.segments.len() - 1, 0);
        self.offer(pool, block);
        block
    }

    fn offer(&mut self, pool: usize, (size, segment, at): (u64, usize, u64)) {
        self.free[pool].insert((size, segment, at));
        self.blocks.insert((segment, at), Block { size, requested: None });
        self.split += if size == self.segments[segment] { 0 } else { size };
    }

    fn release(&mut self, pool: usize, (size, segment, at): (u64, usize, u64)) {
        self.free[pool].remove(&(size, segment, at));
        self.blocks.remove(&(segment, at));
        self.split -= if size == self.segments[segment] { 0 } else { size };
    }
}
