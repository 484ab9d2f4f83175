//! `gpuwatch sites PID`: asks a job which lines allocate what grows, waits for the answer, and prints it.

mod json;
mod text;

use super::{Invocation, Subcommand};
use crate::{
    cli::runtime,
    config,
    facts::{
        event::{Ask, Fact, Line, ProbeId, wire::Sites},
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

/// How long to search for the probe.
pub(super) const SEARCH: Duration = Duration::from_secs(3);

/// The arguments of `gpuwatch sites`.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch sites 4242 --json | jq '.sites[] | [.file, .line, .bytes_per_step]'\n\n\
                            The job records the stacks of its allocations for that many steps only. With \
                            GPUWATCH=nosites in its environment it records none.")]
pub(super) struct SitesArgs {
    /// The process.
    #[arg(value_name = "PID")]
    pid: u32,
    /// How many steps to compare live blocks over; seconds if the process counts no steps [default: 8, or as many as
    /// the growth found so far needs].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    steps: Option<u64>,
    /// Run Python's garbage collector once, to find what only it can free.
    #[arg(long)]
    collect: bool,
    /// How long to wait for the answer.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = config::duration)]
    timeout: Duration,
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for SitesArgs {
    fn run(&self, _: &Invocation) -> Result<u8> {
        runtime()?.block_on(async {
            let mut sources = Sources::start(config::probes_alone());
            ask(&mut sources, self).await
        })?;
        Ok(0)
    }
}

/// Sends the request, waits and prints.
///
/// # Errors
/// Fails if the process has no probe, if its probe refuses, if no answer comes in time, or if standard output is gone.
async fn ask(sources: &mut Sources, args: &SitesArgs) -> Result<()> {
    let mut session = Session::default();
    let pid = args.pid;
    let found = timeout(SEARCH, find(sources, &mut session, pid)).await;
    let Ok(Some(probe)) = found else { bail!("{}", missing(&session, pid)) };
    let Some(process) = session.process(probe) else { bail!("{}", missing(&session, pid)) };
    let (asks, grows) = question_of(process);
    let chosen = args.steps.map(|steps| Ask { steps, rises: None, ..asks });
    let mut ask = Ask { collect: args.collect, ..chosen.unwrap_or(asks) };
    let sites = async {
        loop {
            if sources.asks.send(ask.into()).await.is_err() {
                bail!("the thread that reads probes has ended");
            }
            output::message(format_args!("asked process {pid}: {}", words(&ask)));
            let sites = answer(sources, probe, pid).await?;
            // The growth needs more steps than that.
            let more = longer(&ask).filter(|_| grows && chosen.is_none() && sites.sites.is_empty());
            match more.filter(|_| sites.steps > 0) {
                Some(more) => ask = more,
                None => return Ok(sites),
            }
        }
    };
    let Ok(sites) = timeout(args.timeout, sites).await else {
        bail!("process {pid} did not finish these steps in time: is it still training? --timeout waits longer");
    };
    let sites = sites?;
    let text = if args.json { json::answer(&sites, pid)? } else { text::answer(&sites) };
    output::print(&text)?;
    Ok(())
}

/// Returns the probe of a process, once its backlog has arrived.
pub(super) async fn find(sources: &mut Sources, session: &mut Session, pid: u32) -> Option<ProbeId> {
    let is_meant = |it: &&Process| it.pid == Some(pid) || (it.pid.is_none() && it.any_pid() == Some(pid));
    loop {
        session.apply(&sources.events.recv().await?);
        let found = session.processes.iter().find(is_meant);
        if let Some(process) = found.filter(|it| it.life == Life::Live) {
            return Some(process.probe);
        }
    }
}

/// Describes that there is no probe, and which processes have one.
fn missing(session: &Session, pid: u32) -> String {
    let probed: Vec<String> = session.processes.iter().filter_map(|it| Some(it.any_pid()?.to_string())).collect();
    if probed.is_empty() {
        return format!("no probe was found in process {pid}, nor in any other: `gpuwatch attach {pid}` starts one");
    }
    format!("no probe was found in process {pid}; there is one in {}", probed.join(", "))
}

/// Waits for the next answer that does not belong to an error.
async fn answer(sources: &mut Sources, probe: ProbeId, pid: u32) -> Result<Sites> {
    loop {
        let Some(event) = sources.events.recv().await else { bail!("the thread that reads probes has ended") };
        if let Fact::ProbeGone { probe: gone, why } = &event.fact
            && *gone == probe
        {
            bail!("the connection to process {pid} was lost: {why}");
        }
        let Some((_, line)) = event.line().filter(|it| it.0 == probe) else { continue };
        match line {
            Line::Sites(sites) if sites.why != "oom" => return Ok(sites.clone()),
            Line::Refused(it) => bail!("process {pid} was not asked: {}", Foreign::new(it.reason.as_str())),
            Line::Bye(_) => bail!("process {pid} ended before it could answer"),
            _ => {}
        }
    }
}
