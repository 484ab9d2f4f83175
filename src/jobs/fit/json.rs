//! The answer as JSON, schema 1.

use super::Answer;
use serde_json::{Value, json};

pub(super) fn answer(it: &Answer) -> String {
    let judged =
        it.devices.iter().map(|it| json!({ "name": it.device.name, "total": it.device.total, "fits": it.fits.name() }));
    let devices: Vec<Value> = judged.collect();
    let peak = it.peak.as_ref().map(|it| {
        json!({
            "allocated": it.need.allocated,
            "reserved": it.need.reserved,
            "device": it.need.usual(),
            "device_low": it.need.low(),
            "device_high": it.need.high(),
            "step": it.step,
            "line": it.line,
        })
    });
    let mut unknown = it.unknown.clone();
    unknown.splice(0..0, it.why.clone());
    let mut out =
        json!({ "schema": 1, "fits": it.fits().name(), "devices": devices, "peak": peak, "unknown": unknown });
    if let (Some(varied), Some(object)) = (&it.varied, out.as_object_mut()) {
        let largest = varied.largest.map(|at| varied.values.get(at));
        object.insert("vary".to_owned(), json!({ "name": varied.name, "largest": largest }));
    }
    format!("{out}\n")
}
