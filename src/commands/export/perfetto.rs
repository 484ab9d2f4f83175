//! A snapshot's trace for Perfetto, in the JSON of Chrome's trace viewer: counters, failures and the program's
//! annotations.

use crate::{
    facts::text::{Foreign, escape_json},
    model::trace::{Action, Trace},
};
use serde_json::{Value, json};
use std::io::{self, Write};

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
