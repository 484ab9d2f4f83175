//! The simulated device, compiled twice: as one shared object that CUDA programs load, and as a module of the library,
//! which reads and writes the same shared state.
//!
//! Only `std` is used, so that one `rustc` call compiles it. Paths between the modules go through `super`, because the
//! crate's root is another one in each of the two.

#[macro_use]
mod abi;

mod calls;
mod capture;
mod capture_state;
mod charges;
mod chunks;
mod contents;
mod convolution;
mod copies;
mod cudnn;
mod driver;
mod faults;
mod fft;
pub(crate) mod forms;
mod graph_memory;
mod graphs;
mod integers;
mod ipc;
mod kernels;
mod matrices;
mod memory;
pub(crate) mod model;
mod nccl;
mod nvml;
mod nvml_board;
mod nvml_events;
mod nvml_faults;
mod nvml_metrics;
mod nvml_processes;
mod pools;
mod process;
mod properties;
mod queues;
mod ranges;
mod recurrent;
mod runtime;
mod sensors;
mod spans;
pub(crate) mod state;
mod streams;
mod stubs;
mod sys;
mod user_objects;
mod vmm;
mod watch;
pub(crate) mod wheel;
