//! The driver API: devices, contexts, memory, modules whose code never runs.

use super::{
    abi::{Answer, Fault, In, Out, code},
    calls::{FIRST_CONTEXT, current_context, in_context, make_current, memory_info, ordinal},
    capture,
    capture_state::Work,
    copies,
    faults::words,
    kernels::launch,
    model::{Model, attribute},
    process::{current, process},
    watch::{self, Seen},
    wheel::Wheel,
};
use std::ffi::c_char;

/// The documented beginning of `CUlaunchConfig`: grid, block and shared memory, then the stream.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfiguration {
    shape: [u32; 7],
    stream: usize,
}

/// A copy or a fill: done at once, or captured.
fn on(stream: usize, work: impl Fn() + Send + Sync + 'static) -> i32 {
    code(in_context(|| capture::submit(stream, Work::act(work))))
}

fn pointer_attribute(out: usize, wanted: i32, address: usize) -> Answer {
    let range = process().ranges.find(address).ok_or(Fault::InvalidValue)?;
    let word = |value: usize| Out::<usize>::from_address(out).put(value);
    let int = |value: usize| Out::<i32>::from_address(out).put(i32::try_from(value).unwrap_or(0));
    match wanted {
        1 => word(FIRST_CONTEXT + range.device),
        2 => int(if range.on_device() { 2 } else { 1 }),
        3 | 4 => word(address),
        7 | 11 => word(range.base),
        9 => int(range.device),
        12 => word(range.size),
        13 => int(1),
        6 | 8 => int(0),
        _ => return Err(Fault::NotSupported),
    }
    Ok(())
}

/// An opaque handle that no call reads: of modules, functions, linkers.
fn name(out: Out<usize>) -> i32 {
    out.put(process().queues.handle());
    0
}

/// Hands out a module of kernels that this program brings along, and reports it: what they compute is not known.
fn module(out: Out<usize>) -> i32 {
    watch::report(Seen::Module, || "cuModuleLoad".to_owned());
    name(out)
}

entry_points! {
    fn cuInit(_flags: u32) -> i32 {
        code(process().device_count().and_then(|it| if it == 0 { Err(Fault::NoDevice) } else { Ok(()) }))
    }

    fn cuDriverGetVersion(out: Out<i32>) -> i32 {
        out.put(Wheel::here().runtime);
        0
    }

    fn cuDeviceGetCount(out: Out<i32>) -> i32 {
        code(process().device_count().map(|it| out.put(i32::try_from(it).unwrap_or(0))))
    }

    fn cuDeviceGet(out: Out<i32>, device: i32) -> i32 {
        code(ordinal(device).and_then(|it| process().index(it)).map(|_| out.put(device)))
    }

    fn cuDeviceGetName(out: Out<c_char>, capacity: i32, device: i32) -> i32 {
        let capacity = usize::try_from(capacity).unwrap_or(0);
        code(ordinal(device).and_then(|it| process().card(it, |card| out.put_text(card.name(), capacity))))
    }

    fn cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) -> i32 {
        code(ordinal(device).and_then(|it| process().card(it, |card| out.put(card.uuid_bytes()))))
    }

    fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> i32 {
        cuDeviceGetUuid_v2(out, device)
    }

    fn cuDeviceTotalMem_v2(out: Out<usize>, device: i32) -> i32 {
        let total = |it: u64| out.put(usize::try_from(it).unwrap_or(usize::MAX));
        code(ordinal(device).and_then(|it| process().card(it, |card| total(card.capacity()))))
    }

    fn cuDeviceGetAttribute(out: Out<i32>, number: i32, device: i32) -> i32 {
        code(ordinal(device).and_then(|device| {
            let mut process = process();
            let index = process.index(device)?;
            out.put(process.card(device, |it| attribute(it, index, number))?);
            Ok(())
        }))
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> i32 {
        code(ordinal(device).and_then(|it| process().card(it, |card| Model::of(card.name()))).map(|it| {
            major.put(it.major);
            minor.put(it.minor);
        }))
    }

    fn cuDeviceGetPCIBusId(out: Out<c_char>, capacity: i32, device: i32) -> i32 {
        let capacity = usize::try_from(capacity).unwrap_or(0);
        let index = ordinal(device).and_then(|it| process().index(it));
        code(index.map(|it| out.put_text(&format!("0000:{:02X}:00.0", it + 1), capacity)))
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> i32 {
        code(ordinal(device).map(|it| {
            flags.put(0);
            active.put(i32::from(process().has_context(it)));
        }))
    }

    fn cuDevicePrimaryCtxRetain(out: Out<usize>, device: i32) -> i32 {
        code(ordinal(device).and_then(|it| {
            process().context(it)?;
            out.put(FIRST_CONTEXT + it);
            Ok(())
        }))
    }

    // The context stays, as it does while the runtime holds it too.
    fn cuDevicePrimaryCtxRelease_v2(_device: i32) -> i32 {
        0
    }

    fn cuCtxGetCurrent(out: Out<usize>) -> i32 {
        out.put(current_context());
        0
    }

    fn cuCtxSetCurrent(context: usize) -> i32 {
        code(make_current(context))
    }

    fn cuCtxGetDevice(out: Out<i32>) -> i32 {
        if current_context() == 0 {
            return Fault::InvalidContext as i32;
        }
        out.put(i32::try_from(current()).unwrap_or(0));
        0
    }

    fn cuCtxSynchronize() -> i32 {
        code((|| {
            process().permit_device(current())?;
            let until = process().queues.device_busy_until(current());
            super::queues::wait(until);
            super::pools::synchronized(&mut process(), current());
            Ok(())
        })())
    }

    fn cuGetErrorString(error: i32, out: Out<*const c_char>) -> i32 {
        out.put(words(error).map_or(c"unknown error", |it| it.text).as_ptr());
        0
    }

    fn cuGetErrorName(error: i32, out: Out<*const c_char>) -> i32 {
        out.put(words(error).map_or(c"CUDA_ERROR_UNKNOWN", |it| it.driver).as_ptr());
        0
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> i32 {
        if current_context() == 0 {
            return Fault::InvalidContext as i32;
        }
        code(memory_info(current(), free, total))
    }

    fn cuMemAlloc_v2(out: Out<usize>, bytes: usize) -> i32 {
        if bytes == 0 {
            return Fault::InvalidValue as i32;
        }
        let mut process = process();
        code(process.permit().and_then(|()| process.allocate(current(), bytes)).map(|it| out.put(it)))
    }

    fn cuMemFree_v2(at: usize) -> i32 {
        let mut process = process();
        code(process.permit().and_then(|()| process.free(at)))
    }

    fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
        on(stream, move || copies::copy(to, from, bytes))
    }

    fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
        on(stream, move || copies::copy(to, from, bytes))
    }

    fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
        on(stream, move || copies::copy(to, from, bytes))
    }

    fn cuMemsetD8Async(at: usize, byte: u8, bytes: usize, stream: usize) -> i32 {
        on(stream, move || copies::fill(at, byte, bytes))
    }

    fn cuMemGetAddressRange_v2(base: Out<usize>, size: Out<usize>, address: usize) -> i32 {
        code(process().ranges.find(address).ok_or(Fault::NotFound).map(|it| {
            base.put(it.base);
            size.put(it.size);
        }))
    }

    fn cuPointerGetAttribute(out: usize, wanted: i32, address: usize) -> i32 {
        code(pointer_attribute(out, wanted, address))
    }

    fn cuModuleLoad(out: Out<usize>, _file: usize) -> i32 {
        module(out)
    }

    fn cuModuleLoadData(out: Out<usize>, _image: usize) -> i32 {
        module(out)
    }

    fn cuModuleLoadDataEx(out: Out<usize>, _image: usize, _count: u32, _options: usize, _values: usize) -> i32 {
        module(out)
    }

    fn cuModuleUnload(_module: usize) -> i32 {
        0
    }

    fn cuModuleGetFunction(out: Out<usize>, _module: usize, _name: usize) -> i32 {
        name(out)
    }

    fn cuFuncGetAttribute(out: Out<i32>, wanted: i32, _function: usize) -> i32 {
        out.put(match wanted {
            0 => 1024,
            4 => 32,
            _ => 0,
        });
        0
    }

    fn cuFuncSetAttribute(_function: usize, _attribute: i32, _value: i32) -> i32 {
        0
    }

    fn cuFuncSetCacheConfig(_function: usize, _config: i32) -> i32 {
        0
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<i32>, _function: usize, block: i32, _shared: usize,
    ) -> i32 {
        out.put(super::kernels::occupancy(block));
        0
    }

    fn cuLaunchKernel(
        function: usize, _x: u32, _y: u32, _z: u32, _block_x: u32, _block_y: u32, _block_z: u32, _shared: u32,
        stream: usize,
    ) -> i32 {
        code(launch(function, 0, stream))
    }

    fn cuLaunchKernelEx(configuration: In<LaunchConfiguration>, function: usize) -> i32 {
        code(configuration.get().ok_or(Fault::InvalidValue).and_then(|it| launch(function, 0, it.stream)))
    }

    fn cuLaunchCooperativeKernel(
        function: usize, _x: u32, _y: u32, _z: u32, _block_x: u32, _block_y: u32, _block_z: u32, _shared: u32,
        stream: usize,
    ) -> i32 {
        code(launch(function, 0, stream))
    }

    // No caller reads the result of a map.
    fn cuTensorMapEncodeTiled(map: Out<[u64; 16]>) -> i32 {
        map.put([0; 16]);
        0
    }
}
