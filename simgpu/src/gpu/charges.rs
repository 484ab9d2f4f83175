//! A process's device memory besides plain allocations: pools, the memory of graphs, mapped pieces.

use super::abi::Fault;
use std::collections::{BTreeMap, HashMap};

/// Bytes by which a pool grows and shrinks.
pub(super) const STEP: u64 = 32 << 20;

#[derive(Default)]
pub(super) struct Pool {
    pub(super) used: u64,
    pub(super) used_high: u64,
    pub(super) reserved: u64,
    pub(super) reserved_high: u64,
    pub(super) threshold: u64,
    pub(super) flags: BTreeMap<i32, i32>,
}

#[derive(Default)]
pub(super) struct Pools {
    pub(super) pools: BTreeMap<usize, Pool>,
    /// The allocations by address: device and bytes.
    pub(super) pieces: HashMap<usize, (usize, usize)>,
}

/// One captured allocation.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) device: usize,
    pub(super) size: u64,
    /// A launch took it, and nothing has freed it since.
    pub(super) taken: bool,
}

/// Bytes of one device.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) used: u64,
    pub(super) used_high: u64,
    pub(super) reserved: u64,
    pub(super) reserved_high: u64,
}

#[derive(Default)]
pub(super) struct GraphMemory {
    /// By address. An address is never another's: a program may hold on to it for as long as it likes.
    pub(super) pieces: HashMap<usize, Piece>,
    pub(super) devices: BTreeMap<usize, Figures>,
}

pub(super) struct Physical {
    pub(super) size: usize,
    pub(super) device: usize,
    pub(super) references: usize,
}

#[derive(Default)]
pub(super) struct Mappings {
    pub(super) physical: HashMap<usize, Physical>,
    /// The mappings of each piece of physical memory: address, handle.
    pub(super) mapped: BTreeMap<usize, usize>,
}

impl Mappings {
    /// Drops one reference; what the last one held is the caller's to refund.
    pub(super) fn release(&mut self, handle: usize) -> Result<Option<Physical>, Fault> {
        let physical = self.physical.get_mut(&handle).ok_or(Fault::InvalidValue)?;
        physical.references -= 1;
        Ok(if physical.references == 0 { self.physical.remove(&handle) } else { None })
    }

    fn size_of(&self, handle: usize) -> usize {
        self.physical.get(&handle).map_or(0, |it| it.size)
    }

    /// Whether anything is mapped within these addresses.
    pub(super) fn overlap(&self, at: usize, end: usize) -> bool {
        self.mapped.range(..end).next_back().is_some_and(|(it, handle)| it + self.size_of(*handle) > at)
    }

    /// The pieces that cover these addresses, if they do so without a gap and none reaches out of them.
    pub(super) fn whole(&self, at: usize, size: usize) -> Option<Vec<(usize, usize)>> {
        let end = at.checked_add(size)?;
        let pieces: Vec<(usize, usize)> = self.mapped.range(at..end).map(|(at, it)| (*at, *it)).collect();
        let reached = pieces.iter().try_fold(at, |to, (it, handle)| (*it == to).then(|| to + self.size_of(*handle)));
        (size > 0 && reached == Some(end)).then_some(pieces)
    }
}
