//! Which lines allocated what grew, as a probe told it: kept within bounds.

use super::{oom::OutOfMemory, process::Process};
use crate::event::wire::{PARTS_MAX, SITES_MAX, Sites};

/// Between an error and the account of it, at most: the stacks of many live blocks take their time, µs.
const WITH_OOM_US: u64 = 10_000_000;

impl Process {
    /// The looks at which lines allocate what grows, the latest last.
    pub fn looks(&self) -> impl DoubleEndedIterator<Item = &Sites> {
        self.sites.iter().map(|it| &**it).filter(|it| it.steps > 0)
    }

    /// What was live by line when an allocation failed, where stacks were recorded then.
    pub fn lines_at(&self, oom: &OutOfMemory) -> Option<&Sites> {
        let apart = |it: &Sites| it.at_us.abs_diff(oom.said.at_us);
        let at_an_error = self.sites.iter().map(|it| &**it).filter(|it| it.steps == 0);
        at_an_error.filter(|it| apart(it) <= WITH_OOM_US).min_by_key(|it| apart(it))
    }
}

/// An account of no more than a probe of ours would tell.
pub(super) fn bounded(sites: &Sites) -> Sites {
    let mut sites = sites.clone();
    sites.sites.truncate(SITES_MAX);
    for it in &mut sites.sites {
        it.frames.truncate(PARTS_MAX);
        it.sizes.truncate(PARTS_MAX);
        it.owners.truncate(PARTS_MAX);
        it.holders.truncate(PARTS_MAX);
        it.source.truncate(PARTS_MAX);
    }
    sites
}
