//! A simulated GPU for tests: real PyTorch trains on it, and NVML programs see it.
//!
//! `prepare` makes the libraries that PyTorch's CUDA wheel needs, `Machine` is a machine with devices: it gives the
//! environment in which a program finds them, and shows who has how much memory. No kernel ever computes anything;
//! memory behaves as on a device.

mod elf;
#[expect(dead_code, reason = "entry points that only the shared object exports")]
#[expect(non_snake_case, reason = "entry points bear the names that programs look for")]
#[expect(unsafe_code, reason = "the device speaks C: pointers, mappings, exported names")]
#[path = "gpu/lib.rs"]
mod gpu;
mod machine;
mod prepare;
mod table;

pub use machine::{Card, Fault, Machine, Tenant};
pub use prepare::{prepare, prepare_nvml, prepared};
