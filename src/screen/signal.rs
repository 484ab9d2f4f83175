//! Signals that end gpuwatch, and signals sent to exactly the process that the user selected: a descriptor holds it
//! from the question on, so that its pid cannot refer to another process by the time of the answer.

use crate::{
    facts::{
        event::ProcessInfo,
        remote::{Signal, Subject},
    },
    sources::system,
};
use libc::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGRTMAX, SIGRTMIN, SIGSTKFLT, SIGSYS, SIGTERM,
    SIGTRAP, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, c_int,
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{self, Pid, PidfdFlags, pidfd_open, pidfd_send_signal},
};

/// Returns the signals that would end gpuwatch while it has the terminal or an open recording: all whose default action
/// is to end it, except SIGKILL and those for faults of the program itself.
pub fn ending() -> impl Iterator<Item = c_int> {
    let named = [
        SIGHUP, SIGINT, SIGQUIT, SIGTRAP, SIGABRT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGSTKFLT, SIGXCPU, SIGVTALRM,
        SIGPROF, SIGIO, SIGPWR, SIGSYS,
    ];
    named.into_iter().chain(SIGRTMIN()..=SIGRTMAX())
}

/// A process that can receive a signal.
#[derive(Debug)]
pub struct Held {
    /// Its description, read after it was held.
    pub info: ProcessInfo,
    descriptor: OwnedFd,
}

impl Held {
    /// Holds the selected process, or returns the reason for the user.
    ///
    /// # Errors
    /// Fails if there is no process with this pid, if another process has it by now, or if the pid belongs to another
    /// namespace.
    pub fn hold(subject: &Subject) -> Result<Self, String> {
        let number = subject.pid;
        if !subject.vouched && system::in_container() {
            return Err(format!("pid {number} is the host's number, and this is a container: signal it from the host"));
        }
        let gone = || format!("pid {number} is not there any more");
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| match e {
            Errno::NOSYS => "signals are sent through pidfd, which this kernel does not have (Linux 5.3)".to_owned(),
            Errno::SRCH | Errno::INVAL => gone(),
            e => format!("pid {number}: {e}"),
        })?;
        let info = system::process(number).ok_or_else(gone)?;
        if subject.start_ticks.is_some_and(|it| it != info.start_ticks) {
            return Err(replaced(number));
        }
        Ok(Self { info, descriptor })
    }

    /// Checks that the process still runs, for those that reach it by its pid.
    ///
    /// # Errors
    /// Fails if it has ended, or if another process has its pid by now.
    pub fn check(&self) -> Result<(), String> {
        let number = self.info.pid;
        match system::runs_since(number) {
            None => Err(format!("pid {number} has ended")),
            Some(it) if it != self.info.start_ticks => Err(replaced(number)),
            Some(_) => Ok(()),
        }
    }

    /// Sends the signal.
    ///
    /// # Errors
    /// Fails if the process has ended or belongs to another user.
    pub fn send(&self, signal: Signal) -> Result<(), String> {
        let signal = match signal {
            Signal::Term => process::Signal::TERM,
            Signal::Int => process::Signal::INT,
            Signal::Kill => process::Signal::KILL,
            Signal::Stop => process::Signal::STOP,
            Signal::Cont => process::Signal::CONT,
            Signal::Usr1 => process::Signal::USR1,
        };
        let number = self.info.pid;
        pidfd_send_signal(&self.descriptor, signal).map_err(|e| match e {
            Errno::SRCH => format!("pid {number} has ended"),
            Errno::PERM => format!("pid {number} is of {}: only they and root may signal it", self.info.user),
            e => format!("pid {number}: {e}"),
        })
    }
}

fn replaced(pid: u32) -> String {
    format!("pid {pid} is another process by now")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };

    fn subject(pid: u32, start_ticks: Option<u64>) -> Subject {
        Subject { pid, start_ticks, vouched: true }
    }

    #[test]
    fn the_process_that_was_held_gets_the_signal_and_no_other_does() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has its name once it answers.
        child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let held = Held::hold(&subject(child.id(), system::start_ticks(child.id()))).unwrap();
        assert_eq!(held.info.argv[0].raw(), "cat");
        held.check().unwrap();
        held.send(Signal::Term).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(held.send(Signal::Kill).unwrap_err().contains("has ended"));
        assert!(held.check().unwrap_err().contains("has ended"));
    }

    #[test]
    fn another_start_is_another_process() {
        let own = std::process::id();
        let before = system::start_ticks(own).map(|it| it - 1);
        assert!(Held::hold(&subject(own, before)).unwrap_err().contains("another process"));
        assert!(Held::hold(&subject(u32::MAX, None)).unwrap_err().contains("not there"));
        assert!(Held::hold(&subject(0, None)).unwrap_err().contains("not there"));
    }
}
