//! An allocation that failed for good: what the probe said of it, set beside what was known then.

use crate::{
    analysis::{
        culprit,
        oom::{self, Blocks, OomFigures, Tenant},
    },
    event::wire::{Counters, GROUPS_MAX, Oom, Sites},
    units::Bytes,
};
use serde::{Deserialize, Serialize};

/// Other processes kept per error.
const TENANTS: usize = 16;

/// An allocation that failed for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// What the probe said.
    pub said: Oom,
    /// The message's figures; what it does not say, from the allocator's counters at that time.
    pub figures: OomFigures,
    /// The other processes that the driver listed on the device by then, the largest first.
    pub tenants: Vec<Tenant>,
}

/// Who had memory on a device, as the driver lists them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tenancy {
    /// What the process itself had.
    pub(super) own: Option<Bytes>,
    /// The others, the largest first.
    pub(super) others: Vec<Tenant>,
}

impl OutOfMemory {
    /// From what was said, the counters at that time, and whether expandable segments are on.
    pub(super) fn new(oom: &Oom, known: &Counters, expandable: bool, tenancy: Option<Tenancy>) -> Self {
        let all = |it: &Tenancy| it.others.iter().try_fold(Bytes(0), |sum, it| Some(sum.plus(it.used?)));
        let parsed = oom::parse(oom.message.as_deref().unwrap_or_default());
        let total = parsed.total.or(known.device_total);
        let figures = OomFigures {
            tried: parsed.tried.or(oom.tried),
            total,
            free: parsed.free.or(oom.device_free),
            allowed: parsed.allowed.or(oom.limit.filter(|it| total.is_some_and(|total| *it < total))),
            process: parsed.process.or(tenancy.as_ref().and_then(|it| it.own).map(|it| it.0)),
            others: parsed.others.or(tenancy.as_ref().and_then(all).map(|it| it.0)),
            allocated: parsed.allocated.or(known.allocated),
            reserved: parsed.reserved.or(known.reserved),
            private_pools: parsed.private_pools.or(known.private_pools),
            largest_free: oom.largest_free,
            stuck: known.inactive_split.filter(|_| !expandable),
        };
        let mut said = oom.clone();
        said.blocks.truncate(GROUPS_MAX);
        let mut tenants = tenancy.unwrap_or_default().others;
        tenants.truncate(TENANTS);
        Self { said, figures, tenants }
    }

    /// Why it did not fit, in words, a line each; with what was live by line, where stacks were recorded then.
    pub fn account(&self, lines: Option<&Sites>) -> Vec<String> {
        let blocks = Blocks { groups: &self.said.blocks, others: self.said.other_blocks };
        let mut account = self.figures.account(blocks, &self.tenants);
        account.extend(lines.and_then(|it| culprit::live(it, self.said.device)));
        account
    }
}
