//! Starts probes and traces on request: `gpuwatch attach` or `gpuwatch whatif` in a process of its own. The screen
//! shows its answer when it comes.

use crate::{config::File, facts::remote::Start};
use std::{
    env, io,
    process::{Command, Output, Stdio},
    thread,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

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
    use std::{fs, io::Write, os::unix::process::ExitStatusExt};

    #[test]
    fn a_child_takes_its_settings_from_the_file_of_the_view() {
        let (none, file) = (File::default(), File::named_so("my.toml".as_ref()));
        for what in [Start::Probe, Start::Trace] {
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
