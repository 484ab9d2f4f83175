//! The answer as JSON, schema 1.

use super::{
    Answer,
    judge::Judged,
    peak::Peak,
    phases::{PhaseRow, Phases},
    ranks,
    vary::Tried,
};
use crate::model::fit::{Fits, Need, Overhead};
use serde_json::{Map, Value, json};

pub(super) fn answer(it: &Answer) -> String {
    format!("{}\n", answer_value(it))
}

/// Returns the answer as a JSON object.
pub(super) fn answer_value(it: &Answer) -> Value {
    let devices: Vec<Value> = it.devices.iter().map(device).collect();
    let mut unknown = it.unknown.clone();
    for doubt in it.devices.iter().filter_map(|it| it.doubt.clone()).rev() {
        if !unknown.contains(&doubt) {
            unknown.insert(0, doubt);
        }
    }
    if it.is_after_reads {
        unknown.insert(0, super::verdict_text::AFTER_READS.to_owned());
    }
    unknown.splice(0..0, it.why.clone());
    let mut peak = it.peak.as_ref().map(peak);
    if let ([one], true, Some(peak)) = (it.devices.as_slice(), it.is_named, &mut peak) {
        peak.insert("device_low".to_owned(), json!(one.low()));
    }
    let phases = phases(&it.phases);
    let mut out = json!({
        "schema": 1, "fits": it.fits().name(), "devices": devices, "peak": peak, "phases": phases, "unknown": unknown,
        "torch": it.peak.as_ref().map(|it| it.torch.clone()), "growth": it.growth,
    });
    if let (Some(varied), Some(object)) = (&it.varied, out.as_object_mut()) {
        let largest = varied.largest.map(|at| varied.values.get(at));
        let tried = |it: &Tried| json!({ "value": it.value, "runs": it.runs, "wanted": it.wanted });
        let tried: Vec<Value> = varied.tried.iter().map(tried).collect();
        object.insert("vary".to_owned(), json!({ "name": varied.name, "largest": largest, "tried": tried }));
    }
    if let (Some(plan), Some(object)) = (&it.plan, out.as_object_mut()) {
        object.extend(ranks::json(plan).map(|(name, value)| (name.to_owned(), value)));
    }
    out
}

fn phases(it: &Phases) -> Value {
    let row = |it: &PhaseRow| {
        json!({
            "name": it.name,
            "line": it.line,
            "count": it.count,
            "step": it.step,
            "allocated": it.allocated,
            "reserved": it.reserved,
            "fits": it.fits.map(Fits::name),
        })
    };
    let ran: Vec<Value> = it.rows.iter().map(row).collect();
    let not_run: Vec<Value> = it.not_run.iter().map(|(name, line)| json!({ "name": name, "line": line })).collect();
    json!({ "ran": ran, "not_run": not_run, "is_whole": it.is_whole })
}

fn device(it: &Judged) -> Value {
    let wanted = it.need.as_ref().map_or(0, |it| it.reserved);
    json!({
        "name": it.device.name,
        "total": it.device.total,
        "fits": it.fits.name(),
        "peak": it.peak().map(|peak| {
            let mut peak = need(peak, wanted);
            peak.insert("device_low".to_owned(), json!(it.low()));
            peak
        }),
    })
}

pub(super) fn peak(it: &Peak) -> Map<String, Value> {
    let mut out = need(&it.need, it.wanted);
    let parts: Map<String, Value> =
        it.kinds.iter().map(|(kind, bytes)| (kind.name().to_owned(), json!(bytes))).collect();
    out.extend([
        ("step".to_owned(), json!(it.step)),
        ("line".to_owned(), json!(it.line)),
        ("parts".to_owned(), Value::Object(parts)),
        ("lines".to_owned(), json!(it.lines)),
        ("outside".to_owned(), it.need.outside.iter().map(outside).collect()),
    ]);
    out
}

fn outside(it: &Overhead) -> Value {
    json!({ "name": it.name, "low": it.low, "usual": it.usual, "high": it.high })
}

fn need(it: &Need, wanted: u64) -> Map<String, Value> {
    let all = [
        ("allocated", it.allocated),
        ("reserved", it.reserved),
        ("wanted", wanted),
        ("device", it.usual()),
        ("device_low", it.low()),
        ("device_high", it.high()),
    ];
    all.into_iter().map(|(name, bytes)| (name.to_owned(), json!(bytes))).collect()
}
