//! Stream-ordered pools (`cudaMallocAsync`): a device's default pool grows in steps and releases memory when it is
//! trimmed, as its counters are documented; the device is charged for the pool's reserved memory.

use super::{
    abi::{Answer, Fault, In, Out, code},
    calls::{answer, in_context, ordinal, with_context},
    capture_state::Work,
    charges::STEP,
    process::{Process, current, process},
    ranges::{Kind, Range, addresses},
};
/// Pools are named by these numbers, one a device.
const FIRST_POOL: usize = 0x9001;

const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;

fn device_of(pool: usize) -> Result<usize, Fault> {
    pool.checked_sub(FIRST_POOL).ok_or(Fault::InvalidValue)
}

/// The pool that a device allocates from: always its default one.
fn pool_of(device: i32) -> Result<usize, Fault> {
    let device = ordinal(device)?;
    process().index(device)?;
    Ok(FIRST_POOL + device)
}

fn allocate(device: usize, bytes: usize, stream: usize) -> Result<usize, Fault> {
    let mut process = process();
    process.context(device)?;
    if bytes == 0 {
        return Ok(0);
    }
    if process.capture_of(stream, device)?.is_some() {
        let base = process.name_captured(device, bytes)?;
        return process.captured(stream, device, &Work::Allocate(base)).map(|_| base);
    }
    let size = bytes.checked_next_multiple_of(512).ok_or(Fault::OutOfMemory)?;
    let pool = process.pools.pools.entry(device).or_default();
    let missing = (pool.used + size as u64).saturating_sub(pool.reserved).next_multiple_of(STEP);
    process.charge(device, missing)?;
    let base = addresses(size, 512).inspect_err(|_| process.refund(device, missing))?;
    process.ranges.add(Range { base, size, device, kind: Kind::Device });
    process.pools.pieces.insert(base, (device, size));
    let pool = process.pools.pools.entry(device).or_default();
    pool.reserved += missing;
    pool.used += size as u64;
    pool.reserved_high = pool.reserved_high.max(pool.reserved);
    pool.used_high = pool.used_high.max(pool.used);
    Ok(base)
}

fn free(base: usize, stream: usize) -> Answer {
    let mut process = process();
    if process.capture_of(stream, current())?.is_some() {
        // Each launch would free it again, so only captured memory can be freed here.
        if !process.is_captured(base) {
            return Err(Fault::InvalidValue);
        }
        return process.captured(stream, current(), &Work::Free(base)).map(|_| ());
    }
    if base == 0 || give_back(&mut process, base) { Ok(()) } else { Err(Fault::InvalidValue) }
}

/// Returns an allocation to its pool; false where it came from none.
pub(super) fn give_back(process: &mut Process, base: usize) -> bool {
    let Some((device, size)) = process.pools.pieces.remove(&base) else { return process.free_captured(base) };
    process.ranges.take(base, Kind::Device);
    process.forget(base, size);
    let pool = process.pools.pools.entry(device).or_default();
    pool.used = pool.used.saturating_sub(size as u64);
    true
}

/// After a wait for the device, its pool keeps no more than what is used or its release threshold, as documented.
pub(super) fn synchronized(process: &mut Process, device: usize) {
    if let Some(pool) = process.pools.pools.get(&device)
        && pool.reserved > pool.used.max(pool.threshold)
    {
        let keep = pool.threshold;
        trim(process, device, keep);
    }
}

fn trim(process: &mut Process, device: usize, keep: u64) {
    let pool = process.pools.pools.entry(device).or_default();
    let left = pool.used.max(keep).checked_next_multiple_of(STEP).map_or(pool.reserved, |it| it.min(pool.reserved));
    let back = pool.reserved - left;
    pool.reserved = left;
    process.refund(device, back);
}

fn read(pool: usize, attribute: i32, out: Out<u64>) -> Answer {
    let device = device_of(pool)?;
    let mut process = process();
    let pool = process.pools.pools.entry(device).or_default();
    match attribute {
        RELEASE_THRESHOLD => out.put(pool.threshold),
        RESERVED => out.put(pool.reserved),
        RESERVED_HIGH => out.put(pool.reserved_high),
        USED => out.put(pool.used),
        USED_HIGH => out.put(pool.used_high),
        // The first attributes are of type int.
        1..=3 => Out::<i32>::from_address(out.address()).put(pool.flags.get(&attribute).copied().unwrap_or(1)),
        _ => return Err(Fault::InvalidValue),
    }
    Ok(())
}

fn write(pool: usize, attribute: i32, wide: In<u64>, narrow: In<i32>) -> Answer {
    let device = device_of(pool)?;
    let mut process = process();
    let pool = process.pools.pools.entry(device).or_default();
    match attribute {
        RELEASE_THRESHOLD => pool.threshold = wide.get().ok_or(Fault::InvalidValue)?,
        // The high-water marks can be reset to the current values.
        RESERVED_HIGH | USED_HIGH if wide.get() != Some(0) => return Err(Fault::InvalidValue),
        RESERVED_HIGH => pool.reserved_high = pool.reserved,
        USED_HIGH => pool.used_high = pool.used,
        1..=3 => {
            pool.flags.insert(attribute, narrow.get().ok_or(Fault::InvalidValue)?);
        }
        _ => return Err(Fault::InvalidValue),
    }
    Ok(())
}

entry_points! {
    fn cudaDeviceGetDefaultMemPool(out: Out<usize>, device: i32) -> i32 {
        answer(pool_of(device).map(|it| out.put(it)))
    }

    fn cudaMemPoolSetAccess(pool: usize, _access: usize, _count: usize) -> i32 {
        answer(device_of(pool).map(|_| ()))
    }

    fn cudaMemPoolGetAttribute(pool: usize, attribute: i32, out: Out<u64>) -> i32 {
        answer(read(pool, attribute, out))
    }

    fn cudaMemPoolSetAttribute(pool: usize, attribute: i32, value: usize) -> i32 {
        answer(write(pool, attribute, In::from_address(value), In::from_address(value)))
    }

    fn cudaMemPoolTrimTo(pool: usize, keep: usize) -> i32 {
        answer(device_of(pool).map(|device| trim(&mut process(), device, keep as u64)))
    }

    fn cudaMallocAsync(out: Out<usize>, bytes: usize, stream: usize) -> i32 {
        answer(with_context(|| allocate(current(), bytes, stream)).map(|it| out.put(it)))
    }

    fn cudaFreeAsync(at: usize, stream: usize) -> i32 {
        answer(free(at, stream))
    }

    fn cuDeviceGetDefaultMemPool(out: Out<usize>, device: i32) -> i32 {
        code(pool_of(device).map(|it| out.put(it)))
    }

    fn cuDeviceGetMemPool(out: Out<usize>, device: i32) -> i32 {
        code(pool_of(device).map(|it| out.put(it)))
    }

    fn cuMemPoolGetAttribute(pool: usize, attribute: i32, out: Out<u64>) -> i32 {
        code(read(pool, attribute, out))
    }

    fn cuMemPoolSetAttribute(pool: usize, attribute: i32, value: usize) -> i32 {
        code(write(pool, attribute, In::from_address(value), In::from_address(value)))
    }

    fn cuMemPoolTrimTo(pool: usize, keep: usize) -> i32 {
        code(device_of(pool).map(|device| trim(&mut process(), device, keep as u64)))
    }

    // Unlike the runtime's, the driver's calls make no context.
    fn cuMemAllocAsync(out: Out<usize>, bytes: usize, stream: usize) -> i32 {
        code(in_context(|| allocate(current(), bytes, stream)).map(|it| out.put(it)))
    }

    fn cuMemFreeAsync(at: usize, stream: usize) -> i32 {
        code(in_context(|| free(at, stream)))
    }
}
