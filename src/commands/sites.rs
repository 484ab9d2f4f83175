//! `gpuwatch sites PID`: asks a job which lines allocate what grows, waits for the answer, and prints it.

mod json;
mod text;

use crate::{
    facts::{
        event::{Ask, Event, Fact, Line, ProbeId, wire::Sites},
        text::Foreign,
    },
    model::{
        alerts::{longer, question_of, words},
        session::{
            Session,
            process::{Life, Process},
        },
    },
    sources::Sources,
    storage::output,
};
use anyhow::{Result, bail};
use std::time::Duration;
use tokio::time::timeout;

/// How long a probe is looked for.
const LOOK: Duration = Duration::from_secs(3);

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The process, by this host's number for it or its own.
    pub pid: u32,
    /// Over how many steps its blocks are compared; `None`: over as many as its growth asks for.
    pub steps: Option<u64>,
    /// Whether the collector is to run once.
    pub collect: bool,
    /// How long to wait for the answer.
    pub limit: Duration,
    /// As JSON.
    pub json: bool,
}

/// Asks, waits and prints.
///
/// # Errors
/// When the process has no probe, its probe refuses, nothing is answered in time, or standard output is gone.
pub async fn ask(sources: &mut Sources, question: &Question, mut say: impl FnMut(String)) -> Result<()> {
    let mut session = Session::default();
    let pid = question.pid;
    let found = timeout(LOOK, find(sources, &mut session, pid)).await;
    let Ok(Some(probe)) = found else { bail!("{}", missing(&session, pid)) };
    let Some(process) = session.process(probe) else { bail!("{}", missing(&session, pid)) };
    let (asks, grows) = question_of(process);
    let chosen = question.steps.map(|steps| Ask { steps, rises: None, ..asks });
    let mut ask = Ask { collect: question.collect, ..chosen.unwrap_or(asks) };
    let sites = async {
        loop {
            if sources.asks.send(ask).await.is_err() {
                bail!("the thread that reads probes has ended");
            }
            say(format!("asked process {pid}: {}", words(&ask)));
            let sites = answer(sources, probe, pid).await?;
            // What was seen to grow does so more rarely than that.
            let more = longer(&ask).filter(|_| grows && chosen.is_none() && sites.sites.is_empty());
            match more.filter(|_| sites.steps > 0) {
                Some(more) => ask = more,
                None => return Ok(sites),
            }
        }
    };
    let Ok(sites) = timeout(question.limit, sites).await else {
        bail!("process {pid} did not finish these steps in time: is it still training? --timeout waits longer");
    };
    let sites = sites?;
    let text = if question.json { json::answer(&sites, pid)? } else { text::answer(&sites) };
    output::print(&text)?;
    Ok(())
}

/// The probe of a process, once all that it said before was heard.
async fn find(sources: &mut Sources, session: &mut Session, pid: u32) -> Option<ProbeId> {
    let is_meant = |it: &&Process| it.pid == Some(pid) || (it.pid.is_none() && it.any_pid() == Some(pid));
    loop {
        session.apply(&sources.events.recv().await?);
        let found = session.processes.iter().find(is_meant);
        if let Some(process) = found.filter(|it| it.life == Life::Live) {
            return Some(process.probe);
        }
    }
}

/// That there is no probe, and where there is one.
fn missing(session: &Session, pid: u32) -> String {
    let probed: Vec<String> = session.processes.iter().filter_map(|it| Some(it.any_pid()?.to_string())).collect();
    if probed.is_empty() {
        return format!("no probe was found in process {pid}, nor in any other: start the job with `gpuwatch run`");
    }
    format!("no probe was found in process {pid}; there is one in {}", probed.join(", "))
}

/// The next account of sites that is none of an error.
async fn answer(sources: &mut Sources, probe: ProbeId, pid: u32) -> Result<Sites> {
    loop {
        match sources.events.recv().await {
            Some(Event { fact: Fact::Probe { probe: it, line }, .. }) if it == probe => match *line {
                Line::Sites(sites) if sites.why != "oom" => return Ok(sites),
                Line::Refused(it) => bail!("process {pid} was not asked: {}", Foreign::new(it.reason)),
                Line::Bye(_) => bail!("process {pid} ended before it could answer"),
                _ => {}
            },
            Some(Event { fact: Fact::ProbeGone { probe: it, why }, .. }) if it == probe => {
                bail!("the connection to process {pid} was lost: {why}")
            }
            Some(_) => {}
            None => bail!("the thread that reads probes has ended"),
        }
    }
}
