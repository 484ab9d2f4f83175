//! A simulated GPU for tests: real PyTorch trains on it, and NVML programs see it.
//!
//! `prepare` makes the libraries that PyTorch's CUDA wheel needs, `Machine` is a machine with devices: it gives the
//! environment in which a program finds them, and shows who has how much memory. Hardly a kernel computes anything;
//! memory behaves as on a device, also that of CUDA graphs, whose launches take the time of their kernels.
//!
//! Environment variables of a program on the machine:
//!
//! - `SIMGPU_DIR`: where the machine's state is; `SIMGPU_DEVICES`: what it has, as long as nobody uses it.
//! - `SIMGPU_CONTEXT_MB`: what a context costs, 512 unless said.
//! - `SIMGPU_NCCL_MB`: what an NCCL communicator of several ranks costs on each device, 256 unless said.
//! - `SIMGPU_KERNEL_US`: how long each kernel takes on its stream, 0 unless said: events are late, as on a device.
//! - `SIMGPU_TRACE`: launches, stubs and refusals are said on stderr.
//! - `SIMGPU_STRICT`: a call of CUDA or its libraries that nobody reviewed ends the program, with a line that names it,
//!   where it otherwise answers its library's documented error; `0` is as if unsaid. NVML's answer in any case, as
//!   programs expect of some device or other.
//! - `CUDA_VISIBLE_DEVICES`: as CUDA reads it.
//!
//! What NVML suffers from is in the file `faults` in the machine's directory, read at every call: `Machine::set_faults`
//! writes it, and so can anybody.

mod elf;
#[expect(dead_code, reason = "entry points that only the shared object exports")]
#[expect(non_snake_case, reason = "entry points bear the names that programs look for")]
#[expect(unsafe_code, reason = "the device speaks C: pointers, mappings, exported names")]
#[path = "gpu/lib.rs"]
mod gpu;
mod machine;
mod prepare;
mod program;
mod shared;
mod table;

pub use machine::{Card, Fault, Machine, Tenant};
pub use prepare::{prepare, prepare_driver, prepare_nvml, prepared};
pub use program::torch_of;
