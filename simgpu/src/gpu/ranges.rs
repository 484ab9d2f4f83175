//! The address ranges of device memory and of pinned host memory, with the size of each allocation.

use super::{abi::Fault, sys};
use std::collections::BTreeMap;

/// The driver hands large allocations out in pieces of this many bytes.
pub(super) const GRANULE: usize = 2 << 20;

/// Addresses for device memory.
pub(super) fn addresses(size: usize, align: usize) -> Result<usize, Fault> {
    sys::map_nothing(size, align).or(Err(Fault::OutOfMemory))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    /// Reserved addresses, to which device memory is mapped.
    Reserved,
    /// Another process's device memory.
    Imported,
    Host,
    /// Host memory that the program allocated and then registered.
    Registered,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) base: usize,
    /// Bytes, as charged.
    pub(super) size: usize,
    pub(super) device: usize,
    pub(super) kind: Kind,
}

impl Range {
    pub(super) fn on_device(&self) -> bool {
        matches!(self.kind, Kind::Device | Kind::Reserved | Kind::Imported)
    }
}

#[derive(Default)]
pub(super) struct Ranges(BTreeMap<usize, Range>);

impl Ranges {
    pub(super) fn add(&mut self, range: Range) {
        self.0.insert(range.base, range);
    }

    /// The range that an address lies in.
    pub(super) fn find(&self, address: usize) -> Option<Range> {
        let (_, range) = self.0.range(..=address).next_back()?;
        (address - range.base < range.size).then_some(*range)
    }

    /// Removes the range that begins exactly there.
    pub(super) fn take(&mut self, base: usize, kind: Kind) -> Option<Range> {
        self.0.get(&base).filter(|it| it.kind == kind)?;
        self.0.remove(&base)
    }

    /// Pinned host memory.
    pub(super) fn pinned(&self) -> impl Iterator<Item = &Range> {
        self.0.values().filter(|it| matches!(it.kind, Kind::Host | Kind::Registered))
    }

    pub(super) fn on_device(&self, address: usize) -> bool {
        self.find(address).is_some_and(|it| it.on_device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_range_around_it() {
        let mut ranges = Ranges::default();
        ranges.add(Range { base: 0x1000, size: 0x100, device: 1, kind: Kind::Device });
        ranges.add(Range { base: 0x2000, size: 0x100, device: 0, kind: Kind::Host });
        assert_eq!(ranges.find(0x10ff).map(|it| it.device), Some(1));
        assert!(ranges.find(0x1100).is_none() && ranges.find(0xfff).is_none());
        assert!(ranges.on_device(0x1000) && !ranges.on_device(0x2000));
        assert!(ranges.take(0x2000, Kind::Device).is_none(), "pinned memory is no device's");
        assert!(ranges.take(0x1001, Kind::Device).is_none(), "not where it begins");
        assert!(ranges.take(0x1000, Kind::Device).is_some() && ranges.find(0x1000).is_none());
    }
}
