//! Children that must not outlive this process, however it ends: of itself, by a signal, or killed.

#![allow(unsafe_code, reason = "what a child does between fork and exec has no safe wrapper")]

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::{io, os::unix::process::CommandExt, process::Command};

/// Has the kernel kill a child once the thread that starts it has ended.
pub fn ends_with_us(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // This process may have ended before the call.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec this makes two system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(bind) };
}
