//! The in-process part of gpuwatch: reads an allocator's counters and serves them on a Unix socket.
//!
//! Std only, so that it can run in any process and be compiled by one `rustc` call. It never blocks a thread that
//! pushes a sample and never panics into its host; it drops samples instead, and counts them.
//!
//! How a sample travels: [`Probe::push`] stamps it and puts it into a bounded queue; the probe's thread moves it to the
//! history; each viewer has a position in the history and receives what comes after it.
//!
//! `examples/train.rs` is a job with a probe, `examples/cudarc.rs` one that allocates through `cudarc` (feature
//! `cudarc`).

pub mod error_file;
#[cfg(feature = "cudarc")]
pub mod pool;
pub mod reading;
pub mod secrets;
pub mod socket;
pub mod wire;

pub mod abi;
mod history;
mod identity;
mod log;
mod probe;
mod server;
mod shared;
mod sites;
mod store;
mod sys;
mod window;

pub use probe::{Description, Probe};
pub use shared::Refusal;
