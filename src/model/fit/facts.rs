//! What is known of a job, as far as it decides about memory outside its allocator.

use super::{Device, Link};

/// What is known of a job, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Processes with a context on the device.
    pub processes: u64,
    /// NCCL communicators on it.
    pub communicators: u64,
    /// Whether cuDNN ran convolutions or attention.
    pub uses_cudnn: bool,
    /// Whether cuDNN was asked to try its algorithms (`torch.backends.cudnn.benchmark`).
    pub is_benchmarking: bool,
    /// Bytes of the tensors of cuDNN's largest operation.
    pub convolution: u64,
    /// Whether kernels were compiled at run time (`torch.compile`, Triton).
    pub is_compiled: bool,
    /// Bytes that the allocator reserved.
    pub reserved: u64,
    /// Multiprocessors of the device, at least and at most.
    pub multiprocessors: (u64, u64),
    /// The first number of the device's compute capability; 0 where it is not known.
    pub capability: u64,
    /// How several devices are linked, at least and at best.
    pub links: (Link, Link),
}

impl Facts {
    /// Returns the facts for another device.
    #[must_use]
    pub fn on(self, device: &Device) -> Self {
        let capability = device.capability.split('.').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        Self { multiprocessors: device.multiprocessors, capability, links: device.links, ..self }
    }
}
