//! The in-process side of gpuwatch: takes an allocator's counters and serves them on a Unix socket.
//!
//! Std only, so that it can live in anyone's process and be compiled by one `rustc` call. It never
//! blocks the thread that hands it a sample, never panics into its host, drops and counts instead.

pub mod wire;
