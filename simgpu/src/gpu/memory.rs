//! Allocation: device memory is addresses of its own, charged to the device; `contents` has what is stored
//! there.

use super::{
    abi::{Answer, Fault},
    pools,
    process::{Process, process},
    ranges::{GRANULE, Kind, Range, addresses},
    sys,
};

const LARGE: usize = 1 << 20;
const SMALL_GRANULE: usize = 512;

impl Process {
    /// Memory of a device; nothing at all for no bytes.
    pub(super) fn allocate(&mut self, device: usize, bytes: usize) -> Result<usize, Fault> {
        if bytes == 0 {
            return Ok(0);
        }
        let is_large = bytes >= LARGE;
        let granule = if is_large { GRANULE } else { SMALL_GRANULE };
        let size = bytes.checked_next_multiple_of(granule).ok_or(Fault::OutOfMemory)?;
        self.charge(device, size as u64)?;
        let chunks = self.chunks.entry(device).or_default();
        let placed = if is_large { chunks.place(size) } else { addresses(size, granule) };
        let base = placed.inspect_err(|_| self.refund(device, size as u64))?;
        self.ranges.add(Range { base, size, device, kind: Kind::Device });
        Ok(base)
    }

    pub(super) fn free(&mut self, base: usize) -> Answer {
        if base == 0 {
            return Ok(());
        }
        // A program may free memory of a stream-ordered pool this way too.
        if pools::give_back(self, base) {
            return Ok(());
        }
        let range = self.ranges.take(base, Kind::Device).ok_or(Fault::InvalidValue)?;
        self.refund(range.device, range.size as u64);
        self.contents.zero(range.base, range.size);
        let chunks = self.chunks.get_mut(&range.device);
        if !chunks.is_some_and(|it| it.vacate(range.base, range.size)) {
            sys::unmap(range.base, range.size);
        }
        Ok(())
    }

    pub(super) fn allocate_host(&mut self, bytes: usize) -> Result<usize, Fault> {
        let base = sys::map_anonymous(bytes.max(1)).or(Err(Fault::OutOfMemory))?;
        self.ranges.add(Range { base, size: bytes.max(1), device: super::process::current(), kind: Kind::Host });
        Ok(base)
    }

    pub(super) fn free_host(&mut self, base: usize) -> Answer {
        if base == 0 {
            return Ok(());
        }
        let range = self.ranges.take(base, Kind::Host).ok_or(Fault::InvalidValue)?;
        sys::unmap(range.base, range.size);
        Ok(())
    }

    pub(super) fn register_host(&mut self, base: usize, size: usize) -> Answer {
        if base == 0 || size == 0 {
            return Err(Fault::InvalidValue);
        }
        self.ranges.add(Range { base, size, device: super::process::current(), kind: Kind::Registered });
        Ok(())
    }

    pub(super) fn unregister_host(&mut self, base: usize) -> Answer {
        self.ranges.take(base, Kind::Registered).map(|_| ()).ok_or(Fault::InvalidValue)
    }
}

entry_points! {
    // Bytes of pinned memory that this machine has not given yet: on a real one, all of it is resident.
    fn simgpu_pinned_beyond() -> u64 {
        let process = process();
        let pinned = process.ranges.pinned();
        pinned.map(|it| it.size.saturating_sub(sys::resident(it.base, it.size)) as u64).sum()
    }
}
