//! `gpuwatch once`: the current state as text or JSON, without a terminal.

/// What a store of figures knows.
pub mod fleet;
/// Several machines.
pub mod hosts;
mod json;
mod text;
mod users;

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        host_flags::{HostFlags, PrometheusFlags},
        runtime,
    },
    config::{self, Watching},
    facts::{event::Event, figures::Figure},
    hosts::link::Links,
    model::{
        findings::findings,
        session::{
            OfProcess, Session,
            device::Device,
            process::{Life, Process},
        },
    },
    sources::{self, Sources},
    storage::output,
};
use anyhow::{Context, Result};
use std::time::Duration;
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, timeout_at},
};

/// The longest wait for the driver and for probes.
const WAIT: Duration = Duration::from_millis(1200);

/// The shortest wait, in which sockets are found.
const AT_LEAST: Duration = Duration::from_millis(250);

/// The time between two checks for answers.
const NAP: Duration = Duration::from_millis(20);

/// The arguments of `gpuwatch once`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch once --json | jq '.devices[].ladder'\n  gpuwatch once --by user\n  gpuwatch once --hosts \
                            'node[01-16]' --json | jq '.jobs[].findings'\n  gpuwatch once --prometheus \
                            http://127.0.0.1:9090 --match scheduler_job=4242"
)]
pub(super) struct OnceArgs {
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
    /// What the processes on this machine's devices hold, in a line for each.
    #[arg(long, value_name = "WHOM", conflicts_with_all = ["json", "hosts", "hosts_file", "slurm", "prometheus"])]
    by: Option<By>,
    #[command(flatten)]
    hosts: HostFlags,
    #[command(flatten)]
    prometheus: PrometheusFlags,
    /// How long to wait for other machines.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = config::duration)]
    wait: Duration,
    #[command(flatten)]
    watching: Watching,
}

/// Whose processes are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    User,
}

impl Subcommand for OnceArgs {
    fn run(&self, _: &Invocation) -> Result<u8> {
        let form = match self.by {
            Some(By::User) => Form::Users,
            None if self.json => Form::Json,
            None => Form::Text,
        };
        let (plan, store) = (self.hosts.plan()?, self.prometheus.store()?);
        runtime()?.block_on(async {
            if let Some(store) = store {
                return fleet::print(&store, &self.prometheus.matchers, self.json).await;
            }
            let Some(plan) = plan else {
                let mut sources = Sources::start(self.watching.sources().in_detail());
                return print(&mut sources.events, 0, form).await;
            };
            hosts::print(&mut Links::start(&plan), &plan.hosts, self.wait, self.json).await
        })?;
        Ok(0)
    }
}

/// What `gpuwatch once` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Devices with their ladders and processes.
    Text,
    /// The same as JSON.
    Json,
    /// A line for each user.
    Users,
}

/// Waits until the driver and every found probe, and at least `probes` of them, have answered, then prints.
///
/// # Errors
/// Fails if standard output cannot be written.
pub async fn print(events: &mut Receiver<Event>, probes: usize, form: Form) -> Result<()> {
    let session = collect(events, probes).await;
    let text = match form {
        Form::Text => text::report(&session, &findings(&session)),
        Form::Json => json::report(&session, &findings(&session), &sources::host()).context("cannot write JSON")?,
        Form::Users => users::report(&session),
    };
    output::print(&text)?;
    Ok(())
}

/// Returns the session once the driver and every found probe, and at least `probes` of them, have answered.
pub async fn collect(events: &mut Receiver<Event>, probes: usize) -> Session {
    let mut session = Session::default();
    let start = Instant::now();
    let (earliest, end) = (start + AT_LEAST, start + WAIT);
    loop {
        let now = Instant::now();
        if now >= end || (now >= earliest && has_answers(&session, probes)) {
            return session;
        }
        let until = if now < earliest { earliest } else { (now + NAP).min(end) };
        match timeout_at(until, events.recv()).await {
            Ok(Some(event)) => session.apply(&event),
            Ok(None) => return session,
            // Time to check whether all have answered.
            Err(_) => {}
        }
    }
}

/// Whether everything that was found has answered.
fn has_answers(session: &Session, expected: usize) -> bool {
    let is_read = |it: &Device| it.memory.is_some() && it.processes.is_some() && it.metrics.is_some();
    let devices = session.devices.iter().all(|it| it.index.is_none() || is_read(it));
    let probes = session.processes.iter().all(|it| !matches!(it.life, Life::Found | Life::CatchingUp));
    let has_rates = |it: &OfProcess| it.host.get(Figure::Rss).is_none() || it.host.get(Figure::CpuPercent).is_some();
    session.driver.is_some()
        && session.figures.values().all(has_rates)
        && devices
        && probes
        && session.processes.len() >= expected
}

/// Whether a probed process is alive and suspended by a signal.
fn is_suspended(session: &Session, process: &Process) -> bool {
    process.is_alive() && process.pid.and_then(|pid| session.process_info.get(&pid)).is_some_and(|it| it.suspended)
}
