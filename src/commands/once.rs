//! `gpuwatch once`: the current state as text or JSON, without a terminal.

/// Several hosts.
pub mod cluster_once;
/// The host's memory.
mod host_memory;
/// The ranks that Prometheus knows.
pub mod prometheus_once;
mod session_json;
mod session_text;

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        flags::{HostFlags, PrometheusFlags},
        next_commands::{NextCommand, with_next},
        runtime,
    },
    config::{self, WatchFlags},
    facts::{event::Event, figures::Figure, text::Foreign, units::Bytes},
    hosts::link::Links,
    model::{
        findings::{Finding, Findings, findings},
        session::{
            ProcessFigures, Session,
            device::Device,
            process::{ProbeState, Process},
        },
    },
    sources::{self, Sources},
    storage::output,
};
use anyhow::{Context, Result};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Duration,
};
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
    by: Option<GroupBy>,
    #[command(flatten)]
    hosts: HostFlags,
    #[command(flatten)]
    prometheus: PrometheusFlags,
    /// How long to wait for other machines. If none of them answers, the exit code is 1.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = config::duration)]
    wait: Duration,
    #[command(flatten)]
    watching: WatchFlags,
}

/// Whose processes are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GroupBy {
    User,
}

impl Subcommand for OnceArgs {
    fn run(&self, _: &Invocation) -> Result<u8> {
        let form = match self.by {
            Some(GroupBy::User) => OnceForm::Users,
            None if self.json => OnceForm::Json,
            None => OnceForm::Text,
        };
        let (plan, store) = (self.hosts.plan()?, self.prometheus.store()?);
        runtime()?.block_on(async {
            if let Some(store) = store {
                return prometheus_once::print(&store, &self.prometheus.matchers, self.json).await.map(|()| 0);
            }
            let Some(plan) = plan else {
                let mut sources = Sources::start(self.watching.sources().in_detail());
                return print(&mut sources.events, 0, form).await.map(|()| 0);
            };
            let any = cluster_once::print(&mut Links::start(&plan), &plan, self.wait, self.json).await?;
            Ok(u8::from(!any))
        })
    }
}

/// What `gpuwatch once` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceForm {
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
pub async fn print(events: &mut Receiver<Event>, probes: usize, form: OnceForm) -> Result<()> {
    let session = collect(events, probes).await;
    let text = match form {
        OnceForm::Text => session_text::report(&session, &findings(&session)),
        OnceForm::Json => {
            let found = findings(&session);
            let report = session_json::report(&session, &found, &sources::host()).context("cannot write JSON")?;
            with_next(&report, &next_commands(&session, &found))
        }
        OnceForm::Users => users_text(&session),
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
    let probes = session.processes.iter().all(|it| !matches!(it.life, ProbeState::Found | ProbeState::CatchingUp));
    let has_rates =
        |it: &ProcessFigures| it.host.get(Figure::Rss).is_none() || it.host.get(Figure::CpuPercent).is_some();
    session.driver.is_some()
        && session.host.memory.is_some()
        && session.figures.values().all(has_rates)
        && devices
        && probes
        && session.processes.len() >= expected
}

/// Whether a probed process is alive and suspended by a signal.
fn is_suspended(session: &Session, process: &Process) -> bool {
    process.is_alive() && process.pid.and_then(|pid| session.process_info.get(&pid)).is_some_and(|it| it.suspended)
}

const UNKNOWN: &str = "–";

/// What the processes of one user hold, as the driver lists them.
#[derive(Debug, Default)]
struct UserMemory {
    pids: BTreeSet<u32>,
    devices: BTreeSet<u32>,
    /// `None` if the driver does not report one of them.
    used: Option<Bytes>,
}

/// Returns a line for each user, the one who holds most first.
fn users_text(session: &Session) -> String {
    let mut users: BTreeMap<Option<&Foreign>, UserMemory> = BTreeMap::new();
    let listed =
        session.devices.iter().flat_map(|it| it.process_list().unwrap_or_default().iter().map(move |used| (it, used)));
    for (device, it) in listed {
        let user = session.process_info.get(&it.pid).map(|it| &it.user);
        let held = users.entry(user).or_insert_with(|| UserMemory { used: Some(Bytes(0)), ..UserMemory::default() });
        held.pids.insert(it.pid);
        held.devices.extend(device.index);
        held.used = held.used.zip(it.used).map(|(sum, used)| sum.plus(used));
    }
    if users.is_empty() {
        return "no process that holds device memory is known\n".to_owned();
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by_key(|(user, held)| (Reverse(held.used), *user));
    let mut out = format!("{:<16} {:>9}  {:>10}  devices\n", "user", "processes", "used");
    for (user, held) in &users {
        let name = user.map_or_else(|| UNKNOWN.to_owned(), ToString::to_string);
        let used = held.used.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
        let devices: Vec<String> = held.devices.iter().map(u32::to_string).collect();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{name:<16} {:>9}  {used:>10}  {}", held.pids.len(), devices.join(", "));
    }
    out
}

/// Returns what follows, the most urgent first: what grows, what a process consists of, a process without a probe.
fn next_commands(session: &Session, findings: &Findings) -> Vec<NextCommand> {
    let live: Vec<u32> =
        session.processes.iter().filter(|it| it.life == ProbeState::Live).filter_map(|it| it.pid).collect();
    let grows = |it: &&Finding| it.is_own_growth() && it.is_active() && !it.is_allowed();
    let growing = findings.all.iter().filter(grows).filter_map(|it| it.pid).find(|it| live.contains(it));
    let of = |words: [&str; 1], pid: u32, why| {
        NextCommand::new(words.into_iter().map(str::to_owned).chain([pid.to_string()]), why)
    };
    let sites = growing.map(|pid| of(["sites"], pid, "tells which lines allocate what grows, and what holds it"));
    let peak = growing
        .or_else(|| live.first().copied())
        .map(|pid| of(["peak"], pid, "tells what the process's memory consists of at the highest moment of a step"));
    let attach =
        bare(session).map(|pid| of(["attach"], pid, "gives the process a probe, which tells what holds its memory"));
    let mut all: Vec<NextCommand> = sites.into_iter().chain(peak).chain(attach).collect();
    if session.devices.is_empty() {
        all.push(NextCommand::new(["doctor", "--json"], "tells what is missing on this machine"));
    }
    all
}

/// A Python process on a device that has no probe, and could get one now.
fn bare(session: &Session) -> Option<u32> {
    let listed = session.devices.iter().flat_map(|it| it.process_list().unwrap_or_default()).map(|it| it.pid);
    let has_probe = |pid: u32| session.processes.iter().any(|it| it.any_pid() == Some(pid));
    let can_get_one = |pid: &u32| {
        let info = session.process_info.get(pid);
        info.is_some_and(|it| it.is_python() && !it.commands_for_a_probe().is_empty()) && !has_probe(*pid)
    };
    listed.filter(can_get_one).min()
}
