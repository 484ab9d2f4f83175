//! A simulated GPU: stock PyTorch trains on it, and NVML programs see it. `gpuwatch fit` and `gpuwatch whatif` run jobs
//! on it, and so do the tests.
//!
//! `prepare` makes the libraries that PyTorch's CUDA wheel needs, `Machine` is a machine with devices: it gives the
//! environment in which a program finds them, and reports the memory of each process. Few kernels compute anything;
//! memory behaves as on a device, also that of CUDA graphs, whose launches take the time of their kernels.
//!
//! Environment variables of a program on the machine:
//!
//! - `SIMGPU_FIRST`: a file that a program loads before PyTorch (`prepare.rs`).
//! - `SIMGPU_DIR`: the directory of the machine's state; `SIMGPU_DEVICES`: its devices, while no process uses it.
//! - `SIMGPU_CONTEXT_MB`: the size of a context, 512 by default.
//! - `SIMGPU_NCCL_MB`: the memory of an NCCL communicator of several ranks on each device, 256 by default.
//! - `SIMGPU_KERNEL_US`: the duration of each kernel on its stream, 0 by default: events are late, as on a device.
//! - `SIMGPU_TRACE`: writes launches, stubs and refusals to stderr.
//! - `SIMGPU_STRICT`: a call of CUDA or its libraries that was not reviewed ends the program, with a line that names
//!   it; otherwise it returns its library's documented error. `0` is as if unset. NVML always returns the error, as
//!   programs expect of some devices.
//! - `CUDA_VISIBLE_DEVICES`: as CUDA reads it.
//!
//! The file `faults` in the machine's directory, which NVML reads at every call, lists its faults.
//! `Machine::set_faults` writes it, and any program may.
//!
//! # How it works
//!
//! `simgpu` writes a library for each that PyTorch's wheel imports (`simgpu/src/shared.rs`; no compiler is needed): its
//! functions jump into the device, with the address of what the table has for them (`gpu/forms.rs`). What matters for
//! memory is code (`simgpu/src/gpu`); the rest are stubs, and `simgpu/tables/libraries.txt` lists by name what each
//! writes. A stub that is not listed there answers its library's documented error; under `SIMGPU_STRICT`, as every
//! job of the suite runs, it ends the program and names itself, because a program whose results were never written
//! continues with whatever lay there. The table refuses a rule that lets a name with Get, Create or Query in it do
//! nothing but succeed, and no pattern stands for more than one character.
//!
//! Device memory is addresses, charged to the device. What programs copy there is kept in an anonymous file, each byte
//! at its own address (`gpu/contents.rs`), up to 1 MiB a copy; nothing of it is mapped, so that a job's resident memory
//! is what it would be with a device. A few bytes that a program reads back are zero, unless they were copied in and no
//! kernel was launched since. The only kernels that are computed are those of a few 64-bit integers that were copied in
//! (`gpu/integers.rs`: sum, maximum, minimum, addition, comparison), by which ranks decide how much space each other's
//! objects take.
//!
//! A handle of CUDA IPC names the owner's process and its file (`gpu/ipc.rs`): the other process opens that file, and
//! is charged for nothing.
//!
//! The ranks of an NCCL communicator (`gpu/nccl.rs`) meet over a Unix socket in a thread of the process that made its
//! identity. Each rank's requests arrive there in order (`nccl/matching.rs`); the hub answers a collective when all
//! ranks have requested it, with its real result if the bytes are stored. A collective is over when its call returns.
//! The ranks fail when one of them is gone, when the communicator is aborted, and after ten minutes of waiting.
//!
//! A capture (`gpu/capture.rs`) makes nodes of the work that streams receive; events carry places in it, so that a
//! stream which waits for one joins. The modes of the thread and of the capture decide which calls that wait, query or
//! allocate are refused; such a call breaks the captures that it would harm. The tests compare this with PyTorch's own
//! allocator, private pools and error messages.

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

/// Returns what a device of that name is simulated as: compute capability, major and minor, and multiprocessors.
pub fn architecture(name: &str) -> (i32, i32, u64) {
    let model = gpu::model::Model::of(name);
    (model.major, model.minor, u64::from(model.multiprocessors.unsigned_abs()))
}
