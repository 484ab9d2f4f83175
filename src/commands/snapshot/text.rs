//! A snapshot's account as text.

use super::{Asked, asked};
use crate::{
    facts::{
        text::Foreign,
        units::{Bytes, counted},
    },
    model::{
        snapshot::{Device, Snapshot},
        trace::{Fit, Share, Totals, Trace},
    },
};
use std::fmt::Write as _;

/// Most stacks listed.
const LISTED: usize = 10;

/// Most out-of-memory errors listed, the latest ones.
const FAILURES: usize = 3;

pub(super) fn account(it: &Snapshot, fits: Option<u64>) -> String {
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
        write(&mut out, it, device, asked(it, device, fits));
    }
    if it.devices.is_empty() {
        let none = if it.ended.is_some() { "no segment could be read" } else { "nothing was allocated on any device" };
        let _ = writeln!(out, "{none}");
    }
    out
}

fn write(out: &mut String, snapshot: &Snapshot, it: &Device, asked: Option<Asked>) {
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
    if let Some(asked) = asked {
        fit(out, &asked, it.totals.releasable.saturating_add(it.totals.cached));
    }
    if !it.live.is_empty() {
        let _ = writeln!(out, "live blocks by call stack:");
        shares(out, &snapshot.trace, &it.live);
    }
    let Some(peak) = &it.peak else {
        out.push_str("no trace of allocations: call torch.cuda.memory._record_memory_history() when the job begins\n");
        return;
    };
    let (event, events) = (peak.event + 1, it.events);
    failures(out, snapshot, it);
    let _ = writeln!(out, "peak of the trace: {} requested and live at event {event} of {events}", Bytes(peak.bytes));
    if peak.older > 0 {
        let _ = writeln!(out, "  {} of it predate the trace", Bytes(peak.older));
    }
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

fn fit(out: &mut String, asked: &Asked, releasable: u64) {
    let (bytes, stream) = (Bytes(asked.bytes), asked.stream);
    let _ = match asked.fit {
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

fn shares(out: &mut String, trace: &Trace, all: &[Share]) {
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
