//! What is exported of a snapshot: its blocks or the events of its trace as rows, its live blocks as stacks for flame
//! graphs, and its trace for Perfetto.

use super::ExportRow;
use crate::{
    facts::text::{Foreign, escape_json},
    model::trace::{Action, BlockState, Frame, StackId, StackShare, Stacks, Trace, Tree},
};
use serde_json::{Value, json};
use std::io::{self, Write};

/// What rows are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SnapshotTable {
    /// The blocks of all segments.
    #[default]
    Blocks,
    /// What the allocator did, in order.
    Events,
}

const BLOCKS: [&str; 11] = [
    "device",
    "stream",
    "pool",
    "segment",
    "segment_size",
    "expandable",
    "address",
    "size",
    "requested",
    "state",
    "stack",
];
const EVENTS: [&str; 9] = ["device", "event", "unix_us", "action", "address", "size", "stream", "pool", "stack"];

impl SnapshotTable {
    /// Returns the names of its columns.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Blocks => &BLOCKS,
            Self::Events => &EVENTS,
        }
    }

    /// Passes on every row. Sizes are bytes, addresses and streams are the driver's numbers, pools are numbered from 0
    /// by first use, a stack has its outermost frame first.
    pub(super) fn rows(self, trace: &Trace, write: &mut dyn FnMut(ExportRow) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Blocks => blocks(trace, write),
            Self::Events => events(trace, write),
        }
    }
}

fn blocks(trace: &Trace, write: &mut dyn FnMut(ExportRow) -> io::Result<()>) -> io::Result<()> {
    let stack = stacks(trace);
    for segment in &trace.segments {
        for block in trace.blocks_of(segment) {
            let state = match block.state {
                BlockState::Live => Some("live"),
                BlockState::Pending => Some("pending"),
                BlockState::Free => Some("free"),
                BlockState::Other => None,
            };
            let values = [
                segment.device.map(Value::from),
                Some(segment.stream.into()),
                segment.pool.map(Value::from),
                Some(segment.address.into()),
                Some(segment.size.into()),
                Some(segment.is_expandable.into()),
                Some(block.address.into()),
                Some(block.size.into()),
                block.requested.map(Value::from),
                state.map(Value::from),
                stack(block.stack),
            ];
            write(BLOCKS.into_iter().zip(values).collect())?;
        }
    }
    Ok(())
}

fn events(trace: &Trace, write: &mut dyn FnMut(ExportRow) -> io::Result<()>) -> io::Result<()> {
    let stack = stacks(trace);
    for (device, range) in trace.devices.iter().enumerate() {
        for (place, event) in trace.events.range(range.clone()).enumerate() {
            let action = Action::WORDS.iter().find(|(_, action)| *action == event.action).map(|(word, _)| *word);
            let values = [
                Some(device.into()),
                Some(place.into()),
                event.unix_us.map(Value::from),
                action.map(Value::from),
                event.address.map(Value::from),
                event.size.map(Value::from),
                event.stream.map(Value::from),
                event.pool.map(Value::from),
                stack(event.stack),
            ];
            write(EVENTS.into_iter().zip(values).collect())?;
        }
    }
    Ok(())
}

/// Writes a stack's frames, the outermost first.
fn stacks(trace: &Trace) -> impl Fn(StackId) -> Option<Value> {
    let shown = trace.stacks.shown();
    move |id| {
        let frames: Vec<String> = shown(id).into_iter().map(|frame| trace.stacks.label(Some(frame))).collect();
        (!frames.is_empty()).then(|| frames.join(";").into())
    }
}

/// Which blocks to export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum StackMoment {
    /// Blocks that are live in the snapshot.
    #[default]
    End,
    /// Blocks that were live at the peak of the snapshot's trace.
    Peak,
}

/// Writes a line for each call stack: its frames, outermost first after the device, and its bytes, as `flamegraph.pl`,
/// inferno and speedscope read them.
///
/// # Errors
/// Fails if `out` cannot be written.
pub(super) fn folded(trace: &Trace, at: StackMoment, out: &mut impl Write) -> io::Result<()> {
    for device in trace.ordinals() {
        let tree = tree(trace, &shares(trace, device, at));
        for (path, bytes) in tree.paths() {
            let frames = path.iter().map(|frame| trace.stacks.label(*frame).replace(';', ":"));
            let line: Vec<String> = std::iter::once(format!("GPU {device}")).chain(frames).collect();
            writeln!(out, "{} {bytes}", line.join(";"))?;
        }
    }
    Ok(())
}

/// Writes speedscope's file: a profile for each device's live blocks, and one for its peak if it has a trace.
///
/// # Errors
/// Fails if `out` cannot be written.
pub(super) fn speedscope(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut profiles = Vec::new();
    for device in trace.ordinals() {
        for (at, name) in [(StackMoment::End, "live"), (StackMoment::Peak, "peak")] {
            let shares = shares(trace, device, at);
            if !shares.is_empty() {
                profiles.push(profile(trace, &format!("GPU {device}: {name}"), &tree(trace, &shares)));
            }
        }
    }
    // The last frame stands for blocks without a stack.
    let frames = trace.stacks.frames.values().iter().map(|it| frame(&trace.stacks, it));
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("gpuwatch ", env!("CARGO_PKG_VERSION")),
        "shared": { "frames": frames.chain([json!({ "name": trace.stacks.label(None) })]).collect::<Vec<_>>() },
        "profiles": profiles,
    });
    writeln!(out, "{}", escape_json(&file.to_string()))
}

fn frame(stacks: &Stacks, it: &Frame) -> Value {
    let text = |id| Foreign::new(stacks.texts.get(id)).to_string();
    json!({ "name": text(it.name), "file": text(it.file), "line": it.line })
}

fn profile(trace: &Trace, name: &str, tree: &Tree) -> Value {
    let unknown = trace.stacks.frames.values().len();
    let paths = tree.paths();
    let places = |path: &[Option<u32>]| -> Vec<usize> {
        path.iter().map(|frame| frame.map_or(unknown, |number| number as usize)).collect()
    };
    json!({
        "type": "sampled",
        "name": name,
        "unit": "bytes",
        "startValue": 0,
        "endValue": tree.calls.first().map(|root| root.bytes),
        "samples": paths.iter().map(|path| places(&path.0)).collect::<Vec<_>>(),
        "weights": paths.iter().map(|path| path.1).collect::<Vec<_>>(),
    })
}

fn shares(trace: &Trace, device: u32, at: StackMoment) -> Vec<StackShare> {
    match at {
        StackMoment::End => trace.live(device),
        StackMoment::Peak => trace.peak(device).map(|peak| peak.shares).unwrap_or_default(),
    }
}

fn tree(trace: &Trace, shares: &[StackShare]) -> Tree {
    Tree::new(shares, trace.stacks.shown())
}

/// Writes the events of all devices, a JSON object each; times are µs since the first of them.
///
/// # Errors
/// Fails if `out` cannot be written.
pub(super) fn perfetto(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let begun = start(trace);
    write!(
        out,
        "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}",
        json!({"ph": "M", "pid": 0, "name": "gpuwatch"})
    )?;
    let mut write = |event: &Value| write!(out, ",\n{}", escape_json(&event.to_string()));
    for device in trace.ordinals() {
        let name = format!("GPU {device}");
        write(&json!({"ph": "M", "pid": device, "name": "process_name", "args": {"name": name}}))?;
        let range = trace.devices.get(device as usize).cloned().unwrap_or_default();
        let history = trace.history(device);
        let mut before = None;
        for (place, event) in trace.events.range(range).enumerate() {
            let levels = (history.live(place).unwrap_or(0), history.reserved(place));
            // If a trace has no times, its events are 1 µs apart.
            let ts = event.unix_us.map_or(place as u64, |at| at.saturating_sub(begun));
            let figures = json!({"live": levels.0, "reserved": levels.1});
            if before.replace(levels) != Some(levels) {
                write(&json!({"ph": "C", "pid": device, "tid": 0, "ts": ts, "name": "memory", "args": figures}))?;
            }
            if event.action == Action::Oom {
                let about = json!({"bytes": event.size, "stack": trace.stacks.line(event.stack)});
                write(
                    &json!({"ph": "i", "s": "p", "pid": device, "tid": 0, "ts": ts, "name": "out of memory", "args": about}),
                )?;
            }
        }
    }
    for note in &trace.notes {
        let Some(ts) = note.unix_us.map(|at| at.saturating_sub(begun)) else { continue };
        let kind = match note.begins {
            Some(true) => "B",
            Some(false) => "E",
            None => "i",
        };
        let name = Foreign::new(trace.stacks.texts.get(note.name)).to_string();
        write(&json!({"ph": kind, "pid": note.device.unwrap_or(0), "tid": 1, "ts": ts, "name": name}))?;
    }
    writeln!(out, "\n]}}")
}

/// The earliest time in the trace, µs since 1970.
fn start(trace: &Trace) -> u64 {
    let events = trace.devices.iter().filter_map(|range| trace.events.range(range.clone()).find_map(|it| it.unix_us));
    events.chain(trace.notes.iter().filter_map(|note| note.unix_us)).min().unwrap_or(0)
}
