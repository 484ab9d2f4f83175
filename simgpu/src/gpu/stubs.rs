//! The work of the stubs in the generated libraries: they trace calls, write a few results, and end a program that
//! calls an unreviewed function.

use super::{
    abi::{Fault, In, Out, trace},
    calls, capture,
    capture_state::Work,
    copies,
    forms::{self, Form, Kind, REGISTERS, Step, Verb},
    watch::{self, Seen},
};
use std::{
    collections::HashMap,
    env,
    ffi::{CStr, c_char},
    io::Write,
    process,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// The target of handles of a library that does nothing: room for programs that read through them.
const HANDLE_WORDS: usize = 8;

/// Returns the stream of each library's handle, if it was set.
pub(super) fn streams() -> MutexGuard<'static, HashMap<usize, usize>> {
    static STREAMS: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles a call that was not reviewed: `SIMGPU_STRICT` ends the program, because it would continue with unset
/// results.
pub(super) fn unreviewed(name: &str, library: &str) {
    static STRICT: LazyLock<bool> =
        LazyLock::new(|| env::var_os("SIMGPU_STRICT").is_some_and(|it| !it.is_empty() && it != "0"));
    trace(|| format!("not supported: {name}"));
    watch::report(Seen::Refused, || name.to_owned());
    if *STRICT {
        // The program also ends if stderr is closed.
        let _ = writeln!(
            std::io::stderr(),
            "simgpu: {name} of {library} was called, and nobody reviewed what it writes: say so in \
             simgpu/tables/libraries.txt, or unset SIMGPU_STRICT to have it answer that it is not supported"
        );
        process::abort();
    }
}

/// A stub was called: `form` is what it does, and its arguments are where the call left them.
pub(super) extern "C" fn called(form: usize, registers: usize, stack: usize) -> i64 {
    let Some(it) = In::<Form>::from_address(form).get() else { return 0 };
    let text = |at: u16| In::<c_char>::from_address(form + usize::from(at)).text().unwrap_or_default();
    let (name, library) = (|| text(it.name), || text(it.library));
    match Kind::of(it.kind) {
        Kind::Reviewed => trace(|| format!("stub {}", name())),
        Kind::Refused => unreviewed(&name(), &library()),
        Kind::RefusedRuntime => {
            unreviewed(&name(), &library());
            return calls::answer(Err(Fault::NotSupported)).into();
        }
        // As programs expect of some device or other.
        Kind::Unsupported => trace(|| format!("not supported: {}", name())),
    }
    let argument = |at: u8| {
        let at = usize::from(at);
        let (from, at) = if at < REGISTERS { (registers, at) } else { (stack, at - REGISTERS) };
        In::<usize>::from_address(from).at(at).unwrap_or(0)
    };
    let mut answer = it.answer;
    for at in 0..usize::from(it.steps) {
        let Some(step) = In::<Step>::from_address(form + forms::SIZE).at(at) else { continue };
        if Verb::of(step.verb) == Some(Verb::AnswerText) {
            answer = TEXT.as_ptr() as i64;
        } else {
            take(step, argument);
        }
    }
    answer
}

/// The answer to requests for text.
const TEXT: &CStr = c"not supported by the simulated GPU";

fn take(step: Step, argument: impl Fn(u8) -> usize) {
    let at = argument(step.at);
    let product = || int(argument(step.a)).wrapping_mul(int(argument(step.b)));
    match Verb::of(step.verb) {
        Some(Verb::Work) => worked(argument(0)),
        Some(Verb::WorkOn) => worked_on(at),
        Some(Verb::Stream) => {
            streams().insert(argument(0), at);
        }
        Some(Verb::Handle) => Out::from_address(at).put(handle()),
        Some(Verb::Free) => free(at),
        Some(Verb::Int) => Out::from_address(at).put(i32::try_from(step.value).unwrap_or(0)),
        Some(Verb::Size) => Out::from_address(at).put(step.value),
        Some(Verb::Elements) => Out::from_address(at).put(product()),
        Some(Verb::Bytes) => Out::from_address(at).put(8 * i64::from(product())),
        Some(Verb::Zero) if at != 0 => copies::fill(at, 0, usize::try_from(step.value).unwrap_or(0)),
        Some(Verb::Text) => Out::from_address(at).put(TEXT.as_ptr() as usize),
        // `cublasLtMatmulHeuristicResult_t`: an algorithm of zeroes, no workspace, success, one wave.
        Some(Verb::Heuristic) => {
            Out::from_address(at).put(Heuristic {
                algorithm: [0; 8],
                workspace: 0,
                state: 0,
                waves: 1.0,
                spare: [0; 4],
            });
        }
        Some(Verb::Zero | Verb::AnswerText) | None => {}
    }
}

/// The lower half of an argument: what an `int` is.
fn int(argument: usize) -> i32 {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// A library call counts as a kernel on the stream that its handle was set to.
pub(super) fn worked(handle: usize) {
    let stream = streams().get(&handle).copied().unwrap_or(0);
    worked_on(stream);
}

/// The same, of a call that names the stream itself.
fn worked_on(stream: usize) {
    if let Err(fault) = capture::submit(stream, Work::Kernel) {
        trace(|| format!("{fault:?}"));
    }
}

fn handle() -> usize {
    Box::into_raw(Box::new([0_u64; HANDLE_WORDS])) as usize
}

fn free(handle: usize) {
    streams().remove(&handle);
    if handle != 0 {
        // SAFETY: the table pairs this with `handle`: a handle is destroyed once, by its own library.
        drop(unsafe { Box::from_raw(handle as *mut [u64; HANDLE_WORDS]) });
    }
}

entry_points! {
    // A program is destroyed through the place where its handle is.
    fn nvrtcDestroyProgram(program: Out<usize>) -> i32 {
        if let Some(handle) = program.held() {
            free(handle);
        }
        program.put(0);
        0
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

/// The target of all stubs: passes on the arguments as they lie in registers and on the stack. Gets the address of a
/// form in `r11`.
#[cfg(all(simgpu_device, target_arch = "x86_64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn simgpu_stub() {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, r11",
        "mov rsi, rsp",
        "lea rdx, [rbp + 16]",
        "call {called}",
        "leave",
        "ret",
        called = sym called,
    )
}

/// The target of all stubs: passes on the arguments as they lie in registers and on the stack. Gets the address of a
/// form in `x16`.
#[cfg(all(simgpu_device, target_arch = "aarch64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn simgpu_stub() {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-80]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "mov x0, x16",
        "add x1, sp, #16",
        "add x2, sp, #80",
        "bl {called}",
        "ldp x29, x30, [sp], #80",
        "ret",
        called = sym called,
    )
}
