//! Which lines allocated what grew, as a probe told it: kept within bounds.

use crate::event::wire::{PARTS_MAX, SITES_MAX, Sites};

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
