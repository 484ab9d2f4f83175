//! The CUDA runtime: kernels are registered and launched, and compute nothing.

use super::{
    abi::{Answer, Fault, In, Out, trace},
    calls::{answer, with_context},
    capture,
    capture_state::Work,
    integers,
    model::{Model, attribute},
    process::{current, process},
    sys,
    wheel::Wheel,
};
use std::{cell::Cell, ffi::c_char, sync::OnceLock};

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// The arguments in the `<<<…>>>` of a launch, between the two calls that carry them.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

thread_local! {
    static CONFIGURATION: Cell<Option<Configuration>> = const { Cell::new(None) };
}

/// The documented beginning of `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

/// `cudaFuncAttributes`, as far as it is filled.
#[repr(C)]
struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: i32,
    registers: i32,
    ptx: i32,
    binary: i32,
    cached: i32,
    max_dynamic_shared: i32,
    carveout: i32,
    cluster: i32,
}

pub(super) fn launch(function: usize, arguments: usize, stream: usize) -> Answer {
    integers::launch(function, arguments, stream).unwrap_or_else(|| capture::submit(stream, Work::Kernel))?;
    trace(|| format!("launch {}", sys::code_at(function).map_or_else(String::new, |(_, name)| name)));
    Ok(())
}

fn function_attributes() -> Result<FunctionAttributes, Fault> {
    let device = current();
    let (model, max_dynamic_shared) = process().card(device, |it| (Model::of(it.name()), attribute(it, device, 97)))?;
    let architecture = Wheel::here().code_for(model.major * 10 + model.minor);
    Ok(FunctionAttributes {
        shared: 0,
        constant: 0,
        local: 0,
        max_threads: 1024,
        registers: 32,
        ptx: architecture,
        binary: architecture,
        cached: 0,
        max_dynamic_shared,
        carveout: 0,
        cluster: 0,
    })
}

/// Blocks that fit a multiprocessor when only their threads are counted.
pub(super) fn occupancy(block: i32) -> i32 {
    if (1..=1024).contains(&block) { (2048 / block).min(32) } else { 1 }
}

/// Memory for the variables that device code declares; all of them share it, because no code runs that would use them.
fn symbol_area() -> usize {
    static AREA: OnceLock<usize> = OnceLock::new();
    const BYTES: usize = 64 << 10;
    *AREA.get_or_init(|| sys::map_anonymous(BYTES).unwrap_or(0))
}

entry_points! {
    fn __cudaRegisterFatBinary(binary: usize) -> *mut usize {
        Box::into_raw(Box::new(binary))
    }

    fn __cudaRegisterFatBinaryEnd(_handle: usize) -> () {}

    // The handle is a few bytes of a process that is ending.
    fn __cudaUnregisterFatBinary(_handle: usize) -> () {}

    fn __cudaRegisterFunction(_handle: usize, function: usize, _device: usize, name: In<c_char>) -> () {
        integers::register(function, &name.text().unwrap_or_default());
    }

    fn __cudaRegisterVar(_handle: usize) -> () {}

    fn __cudaRegisterManagedVar(_handle: usize) -> () {}

    fn __cudaInitModule(_handle: usize) -> i32 {
        1
    }

    fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> i32 {
        CONFIGURATION.set(Some(Configuration { grid, block, shared, stream }));
        0
    }

    fn __cudaPopCallConfiguration(
        grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<usize>,
    ) -> i32 {
        answer(CONFIGURATION.take().ok_or(Fault::InvalidValue).map(|it| {
            grid.put(it.grid);
            block.put(it.block);
            shared.put(it.shared);
            stream.put(it.stream);
        }))
    }

    fn __cudaGetKernel(out: Out<usize>, function: usize) -> i32 {
        out.put(function);
        0
    }

    fn __cudaLaunchKernel(
        kernel: usize, _grid: Dim3, _block: Dim3, arguments: usize, _shared: usize, stream: usize,
    ) -> i32 {
        answer(launch(kernel, arguments, stream))
    }

    fn cudaLaunchKernel(
        function: usize, _grid: Dim3, _block: Dim3, arguments: usize, _shared: usize, stream: usize,
    ) -> i32 {
        answer(launch(function, arguments, stream))
    }

    fn cudaLaunchCooperativeKernel(
        function: usize, _grid: Dim3, _block: Dim3, arguments: usize, _shared: usize, stream: usize,
    ) -> i32 {
        answer(launch(function, arguments, stream))
    }

    fn cudaLaunchKernelExC(config: In<LaunchConfig>, function: usize, arguments: usize) -> i32 {
        answer(config.get().ok_or(Fault::InvalidValue).and_then(|it| launch(function, arguments, it.stream)))
    }

    fn cudaFuncGetAttributes(out: Out<FunctionAttributes>, _function: usize) -> i32 {
        answer(function_attributes().map(|it| out.put(it)))
    }

    fn cudaFuncSetAttribute(_function: usize, _attribute: i32, _value: i32) -> i32 {
        0
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<i32>, _function: usize, block: i32, _shared: usize,
    ) -> i32 {
        out.put(occupancy(block));
        0
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<i32>, _function: usize, block: i32, _shared: usize, _flags: u32,
    ) -> i32 {
        out.put(occupancy(block));
        0
    }

    fn cudaGetSymbolAddress(out: Out<usize>, _symbol: usize) -> i32 {
        answer(with_context(|| { out.put(symbol_area()); Ok(()) }))
    }

    fn cudaProfilerStart() -> i32 {
        0
    }

    fn cudaProfilerStop() -> i32 {
        0
    }
}
