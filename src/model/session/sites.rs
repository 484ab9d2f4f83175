//! Which lines allocated what grew, as a probe told it.

use super::{oom::OutOfMemory, process::Process};
use crate::facts::event::wire::Sites;
use crate::model::analysis::culprit::{self, Account};

/// Between an error and the account of it, at most: the stacks of many live blocks take their time, µs.
const WITH_OOM_US: u64 = 10_000_000;

impl Process {
    /// What was found on a device by the latest of some looks that found a line, else by the latest of them.
    pub fn answer(&self, device: u32, which: impl Fn(&Sites) -> bool) -> Option<(&Sites, Account)> {
        let captures = self.sites.iter().map(|it| &**it).filter(|it| it.steps > 0 && which(it));
        let mut latest = None;
        for sites in captures.rev() {
            let account = culprit::account(sites, device);
            if !account.culprits.is_empty() {
                return Some((sites, account));
            }
            latest = latest.or(Some((sites, account)));
        }
        latest
    }

    /// What was live by line when an allocation failed, where stacks were recorded then.
    pub fn lines_at(&self, oom: &OutOfMemory) -> Option<&Sites> {
        let apart = |it: &Sites| it.at_us.abs_diff(oom.said.at_us);
        let at_an_error = self.sites.iter().map(|it| &**it).filter(|it| it.steps == 0);
        at_an_error.filter(|it| apart(it) <= WITH_OOM_US).min_by_key(|it| apart(it))
    }
}
