//! One leak, one warning: a finding that follows from another is listed under it, as information.

use super::{Finding, Identity, Kind, names};
use crate::model::{
    analysis::{
        cause::Cause,
        culprit::Culprit,
        episode::{Axis, Resource},
        severity::Severity,
    },
    session::{Session, process::Process},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Most bytes of host memory that accompany a kept block: its Python object, its metadata and its graph's nodes. Copies
/// of the data itself are larger.
const PER_BLOCK: f64 = 256.0 * 1024.0;

/// Host memory beyond the pinned part of it, as a share of that: the objects of its tensors, and errors of both slopes.
const PINNED: f64 = 0.25;

/// A finding that began this many steps, or this share of the run, earlier is independent.
const EARLIER: u64 = 64;
const EARLIER_SHARE: f64 = 0.1;

/// Links findings to those that cause them and sorts them: worst first, active before resolved, soonest exhausted
/// first, then as raised. A finding comes right after the one that causes it.
pub(super) fn order(all: &mut Vec<Finding>) {
    let leads: Vec<Option<Identity>> = all.iter().map(|it| lead(it, all)).collect();
    for (it, lead) in all.iter_mut().zip(leads) {
        if lead.is_some() {
            it.severity = Severity::Info;
        }
        it.follows = lead;
    }
    name_lines_of_pools(all);
    all.sort_by_key(|it| (Reverse(it.severity), !it.is_active(), it.ends_us, it.first_alert_at, it.rank));
    let (mut behind, mut ordered): (Vec<_>, Vec<_>) = all.drain(..).partition(|it| it.follows.is_some());
    // Leading findings come first.
    behind.sort_by_key(Finding::is_companion);
    for it in behind {
        let is_near = |other: &Finding| it.follows == Some(other.identity()) || it.follows == other.follows;
        let place = ordered.iter().rposition(is_near).map_or(ordered.len(), |at| at + 1);
        ordered.insert(place, it);
    }
    *all = ordered;
}

/// Gives growth of private pools the line that keeps the inputs and outputs of their graphs.
fn name_lines_of_pools(all: &mut [Finding]) {
    let lines: Vec<_> = all.iter().filter_map(|it| Some((it.follows?, it.kind, it.culprit.clone()?))).collect();
    for (lead, kind, culprit) in lines {
        let is_it = |it: &&mut Finding| kind == Kind::Growth && it.kind == Kind::Growth && it.identity() == lead;
        if let Some(it) = all.iter_mut().find(is_it).filter(|it| it.culprit.is_none()) {
            let bytes_per_step = it.bytes_per_step.unwrap_or(culprit.bytes_per_step);
            let advice = it.cause.advice().to_owned();
            it.culprit = Some(Box::new(Culprit { bytes_per_step, advice, ..*culprit }));
        }
    }
}

/// Returns the finding that this one follows from.
fn lead(it: &Finding, all: &[Finding]) -> Option<Identity> {
    let of_same = |other: &&Finding| other.subject() == it.subject() && other.identity() != it.identity();
    let mut others = all.iter().filter(of_same);
    let found = match (it.kind, it.resource) {
        (Kind::Growth, Some(Resource::Host)) => others.find(|lead| is_companion(it, lead) || is_of_pinned(it, lead)),
        // The error is what a user can act on, and it names the growth that caused it.
        (Kind::Growth, _) => {
            let has_failed = |oom: &&Finding| oom.severity == Severity::Critical && oom.led_by == Some(it.identity());
            others.clone().find(has_failed).or_else(|| others.find(|lead| is_of_graphs(it, lead)))
        }
        // A rank that outlived its launcher waits for ranks that are gone.
        (Kind::Stall, _) => {
            let is_orphan = |other: &&Finding| other.cause == Cause::OrphanedRank && other.pid == it.pid;
            all.iter().find(|other| is_orphan(other) && other.is_active())
        }
        // What a user can act on is the kill, which names the limit.
        (Kind::HostFull | Kind::WorkerGrowth, _) => all.iter().find(|other| {
            other.kind == Kind::OomKilled
                && other.first_alert_at >= it.first_alert_at
                && it.resolved_at.is_none_or(|end| other.first_alert_at.since(end) == 0)
        }),
        // A job that retries reports its error once.
        (Kind::Oom, _) => others.find(|later| is_again(it, later)),
        _ => None,
    };
    found.map(Finding::identity)
}

/// Whether host memory grows along with what is kept on a device, through Python's objects and the graph's nodes, and
/// not faster, or at least does not run out before the device is full.
fn is_companion(host: &Finding, lead: &Finding) -> bool {
    let (Some(rate), Some(_)) = (host.bytes_per_step, lead.bytes_per_step) else { return false };
    let is_leak = lead.kind == Kind::Growth && lead.resource == Some(Resource::Allocated);
    let blocks = lead.blocks_per_step.unwrap_or(1.0).max(1.0);
    let is_of_its_nodes = host.cause == Cause::GraphRetained;
    let is_small = rate <= PER_BLOCK * blocks || is_of_its_nodes;
    let slack = EARLIER.max(crate::facts::units::whole(EARLIER_SHARE * lead.since_step as f64));
    let is_after = host.since_step.saturating_add(slack) >= lead.since_step;
    let lasts = host.is_active() && lead.is_active() && host.axis == lead.axis;
    let is_slower = lead.bytes_per_step.is_some_and(|it| rate <= it);
    let is_harmless = host.severity == Severity::Info || is_slower || lead.ends_us < host.ends_us;
    is_leak && lasts && is_small && is_after && is_harmless
}

/// Whether live memory grows along with the private pools of CUDA graphs, by their inputs and outputs.
fn is_of_graphs(live: &Finding, lead: &Finding) -> bool {
    let is_live = live.resource == Some(Resource::Allocated) && live.kind == Kind::Growth;
    let of_pools = lead.kind == Kind::Growth && lead.cause == Cause::GraphPools;
    let lasts = live.is_active() && lead.is_active() && lead.ordinal == live.ordinal;
    is_live && of_pools && lasts && live.bytes_per_step < lead.bytes_per_step
}

/// Whether resident memory grows by what is pinned, which is resident too.
fn is_of_pinned(host: &Finding, lead: &Finding) -> bool {
    let of_pinned = lead.kind == Kind::Growth && lead.resource == Some(Resource::Pinned);
    let lasts = host.is_active() && lead.is_active() && host.axis == lead.axis;
    let beside = host.bytes_per_step.zip(lead.bytes_per_step).map(|(host, pinned)| host - pinned);
    let limit = lead.bytes_per_step.map_or(0.0, |it| PINNED * it);
    of_pinned && lasts && beside.is_some_and(|it| it <= limit)
}

/// Whether an error occurred again before another step completed.
fn is_again(it: &Finding, later: &Finding) -> bool {
    // Without steps, what comes within a second is the same attempt.
    let between = later.first_alert_step.abs_diff(it.first_alert_step);
    let is_near = between == 0 || (between == 1 && it.axis == Axis::Seconds && later.axis == Axis::Seconds);
    let is_same = later.kind == Kind::Oom && later.ordinal == it.ordinal && is_near;
    is_same && later.first_alert_at > it.first_alert_at
}

/// How far the rates of one leak may be apart on ranks of which one has no known line yet, as a share of the larger.
const RATES_DIFFER: f64 = 0.2;

/// What ranks with the same leak have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leak {
    run: String,
    nature: (Kind, &'static str),
    resource: Option<Resource>,
    /// The line to blame.
    line: Option<String>,
    follows: bool,
    expected: bool,
}

impl Finding {
    /// Returns its kind and the name of its cause. Findings of several ranks that share them are one alert of their
    /// job; on one machine only growth, and of the same line.
    pub fn nature(&self) -> (Kind, &'static str) {
        (self.kind, self.cause.id())
    }

    fn leak(&self, session: &Session) -> Option<Leak> {
        let may_be_shared = self.kind == Kind::Growth && self.probe.is_some() && self.is_active();
        let run = self.process(session).filter(|_| may_be_shared)?.group()?;
        Some(Leak {
            run,
            nature: self.nature(),
            resource: self.resource,
            line: self.culprit.as_ref().map(|it| it.leading().place()),
            follows: self.follows.is_some(),
            expected: self.is_allowed(),
        })
    }

    /// Returns whether both may be one leak, although the line of this one is not known yet: the other's capture may
    /// have changed its cause as well.
    fn may_share(&self, own: &Leak, other: &Self, known: &Leak) -> bool {
        let alike = |it: &Leak| Leak { line: None, nature: (self.kind, ""), ..it.clone() };
        let rates = self.bytes_per_step.zip(other.bytes_per_step);
        let are_close = |(one, other): (f64, f64)| (one - other).abs() <= RATES_DIFFER * one.max(other);
        alike(own) == alike(known)
            && self.subject() != other.subject()
            && self.axis == other.axis
            && rates.is_some_and(are_close)
    }
}

/// Returns the leak of each finding. One whose line is not known yet is the only leak of a known line that it may be.
fn leaks(all: &[&Finding], session: &Session) -> Vec<Option<Leak>> {
    let own: Vec<Option<Leak>> = all.iter().map(|it| it.leak(session)).collect();
    let known: Vec<(&Finding, &Leak)> = all
        .iter()
        .zip(&own)
        .filter_map(|(it, leak)| Some((*it, leak.as_ref().filter(|leak| leak.line.is_some())?)))
        .collect();
    let completed = |(it, leak): (&&Finding, &Option<Leak>)| {
        let leak = leak.as_ref()?;
        if leak.line.is_some() {
            return Some(leak.clone());
        }
        let alike = known.iter().filter(|(other, known)| it.may_share(leak, other, known)).map(|(_, known)| *known);
        let alike: BTreeSet<&Leak> = alike.collect();
        Some(alike.first().copied().filter(|_| alike.len() == 1).unwrap_or(leak).clone())
    };
    all.iter().zip(&own).map(completed).collect()
}

/// Returns the findings with one of each leak that several ranks share, at the place of the first: the gravest, then
/// `held`, then one whose line is known, then that of the lowest rank.
pub fn once<'a>(all: &[&'a Finding], held: Option<Identity>, session: &Session) -> Vec<&'a Finding> {
    grouped(all, held, session).into_iter().filter_map(|group| group.first().copied()).collect()
}

/// Returns the same ones, each before the others with the same leak, which are ordered by rank.
pub fn grouped<'a>(all: &[&'a Finding], held: Option<Identity>, session: &Session) -> Vec<Vec<&'a Finding>> {
    let leaks = leaks(all, session);
    let mut groups: BTreeMap<&Leak, Vec<&'a Finding>> = BTreeMap::new();
    for (it, leak) in all.iter().zip(&leaks) {
        if let Some(leak) = leak {
            groups.entry(leak).or_default().push(*it);
        }
    }
    groups.retain(|_, group| probes(group) > 1);
    let mut shown = BTreeSet::new();
    let group = |(it, leak): (&&'a Finding, &Option<Leak>)| {
        let Some((leak, group)) = leak.as_ref().and_then(|leak| groups.get_key_value(leak)) else {
            return Some(vec![*it]);
        };
        shown.insert(*leak).then(|| first_before_others(group, held))
    };
    all.iter().zip(&leaks).filter_map(group).collect()
}

fn first_before_others<'a>(group: &[&'a Finding], held: Option<Identity>) -> Vec<&'a Finding> {
    let mut group = by_rank(group);
    let first = (0..group.len()).min_by_key(|place| {
        group.get(*place).map(|it| (Reverse(it.severity), Some(it.identity()) != held, it.culprit.is_none()))
    });
    if let Some(prefix) = first.and_then(|place| group.get_mut(..=place)) {
        prefix.rotate_right(1);
    }
    group
}

fn by_rank<'a>(group: &[&'a Finding]) -> Vec<&'a Finding> {
    let mut group = group.to_vec();
    group.sort_by_key(|it| (it.rank, it.subject(), it.ordinal));
    group
}

/// Returns those of the findings that are the same leak as this one, by rank: only itself unless ranks share it.
pub fn sharing<'a>(it: &'a Finding, all: &[&'a Finding], session: &Session) -> Vec<&'a Finding> {
    let mut groups = grouped(all, None, session).into_iter();
    let group = groups.find(|group| group.iter().any(|other| other.identity() == it.identity()));
    group.map_or_else(|| vec![it], |group| by_rank(&group))
}

/// Returns `ranks 0, 1` of several findings; `None` of one alone, and without known ranks.
pub fn ranks(group: &[&Finding]) -> Option<String> {
    let ranks = numbers(group);
    let named = names(ranks.iter().map(u64::to_string)).filter(|_| ranks.len() > 1)?;
    Some(format!("ranks {named}"))
}

/// Returns the known ranks of findings, in order.
pub fn numbers(group: &[&Finding]) -> Vec<u64> {
    let ranks: BTreeSet<u64> = group.iter().filter_map(|it| it.rank).collect();
    ranks.into_iter().collect()
}

/// Returns whether living ranks of the same job may yet share a leak of these.
pub fn may_grow(group: &[&Finding], session: &Session) -> bool {
    let Some(leak) = group.first().and_then(|it| it.leak(session)) else { return false };
    let is_other = |it: &&Process| !group.iter().any(|finding| finding.is_of(it));
    let others = session.processes.iter().filter(|it| it.is_alive() && it.rank().is_some()).filter(is_other);
    others.filter_map(Process::group).any(|it| it == leak.run)
}

fn probes(group: &[&Finding]) -> usize {
    group.iter().map(|it| it.subject()).collect::<BTreeSet<_>>().len()
}
