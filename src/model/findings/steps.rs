//! Findings from when steps end: stalled jobs, and ranks that are slower than the others.

use super::{
    derive::ProcessOnDevice,
    finding::{Finding, Kind, names},
};
use crate::model::statistics;
use crate::{
    facts::{metrics::Metric, units::Stamp},
    model::{
        analysis::{
            cause::Cause,
            evidence::{Evidence, Unit},
            latch,
            severity::Severity,
            stall::StallPeriod,
            strain,
        },
        session::{
            Session,
            process::{OnDevice, Process},
        },
    },
};

/// Steps that take so many times as long deserve a warning; less may have a reason on the node.
const MUCH_SLOWER: f64 = 1.5;

impl ProcessOnDevice<'_> {
    /// Returns the stalls of the process. One rank reports what concerns several ranks of its run.
    pub(super) fn stalls(&self) -> Vec<Finding> {
        let trains = self.process.devices.iter().find(|it| it.step.is_some());
        if trains.is_none_or(|it| it.ordinal != self.on.ordinal) {
            return Vec::new();
        }
        let own = self.process.stall.spells().iter().filter(|it| !self.is_reported_by_other(it));
        own.map(|it| self.stall(it)).collect()
    }

    fn stall(&self, it: &StallPeriod) -> Finding {
        let mut evidence = Evidence::default();
        let until = it.resolved.map_or(self.session.now, |(_, at)| at);
        evidence.add("stopped_us", until.since(it.stepped) as f64, Unit::Micros);
        evidence.add("device_was_busy", if it.is_busy { 1.0 } else { 0.0 }, Unit::Share);
        if let Some(usual) = self.on.pace.typical() {
            evidence.add("usual_us", usual.us as f64, Unit::Micros);
        }
        evidence.add("without_sign_us", it.waited_us as f64, Unit::Micros);
        let cause = if it.is_busy { Cause::StalledBusy } else { Cause::StalledIdle };
        let found = self.finding(Kind::Stall, cause, evidence, (it.step, it.first_alert_at));
        let lasts = it.resolved.is_none();
        Finding {
            severity: if lasts { Severity::Warning } else { Severity::Info },
            resolved_step: it.resolved.map(|(step, _)| step),
            resolved_at: it.resolved.map(|(_, at)| at),
            account: if lasts { self.ranks_of(it) } else { Vec::new() },
            ..found
        }
    }

    /// Whether another rank of the run stalled before, for a time that covers the end of this stall.
    fn is_reported_by_other(&self, it: &StallPeriod) -> bool {
        let end = |it: &StallPeriod| it.resolved.map_or(Stamp(u64::MAX), |(_, at)| at);
        let covers = |other: &Process, its: &StallPeriod| {
            let is_first = (its.first_alert_at, other.rank(), other.probe)
                < (it.first_alert_at, self.process.rank(), self.process.probe);
            let is_same = its.first_alert_at <= end(it) && it.first_alert_at <= end(its);
            is_first && is_same && (its.resolved.is_none() || it.resolved.is_some())
        };
        let may_report = |other: &&Process| other.is_alive() || !self.process.is_alive();
        self.peers().filter(may_report).any(|other| other.stall.spells().iter().any(|its| covers(other, its)))
    }

    /// Describes which ranks of the run have stopped, which is behind, and which the others wait for.
    fn ranks_of(&self, it: &StallPeriod) -> Vec<String> {
        let mut ranks: Vec<(&Process, u64, Stamp)> = std::iter::once(self.process)
            .chain(self.peers().filter(|other| other.is_alive()))
            .filter_map(|rank| rank.stall.latest().map(|(step, at)| (rank, step, at)))
            .collect();
        if ranks.len() < 2 {
            return Vec::new();
        }
        ranks.sort_by_key(|(rank, ..)| rank.rank());
        let furthest = ranks.iter().map(|(_, step, _)| *step).max().unwrap_or(it.step);
        let behind = ranks.iter().filter(|(_, step, _)| *step < furthest);
        let behind = names(behind.map(|(rank, step, _)| format!("{} after step {step}", name(rank))));
        let count = ranks.len();
        let mut lines = vec![if let Some(behind) = behind {
            format!("{count} ranks of the run have stopped at step {furthest}; behind: {behind}")
        } else {
            let first = ranks.iter().min_by_key(|(.., at)| *at).map_or_else(String::new, |(rank, ..)| name(rank));
            format!("all {count} ranks have stopped after step {furthest}, {first} first")
        }];
        let is_idle = |rank: &Process| self.percent(rank).is_some_and(|it| it <= 2);
        let idle = || ranks.iter().map(|(rank, ..)| *rank).filter(|rank| is_idle(rank));
        if let Some(idle) = names(idle().map(name)).filter(|_| idle().count() < ranks.len()) {
            lines.push(format!("the device of {idle} is idle while the others' are busy: they wait for it"));
        }
        lines
    }

    /// Returns how slow a rank is, with its memory beside it.
    pub(super) fn slow_rank(&self, it: &latch::LatchPeriod) -> Finding {
        let mut evidence = Evidence::default();
        let compared = self.on.skew.latest().unwrap_or_default();
        evidence.add("step_against_the_other_ranks", compared.slower, Unit::Times);
        if let Some(later) = compared.later_us {
            evidence.add("later_us", later, Unit::Micros);
        }
        evidence.add("usual_us", compared.usual_us, Unit::Micros);
        if let Some((own, others)) = compared.busy {
            evidence.add("own_device_busy", own, Unit::Share);
            evidence.add("other_devices_busy", others, Unit::Share);
        }
        if let Some(((wanted, _), ratio)) = self.memory().zip(self.against_others()) {
            evidence.add("wanted", wanted as f64, Unit::Bytes);
            evidence.add("against_the_other_ranks", ratio, Unit::Times);
        }
        let found = self.spell(Kind::SlowRank, Cause::SlowRank, evidence, it);
        let matters = found.is_active() && compared.times() >= MUCH_SLOWER;
        Finding { severity: if matters { Severity::Warning } else { Severity::Info }, ..found }
    }

    /// Returns the ratio of what the process wants of its device to the median of the other ranks.
    pub(super) fn against_others(&self) -> Option<f64> {
        self.memory().map(|(wanted, others)| wanted as f64 / others as f64)
    }

    /// Returns what the process wants of its device, and the median of the other ranks.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        let trains = |rank: &Process| {
            let on: &OnDevice = rank.devices.iter().find(|it| it.step.is_some())?;
            strain::wanted(&on.counters)
        };
        // After the run, all ranks have ended.
        let counts = |rank: &&Process| rank.is_alive() || !self.process.is_alive();
        let median = statistics::median(self.peers().filter(counts).filter_map(trains)).filter(|it| *it > 0)?;
        Some((strain::wanted(&self.on.counters)?, median))
    }

    /// Returns the percent of time in which kernels ran on the device that a rank trains on.
    fn percent(&self, rank: &Process) -> Option<u64> {
        let on = rank.devices.iter().find(|it| it.step.is_some())?;
        self.session.device(&on.device)?.metric(Metric::GpuPercent)
    }

    /// Returns the other ranks of the run.
    fn peers(&self) -> impl Iterator<Item = &Process> {
        let run = self.process.group();
        let others = self.session.processes.iter().filter(|it| it.probe != self.process.probe);
        others.filter(move |it| run.is_some() && it.group() == run)
    }
}

/// Returns the ratio of what a process wants of a device, the peak of its live allocations, to the median of the other
/// ranks of its run; `None` without others.
pub fn against_others(session: &Session, process: &Process, on: &OnDevice) -> Option<f64> {
    ProcessOnDevice { session, process, on }.against_others()
}

fn name(rank: &Process) -> String {
    let pid = || rank.any_pid().map_or_else(|| "a process".to_owned(), |pid| format!("pid {pid}"));
    rank.rank().map_or_else(pid, |rank| format!("rank {rank}"))
}
