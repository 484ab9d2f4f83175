//! What the generated libraries of stubs call: a trace of what was called, and the few results that stubs write.

use super::{
    abi::{In, Out, trace},
    process::process,
    runtime,
};
use std::ffi::{c_char, c_void};

/// What a handle of a library that does nothing points at: room for those who look, and nothing else.
const HANDLE_WORDS: usize = 8;

entry_points! {
    /// A stub was called that answers with success, or with what the table says.
    fn simgpu_called(name: In<c_char>) -> () {
        trace(|| format!("stub {}", name.text().unwrap_or_default()));
    }

    /// A stub was called that nobody reviewed: the caller gets its library's documented error.
    fn simgpu_refused(name: In<c_char>) -> () {
        trace(|| format!("not supported: {}", name.text().unwrap_or_default()));
    }

    /// A runtime function was called that is not simulated: its error is also the thread's last one.
    fn simgpu_refused_runtime(name: In<c_char>) -> i32 {
        trace(|| format!("not supported: {}", name.text().unwrap_or_default()));
        runtime::answer(Err(super::abi::Fault::NotSupported))
    }

    /// A library call stands for kernels: whatever was copied in may have been overwritten.
    fn simgpu_worked() -> () {
        process().copies.launched();
    }

    fn simgpu_handle() -> *mut c_void {
        Box::into_raw(Box::new([0_u64; HANDLE_WORDS])).cast()
    }

    fn simgpu_free(handle: *mut c_void) -> () {
        if !handle.is_null() {
            // SAFETY: the table pairs this with `simgpu_handle`: a handle is destroyed once, by its own library.
            drop(unsafe { Box::from_raw(handle.cast::<[u64; HANDLE_WORDS]>()) });
        }
    }

    /// `cublasLtMatmulHeuristicResult_t`: an algorithm of zeroes, no workspace, success, one wave.
    fn simgpu_heuristic(out: Out<Heuristic>) -> () {
        out.put(Heuristic { algorithm: [0; 8], workspace: 0, state: 0, waves: 1.0, spare: [0; 4] });
    }
}

#[repr(C)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: i32,
    waves: f32,
    spare: [i32; 4],
}
