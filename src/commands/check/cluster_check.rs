//! `gpuwatch check DIR`: the recordings of several machines. Each is judged as any recording, and their jobs by the
//! findings over all ranks.
//!
//! `docs/reference/schemas/check-nodes.json` has every field of the JSON, schema 1.

use super::{CheckOutcome, Limits, Verdict, check, limits::FailOn, verdict_report};
use crate::{
    facts::{
        text::{Foreign, escape_json},
        units::{Stamp, counted},
    },
    model::{
        alerts::Policy,
        cluster::{
            Link,
            findings::{self, JobFinding, Subject},
            jobs::{self, jobs},
        },
        findings::Kind,
    },
    storage::replay::host_replay::Recorded,
};
use serde_json::{Value, json};
use std::{cmp::Reverse, collections::BTreeMap, fmt::Write};

/// The version of that schema.
const SCHEMA: u32 = 1;

/// The judgement of several machines.
#[derive(Debug)]
pub struct Verdicts {
    /// The machines, in the order of the user's list.
    pub nodes: Vec<HostVerdict>,
    /// The jobs, and what was found over all their ranks.
    pub jobs: Vec<JobVerdict>,
    /// Which limits were exceeded.
    pub hits: Vec<String>,
    /// Why some of it cannot be judged.
    pub doubts: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
}

/// A machine.
#[derive(Debug)]
pub struct HostVerdict {
    /// Its name in the user's list.
    pub host: Foreign,
    /// The last state of its link.
    pub link: Link,
    /// The judgement; `None` if nothing was recorded.
    pub verdict: Option<Verdict>,
}

/// Judges every machine and every job, without what is allowed.
pub fn judge(recorded: &Recorded, limits: &Limits, policy: &Policy) -> Verdicts {
    let node = |(place, set): (usize, &Option<_>)| HostVerdict {
        host: recorded.host(place),
        link: recorded.index.nodes.get(place).map(crate::storage::host_index::Node::link).unwrap_or_default(),
        verdict: set.as_ref().map(|it| check(it, limits, policy)),
    };
    let nodes: Vec<HostVerdict> = recorded.nodes.iter().enumerate().map(node).collect();
    let ends = nodes.iter().enumerate().filter_map(|(place, it)| {
        let now = it.verdict.as_ref()?.run.session.now;
        Some(recorded.here(place, now))
    });
    let jobs = ends.max().map_or_else(Vec::new, |to| jobs_until(recorded, policy, to));
    let mut all = Verdicts { nodes, jobs, hits: Vec::new(), doubts: Vec::new(), notes: recorded.notes.clone() };
    all.judge(limits);
    if recorded.index.closed.is_none() {
        all.notes.push("not closed: the recorder was killed, or still writes".to_owned());
    }
    all
}

impl HostVerdict {
    /// Whether no process had a probe there.
    fn is_idle(&self) -> bool {
        self.verdict.as_ref().is_some_and(|it| it.run.session.processes.is_empty() && it.damage.is_empty())
    }
}

impl Verdicts {
    /// Returns the verdict: a limit that was exceeded fails, a doubt leaves the run unjudged, otherwise it passes.
    pub fn outcome(&self) -> CheckOutcome {
        if !self.hits.is_empty() {
            CheckOutcome::Fail
        } else if self.doubts.is_empty() {
            CheckOutcome::Pass
        } else {
            CheckOutcome::Unjudged
        }
    }

    fn judge(&mut self, limits: &Limits) {
        // The limits of each machine judge what has one of its own.
        let is_limited = |it: &JobFinding| matches!(it.subject, Subject::Ranks(of) if limits.has_own_limit(of));
        let is_hit = |it: &&JobFinding| !is_limited(it) && limits.fail_on().iter().any(|on| fails(it, *on));
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
            CheckOutcome::Pass => "PASS",
            CheckOutcome::Fail => "FAIL",
            CheckOutcome::Unjudged => "NOT JUDGED",
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
            let is_plain = verdict.outcome() == CheckOutcome::Pass && verdict.findings.is_empty();
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

fn node(it: &HostVerdict) -> Value {
    json!({
        "host": it.host,
        "link": it.link.name(),
        "why": it.link.why(),
        "check": it.verdict.as_ref().map(verdict_report::json_value),
    })
}

fn job(it: &JobVerdict) -> Value {
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

/// Most moments, and the least time between two, in µs: what is found at two in a row lasts for that long.
const MOMENTS: u64 = 64;
const APART_US: u64 = 5_000_000;

/// A job of several hosts, as their recordings have it.
#[derive(Debug)]
pub struct JobVerdict {
    /// Its name in words.
    pub name: String,
    /// The id that its ranks share, from `gpuwatch env` or `gpuwatch run`.
    pub run: Option<String>,
    /// The batch system and its job.
    pub scheduled: Option<(String, String)>,
    /// The number of its ranks that were recorded.
    pub ranks: usize,
    /// What was found, worst first.
    pub findings: Vec<JobFinding>,
}

/// A finding over time.
struct FindingOverTime {
    worst: JobFinding,
    /// The latest moment with it.
    moment: u64,
    lasts: bool,
}

/// A job over time.
#[derive(Default)]
struct JobHistory {
    job: Option<JobVerdict>,
    seen: BTreeMap<Subject, FindingOverTime>,
}

/// Returns the jobs of the recordings up to an instant of the recorder's clock. A finding counts if it lasts to the end
/// or for two moments in a row.
pub(super) fn jobs_until(recorded: &Recorded, policy: &Policy, to: Stamp) -> Vec<JobVerdict> {
    let from = Stamp(recorded.index.head.monotonic_us);
    let step = (to.since(from) / MOMENTS).max(APART_US);
    let moments = to.since(from) / step;
    let mut playback = recorded.play();
    let mut courses: BTreeMap<String, JobHistory> = BTreeMap::new();
    for moment in 0..=moments {
        let is_end = moment == moments;
        // The last one is the end.
        let at = if is_end { to } else { Stamp(from.0 + (moment + 1) * step) };
        playback.advance(at);
        let cluster = &playback.cluster;
        let found = policy.found(cluster);
        for job in jobs(cluster) {
            let own = findings::findings(cluster, &job, &found);
            let course = courses.entry(job.key()).or_default();
            course.note(moment, is_end, own);
            course.job = Some(described(&job));
        }
    }
    let mut all: Vec<JobVerdict> = courses.into_values().filter_map(JobHistory::judged).collect();
    all.sort_by_key(|it| Reverse(it.ranks));
    all
}

impl JobHistory {
    fn note(&mut self, moment: u64, is_end: bool, found: Vec<JobFinding>) {
        for it in found {
            let seen = self.seen.entry(it.subject).or_insert_with(|| FindingOverTime {
                worst: it.clone(),
                moment,
                lasts: false,
            });
            seen.lasts |= is_end || seen.moment + 1 == moment;
            seen.moment = moment;
            if it.severity >= seen.worst.severity {
                seen.worst = it;
            }
        }
    }

    fn judged(self) -> Option<JobVerdict> {
        let mut findings: Vec<JobFinding> = self.seen.into_values().filter(|it| it.lasts).map(|it| it.worst).collect();
        findings.sort_by_key(|it| (Reverse(it.severity), it.subject));
        self.job.map(|job| JobVerdict { findings, ..job })
    }
}

fn described(job: &jobs::Job) -> JobVerdict {
    JobVerdict {
        name: job.name().map_or_else(|| "a job".to_owned(), |it| Foreign::new(it).to_string()),
        run: job.run.map(str::to_owned),
        scheduled: job.scheduled.map(|it| (it.scheduler.clone(), it.id.clone())),
        ranks: job.ranks.len(),
        findings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::analysis::severity::Severity;

    #[test]
    fn what_the_limits_of_machines_judge_is_not_judged_again_over_all_ranks() {
        let found = |subject| JobFinding {
            subject,
            cause: None,
            severity: Severity::Warning,
            sentence: "2 ranks".to_owned(),
            worst: None,
            ranks: vec![0, 1],
            hosts: Vec::new(),
        };
        let findings = vec![found(Subject::Ranks(Kind::Growth)), found(Subject::Imbalance)];
        let job = JobVerdict { name: "job".to_owned(), run: None, scheduled: None, ranks: 2, findings };
        let mut all =
            Verdicts { nodes: Vec::new(), jobs: vec![job], hits: Vec::new(), doubts: Vec::new(), notes: Vec::new() };
        let mut hits = |limits: Limits| {
            all.hits.clear();
            all.judge(&limits);
            all.hits.len()
        };
        let limited = Limits { max_growth: Some(1 << 20), ..Limits::default() };
        assert_eq!([hits(Limits::default()), hits(limited.clone())], [2, 1]);
        assert_eq!(hits(Limits { fail_on: Some(vec![FailOn::Severity(Severity::Warning)]), ..limited }), 2);
    }
}
