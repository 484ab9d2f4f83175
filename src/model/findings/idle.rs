//! Derives the findings about processes that hold device memory and do nothing. They rest on the driver's lists and on
//! /proc, so a process needs no probe.

use super::finding::{Finding, Kind};
use crate::{
    facts::text::{self, Foreign},
    model::{
        analysis::{
            cause::Cause,
            episode::Axis,
            evidence::{Evidence, Unit},
            idle::Spell,
            severity::Severity,
        },
        session::{Session, process::Process},
    },
};

/// Most bytes of a command line.
const COMMAND: usize = 100;

/// Returns them, those that are over too.
pub(super) fn all(session: &Session) -> impl Iterator<Item = Finding> {
    session.holders.spells().map(|it| finding(session, it))
}

fn finding(session: &Session, it: &Spell) -> Finding {
    let cause = it.cause();
    let mut evidence = Evidence::default();
    if let Some(used) = it.used {
        evidence.add("held", used.0 as f64, Unit::Bytes);
    }
    let rested = if cause == Cause::EndedProcess { "ended_us" } else { "idle_us" };
    evidence.add(rested, it.rested_s as f64 * 1e6, Unit::Micros);
    let found = Finding::new(Kind::IdleMemory, cause, evidence, (it.raised_s, it.first_alert_at));
    let lasts = it.resolved.is_none();
    // A user may still want a notebook or a script, but not what an end or a launcher left behind.
    let is_wanted = matches!(cause, Cause::IdleNotebook | Cause::IdleProcess);
    let own = session.processes.iter().find(|process| process.pid == Some(it.pid));
    Finding {
        severity: if lasts && !is_wanted { Severity::Warning } else { Severity::Info },
        device: Some(it.device.clone()),
        pid: Some(it.pid),
        rank: own.and_then(Process::rank),
        axis: Axis::Seconds,
        since_step: it.since_s,
        resolved_step: it.resolved.map(|(second, _)| second),
        resolved_at: it.resolved.map(|(_, at)| at),
        account: if lasts { account(session, it) } else { Vec::new() },
        ..found
    }
}

fn account(session: &Session, it: &Spell) -> Vec<String> {
    let info = session.process_info.get(&it.pid);
    let who = info.map(|info| {
        let command = text::command(info.argv.iter().map(Foreign::raw), COMMAND);
        format!("pid {}: {command}, user {}", it.pid, info.user)
    });
    let is_new = !it.has_worked && it.cause() != Cause::EndedProcess;
    let unseen = is_new.then(|| "gpuwatch has not seen it use a device since it watches".to_owned());
    who.into_iter().chain(unseen).collect()
}
