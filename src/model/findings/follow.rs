//! One leak, one warning: a finding that follows from another is listed under it, as information.

use super::finding::{Finding, Identity, Kind};
use crate::model::analysis::{cause::Cause, episode::Resource, severity::Severity};
use std::cmp::Reverse;

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
    let is_same =
        later.kind == Kind::Oom && later.ordinal == it.ordinal && later.first_alert_step == it.first_alert_step;
    is_same && later.first_alert_at > it.first_alert_at
}
