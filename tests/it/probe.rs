//! The probe in real jobs: it counts what the allocator counts, finds lines and holders, and the job does not notice
//! it.

pub(crate) mod allocators;
pub(crate) mod captures;
pub(crate) mod containers;
pub(crate) mod counters;
pub(crate) mod cuda_graphs;
pub(crate) mod fatal_leaks;
pub(crate) mod figures;
pub(crate) mod first_events;
pub(crate) mod frameworks;
pub(crate) mod harmless;
pub(crate) mod holders;
pub(crate) mod launch;
pub(crate) mod leaks;
#[cfg(all(target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod old_glibc;
pub(crate) mod older_torch;
pub(crate) mod oom;
pub(crate) mod other_jobs;
pub(crate) mod parts;
mod preloads;
pub(crate) mod python_rows;
pub(crate) mod pytorch;
pub(crate) mod restarts;
pub(crate) mod small_programs;
pub(crate) mod steps;
mod storms;
