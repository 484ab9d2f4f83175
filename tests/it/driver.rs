//! The driver as gpuwatch and other programs read it, and the simulated one.

pub(crate) mod gpu_checks;
pub(crate) mod kernel;
pub(crate) mod nvml;
pub(crate) mod peers;
pub(crate) mod simgpu;
