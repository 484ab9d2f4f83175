//! Selects among the answers of replays.

use super::{oom::OutOfMemory, process::Process};
use crate::{
    facts::event::{Replayed, replayed::About, wire::Sites},
    model::analysis::culprit::{self, Breakdown},
};

impl Process {
    /// Returns whether it has this answer already. A viewer may read an answer twice, as does the gpuwatch that
    /// wrote it.
    pub fn has_replay(&self, it: &Replayed) -> bool {
        self.replays.iter().any(|known| **known == *it)
    }

    /// Returns the latest answer for findings of the same kind on a device, at any step, or else the latest answer to a
    /// user.
    pub fn replayed_alike(&self, device: u32, finding: &About) -> Option<&Replayed> {
        let is_alike = |it: &About| (&it.kind, &it.resource) == (&finding.kind, &finding.resource);
        let has_answer = |it: &&Replayed| it.device == device && it.result.is_ok();
        let all = || self.replays.iter().rev().map(|it| &**it).filter(has_answer);
        let alike = all().find(|it| it.finding.as_ref().is_some_and(is_alike));
        alike.or_else(|| all().find(|it| it.finding.is_none()))
    }

    /// Returns what the latest replay for a finding on a device shows, or the latest reason why there is none. Without
    /// a finding, it is the latest answer to a user.
    pub fn replayed(&self, device: u32, finding: Option<&About>) -> Option<&Replayed> {
        let is_of_it = |it: &&Replayed| it.device == device && it.finding.as_ref() == finding;
        let of_it = || self.replays.iter().rev().map(|it| &**it).filter(is_of_it);
        of_it().find(|it| it.result.is_ok()).or_else(|| of_it().next())
    }

    /// Returns the findings on a device of the latest matching capture that found a line, otherwise of the latest one.
    pub fn answer(&self, device: u32, which: impl Fn(&Sites) -> bool) -> Option<(&Sites, Breakdown)> {
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

    /// Returns the latest capture over steps that found a line, otherwise the latest one.
    pub fn captured(&self) -> Option<&Sites> {
        let over_steps = || self.sites.iter().rev().map(|it| &**it).filter(|it| it.steps > 0);
        over_steps().find(|it| !it.sites.is_empty()).or_else(|| over_steps().next())
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

/// The longest time between an error and its account, in µs: collecting the stacks of many live blocks takes time.
const WITH_OOM_US: u64 = 10_000_000;

/// How much earlier than the error an account may be stamped, in µs.
const SLACK_US: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{
            event::{
                Event, Fact, ProbeId,
                replayed::{Comparison, Cost},
            },
            units::Stamp,
        },
        model::session::Session,
    };

    #[test]
    fn an_answer_counts_once_and_serves_findings_of_its_kind() {
        let probe = ProbeId(0);
        let about = |kind: &str, step| About { kind: kind.into(), resource: None, step };
        let answer = |finding, tried| {
            let result = Ok(Box::new(Comparison { tried, ..Comparison::default() }));
            Fact::Replayed(Box::new(Replayed { probe, device: 0, finding, result, cost: Cost::default() }))
        };
        let mut session = Session::default();
        let found = Fact::ProbeFound { probe, pid: Some(7), socket: "/tmp/7.sock".into() };
        let (pressure, asked) = (|| answer(Some(about("pressure", 5)), 1), || answer(None, 2));
        for fact in [found, pressure(), asked(), pressure(), asked()] {
            session.apply(&Event { at: Stamp(0), fact });
        }
        let process = session.process(probe).unwrap();
        assert_eq!(process.replays.iter().len(), 2);
        let alike = |kind, device| {
            let found = process.replayed_alike(device, &about(kind, 9));
            found.and_then(|it| it.result.as_ref().ok()).map(|it| it.tried)
        };
        assert_eq!((alike("pressure", 0), alike("fragmentation", 0), alike("pressure", 1)), (Some(1), Some(2), None));
    }
}
