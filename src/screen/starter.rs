//! Starts probes and traces on request: `gpuwatch attach` or `gpuwatch whatif` in a process of its own. The screen
//! shows its answer when it comes.

use crate::{config::File, screen::ui::Start};
use std::{
    env, io,
    process::{Command, Output, Stdio},
    thread,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Child processes, and their answers.
#[derive(Debug)]
pub struct Starter {
    sender: UnboundedSender<String>,
    answers: UnboundedReceiver<String>,
}

impl Default for Starter {
    fn default() -> Self {
        let (sender, answers) = unbounded_channel();
        Self { sender, answers }
    }
}

impl Starter {
    /// Starts the probe or a trace in a process. The child continues when this view ends.
    ///
    /// # Errors
    /// Fails if no child or no thread can be started.
    pub fn start(&self, what: Start, pid: u32, config: Option<&File>) -> io::Result<()> {
        let mut command = command(what, pid, config)?;
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
            let _ = sender.send(words);
        })?;
        Ok(())
    }

    /// Waits for an answer.
    pub async fn answer(&mut self) -> String {
        // This object has a sender itself, so that the queue is never closed.
        self.answers.recv().await.unwrap_or_default()
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
    use std::os::unix::process::ExitStatusExt;

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
    fn an_answer_is_one_line() {
        let output = Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: b"process 7: the probe runs\n".to_vec(),
            stderr: b"gpuwatch: recording to x\n".to_vec(),
        };
        assert_eq!(answer(&output), "process 7: the probe runs · recording to x");
    }
}
