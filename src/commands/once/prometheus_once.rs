//! `gpuwatch once --prometheus`: the ranks that a store of figures knows, worst first, as text or JSON.
//!
//! `docs/reference/schemas/fleet.json` has every field of the JSON, schema 1.

use crate::{
    cli::next_commands::{NextCommand, with_next},
    facts::{
        text::{Foreign, escape_json},
        units::counted,
    },
    hosts::prometheus::{self, Fleet, Question, Store, query::Matcher},
    model::cluster::{
        History, NOTHING,
        overview::{Concern, JobRow, NodeRow, Overview, RankRow, figure::RankFigure},
    },
    sources,
    storage::output,
};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The version of that schema.
const SCHEMA: u32 = 1;

/// The past of the worst rank: seconds, and points.
const PAST_S: u64 = 3600;
const POINTS: u64 = 60;

/// Most rows of a kind that the text lists.
const LISTED: usize = 16;

/// Asks once, and prints.
///
/// # Errors
/// Fails if the store does not answer, or standard output cannot be written.
pub async fn print(store: &Store, matchers: &[Matcher], json: bool) -> Result<()> {
    let fleet = prometheus::fleet(store, matchers).await?;
    let order = fleet.overview.rank_order(RankFigure::default());
    let text = if json {
        let past = past(store, &fleet, order.first().copied()).await?;
        let report = report(store, &fleet.overview, &order, &past).context("cannot write JSON")?;
        let next: Vec<NextCommand> = next(&fleet.overview, &order).into_iter().collect();
        with_next(&report, &next)
    } else {
        text(store, &fleet.overview, &order)
    };
    output::print(&text)?;
    Ok(())
}

/// Returns the most that the worst rank has allocated in each minute of the last hour.
async fn past(store: &Store, fleet: &Fleet, worst: Option<usize>) -> Result<History> {
    let Some(worst) = worst.and_then(|it| fleet.series.get(it)) else { return Ok(History::new()) };
    let past = Question { rank: worst.key.clone(), figure: RankFigure::Allocated, seconds: PAST_S, points: POINTS };
    prometheus::history(store, &past, sources::unix_us() / 1_000_000).await
}

/// Returns what follows: to ask the machine of the worst rank itself.
fn next(overview: &Overview, order: &[usize]) -> Option<NextCommand> {
    let worst = order.iter().filter_map(|it| overview.ranks.get(*it)).find(|it| it.worst.is_some() && !it.ended)?;
    let host = overview.nodes.get(worst.node)?.host.raw();
    // Whoever writes figures names the hosts: what is no plain name is no word of a command.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(is_plain);
    let why = "asks the machine of the worst rank, which knows its devices, its processes and their findings";
    is_name.then(|| NextCommand::new(["once", "--hosts", host, "--json"], why))
}

fn report(store: &Store, overview: &Overview, order: &[usize], past: &History) -> serde_json::Result<String> {
    let ranks = order.iter().filter_map(|it| overview.ranks.get(*it)).map(|it| rank(overview, it));
    let nodes = overview.node_order().into_iter().filter_map(|it| overview.nodes.get(it));
    let jobs = overview.job_order().into_iter().filter_map(|it| overview.jobs.get(it));
    let whole = json!({
        "schema": SCHEMA,
        "store": store.to_string(),
        "nodes": nodes.map(node).collect::<Vec<_>>(),
        "jobs": jobs.map(job).collect::<Vec<_>>(),
        "ranks": ranks.collect::<Vec<_>>(),
        "past": past,
    });
    let mut text = escape_json(&serde_json::to_string_pretty(&whole)?);
    text.push('\n');
    Ok(text)
}

fn concern(it: &Concern) -> Value {
    json!({"severity": it.severity.name(), "title": it.title})
}

fn node(it: &NodeRow) -> Value {
    json!({
        "host": it.host,
        "devices": it.devices,
        "probes": it.probes,
        "used": it.memory.map(|memory| memory.0),
        "total": it.memory.map(|memory| memory.1),
        "worst": it.worst.as_ref().map(concern),
    })
}

fn job(it: &JobRow) -> Value {
    json!({
        "name": it.name,
        "world_size": it.expected,
        "ranks": it.present,
        "nodes": it.nodes,
        "steps": it.steps.map(|steps| [steps.0, steps.1]),
        "findings": it.findings.iter().map(concern).collect::<Vec<_>>(),
    })
}

fn rank(overview: &Overview, it: &RankRow) -> Value {
    let figure = |row: &'static crate::model::cluster::overview::figure::RankFigureRow| {
        Some((row.name.to_owned(), it.figures.get(row.figure)?.into()))
    };
    let figures: Map<String, Value> = RankFigure::TABLE.iter().filter_map(figure).collect();
    json!({
        "rank": it.rank,
        "host": overview.nodes.get(it.node).map(|node| &node.host),
        "job": it.job.and_then(|job| overview.jobs.get(job)).map(|job| &job.name),
        "pid": it.pid,
        "alive": !it.ended,
        "step": it.step,
        "figures": figures,
        "worst": it.worst.as_ref().map(concern),
    })
}

fn text(store: &Store, overview: &Overview, order: &[usize]) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write_text(&mut out, store, overview, order);
    out
}

fn write_text(out: &mut String, store: &Store, overview: &Overview, order: &[usize]) -> std::fmt::Result {
    if overview.ranks.is_empty() && overview.nodes.is_empty() {
        return writeln!(out, "{store} {NOTHING}");
    }
    let (nodes, ranks) = (overview.nodes.len() as u64, overview.ranks.len() as u64);
    writeln!(out, "{store}: {} on {}", counted(ranks, "rank"), counted(nodes, "machine"))?;
    for it in overview.job_order().into_iter().take(LISTED).filter_map(|it| overview.jobs.get(it)) {
        writeln!(out, "\n{}: {} on {}", it.name, counted(it.present, "rank"), counted(it.nodes, "machine"))?;
        for found in it.findings.iter().take(LISTED) {
            writeln!(out, "  {}: {}", found.severity.name(), found.title)?;
        }
    }
    rest(out, overview.jobs.len(), "job")?;
    writeln!(out)?;
    for it in order.iter().take(LISTED).filter_map(|it| overview.ranks.get(*it)) {
        writeln!(out, "{}", line(overview, it))?;
    }
    rest(out, order.len(), "rank")
}

/// Writes how many rows are left out.
fn rest(out: &mut String, all: usize, noun: &str) -> std::fmt::Result {
    match all.saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(out, "and {} more", counted(more as u64, noun)),
    }
}

fn line(overview: &Overview, it: &RankRow) -> String {
    let host = overview.nodes.get(it.node).map_or_else(Foreign::default, |node| node.host.clone());
    let rank = it.rank.map_or_else(|| "process".to_owned(), |rank| format!("rank {rank}"));
    let step = it.step.map_or_else(|| "–".to_owned(), |step| step.to_string());
    let shown = [RankFigure::Device, RankFigure::Allocated, RankFigure::Reserved, RankFigure::Growth];
    let figures = shown.map(|figure| {
        let value = it.figures.get(figure).map_or_else(|| "–".to_owned(), |value| figure.format(value));
        format!("{} {value}", figure.row().label)
    });
    let end = if it.ended { ", ended" } else { "" };
    let worst = it.worst.as_ref().map_or_else(String::new, |it| format!("; {}: {}", it.severity.name(), it.title));
    format!("{rank} on {host}: step {step}, {}{end}{worst}", figures.join(", "))
}
