//! A snapshot as JSON, schema 1, all sizes in bytes.

use super::{Asked, asked};
use crate::{
    facts::text::escape_json,
    model::{
        snapshot::{Device, Failure, Snapshot},
        trace::{Fit, Frame, Share, StackId, Totals, Trace},
    },
};
use serde_json::{Map, Value, json};

/// The version of the object.
const SCHEMA: u32 = 1;

pub(super) fn account(it: &Snapshot, fits: Option<u64>) -> String {
    let object = json!({
        "schema": SCHEMA,
        "bytes": it.bytes,
        "ended": it.ended,
        "settings": it.settings(),
        "devices": it.devices.iter().map(|device| of(it, device, asked(it, device, fits))).collect::<Vec<_>>(),
    });
    escape_json(&format!("{object:#}\n"))
}

fn of(snapshot: &Snapshot, it: &Device, asked: Option<Asked>) -> Value {
    let trace = &snapshot.trace;
    let ladder = it.ladder.by_gap().into_iter().map(|rung| (rung.gap.row().id.to_owned(), json!(rung.bytes)));
    let part = |(stream, pool, sums): &(u64, Option<u32>, Totals)| {
        let mut part = totals(sums);
        part.insert("stream".to_owned(), json!(stream));
        part.insert("pool".to_owned(), json!(pool.and_then(|it| trace.pools.get(it))));
        part
    };
    let mut object = totals(&it.totals);
    let more = json!({
        "device": it.ordinal,
        "ladder": ladder.collect::<Map<_, _>>(),
        "parts": it.parts.iter().map(part).collect::<Vec<_>>(),
        "fits": asked.map(|asked| fit(&asked)),
        "live": shares(trace, &it.live),
        "out_of_memory": snapshot.failures(it).iter().map(|it| failure(trace, it)).collect::<Vec<_>>(),
        "events": it.events,
        "peak": it.peak.as_ref().map(|peak| json!({
            "event": peak.event,
            "unix_us": peak.unix_us,
            "requested": peak.bytes,
            "older": peak.older,
            "live": shares(trace, &peak.shares),
        })),
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

fn totals(it: &Totals) -> Map<String, Value> {
    let object = json!({
        "segments": it.segments,
        "expandable_segments": it.expandable,
        "reserved": it.reserved,
        "allocated": it.allocated,
        "pending": it.pending,
        "requested": it.requested,
        "stuck": it.stuck,
        "cached": it.cached,
        "releasable": it.releasable,
        "graph_pools_free": it.graph_pools_free,
        "mem_pools_free": it.mem_pools_free,
        "private_pools": it.private_pools,
        "largest_free": it.largest_free,
    });
    if let Value::Object(it) = object { it } else { Map::new() }
}

fn failure(trace: &Trace, it: &Failure) -> Value {
    json!({
        "event": it.event,
        "unix_us": it.unix_us,
        "tried": it.bytes,
        "device_free": it.free,
        "reserved": it.reserved,
        "requested": it.live,
        "frames": frames(trace, it.stack),
    })
}

fn fit(it: &Asked) -> Value {
    let (fits, block, segment) = match it.fit {
        Fit::Block { size } => (true, Some(size), None),
        Fit::Segment { size, .. } => (false, None, Some(size)),
    };
    json!({ "bytes": it.bytes, "stream": it.stream, "fits": fits, "block": block, "segment": segment })
}

fn shares(trace: &Trace, all: &[Share]) -> Vec<Value> {
    let share = |it: &Share| json!({ "bytes": it.bytes, "blocks": it.blocks, "frames": frames(trace, it.stack) });
    all.iter().map(share).collect()
}

/// Returns the frames, innermost first.
fn frames(trace: &Trace, id: StackId) -> Vec<Value> {
    let text = |id| trace.stacks.texts.get(id);
    let frame = |it: Frame| json!({ "file": text(it.file), "line": it.line, "function": text(it.name) });
    trace.stacks.frames(id).map(frame).collect()
}
