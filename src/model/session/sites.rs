//! Selects among the answers to captures: which lines allocated what grew.

use super::{oom::OutOfMemory, process::Process};
use crate::facts::event::wire::Sites;
use crate::model::analysis::culprit::{self, Account};

/// The longest time between an error and its account, in µs: collecting the stacks of many live blocks takes time.
const WITH_OOM_US: u64 = 10_000_000;

impl Process {
    /// Returns the findings on a device of the latest matching capture that found a line, otherwise of the latest one.
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

    /// Returns live memory by line at a failed allocation, if stacks were recorded.
    pub fn lines_at(&self, oom: &OutOfMemory) -> Option<&Sites> {
        let distance = |it: &Sites| it.at_us.abs_diff(oom.reported.at_us);
        let at_an_error = self.sites.iter().map(|it| &**it).filter(|it| it.steps == 0);
        at_an_error.filter(|it| distance(it) <= WITH_OOM_US).min_by_key(|it| distance(it))
    }
}
