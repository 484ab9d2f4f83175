//! Gives the terminal back when the program aborts or fails: at a signal that no destructor and no panic hook sees.
//!
//! Out of memory, a stack overflow and `abort` end a program by such a signal. What kills it outright (SIGKILL) leaves
//! the terminal as it is; the next start repairs it (`term::repair`).

#![allow(unsafe_code, reason = "only a handler of the C library runs at these signals, and it may call few functions")]

use super::{GIVE_BACK, TAKEN};
use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, c_int, c_void, sigaction, siginfo_t, termios};
use std::{
    mem::{MaybeUninit, transmute},
    ptr,
    sync::{OnceLock, atomic::Ordering::SeqCst},
};

const SIGNALS: [c_int; 5] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV];

/// A terminal that takes nothing must not keep a failed program alive.
const PATIENCE_MS: c_int = 500;

/// The terminal's settings before gpuwatch took it, and the handlers that were there.
static BEFORE: OnceLock<(termios, [sigaction; SIGNALS.len()])> = OnceLock::new();

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installs the handlers, once; call it while the terminal has the settings that it shall have afterwards.
pub(super) fn guard() {
    if BEFORE.get().is_some() {
        return;
    }
    let mut settings = MaybeUninit::<termios>::zeroed();
    // SAFETY: the call only fills `settings`, for which all zeros are a valid value.
    if unsafe { libc::tcgetattr(0, settings.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: the call has filled it.
    let settings = unsafe { settings.assume_init() };
    let earlier = SIGNALS.map(|signal| {
        let mut earlier = MaybeUninit::<sigaction>::zeroed();
        // SAFETY: without a new action the call only fills `earlier`, for which all zeros are a valid value.
        unsafe {
            libc::sigaction(signal, ptr::null(), earlier.as_mut_ptr());
            earlier.assume_init()
        }
    });
    // The handler finds what it needs from the first moment on.
    if BEFORE.set((settings, earlier)).is_err() {
        return;
    }
    for signal in SIGNALS {
        let handler: Handler = failed;
        // SAFETY: all zeros are a valid value: no flags, an empty mask.
        let mut action = unsafe { MaybeUninit::<sigaction>::zeroed().assume_init() };
        action.sa_sigaction = handler as usize;
        // After a stack overflow only the alternate stack, which Rust gives each thread, has room.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: `failed` calls only functions that a handler may call.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
}

/// Gives the terminal back, then lets the signal have the effect that it had before.
extern "C" fn failed(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some((settings, earlier)) = BEFORE.get() else { return };
    let Some(earlier) = SIGNALS.iter().position(|it| *it == signal).and_then(|at| earlier.get(at)) else { return };
    // SAFETY: the kernel passes a valid pointer, and only a signal of a process has a sender.
    let (code, sender) = unsafe { ((*info).si_code, (*info).si_pid()) };
    // SAFETY: the call takes nothing and cannot fail.
    let is_own = code <= 0 && sender == unsafe { libc::getpid() };
    if signal == SIGABRT && !is_own && earlier.sa_sigaction > libc::SIG_IGN && earlier.sa_flags & libc::SA_SIGINFO != 0
    {
        // Another process asks gpuwatch to end, and the view's loop does that in order.
        // SAFETY: a handler with SA_SIGINFO has this type, and it was installed for this signal.
        unsafe { transmute::<usize, Handler>(earlier.sa_sigaction)(signal, info, context) };
        return;
    }
    if TAKEN.swap(false, SeqCst) {
        give_back(settings);
    }
    // SAFETY: sigaction, signal and raise may be called in a handler, with valid arguments.
    unsafe {
        if code > 0 {
            // The instruction fails once more, now with the handler of before: Rust's reports a stack overflow.
            libc::sigaction(signal, ptr::from_ref(earlier), ptr::null_mut());
        } else {
            // It arrives when this handler returns.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

fn give_back(settings: &termios) {
    let mut output = libc::pollfd { fd: 1, events: libc::POLLOUT, revents: 0 };
    // SAFETY: poll, write and tcsetattr may be called in a handler; the pointers and lengths are those of live values.
    unsafe {
        if libc::poll(&raw mut output, 1, PATIENCE_MS) == 1 {
            libc::write(1, GIVE_BACK.as_ptr().cast(), GIVE_BACK.len());
        }
        libc::tcsetattr(0, libc::TCSANOW, ptr::from_ref(settings));
    }
}
