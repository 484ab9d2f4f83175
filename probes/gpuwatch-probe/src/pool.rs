//! The CUDA memory pool of a job that allocates through `cudarc` (candle, burn, its own code): counters of its
//! `CudaContext`.
//!
//! Only the context's handles come from `cudarc`. The probe makes the calls itself, because its own return `None`
//! instead of panicking if the driver lacks them. None of them creates a context, waits for the device or changes the
//! pool.

use crate::{
    reading::Reading,
    sys::Cuda,
    wire::{Counters, Device, Edge},
};
use cudarc::driver::CudaContext;
use std::{ffi::c_int, sync::OnceLock};

/// Places of counters in a reading, each with its pool attribute: `CUmemPool_attribute`'s `USED_MEM_CURRENT`,
/// `RESERVED_MEM_CURRENT`, `USED_MEM_HIGH` and `RESERVED_MEM_HIGH`.
const FIGURES: [(usize, c_int); 4] = [
    (Counters::place("allocated"), 7),
    (Counters::place("reserved"), 5),
    (Counters::place("allocated_peak"), 8),
    (Counters::place("reserved_peak"), 6),
];

/// Returns the device of a context, for a probe's description; the probe queries its identity from the driver at the
/// start.
pub fn device(context: &CudaContext) -> Device {
    Device { ordinal: ordinal(context), ..Device::default() }
}

/// Returns the counters of a context's pool: `allocated`, `reserved` and both peaks. A pool counts neither requests nor
/// blocks nor pending memory, so those stay unknown. `push` adds the device's free and total bytes, on a thread where
/// the context is current.
///
/// A context without pools (`has_async_alloc` is false) bypasses them: all its counters are unknown.
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

/// Returns the driver that `cudarc` loaded before it could create a context.
fn loaded() -> Option<&'static Cuda> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    CUDA.get_or_init(Cuda::loaded).as_ref()
}
