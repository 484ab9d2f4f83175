//! What keys do to processes of this machine: signals, captures, probes and traces. `gpuwatch stream` does the same for
//! the keys of a gpuwatch on another machine.

use crate::{
    config::File,
    facts::{
        event::{CaptureRequest, ProcessInfo, Request},
        remote::{Signal, Start, Subject},
    },
    sources::{proc, system},
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{self, Pid, PidfdFlags, pidfd_open, pidfd_send_signal},
};
use std::{
    env, io,
    process::{Command, Output, Stdio},
    thread,
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Acts on processes of this machine.
#[derive(Debug, Default)]
pub struct LocalActions {
    asks: Option<mpsc::Sender<Request>>,
    held: Option<HeldProcess>,
    starter: Starter,
    config: Option<File>,
}

impl LocalActions {
    /// Creates actions that send captures there, and whose children take their settings from this file.
    pub fn new(asks: Option<mpsc::Sender<Request>>, config: Option<File>) -> Self {
        Self { asks, config, ..Self::default() }
    }

    /// Holds a process in place of the one before, and returns its description.
    ///
    /// # Errors
    /// Fails if the process is not there any more.
    pub fn hold(&mut self, subject: &Subject) -> Result<&ProcessInfo, String> {
        self.held = None;
        let held = HeldProcess::hold(subject)?;
        Ok(&self.held.insert(held).info)
    }

    /// Sends a signal to the held process, and returns that.
    ///
    /// # Errors
    /// Fails if the process has ended or belongs to another user.
    pub fn send(&mut self, signal: Signal) -> Result<String, String> {
        let name = signal.name();
        let held = self.held.take().ok_or_else(|| format!("{name} was not sent: no process is selected"))?;
        match held.send(signal) {
            Ok(()) => Ok(format!("sent {name} to pid {}", held.info.pid)),
            Err(why) => Err(format!("{name} was not sent: {why}")),
        }
    }

    /// Starts something at the held process, and returns its pid; [`Self::answer`] completes with this tag.
    ///
    /// # Errors
    /// Fails if the process has ended, if too many children run, or if no child can be started.
    pub fn start(&mut self, what: Start, tag: u64) -> Result<u32, String> {
        let fault = |why: String| format!("{}: {why}", what.not_started());
        let held = self.held.take().ok_or_else(|| fault("no process is selected".to_owned()))?;
        let pid = held.info.pid;
        held.check().map_err(fault)?;
        self.starter.start(what, pid, tag, self.config.as_ref()).map_err(|it| fault(it.to_string()))?;
        Ok(pid)
    }

    /// Sends a request to its probe.
    ///
    /// # Errors
    /// Fails if this view reads no probes, or while the queue is full.
    pub fn capture(&self, ask: CaptureRequest) -> Result<(), String> {
        let asks = self.asks.as_ref().ok_or("this view reads no probes")?;
        asks.try_send(ask.into()).map_err(|_full| "too many captures are waiting: try again".to_owned())
    }

    /// Waits for the answer of what was started at a process; returns it with its tag.
    pub async fn answer(&mut self) -> (u64, String) {
        self.starter.answer().await
    }
}

/// A process that can receive a signal.
#[derive(Debug)]
pub struct HeldProcess {
    /// Its description, read after it was held.
    pub info: ProcessInfo,
    descriptor: OwnedFd,
}

impl HeldProcess {
    /// Holds the selected process, or returns the reason for the user.
    ///
    /// # Errors
    /// Fails if there is no process with this pid, if another process has it by now, or if the pid belongs to another
    /// namespace.
    pub fn hold(subject: &Subject) -> Result<Self, String> {
        let number = subject.pid;
        if !subject.vouched && proc::in_container() {
            return Err(format!("pid {number} is the host's number, and this is a container: signal it from the host"));
        }
        let gone = || format!("pid {number} has ended");
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

/// Child processes at the same time.
const RUNNING_MAX: usize = 4;

/// Child processes, and their answers.
#[derive(Debug)]
pub struct Starter {
    sender: UnboundedSender<(u64, String)>,
    answers: UnboundedReceiver<(u64, String)>,
    /// Children whose answer was not taken yet.
    running: usize,
}

impl Default for Starter {
    fn default() -> Self {
        let (sender, answers) = unbounded_channel();
        Self { sender, answers, running: 0 }
    }
}

impl Starter {
    /// Starts the probe or a trace in a process; its answer has the tag. The child continues when this view ends.
    ///
    /// # Errors
    /// Fails if too many children run, or if no child or no thread can be started.
    pub fn start(&mut self, what: Start, pid: u32, tag: u64, config: Option<&File>) -> io::Result<()> {
        self.run(command(what, pid, config)?, what, pid, tag)
    }

    fn run(&mut self, mut command: Command, what: Start, pid: u32, tag: u64) -> io::Result<()> {
        if self.running == RUNNING_MAX {
            let why = format!("{RUNNING_MAX} others are still running: try again when one of them has answered");
            return Err(io::Error::other(why));
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let sender = self.sender.clone();
        thread::Builder::new().name("starter".into()).spawn(move || {
            let words = match child.wait_with_output() {
                // Its table is for another screen; this one shows the answer beside the probe's socket.
                Ok(output) if what == Start::Trace && !output.stdout.is_empty() => {
                    format!("pid {pid}: its process screen shows what other settings would save")
                }
                Ok(output) if what == Start::Peak && !output.stdout.is_empty() => {
                    format!("pid {pid}: its process screen shows what the peak is made of")
                }
                Ok(output) => answer(&output),
                Err(error) => format!("pid {pid}: {}: {error}", what.not_started()),
            };
            // The view may have ended.
            let _ = sender.send((tag, words));
        })?;
        self.running += 1;
        Ok(())
    }

    /// Waits for an answer; returns it with its tag.
    pub async fn answer(&mut self) -> (u64, String) {
        // This object has a sender itself, so that the queue is never closed.
        let answer = self.answers.recv().await.unwrap_or_default();
        self.running -= 1;
        answer
    }
}

/// Returns the command. It takes its settings from the file that this view has.
fn command(what: Start, pid: u32, config: Option<&File>) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    match what {
        Start::Probe => command.args(["attach", &pid.to_string()]),
        Start::Trace => command.args(["whatif", &pid.to_string()]),
        Start::Peak => command.args(["peak", &pid.to_string()]),
    };
    if let Some(name) = config.and_then(File::name) {
        command.arg("--config").arg(name);
    }
    Ok(command)
}

/// Returns the lines in one: what was done first, then what is recorded.
fn answer(output: &Output) -> String {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    let lines: Vec<&str> = all.lines().map(|it| it.strip_prefix("gpuwatch: ").unwrap_or(it)).collect();
    lines.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::{
        fs,
        io::{Read, Write},
        os::unix::process::ExitStatusExt,
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
        let held = HeldProcess::hold(&subject(child.id(), system::start_ticks(child.id()))).unwrap();
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
        assert!(HeldProcess::hold(&subject(own, before)).unwrap_err().contains("another process"));
        assert!(HeldProcess::hold(&subject(u32::MAX, None)).unwrap_err().contains("has ended"));
        assert!(HeldProcess::hold(&subject(0, None)).unwrap_err().contains("has ended"));
    }

    #[test]
    fn a_child_takes_its_settings_from_the_file_of_the_view() {
        let (none, file) = (File::default(), File::named_so("my.toml".as_ref()));
        for what in [Start::Probe, Start::Trace, Start::Peak] {
            let arguments = |it| command(what, 7, it).unwrap().get_args().map(ToOwned::to_owned).collect::<Vec<_>>();
            let own = arguments(None);
            assert_eq!(arguments(Some(&none)), own);
            assert_eq!(arguments(Some(&file)), [own, ["--config", "my.toml"].map(Into::into).to_vec()].concat());
        }
    }

    #[test]
    fn a_child_more_than_the_bound_is_refused_until_another_has_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        let mut lines = fs::File::options().read(true).write(true).open(&path).unwrap();
        // Each child ends with a line of its own.
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", "read line < \"$0\"; echo done"]).arg(&path);
            command
        };
        let mut starter = Starter::default();
        for tag in 1..=4 {
            starter.run(command(), Start::Probe, 7, tag).unwrap();
        }
        let why = starter.run(command(), Start::Probe, 7, 5).unwrap_err().to_string();
        assert!(why.contains("4 others are still running: try again"), "{why}");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        lines.write_all(b"\n").unwrap();
        assert_eq!(runtime.block_on(starter.answer()).1, "done");
        starter.run(command(), Start::Probe, 7, 5).unwrap();
        lines.write_all(b"\n\n\n\n").unwrap();
        for _ in 0..4 {
            assert_eq!(runtime.block_on(starter.answer()).1, "done");
        }
    }

    #[test]
    fn an_answer_is_one_line() {
        let output = Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: b"process 7: the probe runs\n".to_vec(),
            stderr: b"gpuwatch: recording to x\n".to_vec(),
        };
        assert_eq!(answer(&output), "process 7: the probe runs · recording to x");
    }
}
