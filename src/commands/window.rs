//! `gpuwatch whatif PID`: traces some steps of a running job, so that they can be replayed.

use super::sites::{SEARCH, find};
use crate::{
    facts::{
        event::{AskWindow, Event, Fact, Line, ProbeId},
        text::Foreign,
        units::counted,
    },
    jobs::recorder::trace_windows::{file, new_id},
    model::session::Session,
    sources::{Sources, probe::answers, system, users},
    storage::traces::window::{self, State},
};
use anyhow::{Result, bail};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    select,
    time::{MissedTickBehavior, interval, timeout},
};

/// Time between two checks of the file.
const EVERY: Duration = Duration::from_millis(100);

/// The user's question.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The process, by its pid on this host or its own.
    pub pid: u32,
    /// Steps to trace.
    pub steps: u64,
    /// How long to wait for them.
    pub limit: Duration,
}

/// A trace of some steps.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The file; its reader removes it.
    pub file: PathBuf,
    /// The file for answers to the viewers of the job, beside the probe's socket.
    pub answers: Option<PathBuf>,
}

/// Traces some steps of a job. `report` gets the progress. Where this future is dropped and the
/// connection closed, the job ends the trace and removes the file.
///
/// # Errors
/// Fails if the process has no probe, if it cannot be traced, or if it does not finish in time.
pub async fn trace(sources: &mut Sources, question: &Question, report: impl FnMut(String)) -> Result<Traced> {
    let pid = question.pid;
    if let Some(why) = of_another_user(pid) {
        bail!("{why}");
    }
    let mut session = Session::default();
    let found = timeout(SEARCH, find(sources, &mut session, pid)).await.ok().flatten();
    let Some(process) = found.and_then(|it| session.process(it)) else { bail!("{}", missing(&session, pid)) };
    let id = new_id();
    let Some(file) = file(process, id) else { bail!("{}", missing(&session, pid)) };
    let hello = process.hello.as_deref();
    let answers = hello.and_then(|it| answers::beside(Path::new(process.socket.raw()), it));
    let ask = AskWindow { probe: process.probe, id, steps: question.steps, alert: false };
    if sources.asks.send(ask.into()).await.is_err() {
        bail!("the thread that reads probes has ended");
    }
    match timeout(question.limit, completed(sources, &ask, &file, pid, report)).await {
        Ok(done) => done.map(|()| Traced { file, answers }),
        Err(_) => {
            bail!("process {pid} did not finish these steps in time: is it still training? --timeout waits longer")
        }
    }
}

/// Waits for the end of a window.
async fn completed(
    sources: &mut Sources,
    ask: &AskWindow,
    file: &Path,
    pid: u32,
    mut report: impl FnMut(String),
) -> Result<()> {
    report(format!("asked process {pid} to trace {}", counted(ask.steps, "step")));
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before = None;
    loop {
        let event = select! {
            event = sources.events.recv() => Some(event),
            _ = look.tick() => None,
        };
        // A job that ends writes its trace before it sends its bye.
        let state = window::state(file)?;
        match &state {
            Some(State::Complete) => return Ok(()),
            Some(State::Refused(why)) => {
                let _ = std::fs::remove_file(file);
                bail!("process {pid} is not traced: {}", advised(why));
            }
            Some(State::Tracing(allocations)) if state != before => {
                report(format!("tracing process {pid}: {}", counted(*allocations, "allocation")));
            }
            _ => {}
        }
        before = state;
        match event {
            Some(None) => bail!("the thread that reads probes has ended"),
            Some(Some(event)) => {
                if let Some(why) = ended(&event, ask.probe) {
                    bail!("process {pid} {why}");
                }
            }
            None => {}
        }
    }
}

/// Returns why no trace will come, after an event.
fn ended(event: &Event, probe: ProbeId) -> Option<String> {
    if let Fact::ProbeGone { probe: gone, why } = &event.fact
        && *gone == probe
    {
        return Some(format!("is gone: {why}"));
    }
    match event.line().filter(|it| it.0 == probe)?.1 {
        Line::Refused(it) if it.reason == "unknown verb" => {
            Some("has a probe of an older gpuwatch: start it with the `gpuwatch run` of this one".to_owned())
        }
        Line::Refused(it) => Some(format!("is not traced: {}", Foreign::new(it.reason.as_str()))),
        Line::Bye(_) => Some("ended before it was traced".to_owned()),
        _ => None,
    }
}

/// Adds the next step to a job's own reason.
fn advised(why: &str) -> String {
    let next = if why.contains("memory history itself") {
        "; have it call torch.cuda.memory._dump_snapshot(FILE), and replay that file with `gpuwatch whatif FILE`"
    } else if why.starts_with("the allocator ") {
        "; the settings that gpuwatch whatif tries are those of PyTorch's own allocator"
    } else {
        ""
    };
    format!("{}{next}", Foreign::new(why))
}

/// Returns what to do about another user's process, whose Python gpuwatch would have to run.
fn of_another_user(pid: u32) -> Option<String> {
    let owner = system::owner(pid)?;
    let is_own = owner == rustix::process::geteuid().as_raw();
    let user = users::within_patience(owner).map_or_else(|| owner.to_string(), |it| it.to_string());
    (!is_own).then(|| format!("process {pid} belongs to user {user}: run `gpuwatch whatif {pid}` as that user"))
}

/// Describes that there is no probe.
fn missing(session: &Session, pid: u32) -> String {
    let next = format!("start the job with `gpuwatch run`, or run `gpuwatch attach {pid}`");
    if system::start_ticks(pid).is_none() && session.processes.is_empty() {
        return format!("{pid} is neither a file, a recording nor a running process");
    }
    format!("no probe was found in process {pid}: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_carry_the_next_step() {
        assert!(advised("the job records its memory history itself").contains("gpuwatch whatif FILE"));
        assert!(advised("the allocator cudaMallocAsync keeps no trace").contains("PyTorch's own allocator"));
        assert_eq!(advised("no \u{1b}[2J"), "no \\u{1b}[2J");
    }
}
