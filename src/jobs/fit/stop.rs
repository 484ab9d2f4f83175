//! A request to end (SIGTERM, SIGHUP, or Ctrl-C) reaches the job that is tried, so that none is left behind, and then
//! ends gpuwatch.

use crate::{
    jobs::launch::{job::die_by, sys::is_ignored},
    sources::proc::children_of_first_thread,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    collections::BTreeMap,
    io,
    process::{Child, ExitStatus},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

/// Seconds that a child has to end by itself.
const GRACE: u64 = 10;

/// The signal of the first request, or 0: a job may end by it as if it had not been asked.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// The processes that run now, by their ids.
static RUNNING: Mutex<BTreeMap<u32, OwnedFd>> = Mutex::new(BTreeMap::new());

/// Passes requests to end on from now on. Without a process, they end this one. A signal that was ignored when gpuwatch
/// was started, as by nohup, stays ignored.
///
/// # Errors
/// Fails if no thread can be started.
pub fn pass_on() -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP].into_iter().filter(|it| !is_ignored(*it)))?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in &mut signals {
            // The second request does not wait for the job.
            if ASKED.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_err() {
                die_by(signal);
            }
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            if running.is_empty() {
                die_by(signal);
            }
            for it in running.values() {
                // It may have ended just now.
                let _ = pidfd_send_signal(it, Signal::TERM);
            }
        }
    })?;
    Ok(())
}

/// Returns the signal that asked gpuwatch to end; `None` if none did.
pub(super) fn asked() -> Option<i32> {
    Some(ASKED.load(Ordering::Acquire)).filter(|it| *it != 0)
}

/// Waits for a child as [`wait`] does, and calls `second` with the seconds that it has run, each second. Ends the child
/// when that returns true.
pub(super) fn watch(child: Child, mut second: impl FnMut(u64) -> bool) -> io::Result<ExitStatus> {
    let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    wait(child, |mut child| {
        let Ok(descriptor) = descriptor else { return child.wait() };
        let mut ending = 0;
        for seconds in 1.. {
            let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
            match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
            if ending > 0 || second(seconds) {
                // The child passes the first request on; one that stays is not asked again.
                let signal = if ending < GRACE { Signal::TERM } else { Signal::KILL };
                if ending == 0 || ending == GRACE {
                    end(child.id(), &descriptor, signal);
                }
                ending += 1;
            }
        }
        child.wait()
    })
}

/// Signals a child; with SIGKILL, which it cannot pass on, its own children too.
fn end(child: u32, descriptor: &OwnedFd, signal: Signal) {
    if signal == Signal::KILL {
        let children = children_of_first_thread(child).into_iter();
        for pid in children.filter_map(|it| Pid::from_raw(it.try_into().ok()?)) {
            let _ = kill_process(pid, signal);
        }
    }
    // It may have ended just now.
    let _ = pidfd_send_signal(descriptor, signal);
}

/// Waits for a child, which gets the requests to end until then.
pub(super) fn wait<T>(child: Child, wait: impl FnOnce(Child) -> T) -> T {
    let id = child.id();
    let running = || RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(it) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        running().insert(id, it);
    }
    let done = wait(child);
    running().remove(&id);
    done
}
