//! A memory snapshot as a page without scripts: the ladder, the trace, call stacks and segments of each device.

use super::{
    escape_html,
    peak_picture::{PeakPicture, colour, percent},
    plain_page,
};
use crate::{
    facts::{
        event::anatomy::Anatomy,
        text::Foreign,
        units::{Bytes, counted},
    },
    model::{
        analysis::ladder::{Gap, Rung},
        snapshot::{Device, Piece, Snapshot},
        trace::{Moment, StackShare},
    },
};
use std::fmt::Write as _;

/// Stacks and segments that are listed.
const LISTED: usize = 40;

/// Columns of the curve, and the sizes of the pictures in their own units.
const COLUMNS: usize = 600;
const WIDTH: f64 = 1000.0;
const CURVE: f64 = 240.0;
const BAR: f64 = 22.0;

/// Returns a snapshot as a page; `name` is its file's.
pub fn html(snapshot: &Snapshot, name: &Foreign) -> String {
    let mut out = String::new();
    let events = snapshot.devices.iter().map(|it| it.events as u64).sum();
    let settings = match snapshot.settings() {
        None => "the allocator's settings are not recorded".to_owned(),
        Some(it) if it.is_empty() => "default settings".to_owned(),
        Some(it) => format!("PYTORCH_CUDA_ALLOC_CONF={}", Foreign::new(it)),
    };
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "<p class=\"faint\">memory snapshot, {} read, {}, {}; {}</p>",
        Bytes(snapshot.bytes),
        counted(snapshot.devices.len() as u64, "device"),
        counted(events, "event"),
        text(&settings)
    );
    if let Some(why) = &snapshot.ended {
        let _ = writeln!(out, "<p class=\"fail\">{}; this is what was read up to there.</p>", text(why));
    }
    for device in &snapshot.devices {
        section(&mut out, snapshot, device);
    }
    if snapshot.devices.is_empty() {
        out.push_str("<p>No device has a segment or an event.</p>\n");
    }
    plain_page(&name.to_string(), out)
}

fn section(out: &mut String, snapshot: &Snapshot, device: &Device) {
    let (ordinal, totals) = (device.ordinal, &device.totals);
    let _ = writeln!(
        out,
        "<section>\n<h2>Device {ordinal}: {} reserved in {}</h2>\n<p>{} live, {} stuck, {} releasable, largest free block {}.</p>",
        Bytes(totals.reserved),
        counted(totals.segments, "segment"),
        Bytes(totals.allocated),
        Bytes(totals.stuck),
        Bytes(totals.releasable),
        Bytes(totals.largest_free)
    );
    ladder(out, device);
    curve(out, device);
    if let Some(peak) = &device.peak {
        let consists = device.consists.as_ref().and_then(|it| it.peak.as_ref());
        let _ = writeln!(out, "<h3>Live at the peak</h3>\n<p class=\"faint\">{}</p>", of_peak(device, peak));
        picture(out, consists);
        stacks(out, snapshot, &peak.shares, peak.bytes);
    }
    out.push_str("<h3>Live in the snapshot</h3>\n");
    picture(out, device.consists.as_ref().map(|it| &it.end));
    stacks(out, snapshot, &device.live, totals.allocated);
    segments(out, snapshot, device);
    out.push_str("</section>\n");
}

/// What is live at a moment, by part and line.
fn picture(out: &mut String, consists: Option<&Anatomy>) {
    if let Some(it) = consists.filter(|it| it.is_known()) {
        out.push_str(&PeakPicture::of(it, format!("{} allocated, by what it holds", Bytes(it.allocated))).html());
    }
}

fn of_peak(device: &Device, peak: &Moment) -> String {
    let older =
        if peak.older > 0 { format!(", {} of it older than the trace", Bytes(peak.older)) } else { String::new() };
    format!("{} requested and live after event {} of {}{older}", Bytes(peak.bytes), peak.event + 1, device.events)
}

/// The ladder as a bar and a table.
fn ladder(out: &mut String, device: &Device) {
    let rungs: Vec<Rung> =
        device.ladder.by_gap().into_iter().filter(|rung| rung.bytes.is_some_and(|it| it.0 > 0)).collect();
    let whole = device.ladder.sum().0;
    let parts: Vec<(Gap, u64)> = rungs.iter().map(|rung| (rung.gap, rung.bytes.map_or(0, |it| it.0))).collect();
    bar(out, &parts, whole);
    out.push_str(
        "<div class=\"wide\"><table><thead><tr><th scope=\"col\">part</th><th scope=\"col\" class=\"n\">size</th><th \
         scope=\"col\" class=\"n\">share</th><th scope=\"col\">what it is</th><th scope=\"col\">what makes it smaller</th></tr>\
         </thead><tbody>\n",
    );
    for (gap, bytes) in parts {
        let row = gap.row();
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><i class=\"swatch\" style=\"background: {}\"></i>{}</th><td class=\"n\">{}</td><td \
             class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
            colour(gap),
            row.name,
            Bytes(bytes),
            percent(bytes, whole),
            escape_html(row.cause),
            escape_html(if row.remedy.is_empty() { "–" } else { row.remedy })
        );
    }
    out.push_str("</tbody></table></div>\n");
}

/// Parts of a whole side by side.
fn bar(out: &mut String, parts: &[(Gap, u64)], whole: u64) {
    let _ = write!(
        out,
        "<svg class=\"bar\" viewBox=\"0 0 {WIDTH} {BAR}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"parts\">"
    );
    let mut x = 0.0;
    for (gap, bytes) in parts {
        let width = *bytes as f64 / whole.max(1) as f64 * WIDTH;
        let _ = write!(
            out,
            "<rect x=\"{x:.2}\" width=\"{width:.2}\" height=\"{BAR}\" fill=\"{}\"><title>{}: {}</title></rect>",
            colour(*gap),
            gap.row().name,
            Bytes(*bytes)
        );
        x += width;
    }
    out.push_str("</svg>\n");
}

/// Memory over the events: what segments had, what of it was live, and where the peak is.
fn curve(out: &mut String, device: &Device) {
    let Some(history) = device.history.as_ref().filter(|it| !it.is_empty()) else {
        out.push_str("<p class=\"faint\">No trace of allocations was recorded.</p>\n");
        return;
    };
    let stretches = history.stretches(0..history.len(), COLUMNS);
    let top = stretches.iter().map(|it| it.reserved.max(it.live)).max().unwrap_or(0).max(1);
    let step = WIDTH / stretches.len().max(1) as f64;
    let y = |bytes: u64| CURVE - bytes as f64 / top as f64 * CURVE;
    let area = |bytes: &[u64]| {
        let mut points = format!("0,{CURVE}");
        for (at, bytes) in bytes.iter().enumerate() {
            let (left, y) = (at as f64 * step, y(*bytes));
            let _ = write!(points, " {left:.1},{y:.1} {:.1},{y:.1}", left + step);
        }
        format!("{points} {WIDTH},{CURVE}")
    };
    let reserved: Vec<u64> = stretches.iter().map(|it| it.reserved).collect();
    let live: Vec<u64> = stretches.iter().map(|it| it.live).collect();
    let _ = write!(
        out,
        "<h3>Memory over {}</h3>\n<svg class=\"curve\" viewBox=\"0 0 {WIDTH} {CURVE}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"live and reserved memory over the events of the trace\"><polygon points=\"{}\" fill=\"{}\"/>\
         <polygon points=\"{}\" fill=\"{}\"/>",
        counted(history.len() as u64, "event"),
        area(&reserved),
        colour(Gap::Cached),
        area(&live),
        colour(Gap::Wanted)
    );
    let x = |event: usize| (event as f64 + 0.5) / history.len() as f64 * WIDTH;
    for event in &history.failures {
        let at = x(*event);
        let _ = write!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{CURVE}\" stroke=\"var(--critical)\" stroke-width=\"2\"><title>\
             out of memory at event {}</title></line>",
            event + 1
        );
    }
    if let Some(peak) = history.peak {
        let at = x(peak);
        let _ = write!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{CURVE}\" stroke=\"var(--ink)\" stroke-dasharray=\"4 3\" \
             data-peak=\"{}\"/>",
            peak + 1
        );
    }
    let _ = writeln!(
        out,
        "</svg>\n<p class=\"hint faint\">From 0 to {}: live (as requested), reserved above it; dashed is the peak, red are \
         requests that failed.</p>",
        Bytes(top)
    );
}

fn stacks(out: &mut String, snapshot: &Snapshot, shares: &[StackShare], whole: u64) {
    out.push_str(
        "<div class=\"wide\"><table><thead><tr><th scope=\"col\" class=\"n\">bytes</th><th scope=\"col\" class=\"n\">share</th>\
         <th scope=\"col\" class=\"n\">blocks</th><th scope=\"col\">call stack, the innermost first</th></tr></thead><tbody>\n",
    );
    let places = &snapshot.trace.stacks;
    let shown = places.shown();
    for it in shares.iter().take(LISTED) {
        let frames: Vec<String> =
            shown(it.stack).into_iter().rev().map(|frame| escape_html(&places.label(Some(frame)))).collect();
        let line = escape_html(&places.line(it.stack));
        let all = if frames.len() > 3 {
            format!("<details><summary>{line}</summary><ol><li>{}</li></ol></details>", frames.join("</li><li>"))
        } else {
            line
        };
        row(out, it.bytes, whole, it.blocks, &all);
    }
    let rest = shares.get(LISTED..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
        let blocks = rest.iter().map(|it| it.blocks).fold(0, u64::saturating_add);
        row(out, bytes, whole, blocks, &counted(rest.len() as u64, "other stack"));
    }
    out.push_str("</tbody></table></div>\n");
}

fn row(out: &mut String, bytes: u64, whole: u64, blocks: u64, words: &str) {
    let (share, bytes) = (percent(bytes, whole), Bytes(bytes));
    let _ = writeln!(
        out,
        "<tr><td class=\"n\">{bytes}</td><td class=\"n\">{share}</td><td class=\"n\">{blocks}</td><td>{words}</td></tr>"
    );
}

/// The segments with most stuck memory, then the largest, each with its blocks.
fn segments(out: &mut String, snapshot: &Snapshot, device: &Device) {
    let mut pieces: Vec<&Piece> = device.segments.iter().collect();
    pieces.sort_by_key(|it| std::cmp::Reverse(it.totals.stuck));
    let words = if pieces.len() > LISTED { format!(", the {LISTED} with most stuck memory") } else { String::new() };
    let _ = writeln!(
        out,
        "<h3>{}{words}</h3>\n<div class=\"wide\"><table><thead><tr><th scope=\"col\">address</th><th scope=\"col\" \
         class=\"n\">stream</th><th scope=\"col\" class=\"n\">size</th><th scope=\"col\" class=\"n\">live</th><th scope=\"col\" \
         class=\"n\">stuck</th><th scope=\"col\" class=\"n\">largest free</th><th scope=\"col\">blocks</th></tr></thead><tbody>",
        counted(device.totals.segments, "segment")
    );
    for piece in pieces.into_iter().take(LISTED) {
        let Some(segment) = snapshot.segment(piece) else { continue };
        let it = &piece.totals;
        let _ = write!(
            out,
            "<tr><td class=\"mono\">{:#x}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td \
             class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"map\">",
            segment.address,
            segment.stream,
            Bytes(it.reserved),
            percent(it.allocated, it.reserved),
            Bytes(it.stuck),
            Bytes(it.largest_free)
        );
        bar(out, &runs(snapshot, piece), it.reserved);
        out.push_str("</td></tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// The blocks of a segment; those of one gap that are side by side are one part.
fn runs(snapshot: &Snapshot, piece: &Piece) -> Vec<(Gap, u64)> {
    let blocks = snapshot.segment(piece).map(|it| snapshot.trace.blocks_of(it)).unwrap_or_default();
    let mut runs: Vec<(Gap, u64)> = Vec::new();
    for block in blocks {
        let gap = snapshot.gap(piece, block.state);
        match runs.last_mut().filter(|it| it.0 == gap) {
            Some(run) => run.1 = run.1.saturating_add(block.size),
            None => runs.push((gap, block.size)),
        }
    }
    runs
}

/// Text from the file.
fn text(raw: &str) -> String {
    escape_html(&Foreign::new(raw).to_string())
}
