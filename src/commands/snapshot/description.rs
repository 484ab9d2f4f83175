//! What a snapshot holds, as text and as JSON (schema 1, all sizes in bytes).

use super::{FitRequest, request};
use crate::{
    facts::{
        text::{Foreign, escape_json},
        units::{Bytes, counted},
    },
    model::{
        anatomy,
        anatomy::bytes_json,
        snapshot::{Device, Failure, Snapshot},
        trace::{Fit, Frame, StackId, StackShare, Totals, Trace},
    },
};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Most stacks listed.
const LISTED: usize = 10;

/// Most out-of-memory errors listed, the latest ones.
const FAILURES: usize = 3;

pub(super) fn text(it: &Snapshot, fits: Option<u64>) -> String {
    let mut out = String::new();
    let settings = match it.settings() {
        None => "the allocator's settings are not recorded".to_owned(),
        Some(text) if text.is_empty() => "the allocator has its default settings".to_owned(),
        Some(text) => format!("PYTORCH_CUDA_ALLOC_CONF={}", Foreign::new(text)),
    };
    // Writing into a String cannot fail.
    let _ = writeln!(out, "{} read; {settings}", Bytes(it.bytes));
    for device in &it.devices {
        out.push('\n');
        write(&mut out, it, device, request(it, device, fits));
    }
    if it.devices.is_empty() {
        let none = if it.ended.is_some() { "no segment could be read" } else { "nothing was allocated on any device" };
        let _ = writeln!(out, "{none}");
    }
    out
}

fn write(out: &mut String, snapshot: &Snapshot, it: &Device, request: Option<FitRequest>) {
    let Totals { reserved, segments, largest_free, .. } = it.totals;
    let _ = writeln!(out, "device {}: {} reserved in {}", it.ordinal, Bytes(reserved), counted(segments, "segment"));
    for rung in it.ladder.by_gap() {
        let name = rung.gap.row().name;
        if let Some(bytes) = rung.bytes {
            let _ = writeln!(out, "  {name:<12} {bytes:>10}");
        }
    }
    for (stream, pool, sums) in &it.parts {
        part(out, snapshot, *stream, *pool, sums);
    }
    let _ = writeln!(out, "largest free block: {}", Bytes(largest_free));
    if let Some(request) = request {
        fit(out, &request, it.totals.releasable.saturating_add(it.totals.cached));
    }
    if let Some(end) = it.consists.as_ref().map(|it| &it.end).filter(|it| it.is_known()) {
        out.push_str("live blocks by what they hold, as rounded by the allocator:\n");
        out.push_str(&anatomy::part_rows(end));
    }
    if !it.live.is_empty() {
        out.push_str("live blocks by call stack:\n");
        shares(out, &snapshot.trace, &it.live);
    }
    let Some(peak) = &it.peak else {
        out.push_str("no trace of allocations: call torch.cuda.memory._record_memory_history() when the job begins\n");
        return;
    };
    let (event, events) = (peak.event + 1, it.events);
    failures(out, snapshot, it);
    let _ = writeln!(out, "peak of the trace: {} requested and live at event {event} of {events}", Bytes(peak.bytes));
    if let Some(consists) = it.consists.as_ref().and_then(|it| it.peak.as_ref()) {
        out.push_str(&anatomy::part_rows(consists));
        out.push_str("  by when it was allocated:\n");
        out.push_str(&anatomy::phase_rows(consists));
    }
    out.push_str("  by call stack:\n");
    shares(out, &snapshot.trace, &peak.shares);
}

/// Writes the latest requests that failed.
fn failures(out: &mut String, snapshot: &Snapshot, device: &Device) {
    let all = snapshot.failures(device);
    let earlier = all.len().saturating_sub(FAILURES);
    for it in all.iter().skip(earlier) {
        let known = |it: Option<u64>| it.map_or_else(|| "–".to_owned(), |bytes| Bytes(bytes).to_string());
        let _ = writeln!(
            out,
            "out of memory at event {} of {}: {} asked for, {} free on the device, {} reserved, {} requested and live: {}",
            it.event + 1,
            device.events,
            known(it.bytes),
            known(it.free),
            Bytes(it.reserved),
            Bytes(it.live),
            snapshot.trace.stacks.line(it.stack)
        );
    }
    if earlier > 0 {
        let _ = writeln!(out, "  and {} before", counted(earlier as u64, "out-of-memory error"));
    }
}

fn part(out: &mut String, snapshot: &Snapshot, stream: u64, pool: Option<u32>, it: &Totals) {
    let name = snapshot.part_name(stream, pool);
    let (live, free) = (Bytes(it.allocated), Bytes(it.free()));
    let _ = writeln!(
        out,
        "{name}: {}, {}, {live} live, {free} free ({} stuck, largest block {})",
        counted(it.segments, "segment"),
        Bytes(it.reserved),
        Bytes(it.stuck),
        Bytes(it.largest_free),
    );
}

fn fit(out: &mut String, request: &FitRequest, releasable: u64) {
    let (bytes, stream) = (Bytes(request.bytes), request.stream);
    let _ = match request.fit {
        Fit::Block { size } => {
            writeln!(out, "{bytes} fits now: stream {stream} has a free block of {}", Bytes(size))
        }
        Fit::Segment { size, largest } => writeln!(
            out,
            "{bytes} does not fit into free blocks (largest of stream {stream}: {}): the allocator asks the driver for {}, and \
             gives back up to {} if the driver has less",
            Bytes(largest),
            Bytes(size),
            Bytes(releasable)
        ),
    };
}

fn shares(out: &mut String, trace: &Trace, all: &[StackShare]) {
    let all = trace.stacks.merged(all);
    for it in all.iter().take(LISTED) {
        let stack = trace.stacks.line(it.stack);
        let _ = writeln!(out, "  {:>10} {:>12}  {stack}", Bytes(it.bytes), counted(it.blocks, "block"));
    }
    let rest = all.get(LISTED..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
        let blocks = rest.iter().map(|it| it.blocks).sum();
        let other = counted(rest.len() as u64, "other stack");
        let _ = writeln!(out, "  {:>10} {:>12}  {other}", Bytes(bytes), counted(blocks, "block"));
    }
}

/// The version of the object.
const SCHEMA: u32 = 1;

pub(super) fn json(it: &Snapshot, fits: Option<u64>) -> String {
    let object = serde_json::json!({
        "schema": SCHEMA,
        "bytes": it.bytes,
        "ended": it.ended,
        "settings": it.settings(),
        "devices": it.devices.iter().map(|device| device_json(it, device, request(it, device, fits))).collect::<Vec<_>>(),
    });
    escape_json(&format!("{object:#}\n"))
}

fn device_json(snapshot: &Snapshot, it: &Device, request: Option<FitRequest>) -> Value {
    let trace = &snapshot.trace;
    let ladder =
        it.ladder.by_gap().into_iter().map(|rung| (rung.gap.row().id.to_owned(), serde_json::json!(rung.bytes)));
    let part = |(stream, pool, sums): &(u64, Option<u32>, Totals)| {
        let mut part = totals_json(sums);
        part.insert("stream".to_owned(), serde_json::json!(stream));
        part.insert("pool".to_owned(), serde_json::json!(pool.and_then(|it| trace.pools.get(it))));
        part
    };
    let mut object = totals_json(&it.totals);
    let more = serde_json::json!({
        "device": it.ordinal,
        "ladder": ladder.collect::<Map<_, _>>(),
        "parts": it.parts.iter().map(part).collect::<Vec<_>>(),
        "fits": request.map(|request| fit_json(&request)),
        "live": shares_json(trace, &it.live),
        "anatomy": it.consists.as_ref().map(|it| bytes_json(&it.end)),
        "out_of_memory": snapshot.failures(it).iter().map(|it| failure_json(trace, it)).collect::<Vec<_>>(),
        "events": it.events,
        "peak": it.peak.as_ref().map(|peak| serde_json::json!({
            "event": peak.event,
            "unix_us": peak.unix_us,
            "requested": peak.bytes,
            "older": peak.older,
            "anatomy": it.consists.as_ref().and_then(|it| it.peak.as_ref()).map(bytes_json),
            "live": shares_json(trace, &peak.shares),
        })),
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

fn totals_json(it: &Totals) -> Map<String, Value> {
    let object = serde_json::json!({
        "segments": it.segments,
        "expandable_segments": it.expandable,
        "reserved": it.reserved,
        "allocated": it.allocated,
        "pending": it.pending,
        "requested": it.requested,
        "stuck": it.stuck,
        "cached": it.cached_in_expandable(),
        "releasable": it.releasable,
        "graph_pools_free": it.graph_pools_free,
        "mem_pools_free": it.mem_pools_free,
        "private_pools": it.private_pools,
        "largest_free": it.largest_free,
    });
    if let Value::Object(it) = object { it } else { Map::new() }
}

fn failure_json(trace: &Trace, it: &Failure) -> Value {
    serde_json::json!({
        "event": it.event,
        "unix_us": it.unix_us,
        "tried": it.bytes,
        "device_free": it.free,
        "reserved": it.reserved,
        "requested": it.live,
        "frames": frames(trace, it.stack),
    })
}

fn fit_json(it: &FitRequest) -> Value {
    let (fits, block, segment) = match it.fit {
        Fit::Block { size } => (true, Some(size), None),
        Fit::Segment { size, .. } => (false, None, Some(size)),
    };
    serde_json::json!({ "bytes": it.bytes, "stream": it.stream, "fits": fits, "block": block, "segment": segment })
}

fn shares_json(trace: &Trace, all: &[StackShare]) -> Vec<Value> {
    let share = |it: &StackShare| serde_json::json!({ "bytes": it.bytes, "blocks": it.blocks, "frames": frames(trace, it.stack) });
    all.iter().map(share).collect()
}

/// Returns the frames, innermost first.
fn frames(trace: &Trace, id: StackId) -> Vec<Value> {
    let text = |id| trace.stacks.texts.get(id);
    let frame = |it: Frame| serde_json::json!({ "file": text(it.file), "line": it.line, "function": text(it.name) });
    trace.stacks.frames(id).map(frame).collect()
}
