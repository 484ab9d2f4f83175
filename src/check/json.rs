//! The JSON of `gpuwatch check --json`, schema 1: one object.
//!
//! Sizes are bytes, times are µs of `CLOCK_MONOTONIC`. What is not known is `null`, never 0. Later releases add
//! fields; they rename or remove none without raising `schema`.
//!
//! - `schema`, `gpuwatch` (version), `verdict` (`pass`, `fail`, `unjudged`), `hits[]`, `doubts[]`, `notes[]` (in words)
//! - `steps`: the highest step done
//! - `processes[]`: `probe`, `pid`, `rank`, `host`, `argv`, `steps`, `lost`, `stride`
//! - `devices[]`: `id` (UUID), `index`, `name`, `total`, `peak` (`allocated`, `reserved`, `used`), `stuck` (the share,
//!   0 to 1, that a tenth of the steps reach)
//! - `findings[]`: `kind`, `severity`, `state` (`active`, `resolved`), `cause`, `advice`, `resource`, `device` (the
//!   process's number for it), `device_id`, `pid`, `rank`, `axis` (`steps`, `seconds`), `since_step`,
//!   `first_alert_step`, `first_alert_us`, `resolved_step`, `resolved_us`, `bytes_per_step`, `interval` (95 %),
//!   `blocks_per_step`, `full_in_steps`, `full_in_us`, `evidence` (figures by name), `approximate`

use super::{DevicePeaks, Verdict};
use crate::{
    analysis::episode::{Axis, Resource},
    event::DeviceId,
    findings::Finding,
    session::process::Process,
    text::escape_json,
};
use serde_json::{Map, Value, json};

/// The version of what is documented above.
const SCHEMA: u32 = 1;

/// The whole report.
pub(super) fn report(verdict: &Verdict) -> String {
    let devices: Vec<_> = verdict.peaks.devices.iter().map(|(id, it)| device(verdict, id, it)).collect();
    let whole = json!({
        "schema": SCHEMA,
        "gpuwatch": env!("CARGO_PKG_VERSION"),
        "verdict": verdict.outcome().name(),
        "hits": verdict.hits,
        "doubts": verdict.doubts,
        "notes": verdict.notes,
        "steps": verdict.steps(),
        "processes": verdict.session.processes.iter().map(process).collect::<Vec<_>>(),
        "devices": devices,
        "findings": verdict.findings.iter().map(finding).collect::<Vec<_>>(),
    });
    let mut text = escape_json(&format!("{whole:#}"));
    text.push('\n');
    text
}

fn process(it: &Process) -> Value {
    let hello = it.hello.as_ref();
    json!({
        "probe": it.probe,
        "pid": it.any_pid(),
        "rank": it.rank(),
        "host": hello.map(|it| &it.host),
        "argv": hello.map(|it| &it.argv),
        "steps": it.devices.iter().filter_map(|it| it.step).max(),
        "lost": it.lost,
        "stride": it.stride,
    })
}

fn device(verdict: &Verdict, id: &DeviceId, it: &DevicePeaks) -> Value {
    let known = verdict.session.device(id);
    json!({
        "id": id,
        "index": known.and_then(|it| it.index),
        "name": known.map(|it| &it.name).filter(|it| !it.is_empty()),
        "total": it.total,
        "peak": { "allocated": it.allocated, "reserved": it.reserved, "used": it.used },
        "stuck": it.fragmentation(),
    })
}

fn finding(it: &Finding) -> Value {
    let evidence: Map<_, _> = it.evidence.figures.iter().map(|it| (it.name.to_owned(), json!(it.value))).collect();
    let interval = it.evidence.get("interval_low").zip(it.evidence.get("interval_high"));
    json!({
        "kind": it.kind.name(),
        "severity": it.severity.name(),
        "state": if it.is_active() { "active" } else { "resolved" },
        "cause": it.cause.id(),
        "advice": it.advice,
        "resource": it.resource.map(Resource::name),
        "device": it.ordinal,
        "device_id": it.device,
        "pid": it.pid,
        "rank": it.rank,
        "axis": match it.axis { Axis::Steps => "steps", Axis::Seconds => "seconds" },
        "since_step": it.since_step,
        "first_alert_step": it.first_alert_step,
        "first_alert_us": it.first_alert_at,
        "resolved_step": it.resolved_step,
        "resolved_us": it.resolved_at,
        "bytes_per_step": it.bytes_per_step,
        "interval": interval.map(|(low, high)| [low, high]),
        "blocks_per_step": it.blocks_per_step,
        "full_in_steps": it.full_in_steps,
        "full_in_us": it.full_in_us,
        "evidence": evidence,
        "approximate": it.approximate,
    })
}
