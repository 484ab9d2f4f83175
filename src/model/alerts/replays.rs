//! Decides for which findings of a traced job gpuwatch replays the allocations under other settings.

use super::is_open;
use crate::{
    facts::{
        event::{ProbeId, replayed::About},
        units::Stamp,
    },
    model::{
        findings::{Finding, Findings, Kind, Standing},
        session::Session,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// Replays of one process while it runs; one more follows when the job is over.
const TIMES: usize = 3;

/// Which findings gpuwatch has replayed for. Each counts once.
#[derive(Clone, Debug, Default)]
pub struct Replays {
    begun: BTreeSet<(ProbeId, u32, About)>,
    times: BTreeMap<ProbeId, usize>,
}

/// A finding to replay for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The probe of its process.
    pub probe: ProbeId,
    /// The pid that the process reports, which names its trace.
    pub pid: u32,
    /// The process's own ordinal of the device.
    pub device: u32,
    /// The finding.
    pub about: About,
    /// When it was raised.
    pub raised_at: Stamp,
}

impl Replays {
    /// Returns the findings to replay for now: those of the process with the worst one. One replay serves them all.
    pub fn due(&self, session: &Session, findings: &Findings) -> Vec<Due> {
        let is_new = |it: &Due| !self.begun.contains(&(it.probe, it.device, it.about.clone()));
        let has_left = |it: &Due| self.times.get(&it.probe).is_none_or(|times| *times < TIMES);
        let mut all = wanted(session, findings).filter(|it| is_new(it) && has_left(it));
        let Some(first) = all.next() else { return Vec::new() };
        let probe = first.probe;
        std::iter::once(first).chain(all.filter(|it| it.probe == probe)).collect()
    }

    /// Notes that a replay begins.
    pub fn begin(&mut self, all: &[Due]) {
        if let Some(it) = all.first() {
            *self.times.entry(it.probe).or_default() += 1;
        }
        self.begun.extend(all.iter().map(|it| (it.probe, it.device, it.about.clone())));
    }
}

/// Returns the findings to replay for when the job is over: those that are still open, of every process.
pub fn replays_at_end(session: &Session, findings: &Findings) -> Vec<Due> {
    wanted(session, findings).collect()
}

/// Returns whether an error is among the findings.
pub fn has_error(all: &[Due]) -> bool {
    all.iter().any(|it| it.about.kind.raw() == Kind::Oom.name())
}

/// Returns the open findings that other settings may help.
fn wanted<'a>(session: &'a Session, findings: &'a Findings) -> impl Iterator<Item = Due> + 'a {
    let is_wanted =
        |it: &&Finding| it.standing == Standing::Usual && it.may_need_other_settings() && is_open(it, session);
    findings.all.iter().filter(is_wanted).filter_map(|it| {
        let probe = it.probe?;
        let pid = session.process(probe)?.hello.as_ref()?.pid;
        Some(Due { probe, pid, device: it.ordinal?, about: it.about(), raised_at: it.first_alert_at })
    })
}
