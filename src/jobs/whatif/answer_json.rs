//! The answer as JSON, schema 1, all sizes in bytes.

use super::{Answer, AsRecorded, Device, Row};
use crate::{facts::text::escape_json, storage::traces::Window};
use serde_json::{Value, json};

/// The version of the object.
const SCHEMA: u32 = 1;

pub(super) fn answer(it: &Answer) -> String {
    let devices: Vec<_> = it.devices.iter().map(of).collect();
    escape_json(&format!("{:#}\n", json!({ "schema": SCHEMA, "devices": devices })))
}

fn of(it: &Device) -> Value {
    json!({
        "device": it.ordinal,
        "pid": it.pid,
        "complete": it.complete,
        "window": it.is_window(),
        "events": it.events,
        "refused": it.refused,
        "died_at": it.died_at,
        "as_recorded": it.as_recorded.as_ref().map(|recorded| as_recorded(recorded, it.settings.as_deref())),
        "candidates": it.candidates.iter().map(row).collect::<Vec<_>>(),
        "cost": it.window.as_ref().map(cost),
    })
}

fn cost(it: &Window) -> Value {
    json!({
        "steps": it.steps,
        "ms": it.ms,
        "allocations": it.allocations,
        "snapshots": it.snapshots,
        "longest_pause_us": it.longest_us,
        "paused_us": it.paused_us,
    })
}

fn as_recorded(it: &AsRecorded, settings: Option<&str>) -> Value {
    json!({
        "settings": settings,
        "recorded_peak_reserved": it.recorded_peak,
        "replayed_peak_reserved": it.replayed_peak,
        "recorded_reserved": it.recorded,
        "replayed_reserved": it.replayed,
        "segment_events": it.segments,
        "segment_events_equal": it.segments_equal,
        "error": it.error,
    })
}

fn row(it: &Row) -> Value {
    let failed = it.fails_at.as_ref();
    json!({
        "settings": it.settings,
        "peak_allocated": it.peak_allocated,
        "peak_reserved": it.peak_reserved,
        "fits": failed.is_none(),
        "fails_at": failed.map(|it| json!({ "event": it.event, "step": it.step, "line": it.line })),
        "smallest_device": it.smallest,
        "retries": it.retries,
        "cuda_mallocs": it.cuda_mallocs,
        "synchronisations": it.synchronisations,
    })
}
