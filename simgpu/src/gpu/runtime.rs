//! The CUDA runtime: devices, errors, memory and copies.

use super::{
    abi::{Fault, In, Out},
    calls::{answer, last_error, memory_info, ordinal, take_last_error, with_context},
    capture,
    capture_state::Work,
    copies,
    faults::words,
    model::attribute,
    pools,
    process::{current, process, set_current},
    queues, sys,
    wheel::Wheel,
};
use std::{ffi::c_char, sync::Once};

/// Work that may be unsafe while streams capture, as what takes effect at once is.
fn permitted<R>(work: impl FnOnce() -> Result<R, Fault>) -> Result<R, Fault> {
    with_context(|| {
        process().permit()?;
        work()
    })
}

entry_points! {
    fn cudaGetDeviceCount(out: Out<i32>) -> i32 {
        // The runtime loads the driver, because other code in the process searches the loaded libraries for it. Load it
        // without any lock, because loading waits for other threads that load.
        static DRIVER: Once = Once::new();
        DRIVER.call_once(|| sys::load(c"libcuda.so.1"));
        answer(process().device_count().and_then(|it| {
            out.put(i32::try_from(it).unwrap_or(0));
            if it == 0 { Err(Fault::NoDevice) } else { Ok(()) }
        }))
    }

    fn cudaGetDevice(out: Out<i32>) -> i32 {
        out.put(i32::try_from(current()).unwrap_or(0));
        0
    }

    fn cudaSetDevice(device: i32) -> i32 {
        answer(ordinal(device).and_then(|device| {
            process().context(device)?;
            set_current(device);
            Ok(())
        }))
    }

    fn cudaDeviceSynchronize() -> i32 {
        answer(with_context(|| {
            process().permit_device(current())?;
            let until = process().queues.device_busy_until(current());
            queues::wait(until);
            pools::synchronized(&mut process(), current());
            Ok(())
        }))
    }

    fn cudaDriverGetVersion(out: Out<i32>) -> i32 {
        out.put(Wheel::here().runtime);
        0
    }

    fn cudaRuntimeGetVersion(out: Out<i32>) -> i32 {
        out.put(Wheel::here().runtime);
        0
    }

    fn cudaDeviceGetAttribute(out: Out<i32>, number: i32, device: i32) -> i32 {
        answer(ordinal(device).and_then(|device| {
            let mut process = process();
            let index = process.index(device)?;
            out.put(process.card(device, |it| attribute(it, index, number))?);
            Ok(())
        }))
    }

    fn cudaDeviceGetPCIBusId(out: Out<c_char>, capacity: i32, device: i32) -> i32 {
        answer(ordinal(device).and_then(|device| {
            let index = process().index(device)?;
            out.put_text(&format!("0000:{:02X}:00.0", index + 1), usize::try_from(capacity).unwrap_or(0));
            Ok(())
        }))
    }

    fn cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> i32 {
        least.put(0);
        greatest.put(-5);
        0
    }

    fn cudaDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) -> i32 {
        out.put(i32::from(device != peer));
        0
    }

    fn cudaDeviceEnablePeerAccess(_peer: i32, _flags: u32) -> i32 {
        0
    }

    fn cudaGetErrorName(error: i32) -> *const c_char {
        words(error).map_or(c"cudaErrorUnknown", |it| it.runtime).as_ptr()
    }

    fn cudaGetErrorString(error: i32) -> *const c_char {
        words(error).map_or(c"unknown error", |it| it.text).as_ptr()
    }

    fn cudaGetLastError() -> i32 {
        take_last_error()
    }

    fn cudaPeekAtLastError() -> i32 {
        last_error()
    }

    fn cudaMalloc(out: Out<usize>, bytes: usize) -> i32 {
        answer(permitted(|| process().allocate(current(), bytes)).map(|it| out.put(it)))
    }

    fn cudaFree(at: usize) -> i32 {
        answer(permitted(|| {
            let until = if at == 0 { None } else { process().queues.device_busy_until(current()) };
            // The device's free waits for the work before it.
            if until.is_some() {
                queues::wait(until);
            }
            process().free(at)
        }))
    }

    fn cudaHostAlloc(out: Out<usize>, bytes: usize, _flags: u32) -> i32 {
        answer(permitted(|| process().allocate_host(bytes)).map(|it| out.put(it)))
    }

    fn cudaMallocHost(out: Out<usize>, bytes: usize) -> i32 {
        answer(permitted(|| process().allocate_host(bytes)).map(|it| out.put(it)))
    }

    fn cudaFreeHost(at: usize) -> i32 {
        answer(permitted(|| process().free_host(at)))
    }

    fn cudaHostRegister(at: usize, bytes: usize, _flags: u32) -> i32 {
        answer(permitted(|| process().register_host(at, bytes)))
    }

    fn cudaHostUnregister(at: usize) -> i32 {
        answer(permitted(|| process().unregister_host(at)))
    }

    fn cudaHostGetDevicePointer(out: Out<usize>, host: usize, _flags: u32) -> i32 {
        out.put(host);
        0
    }

    fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) -> i32 {
        answer(with_context(|| memory_info(current(), free, total)))
    }

    fn cudaPointerGetAttributes(out: usize, address: usize) -> i32 {
        if Wheel::here().is_cuda_12() {
            Out::from_address(out).put(pointer::<0>(address));
        } else {
            Out::from_address(out).put(pointer::<8>(address));
        }
        0
    }

    fn cudaMemcpy(to: usize, from: usize, bytes: usize, _kind: i32) -> i32 {
        answer(permitted(|| {
            let until = process().queues.device_busy_until(current());
            if until.is_some() {
                queues::wait(until);
            }
            copies::copy(to, from, bytes);
            Ok(())
        }))
    }

    fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, _kind: i32, stream: usize) -> i32 {
        answer(capture::submit(stream, Work::act(move || copies::copy(to, from, bytes))))
    }

    fn cudaMemcpyPeerAsync(to: usize, _onto: i32, from: usize, _off: i32, bytes: usize, stream: usize) -> i32 {
        answer(capture::submit(stream, Work::act(move || copies::copy(to, from, bytes))))
    }

    fn cudaMemcpy2DAsync(
        to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, _kind: i32,
        stream: usize,
    ) -> i32 {
        answer(capture::submit(stream, Work::act(move || {
            for row in 0..height {
                copies::copy(to + row * to_pitch, from + row * from_pitch, width);
            }
        })))
    }

    fn cudaMemcpyToSymbol(_symbol: usize, _from: usize, _bytes: usize, _offset: usize, _kind: i32) -> i32 {
        answer(permitted(|| Ok(())))
    }

    fn cudaMemset(at: usize, byte: i32, bytes: usize) -> i32 {
        answer(permitted(|| { copies::fill(at, byte.to_le_bytes()[0], bytes); Ok(()) }))
    }

    fn cudaMemsetAsync(at: usize, byte: i32, bytes: usize, stream: usize) -> i32 {
        answer(capture::submit(stream, Work::act(move || copies::fill(at, byte.to_le_bytes()[0], bytes))))
    }

    fn cudaGetDriverEntryPointByVersion(
        name: In<c_char>, out: Out<usize>, _version: u32, _flags: u64, found: Out<i32>,
    ) -> i32 {
        entry_point(name, out, found)
    }

    fn cudaGetDriverEntryPoint(name: In<c_char>, out: Out<usize>, _flags: u64, found: Out<i32>) -> i32 {
        entry_point(name, out, found)
    }
}

/// The address of a driver function: its newest version that is simulated, or that answers with an error.
fn driver_function(name: &str) -> Option<usize> {
    let versions = [format!("{name}_v2"), name.to_owned()];
    versions.iter().find_map(|it| sys::loaded_symbol(c"libcuda.so.1", it)).map(|it| it as usize)
}

fn entry_point(name: In<c_char>, out: Out<usize>, found: Out<i32>) -> i32 {
    let at = name.text().and_then(|it| driver_function(&it));
    out.put(at.unwrap_or(0));
    found.put(i32::from(at.is_none()));
    0
}

/// `cudaPointerAttributes`, which has eight words to spare since CUDA 13.
#[repr(C)]
struct Pointer<const SPARE: usize> {
    kind: i32,
    device: i32,
    on_device: usize,
    on_host: usize,
    spare: [u64; SPARE],
}

const POINTER_NONE: i32 = 0;
const POINTER_HOST: i32 = 1;
const POINTER_DEVICE: i32 = 2;
const NO_DEVICE: i32 = -2;

fn pointer<const SPARE: usize>(address: usize) -> Pointer<SPARE> {
    let spare = [0; SPARE];
    let Some(range) = process().ranges.find(address) else {
        return Pointer { kind: POINTER_NONE, device: NO_DEVICE, on_device: 0, on_host: address, spare };
    };
    let (kind, on_host) = if range.on_device() { (POINTER_DEVICE, 0) } else { (POINTER_HOST, address) };
    let device = i32::try_from(range.device).unwrap_or(0);
    Pointer { kind, device, on_device: address, on_host, spare }
}
