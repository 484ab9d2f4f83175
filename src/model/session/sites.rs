//! Selects among the answers to captures: which lines allocated what grew.

use super::{oom::OutOfMemory, process::Process};
use crate::facts::event::wire::Sites;
use crate::model::analysis::culprit::{self, Account};

/// The longest time between an error and its account, in µs: collecting the stacks of many live blocks takes time.
const WITH_OOM_US: u64 = 10_000_000;

/// How much earlier than the error an account may be stamped, in µs.
const SLACK_US: u64 = 1000;

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

    /// Returns what was live at a failed allocation: its own account, otherwise that of an earlier error of its burst.
    pub fn lines_at(&self, oom: &OutOfMemory) -> Option<&Sites> {
        let at = oom.reported.at_us;
        let near = |it: &&Sites| it.steps == 0 && it.at_us.abs_diff(at) <= WITH_OOM_US;
        let near: Vec<&Sites> = self.sites.iter().map(|it| &**it).filter(near).collect();
        // The search for holders ends after the error.
        let own = near.iter().find(|it| it.at_us.saturating_add(SLACK_US) >= at);
        let is_of_a_later_one =
            |it: &&&Sites| self.ooms.iter().any(|other| other.reported.at_us > at && other.reported.at_us <= it.at_us);
        own.filter(|it| !is_of_a_later_one(it)).or_else(|| near.iter().rfind(|it| it.at_us < at)).copied()
    }
}
