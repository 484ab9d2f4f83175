//! The answer as text and as JSON (schema 1, all sizes in bytes).

use super::{
    Answer, AsRecorded, Device, Row, VARIABLE,
    candidate::{self, SAVES_PERCENT},
};
use crate::{
    facts::{
        event::replayed,
        text::{Foreign, escape_json},
        units::{Bytes, counted, signed},
    },
    storage::traces::Window,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Returns the answer as text.
pub(super) fn text(it: &Answer) -> String {
    let mut out = String::new();
    // Without a version, nothing was replayed.
    if let Some(version) = &it.version {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "replayed through the allocator of PyTorch {}", Foreign::new(version.as_str()));
    }
    for device in &it.devices {
        if !out.is_empty() {
            out.push('\n');
        }
        write(&mut out, it, device);
    }
    if it.devices.is_empty() {
        out.push_str("nothing was allocated on any device\n");
    }
    if it.devices.iter().any(|it| !it.candidates.is_empty()) {
        out.push_str(
            "\nA replay repeats the recorded requests: a job whose requests depend on time, on free memory or on the device \
             would make others.\n",
        );
    }
    out
}

fn write(out: &mut String, answer: &Answer, it: &Device) {
    let events = counted(it.events as u64, "event");
    let process = it.pid.map_or_else(String::new, |pid| format!("process {pid}, "));
    let _ = write!(out, "{process}device {}: {events}", it.ordinal);
    if it.as_recorded.is_some() || !it.candidates.is_empty() {
        let whole = if it.complete { ", from the start of the run" } else { "" };
        let size = it.size.map(|it| format!("on a device of {}", Bytes(it)));
        let size =
            size.unwrap_or_else(|| "without a limit, as the run never came close to one; --gpu sets one".to_owned());
        let _ = write!(out, "{whole}; {size}");
    }
    out.push('\n');
    if let Some(recorded) = &it.as_recorded {
        faithful(out, it.settings.as_deref(), recorded);
    }
    if let Some(why) = &it.refused {
        let _ = writeln!(out, "no advice: {}", Foreign::new(why.as_str()));
        return;
    }
    if !it.complete {
        window(out, it);
    }
    if let Some(event) = it.died_at {
        let _ = writeln!(
            out,
            "the run ran out of memory at event {} and ended: what follows is true up to there, and the whole run needs more \
             memory",
            event + 1
        );
    }
    table(out, it);
    for (settings, why) in &it.unknown {
        let _ = writeln!(out, "not tried: {} ({})", Foreign::new(settings.as_str()), Foreign::new(why.as_str()));
    }
    advice(out, answer, it);
    if it.died_at.is_some() {
        out.push_str(
            "what the whole run needs: `gpuwatch fit -- COMMAND` runs the job on a simulated device, with `--gpu SIZE` on one \
             of that size\n",
        );
    }
    if let Some(window) = &it.window {
        cost(out, window);
    }
}

/// Reports what a window cost the job.
fn cost(out: &mut String, it: &Window) {
    let (steps, snapshots) = (counted(it.steps, "step"), counted(it.snapshots, "snapshot"));
    let ms = |us: u64| us as f64 / 1000.0;
    let _ = writeln!(
        out,
        "\ntraced {} in {steps} ({:.1} s): each took about 0.2 µs longer, and {snapshots} paused the job for at most {:.1} ms in \
         total (longest pause {:.1} ms)",
        counted(it.allocations, "allocation"),
        ms(it.ms),
        ms(it.paused_us),
        ms(it.longest_us)
    );
}

fn faithful(out: &mut String, settings: Option<&str>, it: &AsRecorded) {
    let settings = match settings {
        None => "unknown settings, taken as the defaults".to_owned(),
        Some("") => "the default settings".to_owned(),
        Some(text) => Foreign::new(text).to_string(),
    };
    let (recorded, replayed) = (Bytes(it.recorded_peak), Bytes(it.replayed_peak));
    let _ = writeln!(
        out,
        "as recorded, under {settings}: peak reserved {recorded}, replayed {replayed}: off by {:.2} %, {} of {} equal",
        it.error * 100.0,
        it.segments_equal,
        counted(it.segments as u64, "segment event"),
    );
    if it.segments == 0 {
        out.push_str("  no segment came or went in the trace: weak evidence\n");
    }
}

fn window(out: &mut String, it: &Device) {
    if it.gaps > 0 {
        let times = counted(it.gaps, "time");
        let _ = writeln!(out, "events were lost {times}, because they came faster than the job's trace was written");
    }
    if it.is_window() {
        let next = if it.pid.is_some() {
            "trace the next run from its start with `gpuwatch run --trace`"
        } else {
            "call torch.cuda.memory._record_memory_history() before the first allocation to trace the next run whole"
        };
        let _ = writeln!(
            out,
            "the trace begins in the middle of the run, with {:.0} % of its peak reserved: the replays start from the blocks \
             that were live then and repeat the trace six times. They show which setting is better; what each takes is a rough \
             estimate; {next}",
            it.before * 100.0
        );
    } else {
        out.push_str("the trace begins with little reserved; the replays start from the blocks that were live then\n");
    }
}

fn table(out: &mut String, it: &Device) {
    let recorded = it.settings.as_deref().unwrap_or_default();
    let base = if it.is_window() {
        it.own().map(|own| own.peak_reserved)
    } else {
        it.as_recorded.as_ref().map(|it| it.recorded_peak)
    };
    let width = it.candidates.iter().map(|row| name(row, recorded).chars().count()).max().unwrap_or(0);
    let column = if it.died_at.is_some() { 22 } else { 15 };
    let titles = ["peak reserved", "difference", "smallest device", "retries", "cudaMallocs", "syncs"];
    let [peak, difference, smallest, retries, mallocs, syncs] = titles;
    let _ = writeln!(
        out,
        "{:width$}  {peak:>13}  {difference:>11}  {smallest:>column$}  {retries:>7}  {mallocs:>11}  {syncs:>5}  fits",
        "settings"
    );
    let about = if it.is_window() { "~ " } else { "" };
    let at_least = if it.died_at.is_some() { "more than " } else { "" };
    for row in &it.candidates {
        let off = base.map(|base| row.peak_reserved as f64 - base as f64);
        let _ = writeln!(
            out,
            "{:width$}  {:>13}  {:>11}  {:>column$}  {:>7}  {:>11}  {:>5}  {}",
            name(row, recorded),
            format!("{about}{}", Bytes(row.peak_reserved)),
            off.map_or_else(|| "–".to_owned(), |it| signed(it, 4, "")),
            row.smallest.map_or_else(|| "–".to_owned(), |it| format!("{at_least}{about}{}", Bytes(it))),
            row.retries,
            row.cuda_mallocs,
            row.synchronisations,
            fits(row, it.died_at.is_some()),
        );
    }
}

fn name(it: &Row, recorded: &str) -> String {
    let name =
        if it.settings.is_empty() { "(defaults)".to_owned() } else { Foreign::new(it.settings.as_str()).to_string() };
    match it.settings.as_str() {
        own if own == recorded => format!("{name}, as recorded"),
        own if candidate::is_estimated(own) => format!("{name} (estimate)"),
        _ => name,
    }
}

fn fits(it: &Row, died: bool) -> String {
    let Some(failure) = &it.fails_at else {
        return if died { "yes, so far" } else { "yes" }.to_owned();
    };
    let mut words = format!("no: event {}", failure.event + 1);
    if let Some(step) = &failure.step {
        let _ = write!(words, ", in {}", Foreign::new(step.as_str()));
    }
    if let Some(line) = &failure.line {
        let _ = write!(words, ", {line}");
    }
    words
}

/// Shows the best setting, if it is better than the recorded one, as the line to export.
fn advice(out: &mut String, answer: &Answer, it: &Device) {
    let Some(own) = it.own().filter(|_| !answer.is_named) else { return };
    match it.better() {
        Some(best) => {
            let _ = writeln!(out, "\nexport {VARIABLE}={}", best.settings);
        }
        None if it.is_window() => {
            let _ = writeln!(out, "\n{}", replayed::Window::without_advice(it.window.map(|it| it.steps)));
        }
        None if own.fails_at.is_some() => out.push_str("\nunder none of these settings does the run fit\n"),
        None => {
            let _ = writeln!(
                out,
                "\nnone of these settings reserves {SAVES_PERCENT} % less than the recorded one and fits on as small a device"
            );
        }
    }
}

/// The version of the object.
const SCHEMA: u32 = 1;

/// Returns the answer as JSON.
pub(super) fn json(it: &Answer) -> String {
    let devices: Vec<_> = it.devices.iter().map(device_json).collect();
    escape_json(&format!("{:#}\n", json!({ "schema": SCHEMA, "devices": devices })))
}

fn device_json(it: &Device) -> Value {
    json!({
        "device": it.ordinal,
        "pid": it.pid,
        "complete": it.complete,
        "window": it.is_window(),
        "events": it.events,
        "refused": it.refused,
        "died_at": it.died_at,
        "as_recorded": it.as_recorded.as_ref().map(|recorded| as_recorded_json(recorded, it.settings.as_deref())),
        "candidates": it.candidates.iter().map(row_json).collect::<Vec<_>>(),
        "cost": it.window.as_ref().map(cost_json),
    })
}

fn cost_json(it: &Window) -> Value {
    json!({
        "steps": it.steps,
        "ms": it.ms,
        "allocations": it.allocations,
        "snapshots": it.snapshots,
        "longest_pause_us": it.longest_us,
        "paused_us": it.paused_us,
    })
}

fn as_recorded_json(it: &AsRecorded, settings: Option<&str>) -> Value {
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

fn row_json(it: &Row) -> Value {
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
