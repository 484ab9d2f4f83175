//! The JSON of `gpuwatch check --json`, schema 1: one object.
//!
//! Sizes are bytes, times are µs of `CLOCK_MONOTONIC`. Unknown is `null`, never 0. Later releases may add fields; they
//! do not rename or remove any without raising `schema`.
//!
//! `docs/reference/schemas/check.json` has every field.

use super::Verdict;
use crate::{
    facts::{event::DeviceId, text::escape_json},
    model::{findings::Finding, peaks::DevicePeaks, session::process::Process},
};
use serde_json::{Value, json};

/// The schema version documented above.
const SCHEMA: u32 = 1;

/// Returns the whole report.
pub(super) fn report(verdict: &Verdict) -> String {
    let mut text = escape_json(&format!("{:#}", value(verdict)));
    text.push('\n');
    text
}

/// Returns the report as a value.
pub(super) fn value(verdict: &Verdict) -> Value {
    let devices: Vec<_> = verdict.run.peaks.devices.iter().map(|(id, it)| device(verdict, id, it)).collect();
    json!({
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
        "processes": verdict.run.session.processes.iter().map(process).collect::<Vec<_>>(),
        "devices": devices,
        "findings": verdict.findings.iter().map(Finding::json).collect::<Vec<_>>(),
    })
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
        "lost_error_lines": it.lost_error_lines,
        "stride": it.stride,
        "step_time": it.devices.iter().map(|it| it.pace.json()).find(|it| !it.is_null()),
    })
}

fn device(verdict: &Verdict, id: &DeviceId, it: &DevicePeaks) -> Value {
    let known = verdict.run.session.device(id);
    json!({
        "id": id,
        "index": known.and_then(|it| it.index),
        "name": known.map(|it| &it.name).filter(|it| !it.is_empty()),
        "total": it.total,
        "peak": { "allocated": it.allocated, "reserved": it.reserved, "used": it.used },
        "stuck": it.fragmentation(),
    })
}
