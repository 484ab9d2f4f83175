//! The in-process side of gpuwatch: takes an allocator's counters and serves them on a Unix socket.
//!
//! Std only, so that it can live in anyone's process and be compiled by one `rustc` call. It never
//! blocks the thread that hands it a sample, never panics into its host, drops and counts instead.
//!
//! The way of a sample: [`Probe::push`] stamps it and puts it into a bounded queue; the one thread takes it
//! into the history; each viewer has a place in the history and is sent what comes after it.
//!
//! `examples/train.rs` is a job that uses it, `examples/cudarc.rs` one that allocates through `cudarc` (feature
//! `cudarc`).

#[cfg(feature = "cudarc")]
pub mod pool;
pub mod reading;
pub mod secrets;
pub mod socket;
pub mod spill;
pub mod wire;

pub mod abi;
mod history;
mod identity;
mod ledger;
mod log;
mod probe;
mod queue;
mod server;
mod shared;
mod sites;
mod sys;

pub use probe::{Description, Probe};
pub use shared::Refusal;
