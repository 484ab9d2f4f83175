//! What a recorder knows of a process beside the process's own counters: for `gpuwatch_probe.figures()`, which a job
//! calls for its experiment tracker.
//!
//! The names are those of `RECORDED` in `probes/python/gpuwatch_probe/_figures.py`.

use super::{
    alerts::{is_open, line},
    analysis::{ladder::Gap, severity::Severity},
    findings::{DeviceFindings, Finding, Findings},
    session::{
        Session,
        process::{OnDevice, Process},
    },
};
use serde_json::{Map, Value, json};

/// Returns the figures of a process: `at_us` (µs of `CLOCK_MONOTONIC`), and `devices` by the process's ordinals.
pub fn figures(session: &Session, findings: &Findings, process: &Process) -> Value {
    let devices = process.devices.iter().map(|on| {
        let figures = on_device(session, findings, process, on);
        (on.ordinal.to_string(), Value::Object(figures))
    });
    json!({ "at_us": session.now, "devices": devices.collect::<Map<_, _>>() })
}

/// Returns the figures of a process on a device; unknown ones are null.
fn on_device(session: &Session, findings: &Findings, process: &Process, on: &OnDevice) -> Map<String, Value> {
    let device = findings.device(&on.device);
    let ladder = Gap::ALL.map(|gap| {
        let bytes = device.and_then(|it| rung(it, process, on, gap));
        (format!("ladder_{}", gap.row().id), json!(bytes))
    });
    let growing = findings.growing(process.probe, on.ordinal);
    let open = open(session, findings, process, on);
    let count = |it: Severity| json!(open.iter().filter(|found| found.severity == it).count());
    let others = [
        ("growth_bytes_per_step", json!(findings.rate_per_step(process.probe, on))),
        ("full_seconds", json!(growing.and_then(|it| it.full_in_us).map(|it| it as f64 / 1e6))),
        ("open_info", count(Severity::Info)),
        ("open_warning", count(Severity::Warning)),
        ("open_critical", count(Severity::Critical)),
        ("finding", json!(open.first().map(|it| line(it, session)))),
    ];
    ladder.into_iter().chain(others.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// Returns the bytes of a gap of the process, or of the device's gap that belongs to no probed process.
fn rung(device: &DeviceFindings, process: &Process, on: &OnDevice, gap: Gap) -> Option<u64> {
    let is_own = |owner: Option<usize>| {
        let found = owner.and_then(|place| device.processes.get(place));
        owner.is_none() || found.is_some_and(|it| it.probe == process.probe && it.ordinal == on.ordinal)
    };
    let mut rungs = device.ladder.rungs.iter();
    rungs.find(|it| it.gap == gap && is_own(it.owner))?.bytes.map(|it| it.0)
}

/// Returns the open findings of a process on a device, the worst first; those of its host memory on its first device.
fn open<'a>(session: &Session, findings: &'a Findings, process: &Process, on: &OnDevice) -> Vec<&'a Finding> {
    let is_first = process.devices.first().is_some_and(|it| it.ordinal == on.ordinal);
    let is_own = |it: &&Finding| {
        let is_here = it.ordinal.map_or(is_first, |ordinal| ordinal == on.ordinal);
        it.is_of(process) && is_here && is_open(it, session) && !it.is_allowed()
    };
    findings.all.iter().filter(is_own).collect()
}
