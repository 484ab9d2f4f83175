//! Makes a thread of another process call two functions of its own: one that maps a page, and one that queues a call
//! in Python. The thread makes the second call, and restores itself, when it is let go. The only `unsafe` code of
//! attaching: `ptrace`.
//!
//! At every moment the thread continues by itself if this process dies: it runs with its own registers, or it is on its
//! way into a frame that restores them (`frame`).

#![allow(unsafe_code, reason = "ptrace has no safe wrapper")]

use super::{
    frame::{self, Context, Registers},
    runtime::Runtime,
};
use libc::{c_int, c_long, c_void, iovec, pid_t};
use std::{
    arch::x86_64::__cpuid_count,
    fs::File,
    io,
    mem::{MaybeUninit, size_of},
    os::unix::fs::FileExt,
    ptr,
    time::{Duration, Instant},
};
use thiserror::Error;

const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;

/// More than any save area that a frame can hold has.
const SAVE_AREA_MAX: usize = 64 << 10;

/// What a page takes, and what it is mapped with.
pub(super) const PAGE: u64 = 4096;
const READ_WRITE: u64 = 3;
const PRIVATE_ANONYMOUS: u64 = 0x22;

const SYS_MMAP: u64 = 9;

/// How long a change is waited for at once, where no signal reports it.
const NAP: Duration = Duration::from_millis(1);

/// Addresses in the other process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// `mmap` of the C library.
    pub(super) map: u64,
    /// Its instructions that call `rt_sigreturn`.
    pub(super) restorer: u64,
    /// `Py_AddPendingCall`.
    pub(super) add_pending: u64,
    /// `PyRun_SimpleString`.
    pub(super) run_string: u64,
    /// `_PyRuntime`.
    pub(super) runtime: Runtime,
}

/// Why nothing was queued. The thread runs as before.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// The kernel does not allow it.
    #[error("{0}")]
    Refused(io::Error),
    /// The process ended.
    #[error("it ended")]
    Ended,
    /// Its Python shuts down, or has: there is nothing left that a call can be queued in.
    #[error("it is ending, and its Python shuts down")]
    Ending,
    /// It was stopped by a signal meanwhile.
    #[error("a signal stopped it meanwhile")]
    Suspended,
    /// The thread did not get there in time.
    #[error("it did not answer within {} ms", LIMIT.as_millis())]
    Late,
    /// There is no room below its stack pointer.
    #[error("its stack has no room")]
    NoRoom,
}

/// How long the thread may be held.
pub(super) const LIMIT: Duration = Duration::from_millis(100);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.raw_os_error() == Some(libc::ESRCH) { Self::Ended } else { Self::Refused(error) }
    }
}

/// Has the thread queue a call of `PyRun_SimpleString` with the text that `text` makes of the page's address. Returns
/// how long it was held at most: the call itself is made by the thread alone.
pub(super) fn queue(
    pid: u32,
    memory: &File,
    at: Addresses,
    text: impl FnOnce(u64) -> Vec<u8>,
) -> Result<Duration, Failure> {
    // Asked before the thread is stopped: a virtual machine's host answers, which takes its time.
    let features: Vec<(usize, usize)> = (0..64).map(feature).collect();
    let _blocked = Blocked::children();
    let mut thread = Stopped::stop(pid)?;
    // The main thread is the one that shuts Python down, and it does nothing of its own before the call is queued.
    if at.runtime.runs(memory) != Some(true) {
        return Err(Failure::Ending);
    }
    let context = thread.context()?;
    let layout = frame::lay_out(&context, at.restorer, &features).ok_or(Failure::NoRoom)?;
    memory.write_all_at(&layout.bytes, layout.stack).map_err(|_unmapped| Failure::NoRoom)?;
    let call = |function, arguments| frame::calling(&context.registers, layout.stack, function, arguments);
    // From here on the thread restores itself when it is let go. The mask follows the registers: alone it would stay.
    thread.set_registers(&call(at.map, [0, PAGE, READ_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0]))?;
    thread.set_mask(u64::MAX)?;
    let page = thread.mapped()?;
    memory.write_all_at(&text(page), page)?;
    // What is below the thread's stack pointer is as it was when the first call began.
    thread.set_registers(&call(at.add_pending, [at.run_string, page, 0, 0, 0, 0]))?;
    let since = thread.since;
    drop(thread);
    Ok(since.elapsed())
}

/// A thread that stands still. Dropping it resumes it.
struct Stopped {
    pid: pid_t,
    since: Instant,
    is_gone: bool,
}

/// What a waiting tracer learns of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// At the entry or exit of a system call.
    Call,
    /// Stopped on request.
    Stop,
    /// About to receive a signal.
    Signal(c_int),
    /// Stopped by a signal.
    Suspended,
}

impl Stopped {
    fn stop(pid: u32) -> Result<Self, Failure> {
        let pid = pid_t::try_from(pid).map_err(|_too_large| Failure::Ended)?;
        request(libc::PTRACE_SEIZE, pid, 0, c_long::from(libc::PTRACE_O_TRACESYSGOOD))?;
        let mut thread = Self { pid, since: Instant::now(), is_gone: false };
        request(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
        loop {
            match thread.wait()? {
                News::Stop => return Ok(thread),
                News::Suspended => return Err(Failure::Suspended),
                News::Signal(signal) => request(libc::PTRACE_CONT, pid, 0, signal.into())?,
                News::Call => request(libc::PTRACE_CONT, pid, 0, 0)?,
            }
        }
    }

    /// Lets the thread run until its `mmap` returns from the kernel; the page's address.
    fn mapped(&mut self) -> Result<u64, Failure> {
        let mut is_entry = false;
        loop {
            request(libc::PTRACE_SYSCALL, self.pid, 0, 0)?;
            match self.wait()? {
                News::Call => {
                    is_entry = !is_entry;
                    let now = self.registers()?;
                    if !is_entry && now.orig_rax == SYS_MMAP {
                        // The kernel's errors are the last page of all addresses.
                        return if now.rax < u64::MAX - PAGE { Ok(now.rax) } else { Err(Failure::NoRoom) };
                    }
                }
                // Every signal is blocked that can be.
                News::Signal(_) | News::Stop => {}
                // It restores itself once it is resumed.
                News::Suspended => return Err(Failure::Suspended),
            }
        }
    }

    fn context(&self) -> Result<Context, Failure> {
        let mut floating = vec![0; SAVE_AREA_MAX];
        let length = get(self.pid, NT_X86_XSTATE, &mut floating)?;
        floating.truncate(length);
        let mut mask = 0_u64;
        let at = (&raw mut mask).cast::<c_void>();
        // SAFETY: the kernel writes the size that is given into a number of that size.
        let done = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, self.pid, size_of::<u64>(), at) };
        if done == -1 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(Context { registers: self.registers()?, floating, mask })
    }

    fn set_mask(&self, mut mask: u64) -> Result<(), Failure> {
        let at = (&raw mut mask).cast::<c_void>();
        // SAFETY: the kernel reads the size that is given from a number of that size.
        let done = unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, self.pid, size_of::<u64>(), at) };
        if done == -1 { Err(io::Error::last_os_error().into()) } else { Ok(()) }
    }

    fn registers(&self) -> Result<Registers, Failure> {
        let mut bytes = [0; size_of::<Registers>()];
        get(self.pid, NT_PRSTATUS, &mut bytes)?;
        // SAFETY: the struct is numbers alone, of the same size, and any bits are a number.
        Ok(unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<Registers>()) })
    }

    fn set_registers(&self, registers: &Registers) -> Result<(), Failure> {
        let mut copy = *registers;
        let at = (&raw mut copy).cast::<u8>();
        // SAFETY: the slice is the struct's own bytes, and numbers have no padding in between.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, size_of::<Registers>()) };
        Ok(set(self.pid, NT_PRSTATUS, bytes)?)
    }

    /// Waits until the thread stands still.
    fn wait(&mut self) -> Result<News, Failure> {
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes one number.
            let found = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if found == -1 {
                let error = io::Error::last_os_error();
                self.is_gone = error.raw_os_error() == Some(libc::ECHILD);
                return Err(if self.is_gone { Failure::Ended } else { error.into() });
            }
            if found != 0 {
                if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                    self.is_gone = true;
                    return Err(Failure::Ended);
                }
                return Ok(news(status));
            }
            let left = LIMIT.saturating_sub(self.since.elapsed());
            if left.is_zero() {
                return Err(Failure::Late);
            }
            child_news(left.min(NAP));
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.is_gone || request(libc::PTRACE_DETACH, self.pid, 0, 0).is_ok() {
            return;
        }
        // Only a thread that stands still can be let go. One that cannot be stopped is let go with this process.
        self.since = Instant::now();
        if request(libc::PTRACE_INTERRUPT, self.pid, 0, 0).is_ok() && self.wait().is_ok() {
            let _ = request(libc::PTRACE_DETACH, self.pid, 0, 0);
        }
    }
}

/// The signal of children's news is blocked, so that it is waited for.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn children() -> Self {
        let (mut before, now) = (empty(), children());
        // SAFETY: both sets are initialised, and the mask is this thread's own.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const now, &raw mut before) };
        Self(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the kernel, and the mask is this thread's own.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn children() -> libc::sigset_t {
    let mut set = empty();
    // SAFETY: the set is initialised.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    set
}

/// Waits for news of children, which the caller then asks for.
fn child_news(limit: Duration) {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: c_long::from(limit.subsec_nanos()) };
    let children = children();
    // SAFETY: the set and the time are initialised, and nothing is written.
    unsafe { libc::sigtimedwait(&raw const children, ptr::null_mut(), &raw const limit) };
}

fn news(status: c_int) -> News {
    let signal = libc::WSTOPSIG(status);
    let event = status >> 16;
    match (signal, event) {
        (it, _) if it == libc::SIGTRAP | 0x80 => News::Call,
        (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => News::Stop,
        (_, libc::PTRACE_EVENT_STOP) => News::Suspended,
        (signal, _) => News::Signal(signal),
    }
}

fn request(what: libc::c_uint, pid: pid_t, address: usize, data: c_long) -> Result<(), Failure> {
    // SAFETY: none of these requests touches memory of this process.
    let done = unsafe { libc::ptrace(what, pid, address, data) };
    if done == -1 { Err(io::Error::last_os_error().into()) } else { Ok(()) }
}

/// Reads a set of registers; how many bytes it has.
fn get(pid: pid_t, what: usize, into: &mut [u8]) -> io::Result<usize> {
    let mut part = iovec { iov_base: into.as_mut_ptr().cast::<c_void>(), iov_len: into.len() };
    // SAFETY: the kernel writes at most as many bytes as the slice has.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, what, &raw mut part) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(part.iov_len) }
}

fn set(pid: pid_t, what: usize, from: &mut [u8]) -> io::Result<()> {
    let mut part = iovec { iov_base: from.as_mut_ptr().cast::<c_void>(), iov_len: from.len() };
    // SAFETY: the kernel reads at most as many bytes as the slice has.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid, what, &raw mut part) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The offset and the size of a feature in the save area.
fn feature(number: u32) -> (usize, usize) {
    #[allow(unused_unsafe, reason = "older compilers want it")]
    // SAFETY: every x86_64 processor has the instruction; where the leaf is missing, the kernel saves no features.
    let found = unsafe { __cpuid_count(13, number) };
    (usize::try_from(found.ebx).unwrap_or(0), usize::try_from(found.eax).unwrap_or(0))
}
