//! `gpuwatch once --hosts`: the current state of several machines and of the jobs that span them, as text or JSON.
//!
//! `docs/reference/schemas/hosts.json` has every field of the JSON, schema 1.

use super::{AT_LEAST, NAP, WAIT, has_answers, next_commands, session_json};
use crate::{
    cli::next_commands::{NextCommand, with_next},
    facts::{
        text::{Foreign, escape_json},
        units::{Bytes, counted},
    },
    hosts::{link::Links, plan::Plan},
    model::{
        alerts::Policy,
        cluster::{
            Cluster, Link, Node,
            findings::{self as of_jobs, ClusterFindings, JobFinding},
            jobs::{Job, Rank, jobs},
        },
        findings::Findings,
    },
    sources,
    storage::output,
};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{fmt::Write, time::Duration};
use tokio::time::{Instant, timeout_at};

/// The version of that schema.
const SCHEMA: u32 = 1;

/// Most findings and ranks of a job that the text lists.
const LISTED: usize = 16;

/// Most commands that follow.
const NEXT: usize = 4;

/// Waits until every machine has answered or failed, at most for `wait`, then prints. Returns whether any answered.
///
/// # Errors
/// Fails if standard output cannot be written.
pub async fn print(links: &mut Links, plan: &Plan, wait: Duration, json: bool) -> Result<bool> {
    let cluster = collect(links, &plan.hosts, wait).await;
    let found = Policy::default().found(&cluster);
    let text = if json {
        with_next(&report(&cluster, &found).context("cannot write JSON")?, &next(plan, &cluster, &found))
    } else {
        text(&cluster, &found)
    };
    output::print(&text)?;
    Ok(cluster.nodes.iter().any(|it| it.greeting.is_some()))
}

/// Waits until every machine has answered or failed, at most for `wait`.
pub async fn collect(links: &mut Links, hosts: &[String], wait: Duration) -> Cluster {
    let mut cluster = Cluster::new(hosts.iter().cloned(), sources::now());
    let end = Instant::now() + wait;
    loop {
        let now = Instant::now();
        let here = sources::now();
        let is_settled = |it: &Node| match it.link {
            Link::Refused { .. } | Link::Incompatible { .. } => true,
            Link::Up => it.up_at.is_some_and(|up| {
                let us = u128::from(here.since(up));
                us >= WAIT.as_micros() || (us >= AT_LEAST.as_micros() && has_answers(&it.session, 0))
            }),
            Link::Connecting | Link::Copying | Link::Silent { .. } => false,
        };
        if now >= end || cluster.nodes.iter().all(is_settled) {
            return cluster;
        }
        let nap = (now + NAP).min(end);
        while let Ok(news) = timeout_at(nap, links.news.recv()).await {
            let Some(news) = news else { return cluster };
            cluster.apply(news);
        }
    }
}

/// Returns what follows on the machines themselves, what grows first.
fn next(plan: &Plan, cluster: &Cluster, found: &ClusterFindings) -> Vec<NextCommand> {
    // A copy of gpuwatch is gone from there by then.
    let up = cluster.nodes.iter().zip(&found.machines).filter(|(it, _)| !plan.push && matches!(it.link, Link::Up));
    let of = |(node, found): (&Node, &Findings)| {
        let program = plan.transport.command(node.host.raw(), &[&plan.program]);
        next_commands(&node.session, found).into_iter().map(move |it| it.started_by(program.clone()))
    };
    let mut all: Vec<NextCommand> = up.flat_map(of).collect();
    all.sort_by_key(|it| !it.is("sites"));
    all.truncate(NEXT);
    all
}

fn report(cluster: &Cluster, found: &ClusterFindings) -> serde_json::Result<String> {
    let nodes: Vec<Value> = cluster.nodes.iter().zip(&found.machines).map(|(it, found)| node(it, found)).collect();
    let jobs: Vec<Value> = jobs(cluster).iter().map(|it| job(cluster, it, found)).collect();
    let mut text =
        escape_json(&serde_json::to_string_pretty(&json!({"schema": SCHEMA, "nodes": nodes, "jobs": jobs}))?);
    text.push('\n');
    Ok(text)
}

fn node(it: &Node, found: &Findings) -> Value {
    let greeting = it.greeting.as_ref();
    let once = greeting.map(|about| session_json::value(&it.session, found, about.host.raw(), about.gpuwatch.raw()));
    json!({
        "host": it.host,
        "link": it.link.name(),
        "why": it.link.why(),
        "once": once,
        "clock_us": it.clock.wall_ahead_us(),
    })
}

fn job(cluster: &Cluster, it: &Job, found: &ClusterFindings) -> Value {
    let findings = of_jobs::findings(cluster, it, found);
    json!({
        "run": it.run,
        "scheduler": it.scheduled.map(|job| &job.scheduler),
        "job": it.scheduled.map(|job| &job.id),
        "world_size": it.world_size,
        "ranks": it.ranks.iter().map(|rank| self::rank(cluster, rank)).collect::<Vec<_>>(),
        "missing": it.missing(),
        "findings": findings.iter().map(JobFinding::json).collect::<Vec<_>>(),
    })
}

fn rank(cluster: &Cluster, it: &Rank) -> Value {
    let on = it.on();
    json!({
        "rank": it.rank(),
        "host": cluster.nodes.get(it.node).map(|node| &node.host),
        "probe": it.process.probe,
        "pid": it.process.any_pid(),
        "alive": it.process.is_alive(),
        "device": on.map(|on| &on.device),
        "step": it.step(),
        "allocated": on.and_then(|on| on.counters.allocated),
        "reserved": on.and_then(|on| on.counters.reserved),
        "wanted": it.wanted(),
    })
}

fn text(cluster: &Cluster, found: &ClusterFindings) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write_text(&mut out, cluster, found);
    out
}

fn write_text(out: &mut String, cluster: &Cluster, found: &ClusterFindings) -> std::fmt::Result {
    let width = cluster.nodes.iter().map(|it| it.host.to_string().chars().count()).max().unwrap_or(0);
    for it in &cluster.nodes {
        let name = it.link.name();
        writeln!(out, "{:<width$}  {name:<12}  {}", it.host, summary(it))?;
    }
    for it in jobs(cluster) {
        let name = it.run.map(|run| format!("run {}", Foreign::new(run)));
        let scheduled = it.scheduled.map(|job| format!("{} {}", Foreign::new(&*job.scheduler), Foreign::new(&*job.id)));
        let named = scheduled.or(name).unwrap_or_else(|| "a job".to_owned());
        let nodes = counted(it.nodes().len() as u64, "machine");
        writeln!(out, "\n{named}: {} on {nodes}", counted(it.ranks.len() as u64, "process"))?;
        for rank in it.ranks.iter().take(LISTED) {
            writeln!(out, "  {}", line(cluster, rank))?;
        }
        if it.ranks.len() > LISTED {
            writeln!(out, "  and {} more", it.ranks.len() - LISTED)?;
        }
        for found in of_jobs::findings(cluster, &it, found).iter().take(LISTED) {
            writeln!(out, "  {}: {}", found.severity.name(), found.sentence)?;
        }
    }
    Ok(())
}

/// Returns why a machine is not up, or what it has.
fn summary(it: &Node) -> String {
    if let Some(why) = it.link.why() {
        return why.to_string();
    }
    if it.greeting.is_none() {
        return "no answer yet".to_owned();
    }
    let memory = it.session.devices.iter().filter_map(|it| it.memory.as_ref()?.value.as_ref().ok());
    let (used, total) = memory
        .fold((0_u64, 0_u64), |(used, total), it| (used.saturating_add(it.used.0), total.saturating_add(it.total.0)));
    let devices = counted(it.session.devices.len() as u64, "device");
    let probes = counted(it.session.processes.iter().filter(|it| it.is_alive()).count() as u64, "probe");
    let memory = if total > 0 { format!(", {} of {} used", Bytes(used), Bytes(total)) } else { String::new() };
    format!("{devices}, {probes}{memory}")
}

fn line(cluster: &Cluster, it: &Rank) -> String {
    let host = cluster.nodes.get(it.node).map_or_else(String::new, |node| format!(" on {}", node.host));
    let rank = it.rank().map_or_else(|| "process".to_owned(), |rank| format!("rank {rank}"));
    let step = it.step().map_or_else(|| "–".to_owned(), |step| step.to_string());
    let bytes = |it: Option<u64>| it.map_or_else(|| "–".to_owned(), |bytes| Bytes(bytes).to_string());
    let counters = it.on().map(|on| on.counters).unwrap_or_default();
    let end = if it.process.is_alive() { "" } else { ", ended" };
    format!(
        "{rank}{host}: step {step}, allocated {}, reserved {}{end}",
        bytes(counters.allocated),
        bytes(counters.reserved)
    )
}
