//! The common parts of the runtime's and the driver's calls: their answers, and the context that they need.

use super::{
    abi::{Answer, Fault, Out, code, trace},
    process::{current, process, set_current},
};
use std::cell::Cell;

/// Contexts are named by these numbers, one a device.
pub(super) const FIRST_CONTEXT: usize = 0x51a0_0001;

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// The number that the caller gets; an error is also the thread's last one.
pub(super) fn answer(answer: Answer) -> i32 {
    if let Err(fault) = answer {
        trace(|| format!("{fault:?}"));
        LAST.set(fault as i32);
    }
    code(answer)
}

/// An ordinal that C callers pass as `int`.
pub(super) fn ordinal(device: i32) -> Result<usize, Fault> {
    usize::try_from(device).or(Err(Fault::InvalidDevice))
}

/// Work that needs the thread's device to have a context.
pub(super) fn with_context<R>(work: impl FnOnce() -> Result<R, Fault>) -> Result<R, Fault> {
    process().context(current())?;
    work()
}

/// The thread's last error.
pub(super) fn last_error() -> i32 {
    LAST.get()
}

/// The same, which is then forgotten.
pub(super) fn take_last_error() -> i32 {
    LAST.replace(0)
}

/// Bytes free and in all of a device.
pub(super) fn memory_info(device: usize, free: Out<usize>, total: Out<usize>) -> Answer {
    let (bytes_free, bytes_total) = process().memory(device)?;
    free.put(usize::try_from(bytes_free).unwrap_or(usize::MAX));
    total.put(usize::try_from(bytes_total).unwrap_or(usize::MAX));
    Ok(())
}

thread_local! {
    /// The context that this thread set, where it set one.
    static CONTEXT: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn current_context() -> usize {
    let set = CONTEXT.get();
    if set != 0 || !process().has_context(current()) { set } else { FIRST_CONTEXT + current() }
}

pub(super) fn make_current(context: usize) -> Answer {
    if context != 0 {
        let device = context.checked_sub(FIRST_CONTEXT).ok_or(Fault::InvalidContext)?;
        process().index(device).or(Err(Fault::InvalidContext))?;
        set_current(device);
    }
    CONTEXT.set(context);
    Ok(())
}

/// Work of a call of the driver API, which needs a context and never makes one.
pub(super) fn in_context<R>(work: impl FnOnce() -> Result<R, Fault>) -> Result<R, Fault> {
    if current_context() == 0 { Err(Fault::InvalidContext) } else { work() }
}
