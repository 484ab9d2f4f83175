//! What gpuwatch does with a job.

/// `gpuwatch run` and `gpuwatch env`: a job with its probe.
pub mod launch;
