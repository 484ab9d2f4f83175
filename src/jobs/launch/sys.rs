//! Signals and standard streams at the level of the C library: what gpuwatch inherited, what it changes while a job
//! runs, and what it restores for the job.

#![allow(
    unsafe_code,
    reason = "a launcher changes the state of a process between fork and exec, which no safe call does"
)]

use crate::sources::proc::Status;
use std::{
    ffi::c_int,
    io,
    mem::MaybeUninit,
    os::unix::process::CommandExt,
    process::Command,
    ptr,
    sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
};

use rustix::process::{Pid, getpid};

/// Signals that gpuwatch ignores, because the failing write returns an error as well.
const OF_WRITES: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Whether gpuwatch was started with each of [`OF_WRITES`] ignored.
static IGNORED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Bit n is set if gpuwatch was started without descriptor n.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The standard streams.
const STREAMS: [c_int; 3] = [0, 1, 2];

/// Runs before Rust's runtime, which ignores SIGPIPE and opens `/dev/null` for closed standard streams.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_RUNTIME: extern "C" fn() = remember;

extern "C" fn remember() {
    for (signal, ignored) in OF_WRITES.into_iter().zip(&IGNORED) {
        ignored.store(is_ignored(signal), Relaxed);
    }
    // SAFETY: no thread was started yet, and the signal has no handler. Rust's runtime does the same with SIGPIPE.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for stream in STREAMS {
        // SAFETY: F_GETFD takes no further argument, and only reads.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << stream, Relaxed);
        }
    }
}

/// Returns whether gpuwatch was started without this standard stream, as by `>&-`.
pub fn was_closed(stream: c_int) -> bool {
    CLOSED.load(Relaxed) >> stream & 1 == 1
}

/// Returns whether this process ignores a signal, as under `nohup`.
pub fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills `action`, for which all zeros are a valid value.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Returns whether this process leads its session, as under `docker run -t` or `ssh -t`.
pub fn leads_session() -> bool {
    // SAFETY: the call takes no pointers. It gives 0 where the leader is outside of this pid namespace.
    unsafe { libc::getsid(0) == getpid().as_raw_nonzero().get() }
}

/// A received signal.
#[derive(Clone, Copy)]
pub struct Taken {
    /// Its number.
    pub signal: c_int,
    /// The process that sent it (0 if outside this pid namespace); `None` if the kernel did.
    pub sender: Option<i32>,
    /// The value from `sigqueue`.
    value: Option<libc::sigval>,
}

#[cfg(test)]
impl Taken {
    pub(super) fn new(signal: c_int, sender: Option<i32>) -> Self {
        Self { signal, sender, value: None }
    }
}

/// All signals of this process: blocked, and read with `sigwaitinfo`.
///
/// Handlers would run in the child between fork and exec, and would be indistinguishable from the job's own
/// dispositions. Blocked signals also reach process 1 of a container, to which the kernel delivers no signal without a
/// handler.
pub struct Signals {
    before: libc::sigset_t,
    child_ignored: bool,
}

impl Signals {
    /// Blocks every signal in this thread and those that it starts.
    pub fn take() -> io::Result<Self> {
        let child_ignored = is_ignored(libc::SIGCHLD);
        let mut before = empty();
        // SAFETY: both sets are initialised. The default action of SIGCHLD replaces no handler: gpuwatch installs none.
        let error = unsafe {
            // If a process ignores SIGCHLD, the kernel discards its children's exit statuses.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all(), &raw mut before)
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Self { before, child_ignored })
    }

    /// Makes a command start with the mask, the ignored signals and the closed streams that gpuwatch inherited.
    pub fn give_back_to(&self, command: &mut Command) {
        let Self { before, child_ignored } = *self;
        let restore = move || {
            // SAFETY: every call is async-signal-safe; what is closed is what the runtime opened for a closed stream.
            unsafe {
                for (signal, ignored) in OF_WRITES.into_iter().zip(&IGNORED) {
                    libc::signal(signal, action(ignored.load(Relaxed)));
                }
                libc::signal(libc::SIGCHLD, action(child_ignored));
                for stream in STREAMS.into_iter().filter(|it| was_closed(*it)) {
                    libc::close(stream);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: the closure allocates nothing, takes no lock and makes async-signal-safe calls only.
        unsafe { command.pre_exec(restore) };
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> Taken {
        loop {
            let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: the set is initialised, and the call fills `about`, for which all zeros are a valid value.
            let (signal, about) = unsafe { (libc::sigwaitinfo(&all(), about.as_mut_ptr()), about.assume_init()) };
            // It fails only when a stop interrupts it.
            if signal > 0 {
                let was_sent = about.si_code <= 0;
                // SAFETY: a signal that a process sent has a sender, and one of `sigqueue` a value.
                let (sender, value) = unsafe {
                    let is_queued = about.si_code == libc::SI_QUEUE;
                    (was_sent.then(|| about.si_pid()), is_queued.then(|| about.si_value()))
                };
                return Taken { signal, sender, value };
            }
        }
    }
}

/// Forwards a signal unchanged. Ignores a process that has ended.
pub fn send(to: Pid, taken: &Taken) {
    let pid = to.as_raw_nonzero().get();
    // SAFETY: neither call touches memory of this process.
    unsafe {
        match taken.value {
            Some(value) => libc::sigqueue(pid, taken.signal, value),
            None => libc::kill(pid, taken.signal),
        };
    }
}

/// Ends this process by a signal's default action; returns if that does not end it, as in process 1 of a container.
pub fn die_by(signal: c_int) {
    // SAFETY: the set is initialised, and no code of ours relies on a handler at the end of the process.
    unsafe {
        let mut set = empty();
        libc::sigaddset(&raw mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::kill(getpid().as_raw_nonzero().get(), signal);
    }
}

/// Returns whether a signal that ends programs waits for this process, which blocks them all.
pub fn is_ending() -> bool {
    let pending = Status::read(std::process::id()).mask("ShdPnd");
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].iter().any(|it| pending >> (it - 1) & 1 == 1)
}

fn action(is_ignored: bool) -> libc::sighandler_t {
    if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn all() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call initialises the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}
