//! What holds the memory that is live when an allocation fails.

use super::{Group, advice, culprit, held};
use crate::facts::event::wire::{Site, Sites};

/// What holds the largest group of live blocks that anything was found for.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveHolder {
    /// The group's bytes.
    pub bytes: u64,
    /// The path of holders, in words.
    pub path: String,
    /// The items of the longest container on it; `None` without one.
    pub items: Option<u64>,
    /// Whether a variable of a function holds it directly.
    pub is_local: bool,
    /// The remedy.
    pub advice: String,
}

/// Returns the holder of the largest group on a device whose holder was found.
pub fn live_holder(sites: &Sites, device: u32) -> Option<LiveHolder> {
    let mut own = sites.sites.iter().filter(|it| it.device == device);
    let site = own.find(|it| !it.holders.is_empty())?;
    let group = Group { first: site, others: Vec::new(), graph: Vec::new() };
    let items = site.holders.iter().filter(|it| held::is_element(it)).filter_map(|it| it.items).max();
    let path = held::path(&site.holders).join(", held by ");
    let is_local = site.holders.first().is_some_and(|it| it.by == "local");
    Some(LiveHolder {
        bytes: site.bytes,
        path,
        items,
        is_local,
        advice: advice::advice(&culprit(&group, super::words::Over::of(sites)), &group),
    })
}

/// Returns the bytes of the groups on a device that the traceback of some error holds.
pub fn of_tracebacks(sites: &Sites, device: u32) -> u64 {
    let is_held = |site: &Site| site.holders.iter().any(|it| it.by == "traceback");
    let own = sites.sites.iter().filter(|it| it.device == device);
    own.filter(|it| is_held(it)).fold(0, |sum, it| it.bytes.saturating_add(sum))
}
