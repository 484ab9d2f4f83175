//! Where a device's memory lies: as NVIDIA's driver places it, by the segments' addresses in memory snapshots that
//! programs recorded on real GPUs. Of two free blocks of the same size, PyTorch 2.6 takes the lower one, so the order
//! of addresses decides how memory falls into pieces.
//!
//! The driver reserves addresses in chunks of whole 32 MiB, which begin at multiples of as much; the kernel gives
//! each at the highest place, mostly below the one before. An allocation goes to the lowest free place in them where
//! it has room, else into a new one. A chunk in which nothing is left is given back.

use super::{abi::Fault, ranges::addresses, sys};
use std::collections::BTreeMap;

const CHUNK: usize = 32 << 20;

/// The chunks of one device.
#[derive(Default)]
pub(super) struct Chunks {
    /// Bytes of each chunk, by its address.
    reserved: BTreeMap<usize, usize>,
    /// Bytes of each free place, by its address. None reaches from one chunk into the next.
    free: BTreeMap<usize, usize>,
}

impl Chunks {
    /// Returns an address for so many bytes, of which nothing else makes use.
    pub(super) fn place(&mut self, size: usize) -> Result<usize, Fault> {
        let fitting = self.free.iter().find(|(_, capacity)| **capacity >= size).map(|(at, capacity)| (*at, *capacity));
        let (at, capacity) = fitting.map_or_else(|| self.reserve(size), Ok)?;
        self.free.remove(&at);
        if capacity > size {
            self.free.insert(at + size, capacity - size);
        }
        Ok(at)
    }

    /// Reserves a chunk for so many bytes.
    fn reserve(&mut self, size: usize) -> Result<(usize, usize), Fault> {
        let capacity = size.checked_next_multiple_of(CHUNK).ok_or(Fault::OutOfMemory)?;
        let at = addresses(capacity, CHUNK)?;
        self.reserved.insert(at, capacity);
        Ok((at, capacity))
    }

    /// Takes back what was placed at an address; false if that is in none of the chunks.
    pub(super) fn vacate(&mut self, mut at: usize, mut size: usize) -> bool {
        let Some((&begin, &len)) = self.reserved.range(..=at).next_back().filter(|(it, len)| at - **it < **len) else {
            return false;
        };
        if let Some((&before, &capacity)) =
            self.free.range(begin..at).next_back().filter(|(it, capacity)| **it + **capacity == at)
        {
            self.free.remove(&before);
            (at, size) = (before, size + capacity);
        }
        if at + size < begin + len
            && let Some(capacity) = self.free.remove(&(at + size))
        {
            size += capacity;
        }
        if size == len {
            self.reserved.remove(&begin);
            sys::unmap(begin, len);
        } else {
            self.free.insert(at, size);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_lowest_place_with_room_is_taken_before_another_chunk_is() {
        let mut chunks = Chunks::default();
        let large = chunks.place(50 * MIB).unwrap();
        assert!(large.is_multiple_of(CHUNK));
        let tail = chunks.place(10 * MIB).unwrap();
        assert_eq!(tail, large + 50 * MIB, "the chunk has 64 MiB");
        let other = chunks.place(20 * MIB).unwrap();
        assert_eq!(chunks.reserved.len(), 2, "4 MiB are too few");
        assert_eq!(chunks.place(4 * MIB).unwrap(), (tail + 10 * MIB).min(other + 20 * MIB));
    }

    #[test]
    fn free_places_grow_together_and_an_empty_chunk_is_given_back() {
        let mut chunks = Chunks::default();
        let places: Vec<usize> = [10, 6, 8, 8].map(|it| chunks.place(it * MIB).unwrap()).into();
        assert_eq!((chunks.reserved.len(), chunks.free.len()), (1, 0));
        assert!(chunks.vacate(places[0], 10 * MIB) && chunks.vacate(places[2], 8 * MIB));
        assert_eq!(chunks.free.len(), 2);
        assert!(!chunks.vacate(places[0] + CHUNK, MIB) && !chunks.vacate(1, MIB), "memory that lies elsewhere");
        chunks.vacate(places[1], 6 * MIB);
        assert_eq!(chunks.free, BTreeMap::from([(places[0], 24 * MIB)]));
        assert_eq!(chunks.place(24 * MIB).unwrap(), places[0]);
        chunks.vacate(places[3], 8 * MIB);
        chunks.vacate(places[0], 24 * MIB);
        assert!(chunks.reserved.is_empty() && chunks.free.is_empty());
    }
}
