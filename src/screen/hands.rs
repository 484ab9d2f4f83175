//! What keys do to processes of this machine: signals, captures, probes and traces. `gpuwatch stream` does the same for
//! the keys of a gpuwatch on another machine.

use crate::{
    config::File,
    facts::{
        event::{Ask, ProcessInfo, Request},
        remote::{Signal, Start, Subject},
    },
    screen::{signal::Held, starter::Starter},
};
use tokio::sync::mpsc;

/// Acts on processes of this machine.
#[derive(Debug, Default)]
pub struct Hands {
    asks: Option<mpsc::Sender<Request>>,
    held: Option<Held>,
    starter: Starter,
    config: Option<File>,
}

impl Hands {
    /// Creates hands that send captures there, and whose children take their settings from this file.
    pub fn new(asks: Option<mpsc::Sender<Request>>, config: Option<File>) -> Self {
        Self { asks, config, ..Self::default() }
    }

    /// Holds a process in place of the one before, and returns its description.
    ///
    /// # Errors
    /// Fails if the process is not there any more.
    pub fn hold(&mut self, subject: &Subject) -> Result<&ProcessInfo, String> {
        self.held = None;
        let held = Held::hold(subject)?;
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
    pub fn capture(&self, ask: Ask) -> Result<(), String> {
        let asks = self.asks.as_ref().ok_or("this view reads no probes")?;
        asks.try_send(ask.into()).map_err(|_full| "too many captures are waiting: try again".to_owned())
    }

    /// Waits for the answer of what was started at a process; returns it with its tag.
    pub async fn answer(&mut self) -> (u64, String) {
        self.starter.answer().await
    }
}
