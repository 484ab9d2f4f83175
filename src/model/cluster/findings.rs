//! Findings of a job, over all its ranks, each raised once for the job: what several ranks share, and what only a
//! comparison of ranks shows.

use super::{
    Cluster,
    jobs::{Job, Rank},
};
use crate::model::statistics;
use crate::{
    facts::{
        text::Foreign,
        units::{Bytes, counted, times},
    },
    model::{
        analysis::{cause::Cause, severity::Severity, strain},
        findings::{Finding, Findings, Kind},
        session::process::ProbeState,
    },
};
use serde_json::{Value, json};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Fewest ranks for a median.
const LEAST: usize = 3;

/// Ranks of a synchronous job are at most this many steps apart, whenever they are read.
const APART_STEPS: u64 = 2;

/// A machine's latest samples are at most this old, in µs: a stretch of the thinner, and the time between two writes.
const READ_WITHIN_US: u64 = 2_000_000;

/// Ranks that a sentence names.
const NAMED: usize = 8;

/// What a finding of a job is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Findings of the same kind and cause on some of its ranks.
    Ranks(Kind),
    /// Ranks ended while others run.
    Ended,
    /// No machine of the list has these ranks.
    Missing,
    /// Ranks are steps behind the others.
    Behind,
    /// A rank wants much more memory than the others.
    Imbalance,
}

/// A finding of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFinding {
    /// What it is about.
    pub subject: Subject,
    /// The cause that its ranks share; `None` of what only a comparison of ranks shows.
    pub cause: Option<Cause>,
    /// How much it matters.
    pub severity: Severity,
    /// Its description. Text from outside in it is escaped.
    pub sentence: String,
    /// The rank that its description begins with: the worst.
    pub worst: Option<u64>,
    /// The ranks that it is about.
    pub ranks: Vec<u64>,
    /// Their machines.
    pub hosts: Vec<Foreign>,
}

/// What was found on each machine, and the user's rules for what a comparison of ranks shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFindings {
    /// The findings of each machine, in the cluster's order.
    pub machines: Vec<Findings>,
    /// Expected: not a finding of any job.
    pub expected: Vec<Subject>,
    /// Silenced: never an alert.
    pub silenced: Vec<Subject>,
}

impl ClusterFindings {
    /// Returns the findings of the machine at a place.
    pub fn of(&self, place: usize) -> Option<&Findings> {
        self.machines.get(place)
    }
}

impl Subject {
    /// What only a comparison of ranks shows, and no machine alone.
    pub const OF_RANKS: [Self; 3] = [Self::Ended, Self::Missing, Self::Behind];

    /// What a comparison of ranks shows. A machine that has several ranks of a job compares them too.
    pub const COMPARED: [Self; 4] = [Self::Ended, Self::Missing, Self::Behind, Self::Imbalance];

    /// Returns its kind, if findings of one machine may be of it too.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Self::Ranks(kind) => Some(kind),
            Self::Imbalance => Some(Kind::Imbalance),
            Self::Ended | Self::Missing | Self::Behind => None,
        }
    }

    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ranks(kind) => kind.name(),
            Self::Ended => "rank-ended",
            Self::Missing => "rank-missing",
            Self::Behind => "rank-behind",
            Self::Imbalance => Kind::Imbalance.name(),
        }
    }
}

impl JobFinding {
    /// Returns it as the JSON of every report has it.
    pub fn json(&self) -> Value {
        json!({
            "kind": self.subject.name(),
            "cause": self.cause.map(Cause::id),
            "severity": self.severity.name(),
            "sentence": self.sentence,
            "ranks": self.ranks,
            "hosts": self.hosts,
        })
    }
}

/// Returns the findings of a job, worst first.
pub fn findings(cluster: &Cluster, job: &Job, found: &ClusterFindings) -> Vec<JobFinding> {
    let scope = Scope { cluster, job };
    let mut all = scope.shared(found);
    let compared = [scope.ended(), scope.missing(), scope.behind(), scope.imbalance()].into_iter().flatten();
    all.extend(compared.filter(|it| !found.expected.contains(&it.subject)));
    all.sort_by_key(|it| (Reverse(it.severity), it.subject));
    all
}

struct Scope<'a> {
    cluster: &'a Cluster,
    job: &'a Job<'a>,
}

impl<'a> Scope<'a> {
    fn finding(&self, subject: Subject, severity: Severity, sentence: String, ranks: &[Rank]) -> JobFinding {
        let mut known = BTreeSet::new();
        let nodes = ranks.iter().map(|it| it.node).filter(|it| known.insert(*it));
        let hosts = nodes.filter_map(|it| Some(self.cluster.nodes.get(it)?.host.clone())).collect();
        let ranks: Vec<u64> = ranks.iter().filter_map(Rank::rank).collect();
        JobFinding { subject, cause: None, severity, sentence, worst: ranks.first().copied(), ranks, hosts }
    }

    fn living(&self) -> impl Iterator<Item = Rank<'a>> {
        self.job.ranks.iter().filter(|it| it.process.is_alive()).copied()
    }

    /// Describes a rank: `rank 5 on node03`.
    fn who(&self, it: &Rank) -> String {
        let host = self.cluster.nodes.get(it.node).map_or_else(String::new, |node| format!(" on {}", node.host));
        let rank = it.rank().map_or_else(|| "a process".to_owned(), |rank| format!("rank {rank}"));
        format!("{rank}{host}")
    }

    /// One finding for all ranks with findings of one kind and cause; imbalance is judged over all ranks instead.
    fn shared(&self, found: &ClusterFindings) -> Vec<JobFinding> {
        let mut groups: BTreeMap<_, Vec<(Rank, &Finding)>> = BTreeMap::new();
        for it in &self.job.ranks {
            let own = found.of(it.node).into_iter().flat_map(|findings| &findings.all);
            let own = own.filter(|finding| finding.is_of(it.process) && matters(finding));
            for finding in own {
                groups.entry(finding.nature()).or_default().push((*it, finding));
            }
        }
        groups.into_values().filter_map(|it| self.shared_by(it)).collect()
    }

    fn shared_by(&self, mut members: Vec<(Rank, &Finding)>) -> Option<JobFinding> {
        members.sort_by_key(|(_, it)| (Reverse(it.severity), it.ends_us));
        let (first, worst) = *members.first()?;
        let mut ranks: Vec<Rank> = members.iter().map(|it| it.0).collect();
        ranks.sort_by_key(Rank::rank);
        ranks.dedup_by_key(|it| it.process.probe.0 as usize + (it.node << 32));
        let brief = worst.brief();
        let (count, all) = (ranks.len(), self.job.ranks.len());
        let sentence = match count {
            1 => format!("{brief} on {}", self.who(&first)),
            _ => format!("{brief} on {}; {count} of {} have this", self.who(&first), counted(all as u64, "rank")),
        };
        let found = self.finding(Subject::Ranks(worst.kind), worst.severity, sentence, &ranks);
        Some(JobFinding { cause: Some(worst.cause), worst: first.rank(), ..found })
    }

    fn ended(&self) -> Option<JobFinding> {
        let running = self.living().count();
        // A rank whose probe ended before it may still train.
        let has_ended = |it: &&Rank| !it.process.is_alive() && !it.process.has_left() && it.rank().is_some();
        let ended: Vec<Rank> = self.job.ranks.iter().filter(has_ended).copied().collect();
        let first = ended.first().filter(|_| running > 0)?;
        let why = match &first.process.life {
            ProbeState::Ended { reason: why, .. } | ProbeState::Gone { why, .. } => format!(" ({why})"),
            _ => String::new(),
        };
        let more = others(ended.len());
        let sentence = format!("{} ended{why}{more} while {} run", self.who(first), counted(running as u64, "rank"));
        Some(self.finding(Subject::Ended, Severity::Warning, sentence, &ended))
    }

    /// Machines that are not in the list may have the missing ranks. Only if a machine of the list does not answer is
    /// it a warning.
    fn missing(&self) -> Option<JobFinding> {
        let missing = self.job.missing();
        let is_away = |it: &&super::Node| it.link.why().is_some();
        let away: Vec<&super::Node> = self.cluster.nodes.iter().filter(is_away).collect();
        let named: Vec<String> = missing.iter().take(NAMED).map(u64::to_string).collect();
        let more = if missing.len() > NAMED { ", …" } else { "" };
        let world = self.job.world_size.filter(|_| !missing.is_empty())?;
        let because = away
            .first()
            .map_or_else(String::new, |it| format!("; {} is {}{}", it.host, it.link.name(), others(away.len())));
        let sentence = format!("{} of {world} ranks are not seen: {}{more}{because}", missing.len(), named.join(", "));
        let severity = if away.is_empty() { Severity::Info } else { Severity::Warning };
        let hosts = away.iter().map(|it| it.host.clone()).collect();
        let worst = missing.first().copied();
        Some(JobFinding { subject: Subject::Missing, cause: None, severity, sentence, worst, ranks: missing, hosts })
    }

    /// Ranks that are more steps behind the median than the times of their readings explain.
    fn behind(&self) -> Option<JobFinding> {
        let steps: Vec<(Rank, u64)> = self.living().filter_map(|it| Some((it, it.step()?))).collect();
        let middle = median(steps.iter().map(|it| it.1))?;
        let lag = |(rank, step): &(Rank, u64)| {
            let us = rank.on().and_then(|on| on.pace.typical()).map_or(READ_WITHIN_US, |it| it.us.max(1));
            middle.checked_sub(*step).filter(|it| *it > APART_STEPS + READ_WITHIN_US / us)
        };
        let mut late: Vec<(Rank, u64)> = steps.iter().filter_map(|it| Some((it.0, lag(it)?))).collect();
        late.sort_by_key(|it| Reverse(it.1));
        let (worst, by) = *late.first()?;
        let age = worst.on().and_then(|on| {
            let node = self.cluster.nodes.get(worst.node)?;
            node.age_us(on.at, self.cluster.now)
        });
        let age = age.filter(|it| *it > READ_WITHIN_US).map_or_else(String::new, |it| {
            format!(" and has reported nothing for {}", crate::facts::units::duration(it))
        });
        let sentence =
            format!("{} is {} behind the median{age}{}", self.who(&worst), counted(by, "step"), others(late.len()));
        let ranks: Vec<Rank> = late.iter().map(|it| it.0).collect();
        Some(self.finding(Subject::Behind, Severity::Warning, sentence, &ranks))
    }

    fn imbalance(&self) -> Option<JobFinding> {
        let wanted: Vec<(Rank, u64)> = self.living().filter_map(|it| Some((it, it.wanted()?))).collect();
        let middle = median(wanted.iter().map(|it| it.1))?;
        let is_uneven = |(rank, bytes): &&(Rank, u64)| {
            let total = rank.on().and_then(|on| on.counters.device_total.or_else(|| total(rank, on.ordinal)));
            strain::is_uneven(*bytes, middle, total)
        };
        let mut high: Vec<(Rank, u64)> = wanted.iter().filter(is_uneven).copied().collect();
        high.sort_by_key(|it| Reverse(it.1));
        let (worst, bytes) = *high.first()?;
        let sentence = format!(
            "{} wants {}, {} the median{}",
            self.who(&worst),
            Bytes(bytes),
            times(bytes as f64 / middle as f64),
            others(high.len())
        );
        let ranks: Vec<Rank> = high.iter().map(|it| it.0).collect();
        Some(self.finding(Subject::Imbalance, Severity::Warning, sentence, &ranks))
    }
}

fn total(rank: &Rank, ordinal: u32) -> Option<u64> {
    rank.process.hello.as_ref()?.devices.iter().find(|it| it.ordinal == ordinal)?.total
}

/// Whether a rank's finding is one of its job: it lasts, is not expected, follows from no other.
fn matters(it: &Finding) -> bool {
    it.is_active() && !it.is_allowed() && it.follows.is_none() && it.kind != Kind::Imbalance
}

/// Returns `, and 3 more`, or nothing.
fn others(count: usize) -> String {
    if count > 1 { format!(", and {} more", count - 1) } else { String::new() }
}

/// Returns the median; `None` of fewer than [`LEAST`] values.
fn median(values: impl ExactSizeIterator<Item = u64>) -> Option<u64> {
    if values.len() < LEAST { None } else { statistics::median(values) }
}
