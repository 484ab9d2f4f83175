//! Starts probes on request: `gpuwatch attach` in a process of its own, whose answer the screen shows when it comes.

use std::{
    env, io,
    process::{Command, Output, Stdio},
    thread,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Children that attach, and their answers.
#[derive(Debug)]
pub struct Attacher {
    sender: UnboundedSender<String>,
    answers: UnboundedReceiver<String>,
}

impl Default for Attacher {
    fn default() -> Self {
        let (sender, answers) = unbounded_channel();
        Self { sender, answers }
    }
}

impl Attacher {
    /// Starts the probe in a process; its answer comes later, also after this view has ended.
    ///
    /// # Errors
    /// Fails if no child or no thread can be started.
    pub fn start(&self, pid: u32) -> io::Result<()> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["attach", &pid.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let sender = self.sender.clone();
        thread::Builder::new().name("attach".into()).spawn(move || {
            let words = match child.wait_with_output() {
                Ok(output) => answer(&output),
                Err(error) => format!("pid {pid}: gpuwatch attach failed: {error}"),
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
    fn an_answer_is_one_line() {
        let output = Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: b"process 7: the probe runs\n".to_vec(),
            stderr: b"gpuwatch: recording to x\n".to_vec(),
        };
        assert_eq!(answer(&output), "process 7: the probe runs · recording to x");
    }
}
