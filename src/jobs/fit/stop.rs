//! A request to end (SIGTERM) reaches the job that is tried, so that none is left behind, and then ends gpuwatch.

use crate::jobs::launch::job::die_by;
use rustix::{
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use signal_hook::{consts::SIGTERM, iterator::Signals};
use std::{
    io,
    process::Child,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Whether a request came: a job may end by it as if it had not been asked.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// The process that runs now.
static RUNNING: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Passes requests to end on from now on. Without a process, they end this one.
///
/// # Errors
/// Fails if no thread can be started.
pub fn pass_on() -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in &mut signals {
            // The second request does not wait for the job.
            if IS_ASKED.swap(true, Ordering::AcqRel) {
                die_by(signal);
            }
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            match &*running {
                // It may have ended just now.
                Some(it) => drop(pidfd_send_signal(it, Signal::TERM)),
                None => drop(die_by(signal)),
            }
        }
    })?;
    Ok(())
}

/// Whether gpuwatch has to end.
pub(super) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Acquire)
}

/// Waits for a child, which gets the requests to end until then.
pub(super) fn wait<T>(child: Child, wait: impl FnOnce(Child) -> T) -> T {
    let set = |it| *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = it;
    set(pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok());
    let done = wait(child);
    set(None);
    done
}
