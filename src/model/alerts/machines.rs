//! Alerts of several machines: a finding of a job once, however many ranks it is about, and findings of machines that
//! are about no process of a job.

use super::{Message, cut, is_alert, short};
use crate::{
    facts::{event::DeviceId, text::Foreign, units::Stamp},
    model::{
        alerts,
        analysis::{cause::Cause, severity::Severity},
        cluster::{
            Cluster, Node,
            findings::{ClusterFindings, JobFinding, Subject, findings},
            jobs::{Job, jobs},
        },
        findings::{Finding, Findings, Kind},
    },
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// What only a comparison of ranks shows has to last this long, in µs: when a job ends, one rank is the first to end.
const LASTS_US: u64 = 10_000_000;

/// A finding that is away for longer has to last again, and after the longer time it is a new one, in µs.
const AWAY_US: u64 = 3_000_000;
const OVER_US: u64 = 600_000_000;

/// Another rank that runs out of memory, or whose device fails, is reported again after this time, in µs.
const AGAIN_US: u64 = 60_000_000;

/// Most findings that are remembered: hostile machines report any number of jobs.
const REMEMBERED: usize = 1 << 16;

/// Most ranks and machines of an object.
const LISTED: usize = 64;

/// Which alerts of several machines gpuwatch has reported.
#[derive(Clone, Debug, Default)]
pub struct NewClusterAlerts {
    seen: BTreeMap<Identity, Seen>,
}

/// The parts of a finding that never change, also in another stream of its machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// Of a job, by its key.
    Job(String, Subject, Option<Cause>),
    /// Of a machine, by its place in the list.
    Machine(usize, Kind, Cause, Option<u32>, Option<DeviceId>),
}

/// A finding over time.
#[derive(Clone, Debug)]
struct Seen {
    since: Stamp,
    latest: Stamp,
    reported: Option<Stamp>,
    /// The ranks at that time.
    ranks: BTreeSet<u64>,
}

impl NewClusterAlerts {
    /// Returns the alerts that are new. Call it about once a second.
    pub fn at(&mut self, cluster: &Cluster, found: &ClusterFindings) -> Vec<Message> {
        let now = cluster.now;
        let mut news = Vec::new();
        for (place, (node, found)) in cluster.nodes.iter().zip(&found.machines).enumerate() {
            for it in found.all.iter().filter(|it| is_of_machine(it, node)) {
                let identity = Identity::Machine(place, it.kind, it.cause, it.pid, it.device.clone());
                if self.is_new(identity, 0, &[], now) {
                    news.push(Message::new(it, &[it], &node.session).on(&node.host));
                }
            }
        }
        let machines = cluster.nodes.iter().zip(&found.machines).map(alerts).collect();
        let own = ClusterFindings { machines, expected: found.expected.clone(), silenced: Vec::new() };
        for job in jobs(cluster) {
            let matters = |it: &JobFinding| it.severity >= Severity::Warning && !found.silenced.contains(&it.subject);
            for it in findings(cluster, &job, &own).iter().filter(|it| matters(it)) {
                let identity = Identity::Job(job.key(), it.subject, it.cause);
                let lasts_us = if matches!(it.subject, Subject::Ranks(_)) { 0 } else { LASTS_US };
                let is_each = matches!(it.subject, Subject::Ranks(Kind::Oom | Kind::Hardware));
                if self.is_new(identity, lasts_us, if is_each { &it.ranks } else { &[] }, now) {
                    news.push(message(&job, it));
                }
            }
        }
        self.seen.retain(|_, it| now.since(it.latest) < OVER_US);
        news
    }

    /// Notes that a finding is there, and returns whether to report it now: once it has lasted, and again for other
    /// ranks of `each`.
    fn is_new(&mut self, identity: Identity, lasts_us: u64, each: &[u64], now: Stamp) -> bool {
        if self.seen.len() >= REMEMBERED && !self.seen.contains_key(&identity) {
            return false;
        }
        let first = || Seen { since: now, latest: now, reported: None, ranks: BTreeSet::new() };
        let seen = self.seen.entry(identity).or_insert_with(first);
        if now.since(seen.latest) > AWAY_US {
            seen.since = now;
        }
        seen.latest = now;
        let has_more = || each.iter().any(|it| !seen.ranks.contains(it));
        let is_due = match seen.reported {
            None => now.since(seen.since) >= lasts_us,
            Some(at) => now.since(at) >= AGAIN_US && has_more(),
        };
        if is_due {
            seen.reported = Some(now);
            seen.ranks.extend(each);
        }
        is_due
    }
}

/// Returns whether a finding is an alert of its machine: about no probed process, because those are their jobs'.
fn is_of_machine(it: &Finding, node: &Node) -> bool {
    is_alert(it, &node.session) && it.process(&node.session).is_none()
}

/// Returns the alerts of a machine.
fn alerts((node, found): (&Node, &Findings)) -> Findings {
    let all = found.all.iter().filter(|it| is_alert(it, &node.session));
    Findings { devices: Vec::new(), all: all.cloned().collect() }
}

fn message(job: &Job, it: &JobFinding) -> Message {
    let name = job.name().map(|it| short(&it));
    let place = name.as_ref().map_or_else(String::new, |name| format!("{}: ", Foreign::new(name.as_str())));
    let environment = [
        ("GPUWATCH_ALERT_SEVERITY", Some(it.severity.name().to_owned())),
        ("GPUWATCH_ALERT_KIND", Some(it.subject.name().to_owned())),
        ("GPUWATCH_ALERT_CAUSE", it.cause.map(|it| it.id().to_owned())),
        ("GPUWATCH_ALERT_RANK", it.worst.map(|it| it.to_string())),
    ];
    let sentence = cut(&it.sentence, alerts::SENTENCE);
    let mut object = it.json();
    object["schema"] = alerts::SCHEMA.into();
    object["gpuwatch"] = env!("CARGO_PKG_VERSION").into();
    object["job"] = name.into();
    object["sentence"] = sentence.as_str().into();
    object["count"] = it.ranks.len().into();
    object["ranks"] = json!(it.ranks.iter().take(LISTED).collect::<Vec<_>>());
    object["hosts"] = json!(it.hosts.iter().take(LISTED).map(|it| short(it.raw())).collect::<Vec<_>>());
    Message {
        line: format!("{}: {place}{sentence}", it.severity.name()),
        environment: environment.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        object: object.to_string(),
    }
}
