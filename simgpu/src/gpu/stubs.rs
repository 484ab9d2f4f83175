//! What the generated libraries of stubs call: a trace of what was called, the few results that stubs write, and the
//! end of a program that calls what nobody reviewed.

use super::{
    abi::{Fault, In, Out, trace},
    calls, capture,
    captures::Work,
    copies,
};
use std::{
    collections::HashMap,
    env,
    ffi::{c_char, c_void},
    io::Write,
    process,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// What a handle of a library that does nothing points at: room for those who look, and nothing else.
const HANDLE_WORDS: usize = 8;

/// The stream that each library's handle was told, where it was told one.
pub(super) fn streams() -> MutexGuard<'static, HashMap<usize, usize>> {
    static STREAMS: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody called what nobody reviewed: `SIMGPU_STRICT` makes that the end of the program, because whatever the call
/// should have written the program would go on with.
pub(super) fn unreviewed(name: &str, library: &str) {
    static STRICT: LazyLock<bool> =
        LazyLock::new(|| env::var_os("SIMGPU_STRICT").is_some_and(|it| !it.is_empty() && it != "0"));
    trace(|| format!("not supported: {name}"));
    if *STRICT {
        // Where stderr is closed the program still ends.
        let _ = writeln!(
            std::io::stderr(),
            "simgpu: {name} of {library} was called, and nobody reviewed what it writes: say so in \
             simgpu/tables/libraries.txt, or unset SIMGPU_STRICT to have it answer that it is not supported"
        );
        process::abort();
    }
}

entry_points! {
    /// A stub was called that answers with success, or with what the table says.
    fn simgpu_called(name: In<c_char>) -> () {
        trace(|| format!("stub {}", name.text().unwrap_or_default()));
    }

    /// A stub was called that nobody reviewed: the caller gets its library's documented error.
    fn simgpu_refused(name: In<c_char>, library: In<c_char>) -> () {
        unreviewed(&name.text().unwrap_or_default(), &library.text().unwrap_or_default());
    }

    /// A runtime function was called that is not simulated: its error is also the thread's last one.
    fn simgpu_refused_runtime(name: In<c_char>, library: In<c_char>) -> i32 {
        unreviewed(&name.text().unwrap_or_default(), &library.text().unwrap_or_default());
        calls::answer(Err(Fault::NotSupported))
    }

    /// A function of NVML was called that is not simulated, as programs expect of some device or other.
    fn simgpu_unsupported(name: In<c_char>) -> () {
        trace(|| format!("not supported: {}", name.text().unwrap_or_default()));
    }

    /// A library call stands for a kernel on the stream that its handle was told.
    pub(super) fn simgpu_worked(handle: usize) -> () {
        let stream = streams().get(&handle).copied().unwrap_or(0);
        simgpu_worked_on(stream);
    }

    /// The same, of a call that names the stream itself.
    fn simgpu_worked_on(stream: usize) -> () {
        if let Err(fault) = capture::submit(stream, Work::Kernel) {
            trace(|| format!("{fault:?}"));
        }
    }

    /// A handle is told the stream that its library calls are on.
    fn simgpu_streamed(handle: usize, stream: usize) -> () {
        streams().insert(handle, stream);
    }

    /// A result that nothing was computed for.
    fn simgpu_zero(at: usize, bytes: usize) -> () {
        if at != 0 {
            copies::fill(at, 0, bytes);
        }
    }

    fn simgpu_handle() -> *mut c_void {
        Box::into_raw(Box::new([0_u64; HANDLE_WORDS])).cast()
    }

    fn simgpu_free(handle: *mut c_void) -> () {
        streams().remove(&(handle as usize));
        if !handle.is_null() {
            // SAFETY: the table pairs this with `simgpu_handle`: a handle is destroyed once, by its own library.
            drop(unsafe { Box::from_raw(handle.cast::<[u64; HANDLE_WORDS]>()) });
        }
    }

    // A program is destroyed through the place where its handle is.
    fn nvrtcDestroyProgram(program: Out<usize>) -> i32 {
        if let Some(handle) = program.held() {
            simgpu_free(handle as *mut c_void);
        }
        program.put(0);
        0
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
