//! Virtual memory management: addresses are reserved for nothing, physical memory is charged when it is made and given
//! back with its last reference. Expandable segments of PyTorch's allocator live on it.

use super::{
    abi::{Answer, Fault, In, Out, code},
    charges::Physical,
    process::{current, process},
    ranges::{GRANULE, Kind, Range, addresses},
};
/// The documented beginning of `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location: i32,
}

const LOCATION_DEVICE: i32 = 1;

fn reserve(size: usize, align: usize) -> Result<usize, Fault> {
    let base = addresses(size, align.max(GRANULE))?;
    process().ranges.add(Range { base, size, device: current(), kind: Kind::Reserved });
    Ok(base)
}

fn create(size: usize, properties: Properties) -> Result<usize, Fault> {
    let device = usize::try_from(properties.location).or(Err(Fault::InvalidDevice))?;
    if properties.location_kind != LOCATION_DEVICE {
        return Err(Fault::NotSupported);
    }
    if size == 0 || !size.is_multiple_of(GRANULE) {
        return Err(Fault::InvalidValue);
    }
    let mut process = process();
    process.charge(device, size as u64)?;
    let handle = process.queues.handle();
    process.mappings.physical.insert(handle, Physical { size, device, references: 1 });
    Ok(handle)
}

fn release(handle: usize) -> Answer {
    let mut process = process();
    if let Some(last) = process.mappings.release(handle)? {
        process.refund(last.device, last.size as u64);
    }
    Ok(())
}

fn map(at: usize, size: usize, offset: usize, handle: usize) -> Answer {
    let mut process = process();
    let capacity = process.ranges.find(at).filter(|it| it.kind == Kind::Reserved).ok_or(Fault::InvalidValue)?;
    let end = at.checked_add(size).filter(|it| *it <= capacity.base + capacity.size).ok_or(Fault::InvalidValue)?;
    if process.mappings.overlap(at, end) {
        return Err(Fault::InvalidValue);
    }
    let mappings = &mut process.mappings;
    // Only whole pieces can be mapped, as on the real driver.
    let piece = mappings.physical.get_mut(&handle).filter(|it| it.size == size && offset == 0);
    piece.ok_or(Fault::InvalidValue)?.references += 1;
    mappings.mapped.insert(at, handle);
    Ok(())
}

fn unmap(at: usize, size: usize) -> Answer {
    let mut process = process();
    let gone = process.mappings.whole(at, size).ok_or(Fault::InvalidValue)?;
    for (at, handle) in gone {
        process.mappings.mapped.remove(&at);
        if let Some(last) = process.mappings.release(handle)? {
            process.refund(last.device, last.size as u64);
        }
    }
    process.contents.zero(at, size);
    Ok(())
}

/// Gives addresses back: exactly those that were reserved, and with nothing mapped to them any more.
fn free_addresses(at: usize, size: usize) -> Answer {
    let mut process = process();
    let range = process.ranges.find(at).filter(|it| it.base == at && it.size == size).ok_or(Fault::InvalidValue)?;
    if process.mappings.overlap(at, at + size) {
        return Err(Fault::InvalidValue);
    }
    process.ranges.take(at, Kind::Reserved).ok_or(Fault::InvalidValue)?;
    process.forget(range.base, range.size);
    Ok(())
}

fn retain(address: usize) -> Result<usize, Fault> {
    let mut process = process();
    let mappings = &mut process.mappings;
    let (at, handle) =
        mappings.mapped.range(..=address).next_back().map(|(at, it)| (*at, *it)).ok_or(Fault::InvalidValue)?;
    let physical = mappings.physical.get_mut(&handle).filter(|it| address - at < it.size).ok_or(Fault::InvalidValue)?;
    physical.references += 1;
    Ok(handle)
}

entry_points! {
    fn cuMemGetAllocationGranularity(out: Out<usize>, _properties: usize, _option: i32) -> i32 {
        out.put(GRANULE);
        0
    }

    fn cuMemAddressReserve(out: Out<usize>, size: usize, align: usize, _wanted: usize, _flags: u64) -> i32 {
        code(reserve(size, align).map(|it| out.put(it)))
    }

    fn cuMemAddressFree(at: usize, size: usize) -> i32 {
        code(free_addresses(at, size))
    }

    fn cuMemCreate(out: Out<usize>, size: usize, properties: In<Properties>, _flags: u64) -> i32 {
        let made = properties.get().ok_or(Fault::InvalidValue).and_then(|it| create(size, it));
        code(made.map(|it| out.put(it)))
    }

    fn cuMemRelease(handle: usize) -> i32 {
        code(release(handle))
    }

    fn cuMemMap(at: usize, size: usize, offset: usize, handle: usize, _flags: u64) -> i32 {
        code(map(at, size, offset, handle))
    }

    fn cuMemUnmap(at: usize, size: usize) -> i32 {
        code(unmap(at, size))
    }

    fn cuMemSetAccess(at: usize, size: usize, _access: usize, _count: usize) -> i32 {
        code(process().mappings.whole(at, size).map(|_| ()).ok_or(Fault::InvalidValue))
    }

    fn cuMemRetainAllocationHandle(out: Out<usize>, at: usize) -> i32 {
        code(retain(at).map(|it| out.put(it)))
    }
}
