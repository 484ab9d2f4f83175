//! One leak, one warning: what follows from another finding stands behind it, as information.

use super::finding::{Finding, Identity, Kind};
use crate::model::analysis::{cause::Cause, episode::Resource, severity::Severity};
use std::cmp::Reverse;

/// Bytes of host memory that come with a block that is kept, at most: its Python object, what describes it, its graph's
/// nodes. Copies of the data itself are larger.
const PER_BLOCK: f64 = 256.0 * 1024.0;

/// What began so many steps before, or this share of the way, was there without it.
const EARLIER: u64 = 64;
const EARLIER_SHARE: f64 = 0.1;

/// Finds what follows from what, and puts the findings in order: the worst first, those that last before those that
/// ended, what runs out first, then as they were raised; what follows right behind what it follows from.
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
    // What others follow from has its place first.
    behind.sort_by_key(Finding::is_beside);
    for it in behind {
        let is_near = |other: &Finding| it.follows == Some(other.identity()) || it.follows == other.follows;
        let place = ordered.iter().rposition(is_near).map_or(ordered.len(), |at| at + 1);
        ordered.insert(place, it);
    }
    *all = ordered;
}

/// What a finding follows from.
fn lead(it: &Finding, all: &[Finding]) -> Option<Identity> {
    let of_same = |other: &&Finding| other.probe == it.probe && other.identity() != it.identity();
    let mut others = all.iter().filter(of_same);
    let found = match (it.kind, it.resource) {
        (Kind::Growth, Some(Resource::Host)) => others.find(|lead| is_beside(it, lead)),
        // The error is what there is to act on, and says which growth led to it.
        (Kind::Growth, _) => others.find(|oom| oom.severity == Severity::Critical && oom.led_by == Some(it.identity())),
        // A job that tries again and again has one error.
        (Kind::Oom, _) => others.find(|later| is_again(it, later)),
        _ => None,
    };
    found.map(Finding::identity)
}

/// Whether host memory grows with what is kept on a device, by Python's objects and the graph's nodes, and the host is in no
/// danger before the device is full.
fn is_beside(host: &Finding, lead: &Finding) -> bool {
    let (Some(rate), Some(_)) = (host.bytes_per_step, lead.bytes_per_step) else { return false };
    let is_leak = lead.kind == Kind::Growth && lead.resource == Some(Resource::Allocated);
    let blocks = lead.blocks_per_step.unwrap_or(1.0).max(1.0);
    let is_of_its_nodes = host.cause == Cause::GraphRetained;
    let is_small = rate <= PER_BLOCK * blocks || is_of_its_nodes;
    let slack = EARLIER.max(crate::facts::units::whole(EARLIER_SHARE * lead.since_step as f64));
    let is_after = host.since_step.saturating_add(slack) >= lead.since_step;
    let lasts = host.is_active() && lead.is_active() && host.axis == lead.axis;
    let is_harmless = host.severity == Severity::Info || lead.ends_us < host.ends_us;
    is_leak && lasts && is_small && is_after && is_harmless
}

/// Whether an error came again before another step was done.
fn is_again(it: &Finding, later: &Finding) -> bool {
    let is_same =
        later.kind == Kind::Oom && later.ordinal == it.ordinal && later.first_alert_step == it.first_alert_step;
    is_same && later.first_alert_at > it.first_alert_at
}
