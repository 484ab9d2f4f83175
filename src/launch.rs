//! `gpuwatch run` and `gpuwatch env`: a job with its probe.
