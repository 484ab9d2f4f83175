//! A verdict as text and as JSON (schema 1): the verdict, its basis, the findings, the peaks.
//!
//! In JSON, sizes are bytes, times are µs of `CLOCK_MONOTONIC`. Unknown is `null`, never 0. Later releases may add
//! fields; they do not rename or remove any without raising `schema`. `docs/reference/schemas/check.json` has every
//! field.

use super::{CheckOutcome, Verdict};
use crate::{
    facts::{
        event::DeviceId,
        text::{Foreign, escape_json},
        units::{self, Bytes, counted, duration},
    },
    model::{
        analysis::severity::Severity,
        findings::{Finding, names},
        peaks::DevicePeaks,
        session::{Session, process::Process},
    },
};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Write};

/// Returns the whole report.
pub(super) fn text(verdict: &Verdict) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write_report(&mut out, verdict);
    out
}

fn write_report(out: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let word = match (verdict.outcome(), verdict.run.session.losses.missing()) {
        (CheckOutcome::Pass, _) => "PASS".to_owned(),
        (CheckOutcome::Fail, _) => "FAIL".to_owned(),
        (CheckOutcome::Unjudged, None) => "NOT JUDGED".to_owned(),
        // The figures are of what is left.
        (CheckOutcome::Unjudged, Some(missing)) => format!("NOT JUDGED: {missing};"),
    };
    let steps = match (verdict.run.steps(), verdict.run.attached_step()) {
        (None, _) => "no steps".to_owned(),
        (Some(last), None) => counted(last, "step"),
        (Some(last), Some(first)) if first > 1 => format!("up to step {last}, attached at step {first}"),
        (Some(last), Some(_)) => format!("{} since attachment", counted(last, "step")),
    };
    // A verdict on a part of a run begins with that fact.
    let seen = if verdict.run.is_whole || verdict.run.span_us.is_none() {
        String::new()
    } else {
        format!("; {}", seen(verdict))
    };
    writeln!(out, "{word}  {steps}, {}{seen}", counted(verdict.run.session.processes.len() as u64, "probed process"))?;
    let lists = [("fails", &verdict.hits), ("not judged", &verdict.doubts)];
    for (name, lines) in lists {
        for line in lines {
            writeln!(out, "  {name}: {}", Foreign::new(line.as_str()))?;
        }
    }
    for group in verdict.shared(|_| true) {
        finding(out, &group, &verdict.run.session)?;
    }
    if !verdict.run.peaks.devices.is_empty() {
        writeln!(out)?;
    }
    for (id, peaks) in &verdict.run.peaks.devices {
        writeln!(out, "{}: {}", device(&verdict.run.session, id), peaks_of(peaks))?;
    }
    for it in &verdict.notes {
        writeln!(out, "note: {}", Foreign::new(it.as_str()))?;
    }
    if !verdict.findings.is_empty() {
        writeln!(out, "\n`gpuwatch explain CAUSE` explains a cause.")?;
    }
    Ok(())
}

/// Describes how many findings count, by severity, and the worst one.
pub(super) fn title(verdict: &Verdict) -> String {
    let counted = verdict.shared(|it| !it.is_allowed() && it.follows.is_none() && it.severity > Severity::Info);
    let many = |severity: Severity| {
        let is_one = |group: &&Vec<&Finding>| group.first().is_some_and(|it| it.severity == severity);
        let count = counted.iter().filter(is_one).count() as u64;
        let noun =
            if severity == Severity::Warning { units::counted(count, "warning") } else { format!("{count} critical") };
        (count > 0).then_some(noun)
    };
    let counts: Vec<_> = [Severity::Critical, Severity::Warning].into_iter().filter_map(many).collect();
    let worst = counted.first().and_then(|group| Some(group.first()?.brief_of(group)));
    match (worst, verdict.hits.first(), verdict.doubts.first()) {
        (Some(worst), ..) => format!("{}: {worst}", counts.join(", ")),
        (None, Some(hit), _) => format!("a limit is exceeded: {}", Foreign::new(hit.as_str())),
        (None, None, Some(doubt)) => format!("this run cannot be judged: {}", Foreign::new(doubt.as_str())),
        (None, None, None) => "no warnings".to_owned(),
    }
}

/// Describes how much of a run was recorded if its end was not.
pub(super) fn seen(verdict: &Verdict) -> String {
    let far = match verdict.run.seen_to_step() {
        Some(step) => format!("up to step {step}"),
        None => format!("for {}", duration(verdict.run.span_us.unwrap_or(0))),
    };
    format!("seen {far} of a run whose end is not recorded")
}

/// Returns what was found, and where: `growth of allocated, +4.00 MiB/step, rank 1, pid 4242`, or `ranks 0, 1, pids
/// 4242, 4243` of a leak that they share; without ranks, also on which of several devices.
pub(super) fn subject(group: &[&Finding], session: &Session) -> String {
    let Some(it) = group.first() else { return String::new() };
    let resource = it.resource.map(|it| format!(" of {}", it.name())).unwrap_or_default();
    let numbers = |own: &dyn Fn(&Finding) -> Option<u64>| {
        let known: BTreeSet<u64> = group.iter().filter_map(|it| own(it)).collect();
        Some((if known.len() > 1 { "s" } else { "" }, names(known.iter().map(u64::to_string))?))
    };
    let index = |it: &Finding| session.device(it.device.as_ref()?)?.index.map(u64::from);
    let parts = [
        Some(format!("{}{resource}", it.kind.name())),
        it.slope(),
        numbers(&|it| it.rank).map(|(s, it)| format!("rank{s} {it}")),
        numbers(&|it| it.pid.map(u64::from)).map(|(s, it)| format!("pid{s} {it}")),
        numbers(&index)
            .filter(|_| it.rank.is_none() && session.devices.len() > 1)
            .map(|(s, it)| format!("GPU{s} {it}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Writes a finding, or one of those that share it.
fn finding(out: &mut String, group: &[&Finding], session: &Session) -> std::fmt::Result {
    let Some(it) = group.first() else { return Ok(()) };
    writeln!(out, "\n{}: {}", it.weight(), subject(group, session))?;
    let (since, noticed) = (it.since(), it.place(it.first_alert_step));
    let end = it.resolved_step.map_or_else(|| "to the end".to_owned(), |step| format!("over at {}", it.place(step)));
    let whose = if it.is_on_host() { "the host's memory" } else { "the device" };
    let forecast = it.forecast_of_ended().map(|it| format!("; {whose} would be {it}")).unwrap_or_default();
    writeln!(out, "  since {since}, noticed at {noticed}, {end}{forecast}")?;
    if let Some(following) = it.following() {
        // The remedy is listed with the finding that causes this one.
        return writeln!(out, "  {following}");
    }
    if let Some(sentence) = &it.sentence {
        writeln!(out, "  {sentence}")?;
    }
    writeln!(out, "  {}: {}", it.cause.id(), it.cause.entry().title)?;
    if let Some(culprit) = &it.culprit {
        writeln!(out, "  culprit: {}", culprit.sentence)?;
    }
    writeln!(out, "  {}", it.remedy())?;
    for line in it.account.iter().chain(&it.saving).chain(&it.replay_words()) {
        writeln!(out, "  {line}")?;
    }
    let words = it.evidence.words();
    if !words.is_empty() {
        writeln!(out, "  {}", words.join(", "))?;
    }
    if it.approximate {
        writeln!(out, "  approximate: samples are missing")?;
    }
    Ok(())
}

/// Returns `rank 3 (pid 4242)`, or the known part of it.
pub(super) fn process(it: &Process) -> String {
    let pid = it.any_pid().map_or_else(|| format!("probe {}", it.probe.0), |pid| format!("pid {pid}"));
    it.rank().map_or_else(|| pid.clone(), |rank| format!("rank {rank} ({pid})"))
}

/// Returns `device 0 (NVIDIA H200)`.
pub(super) fn device(session: &Session, id: &DeviceId) -> String {
    let known = session.device(id);
    let index = known.and_then(|it| it.index);
    let number = index.map_or_else(|| Foreign::new(id.0.as_str()).to_string(), |it| it.to_string());
    match known.filter(|it| !it.name.is_empty()) {
        Some(it) => format!("device {number} ({})", it.name),
        None => format!("device {number}"),
    }
}

fn peaks_of(it: &DevicePeaks) -> String {
    let mut parts = Vec::new();
    let figures = [("allocated", it.allocated), ("reserved", it.reserved), ("used by all", it.used)];
    for (name, bytes) in figures {
        if let Some(bytes) = bytes {
            parts.push(format!("{name} {bytes}"));
        }
    }
    let parts = if parts.is_empty() { "–".to_owned() } else { parts.join(", ") };
    let total = it.total.map_or_else(|| "–".to_owned(), |it: Bytes| it.to_string());
    let stuck = it.fragmentation().map_or_else(|| "–".to_owned(), |it| format!("{:.0} %", it * 100.0));
    format!("at most {parts}, of {total}; stuck {stuck}")
}

/// The schema version documented above.
const SCHEMA: u32 = 1;

/// Returns the whole report.
pub(super) fn json(verdict: &Verdict) -> String {
    let mut text = escape_json(&format!("{:#}", json_value(verdict)));
    text.push('\n');
    text
}

/// Returns the report as a value.
pub(super) fn json_value(verdict: &Verdict) -> Value {
    let devices: Vec<_> = verdict.run.peaks.devices.iter().map(|(id, it)| device_json(verdict, id, it)).collect();
    serde_json::json!({
        "schema": SCHEMA,
        "gpuwatch": env!("CARGO_PKG_VERSION"),
        "verdict": verdict.outcome().name(),
        "hits": verdict.hits,
        "doubts": verdict.doubts,
        "notes": verdict.notes,
        "steps": verdict.run.steps(),
        "attached_step": verdict.run.attached_step(),
        "end_recorded": verdict.run.is_whole,
        "seen_to_step": verdict.run.seen_to_step(),
        "losses": verdict.run.session.losses.json(),
        "processes": verdict.run.session.processes.iter().map(process_json).collect::<Vec<_>>(),
        "devices": devices,
        "findings": verdict.findings.iter().map(Finding::json).collect::<Vec<_>>(),
    })
}

fn process_json(it: &Process) -> Value {
    let hello = it.hello.as_ref();
    serde_json::json!({
        "probe": it.probe,
        "pid": it.any_pid(),
        "rank": it.rank(),
        "host": hello.map(|it| &it.host),
        "argv": hello.map(|it| &it.argv),
        "steps": it.devices.iter().filter_map(|it| it.step).max(),
        "lost": it.lost,
        "lost_error_lines": it.lost_error_lines,
        "stride": it.stride,
        "step_time": it.devices.iter().map(|it| it.pace.json()).find(|it| !it.is_null()),
    })
}

fn device_json(verdict: &Verdict, id: &DeviceId, it: &DevicePeaks) -> Value {
    let known = verdict.run.session.device(id);
    serde_json::json!({
        "id": id,
        "index": known.and_then(|it| it.index),
        "name": known.map(|it| &it.name).filter(|it| !it.is_empty()),
        "total": it.total,
        "peak": { "allocated": it.allocated, "reserved": it.reserved, "used": it.used },
        "stuck": it.fragmentation(),
    })
}
