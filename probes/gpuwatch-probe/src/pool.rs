//! The CUDA memory pool of a job that allocates through `cudarc` (candle, burn, its own code): counters of what its own
//! `CudaContext` hands out.
//!
//! From `cudarc` only the context's handles are taken. The calls are the probe's own, which know nothing rather than
//! panic where the driver lacks them; none of them creates a context, waits for the device or changes the pool.

use crate::{
    reading::Reading,
    sys::Cuda,
    wire::{Counters, Device, Edge},
};
use cudarc::driver::CudaContext;
use std::{ffi::c_int, sync::OnceLock};

/// Places of counters in a reading, each with the pool's attribute that it is: `CUmemPool_attribute`'s
/// `USED_MEM_CURRENT`, `RESERVED_MEM_CURRENT`, `USED_MEM_HIGH` and `RESERVED_MEM_HIGH`.
const FIGURES: [(usize, c_int); 4] = [
    (Counters::place("allocated"), 7),
    (Counters::place("reserved"), 5),
    (Counters::place("allocated_peak"), 8),
    (Counters::place("reserved_peak"), 6),
];

/// The device of a context, for the description of a probe; its identity is asked of the driver when the probe starts.
pub fn device(context: &CudaContext) -> Device {
    Device { ordinal: ordinal(context), ..Device::default() }
}

/// The counters of a context's pool, to be pushed: `allocated`, `reserved` and the highest of both. A pool counts
/// neither requests nor blocks nor what waits for a stream, so that these stay unknown; free and total of the device
/// are added where it is pushed, from a thread on which the context is current.
///
/// A context without pools (`has_async_alloc` is false) allocates past them: all its counters are unknown.
pub fn reading(context: &CudaContext, edge: Edge, steps: u64) -> Reading {
    let mut reading = Reading { device: ordinal(context), edge, steps, ..Reading::default() };
    if let (Some(cuda), true) = (loaded(), context.has_async_alloc()) {
        let values = cuda.pool_figures(context.cu_device(), FIGURES.map(|(_, attribute)| attribute));
        for ((place, _), value) in FIGURES.into_iter().zip(values) {
            if let Some(value) = value {
                reading.put(place, value);
            }
        }
    }
    reading
}

fn ordinal(context: &CudaContext) -> u32 {
    u32::try_from(context.ordinal()).unwrap_or(u32::MAX)
}

/// The driver that `cudarc` has loaded, as it did before there could be a context.
fn loaded() -> Option<&'static Cuda> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    CUDA.get_or_init(Cuda::loaded).as_ref()
}
