//! What gpuwatch does with a job.

/// `gpuwatch run` and `gpuwatch env`: a job with its probe.
pub mod launch;

/// What a run would have reserved with other allocator settings.
pub mod whatif;
