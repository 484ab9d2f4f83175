//! The job's process, in the same group, on the same terminal, with the same signals; gpuwatch ends the way the job
//! does.

use std::{
    ffi::c_int,
    io,
    process::{Command, ExitStatus},
};

use libc::{__WNOTHREAD, SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGPROF, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGVTALRM};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, kill_process, setrlimit, wait};

use crate::sources::proc::Stat;

use super::sys::{self, Signals, Taken};

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(c_int),
}

/// A started job.
pub struct Job {
    pid: Pid,
    signals: Signals,
    /// A stop was requested, and the job has not stopped yet.
    stopping: bool,
}

impl Job {
    /// Starts the job; takes every signal before, so that none is lost.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let signals = Signals::take()?;
        signals.give_back_to(command);
        let child = match command.spawn() {
            // A script without a `#!` line: run it as `execvp` and every shell do.
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg(command.get_program()).args(command.get_args());
                for (name, value) in command.get_envs() {
                    value.map(|it| shell.env(name, it));
                }
                signals.give_back_to(&mut shell);
                shell.spawn()?
            }
            other => other?,
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the job has no process id"))?;
        Ok(Self { pid, signals, stopping: false })
    }

    /// Returns the job's pid.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Forwards signals until the job is over.
    pub fn wait(mut self) -> Ended {
        loop {
            if let Some(ended) = self.check() {
                return ended;
            }
            let taken = self.signals.wait();
            self.pass_on(&taken);
        }
    }

    /// Reaps ended processes: the job, and orphans, which the kernel assigns to process 1 of a container and to a
    /// subreaper.
    ///
    /// Leaves the children of other threads to them.
    fn check(&mut self) -> Option<Ended> {
        let here = WaitOptions::from_bits_retain(__WNOTHREAD.cast_unsigned());
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | here) {
                Ok(Some(found)) => found,
                Ok(None) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                // There are no children left, and only this loop waits for them.
                Err(_) => return Some(Ended::Code(1)),
            };
            if pid != self.pid {
                continue;
            }
            match ended(status) {
                Some(ended) => return Some(ended),
                None => self.stop_with_it(status.stopping_signal().unwrap_or(SIGSTOP)),
            }
        }
    }

    /// The terminal's stop was for both: the job has stopped, and now gpuwatch does, so that the shell continues.
    ///
    /// A bare SIGSTOP was for the job alone, and its sender may continue the job alone.
    fn stop_with_it(&mut self, signal: c_int) {
        let from_terminal = [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) || self.stopping;
        self.stopping = false;
        if from_terminal {
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    fn pass_on(&mut self, taken: &Taken) {
        match taken.signal {
            SIGCHLD => {}
            SIGCONT => {
                self.stopping = false;
                // A shell continues the whole group; a process that only knows gpuwatch means the job as well.
                if is_stopped(self.pid) {
                    sys::send(self.pid, taken);
                }
            }
            signal => {
                self.stopping |= signal == SIGTSTP;
                if is_for_us_alone(taken, self.pid, sys::leads_session()) {
                    sys::send(self.pid, taken);
                }
            }
        }
    }
}

/// Whether a signal did not reach the job as well: a terminal signals whole groups, a process signals one.
fn is_for_us_alone(taken: &Taken, job: Pid, leads_session: bool) -> bool {
    match (taken.sender, taken.signal) {
        // The job itself can only have meant its group (or tested its parent, and forwarding would signal the job).
        (Some(sender), _) => sender != job.as_raw_nonzero().get(),
        // A timer set before gpuwatch replaced the process, as in `perl -e 'alarm 60; exec @ARGV'`.
        (None, SIGALRM | SIGVTALRM | SIGPROF) => true,
        // A terminal that hangs up signals only the leader of its session while that is alive.
        (None, SIGHUP) => leads_session,
        (None, _) => false,
    }
}

/// Ends this process by the job's signal, without another core file. If the signal does not end it, returns the shell's
/// exit code for the signal.
pub fn die_by(signal: c_int) -> u8 {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    sys::die_by(signal);
    u8::try_from(signal).unwrap_or(0).saturating_add(128)
}

fn ended(status: WaitStatus) -> Option<Ended> {
    use std::os::unix::process::ExitStatusExt;
    if status.stopped() || status.continued() {
        return None;
    }
    let status = ExitStatus::from_raw(status.as_raw());
    match status.code() {
        Some(code) => Some(Ended::Code(u8::try_from(code).unwrap_or(u8::MAX))),
        None => Some(Ended::Signal(status.signal().unwrap_or_default())),
    }
}

fn is_stopped(pid: Pid) -> bool {
    Stat::of(pid.as_raw_nonzero().get().unsigned_abs()).is_some_and(|it| it.state == 'T')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_job_has_not_had_is_passed_on() {
        let job = Pid::from_raw(42).unwrap();
        let passed = |signal, sender, leads| is_for_us_alone(&Taken::new(signal, sender), job, leads);
        assert!(passed(libc::SIGTERM, Some(7), false), "a process named us");
        assert!(passed(libc::SIGTERM, Some(0), false), "from outside of the container");
        assert!(!passed(libc::SIGTERM, Some(42), false), "the job meant its group");
        assert!(!passed(libc::SIGINT, None, false), "the terminal signalled the whole group");
        assert!(passed(SIGALRM, None, false), "a timer is inherited through exec only");
        assert!(passed(SIGHUP, None, true) && !passed(SIGHUP, None, false));
    }
}
