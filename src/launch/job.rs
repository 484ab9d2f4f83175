//! The job's process: same group, same terminal, same signals; and an end that looks like its own.

use std::{
    ffi::c_int,
    fs, io,
    process::{Command, ExitStatus},
};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, kill_process, setrlimit, waitpid,
};
use signal_hook::{
    consts::{
        SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
    },
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
    low_level::{
        emulate_default_handler,
        siginfo::{Cause, Origin},
    },
};

/// What would end or stop us while the job goes on. Each gets a handler, never `SIG_IGN`: that the job would inherit.
const TAKEN: [c_int; 8] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned this code.
    Code(u8),
    /// This signal ended it.
    Signal(c_int),
}

/// A started job.
pub struct Job {
    pid: Pid,
    signals: SignalsInfo<WithOrigin>,
    /// Somebody asked for a stop, and the job has not stopped yet.
    stopping: bool,
}

impl Job {
    /// Starts the job; every signal that we take is taken before, so that none is lost.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let ignored = ignored();
        let kept = TAKEN.into_iter().filter(|it| ignored >> (it - 1) & 1 == 0);
        let signals = SignalsInfo::<WithOrigin>::new(kept.chain([SIGCHLD]))?;
        let child = match command.spawn() {
            // A script without a `#!` line: what `execvp` and every shell do with one.
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg(command.get_program()).args(command.get_args());
                for (name, value) in command.get_envs() {
                    value.map(|it| shell.env(name, it));
                }
                shell.spawn()?
            }
            other => other?,
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the job has no process id"))?;
        Ok(Self { pid, signals, stopping: false })
    }

    /// The job's process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Passes signals on until the job is over.
    pub fn wait(mut self) -> Ended {
        loop {
            if let Some(ended) = self.look() {
                return ended;
            }
            let came: Vec<Origin> = self.signals.wait().collect();
            for origin in came {
                self.pass_on(&origin);
            }
        }
    }

    fn look(&mut self) -> Option<Ended> {
        loop {
            let status = match waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => status,
                Ok(None) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                // Somebody else has taken our child's end: there is nothing more to learn.
                Err(_) => return Some(Ended::Code(0)),
            };
            match ended(status) {
                Some(ended) => return Some(ended),
                None => self.stop_with_it(status.stopping_signal().unwrap_or(SIGSTOP)),
            }
        }
    }

    /// The terminal's stop was for both of us: the job has followed it, now we do, so that the shell gets its turn.
    ///
    /// A bare SIGSTOP was meant for the job alone, and whoever sent it may continue the job alone.
    fn stop_with_it(&mut self, signal: c_int) {
        let from_terminal = [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) || self.stopping;
        self.stopping = false;
        if from_terminal {
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    fn pass_on(&mut self, origin: &Origin) {
        match origin.signal {
            SIGCHLD => {}
            SIGCONT => {
                self.stopping = false;
                // A shell continues the whole group; somebody who knows only us means the job as well.
                if is_stopped(self.pid) {
                    self.send(SIGCONT);
                }
            }
            signal => {
                self.stopping |= signal == SIGTSTP;
                if self.is_for_us_alone(origin) {
                    self.send(signal);
                }
            }
        }
    }

    /// The terminal and the kernel signal whole groups: the job has had it. A process named us.
    fn is_for_us_alone(&self, origin: &Origin) -> bool {
        let sent = matches!(origin.cause, Cause::Sent(_));
        // The job itself can only have meant its group (or a test of its parent, which forwarding would turn on itself).
        let by_job = origin.process.is_some_and(|it| it.pid == self.pid.as_raw_nonzero().get());
        sent && !by_job
    }

    fn send(&self, signal: c_int) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(self.pid, signal);
        }
    }
}

/// Ends this process as the job ended, without a core file of ours beside the job's.
pub fn die_by(signal: c_int) -> u8 {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
    // A signal that we do not know how to die by: say it as shells do.
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

/// Bit n-1 is set where signal n is ignored: by `nohup`, or by whoever started us.
fn ignored() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = text.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0)
}

fn is_stopped(pid: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name, in parentheses, may hold anything; what follows its end may not.
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
