//! Notifies a program of reads whose values were never computed, and of calls that are not simulated.
//!
//! `simgpu_watch` takes one function of the program. It is called in the thread that made the call, with no lock of the
//! device's held, so that it may read that thread's stack.

use std::{
    ffi::{CString, c_char},
    mem,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The kind of event that the function receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Bytes were read whose value was never computed. The name is their number; of up to 16 bytes, what the function
    /// returns is read instead, as a whole number of 64 bits in little-endian order.
    Read = 1,
    /// A function was called that is not simulated.
    Refused = 2,
    /// cuDNN was asked for a plan. The name is the bytes of its operations' tensors.
    Convolution = 3,
    /// The driver was asked to load kernels of the program's own.
    Module = 4,
    /// Bytes were read of which absent ranks sent some: what a present rank sends was taken for it. The name is their
    /// number.
    Assumed = 5,
}

type Watcher = extern "C" fn(kind: i32, name: *const c_char) -> i64;

static WATCHER: AtomicUsize = AtomicUsize::new(0);

/// Calls the program's function, if there is one, and returns its answer, or 0. The caller must hold no lock.
pub(super) fn report(what: Seen, name: impl FnOnce() -> String) -> i64 {
    let address = WATCHER.load(Ordering::Acquire);
    if address == 0 {
        return 0;
    }
    // SAFETY: `simgpu_watch` alone stores here, and its caller vouches for the function's type.
    let watcher = unsafe { mem::transmute::<usize, Watcher>(address) };
    CString::new(name()).map_or(0, |name| watcher(what as i32, name.as_ptr()))
}

/// Kernels that were launched, those of libraries among them.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Counts a kernel.
pub(super) fn launched() {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

entry_points! {
    // Kernels that the process has launched; each call of a library for matrices or convolutions is one.
    fn simgpu_launches() -> u64 {
        LAUNCHES.load(Ordering::Relaxed)
    }

    // 0 ends it.
    fn simgpu_watch(watcher: usize) -> () {
        WATCHER.store(watcher, Ordering::Release);
    }
}
