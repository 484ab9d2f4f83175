//! What gpuwatch does with a job.

/// `gpuwatch run` and `gpuwatch env`: a job with its probe.
pub mod launch;

/// `gpuwatch attach` and `gpuwatch detach`: the probe in a running job.
pub mod attach;

/// Children on a simulated machine: libraries and folders.
pub mod simulated;

/// What a run would have reserved with other allocator settings.
pub mod whatif;

/// What runs beside a job: records it, sends alerts, and replays its allocations for findings.
pub mod recorder;

/// Whether a job fits on a GPU that is not there.
pub mod fit;
