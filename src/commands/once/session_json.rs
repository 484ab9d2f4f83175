//! The JSON of `gpuwatch once --json`, schema 1.
//!
//! Sizes are bytes, times are µs of `CLOCK_MONOTONIC`. Unknown is `null` or absent, never 0. Later releases may add
//! fields; they do not rename or remove any without raising `schema`.
//!
//! `docs/reference/schemas/once.json` has every field.

use super::{host_memory, is_suspended};
use crate::{
    facts::{
        event::{DeviceId, ReadError},
        figures::{self, Figure, Figures},
        metrics::{Metric, Metrics},
        text::escape_json,
    },
    model::{
        analysis::{episode::Resource, fragmentation::Stuck, ladder::Rung},
        anatomy,
        findings::{DeviceFindings, Finding, Findings, Kind, ProcessFindings},
        session::{
            Session,
            device::{Device, Reading},
            oom::OutOfMemory,
            process::{CountedParts, OnDevice, ProbeState, Process},
        },
    },
};
use serde_json::{Map, Value, json};

/// The schema version documented above.
const SCHEMA: u32 = 1;

/// Returns the whole report, with its last newline.
pub(super) fn report(session: &Session, findings: &Findings, host: &str) -> serde_json::Result<String> {
    let whole = value(session, findings, host, env!("CARGO_PKG_VERSION"));
    let mut text = escape_json(&serde_json::to_string_pretty(&whole)?);
    text.push('\n');
    Ok(text)
}

/// Returns the report of a host with this version of gpuwatch.
pub(super) fn value(session: &Session, findings: &Findings, host: &str, version: &str) -> Value {
    let devices: Vec<Value> =
        session.devices.iter().zip(&findings.devices).map(|(it, found)| device(session, it, found)).collect();
    let probes: Vec<Value> = session.processes.iter().map(|it| probe(session, it, findings)).collect();
    let mut whole = object(json!({
        "schema": SCHEMA,
        "gpuwatch": version,
        "host": host,
        "at_us": session.now,
        "driver": session.driver,
        "devices": devices,
        "probes": probes,
        "host_memory": host_memory::value(session),
        "losses": session.losses.json(),
        "notices": session.notices.iter().map(|it| &it.value).collect::<Vec<_>>(),
    }));
    if !session.kernel_drivers.is_empty() {
        whole.insert("kernel_drivers".to_owned(), json!(session.kernel_drivers));
    }
    Value::Object(whole)
}

fn device(session: &Session, it: &Device, found: &DeviceFindings) -> Value {
    let mut object = object(json!({
        "id": it.id,
        "index": it.index,
        "name": it.name,
        "parent": it.parent,
        "maker": it.index.map(|_| it.maker),
        "gone": it.gone.is_some(),
        "load": it.metrics.as_ref().map(|it| load(&it.value)),
        "metrics": it.metrics.as_ref().map(|it| &it.value),
        "ladder": {
            "total": found.ladder.total,
            "sum": found.ladder.sum(),
            "rungs": found.ladder.rungs.iter().map(|it| rung(it, found)).collect::<Vec<_>>(),
        },
        "unprobed": found.unprobed,
        "foreign_pids": found.foreign_pids,
    }));
    reading(&mut object, "memory", it.memory.as_ref(), |it| json!(it));
    reading(&mut object, "processes", it.processes.as_ref(), |list| {
        list.iter()
            .map(|used| {
                let who = session.process_info.get(&used.pid);
                let probe = session.on_device(&it.id).find(|(process, _)| process.pid == Some(used.pid));
                json!({
                    "pid": used.pid,
                    "used": used.used,
                    "argv": who.map(|it| &it.argv),
                    "user": who.map(|it| &it.user),
                    "suspended": who.map(|it| it.suspended),
                    "probe": probe.map(|(process, _)| process.probe),
                    "parent": who.map(|it| it.parent),
                    "started_us": who.map(|it| it.started_us),
                    "place": who.map(|it| &it.place),
                    "environment": who.map(|it| &it.environment),
                    "figures": figures(session, used.pid, &it.id),
                })
            })
            .collect()
    });
    Value::Object(object)
}

/// Returns the figures of a process and of its part of a device.
fn figures(session: &Session, pid: u32, device: &DeviceId) -> Figures {
    let known = session.figures.get(&pid);
    let value = |it: &figures::FigureRow| Some((it.figure, known?.get(it.figure, device)?));
    Figure::TABLE.iter().filter_map(value).collect()
}

/// The metrics that earlier releases reported.
const LOAD: [Metric; 7] = [
    Metric::GpuPercent,
    Metric::MemoryPercent,
    Metric::CelsiusNow,
    Metric::PowerMw,
    Metric::PowerLimitMw,
    Metric::FanPercent,
    Metric::EccErrors,
];

fn load(metrics: &Metrics) -> Metrics {
    metrics.iter().filter(|(metric, _)| LOAD.contains(metric)).collect()
}

fn reading<T>(
    object: &mut Map<String, Value>,
    name: &str,
    reading: Option<&Reading<Result<T, ReadError>>>,
    value: impl FnOnce(&T) -> Value,
) {
    match reading.map(|it| &it.value) {
        Some(Ok(it)) => object.insert(name.to_owned(), value(it)),
        Some(Err(trouble)) => object.insert(format!("{name}_trouble"), json!(trouble)),
        None => None,
    };
}

fn rung(it: &Rung, found: &DeviceFindings) -> Value {
    let probe = it.owner.and_then(|place| found.processes.get(place)).map(|it| it.probe);
    json!({
        "gap": it.gap.row().id,
        "probe": probe,
        "bytes": it.bytes,
        "inconsistent": it.inconsistent,
    })
}

fn probe(session: &Session, it: &Process, findings: &Findings) -> Value {
    let (life, why) = match &it.life {
        ProbeState::Found => ("found", None),
        ProbeState::Incompatible { .. } => ("incompatible", None),
        ProbeState::CatchingUp => ("catching_up", None),
        ProbeState::Live => ("live", None),
        ProbeState::Ended { reason, .. } => ("ended", Some(reason)),
        ProbeState::Gone { why, .. } => ("gone", Some(why)),
    };
    json!({
        "probe": it.probe,
        "pid": it.pid,
        "own_pid": it.hello.as_ref().map(|it| it.pid),
        "socket": it.socket,
        "life": life,
        "why": why,
        "suspended": is_suspended(session, it),
        "hello": it.hello,
        "lost": it.lost,
        "lost_error_lines": it.lost_error_lines,
        "stride": it.stride,
        "marks": it.marks.iter().collect::<Vec<_>>(),
        "ooms": it.ooms.iter().map(|oom| self::oom(it, oom, findings)).collect::<Vec<_>>(),
        "devices": it.devices.iter().map(|on| on_device(it, on, findings)).collect::<Vec<_>>(),
    })
}

fn oom(process: &Process, it: &OutOfMemory, findings: &Findings) -> Value {
    let is_it = |found: &&Finding| {
        found.kind == Kind::Oom && found.is_of(process) && found.first_alert_at.0 == it.reported.at_us
    };
    let found = findings.all.iter().find(is_it);
    let mut object = object(json!(it.reported));
    object.insert("cause".to_owned(), json!(found.map(|it| it.cause.id())));
    object.insert("sentence".to_owned(), json!(found.and_then(|it| it.sentence.as_deref())));
    Value::Object(object)
}

fn on_device(process: &Process, it: &OnDevice, findings: &Findings) -> Value {
    let found = findings
        .device(&it.device)
        .and_then(|device| device.processes.iter().find(|at| at.probe == process.probe && at.ordinal == it.ordinal));
    let mut object = object(json!({
        "device": it.device,
        "ordinal": it.ordinal,
        "at_us": it.at,
        "step": it.step,
        "counters": it.counters,
        "step_time": it.pace.json(),
    }));
    if let Some(CountedParts { parts, step, .. }) = it.parts {
        object.insert("parts".to_owned(), json!(parts));
        object.insert("parts_step".to_owned(), json!(step));
    }
    if let Some(moment) = process.peak.as_deref().filter(|moment| moment.device == it.ordinal) {
        object.insert("peak".to_owned(), anatomy::json(process.any_pid(), moment));
    }
    if let Some(found) = found {
        object.insert("driver_used".to_owned(), json!(found.driver_used));
        object.insert("fragmentation".to_owned(), fragmentation(found));
        object.insert("growth".to_owned(), growth(it, findings.growing(process.probe, it.ordinal)));
        object.insert("approximate".to_owned(), json!(found.approximate));
    }
    Value::Object(object)
}

fn fragmentation(found: &ProcessFindings) -> Value {
    let it = &found.fragmentation;
    let stuck = if let Stuck::Known(bytes) = it.stuck { Some(bytes) } else { None };
    json!({
        "cached": it.cached,
        "stuck": stuck,
        "stuck_measurable": it.stuck != Stuck::NotMeasurable,
        "releasable": found.releasable,
    })
}

fn growth(it: &OnDevice, growing: Option<&Finding>) -> Value {
    let watched = it.growth.watched();
    match growing {
        None if watched < it.growth.enough() => json!({"trend": "too_few", "steps": watched}),
        None => json!({"trend": "flat", "steps": watched}),
        Some(growing) => json!({
            "trend": "growing",
            "resource": growing.resource.map(Resource::id),
            "bytes_per_step": growing.bytes_per_step,
            "since_step": growing.since_step,
            "full_in_steps": growing.full_in_steps,
            "severity": growing.severity.name(),
            "cause": growing.cause.id(),
        }),
    }
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{
            event::{Event, Fact},
            text::Foreign,
            units::Stamp,
        },
        model::findings::findings,
    };

    #[test]
    fn foreign_text_is_escaped_and_comes_back() {
        let nasty = "a\u{1b}[31m\u{9b}\u{202e}\u{e0041}ü";
        let mut session = Session::default();
        session.apply(&Event { at: Stamp(5), fact: Fact::Notice(nasty.into()) });
        let text = report(&session, &findings(&session), "h").unwrap();
        assert!(text.chars().all(|c| c == '\n' || Foreign::new(c).to_string() == c.to_string()), "{text:?}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["notices"][0], nasty);
        assert_eq!((&back["schema"], &back["at_us"]), (&json!(1), &json!(5)));
    }
}
