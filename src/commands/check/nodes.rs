//! `gpuwatch check DIR`: the recordings of several machines. Each is judged as any recording, and their jobs by the
//! findings over all ranks.
//!
//! `docs/reference/schemas/check-nodes.json` has every field of the JSON, schema 1.

mod course;

use super::{Limits, Outcome, Verdict, check, json, limits::FailOn};
use crate::{
    facts::{
        text::{Foreign, escape_json},
        units::counted,
    },
    model::{
        alerts::Policy,
        cluster::{
            Link,
            findings::{JobFinding, Subject},
        },
        findings::Kind,
    },
    storage::replay::host_replay::Recorded,
};
pub use course::Job;
use serde_json::{Value, json};
use std::fmt::Write;

/// The version of that schema.
const SCHEMA: u32 = 1;

/// The judgement of several machines.
#[derive(Debug)]
pub struct Verdicts {
    /// The machines, in the order of the user's list.
    pub nodes: Vec<Node>,
    /// The jobs, and what was found over all their ranks.
    pub jobs: Vec<Job>,
    /// Which limits were exceeded.
    pub hits: Vec<String>,
    /// Why some of it cannot be judged.
    pub doubts: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
}

/// A machine.
#[derive(Debug)]
pub struct Node {
    /// Its name in the user's list.
    pub host: Foreign,
    /// The last state of its link.
    pub link: Link,
    /// The judgement; `None` if nothing was recorded.
    pub verdict: Option<Verdict>,
}

/// Judges every machine and every job, without what is allowed.
pub fn judge(recorded: &Recorded, limits: &Limits, policy: &Policy) -> Verdicts {
    let node = |(place, set): (usize, &Option<_>)| Node {
        host: recorded.host(place),
        link: recorded.index.nodes.get(place).map(crate::storage::host_index::Node::link).unwrap_or_default(),
        verdict: set.as_ref().map(|it| check(it, limits, policy)),
    };
    let nodes: Vec<Node> = recorded.nodes.iter().enumerate().map(node).collect();
    let ends = nodes.iter().enumerate().filter_map(|(place, it)| {
        let now = it.verdict.as_ref()?.run.session.now;
        Some(recorded.here(place, now))
    });
    let jobs = ends.max().map_or_else(Vec::new, |to| course::jobs_until(recorded, policy, to));
    let mut all = Verdicts { nodes, jobs, hits: Vec::new(), doubts: Vec::new(), notes: recorded.notes.clone() };
    all.judge(limits);
    if recorded.index.closed.is_none() {
        all.notes.push("not closed: the recorder was killed, or still writes".to_owned());
    }
    all
}

impl Node {
    /// Whether no process had a probe there.
    fn is_idle(&self) -> bool {
        self.verdict.as_ref().is_some_and(|it| it.run.session.processes.is_empty() && it.damage.is_empty())
    }
}

impl Verdicts {
    /// Returns the verdict: a limit that was exceeded fails, a doubt leaves the run unjudged, otherwise it passes.
    pub fn outcome(&self) -> Outcome {
        if !self.hits.is_empty() {
            Outcome::Fail
        } else if self.doubts.is_empty() {
            Outcome::Pass
        } else {
            Outcome::Unjudged
        }
    }

    fn judge(&mut self, limits: &Limits) {
        let is_hit = |it: &&JobFinding| limits.fail_on.iter().any(|on| fails(it, *on));
        for job in &self.jobs {
            let hits = job.findings.iter().filter(is_hit);
            self.hits.extend(hits.map(|it| format!("{}: {}: {}", job.name, it.severity.name(), it.sentence)));
        }
        // A machine without a job causes no doubt beside others that have one.
        let has_job = self.nodes.iter().any(|it| it.verdict.is_some() && !it.is_idle());
        for it in &self.nodes {
            let Some(verdict) = &it.verdict else {
                let why = it.link.why().map_or_else(String::new, |why| format!(": {why}"));
                self.doubts.push(format!("{}: nothing was recorded; it is {}{why}", it.host, it.link.name()));
                continue;
            };
            self.hits.extend(verdict.hits.iter().map(|hit| format!("{}: {hit}", it.host)));
            if !(has_job && it.is_idle()) {
                self.doubts.extend(verdict.doubts.iter().map(|doubt| format!("{}: {doubt}", it.host)));
            }
        }
    }

    /// Returns the verdicts as text, with its last newline.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let word = match self.outcome() {
            Outcome::Pass => "PASS",
            Outcome::Fail => "FAIL",
            Outcome::Unjudged => "NOT JUDGED",
        };
        let machines = counted(self.nodes.len() as u64, "machine");
        writeln!(out, "{word}  {machines}, {}", counted(self.jobs.len() as u64, "job"))?;
        for (name, lines) in [("fails", &self.hits), ("not judged", &self.doubts)] {
            for line in lines {
                writeln!(out, "  {name}: {}", Foreign::new(line.as_str()))?;
            }
        }
        for job in &self.jobs {
            writeln!(out, "\n{}: {}", job.name, counted(job.ranks as u64, "rank"))?;
            for it in &job.findings {
                writeln!(out, "  {}: {}", it.severity.name(), it.sentence)?;
            }
        }
        for node in &self.nodes {
            writeln!(out, "\n{} ({})", node.host, node.link.name())?;
            let Some(verdict) = &node.verdict else { continue };
            let text = verdict.text();
            let is_plain = verdict.outcome() == Outcome::Pass && verdict.findings.is_empty();
            let lines = if is_plain { 1 } else { usize::MAX };
            for line in text.lines().take(lines) {
                writeln!(out, "{}", format!("  {line}").trim_end())?;
            }
        }
        for it in &self.notes {
            writeln!(out, "note: {}", Foreign::new(it.as_str()))?;
        }
        Ok(())
    }

    /// Returns the verdicts as JSON, with its last newline.
    pub fn json(&self) -> String {
        let whole = json!({
            "schema": SCHEMA,
            "gpuwatch": env!("CARGO_PKG_VERSION"),
            "verdict": self.outcome().name(),
            "hits": self.hits,
            "doubts": self.doubts,
            "notes": self.notes,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        });
        let mut text = escape_json(&format!("{whole:#}"));
        text.push('\n');
        text
    }
}

fn node(it: &Node) -> Value {
    json!({
        "host": it.host,
        "link": it.link.name(),
        "why": it.link.why(),
        "check": it.verdict.as_ref().map(json::value),
    })
}

fn job(it: &Job) -> Value {
    json!({
        "run": it.run,
        "scheduler": it.scheduled.as_ref().map(|it| &it.0),
        "job": it.scheduled.as_ref().map(|it| &it.1),
        "ranks": it.ranks,
        "findings": it.findings.iter().map(JobFinding::json).collect::<Vec<_>>(),
    })
}

/// Returns whether a job with this finding fails.
fn fails(it: &JobFinding, on: FailOn) -> bool {
    match on {
        FailOn::Never => false,
        FailOn::Severity(severity) => it.severity >= severity,
        FailOn::Kind(kind) => match it.subject {
            Subject::Ranks(of) => of == kind,
            Subject::Imbalance => kind == Kind::Imbalance,
            Subject::Ended | Subject::Missing | Subject::Behind => false,
        },
    }
}
