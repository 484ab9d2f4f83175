//! The trace: memory over events with a cursor, and whose blocks were live there and at the peak.

use crate::{
    facts::{
        event::anatomy::Anatomy,
        units::{Bytes, counted},
    },
    model::{
        analysis::ladder::Gap,
        snapshot::Device,
        trace::{Action, History, Moment, Stretch},
    },
    screen::{
        theme::Role,
        ui::mouse::Target,
        view::{
            Scrolled, cells,
            ladder::glyph,
            peak, put,
            snapshot::{Scene, stacks},
            take, title,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use std::ops::Range;

/// Wide enough for two lists side by side.
const WIDE: u16 = 130;

/// Rows of the chart at most.
const CHART_MAX: u16 = 28;

const NO_TRACE: &str = "no trace of allocations: call torch.cuda.memory._record_memory_history() when the job begins";

/// From the top: the chart, what the cursor is on, the stacks there, the stacks at the peak.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) -> Scrolled {
    let mut rest = area;
    let Some(device) = scene.device() else { return Scrolled::default() };
    let name = format!("trace of device {}", device.ordinal);
    let events = counted(device.events as u64, "event");
    title(
        buffer,
        take(&mut rest, 1),
        &name,
        vec![Span::styled(events, scene.context.style(Role::Dim))],
        &scene.context,
    );
    let Some(event) = scene.ui.event(scene.snapshot) else {
        let words = if device.events == 0 { NO_TRACE } else { "walking through the trace…" };
        for (row, words) in cells::wrapped(words, usize::from(rest.width)).into_iter().enumerate() {
            put(buffer, rest, row, &Line::styled(words, scene.context.style(Role::Dim)));
        }
        return Scrolled::default();
    };
    let height = (rest.height * 2 / 5).max(rest.height.saturating_sub(listed(device, scene))).max(rest.height.min(3));
    let height = height.min(CHART_MAX);
    if let Some(history) = &device.history {
        let range = scene.ui.window(scene.snapshot);
        draw_chart(buffer, take(&mut rest, usize::from(height)), history, &range, Some(event), scene);
    }
    put(buffer, take(&mut rest, 1), 0, &at_cursor(device, event, scene));
    lists(buffer, rest, device, scene)
}

/// The rows that the lists have a use for, and the line above them.
fn listed(device: &Device, scene: &Scene) -> u16 {
    let rows = |moment: Option<&Moment>| moment.map_or(0, |it| it.shares.len() + 1);
    let (here, peak) = (rows(scene.ui.moment.as_ref()), rows(device.peak.as_ref()));
    u16::try_from(here + peak + peak::rows(consists(device)) + 1).unwrap_or(u16::MAX)
}

/// What the peak consists of.
fn consists(device: &Device) -> Option<&Anatomy> {
    device.consists.as_ref()?.peak.as_ref()
}

/// `event 12 of 345: alloc 1.00 MiB at train.py:40 step`
fn at_cursor(device: &Device, event: usize, scene: &Scene) -> Line<'static> {
    let trace = &scene.snapshot.trace;
    let place = trace.devices.get(device.ordinal as usize).map_or(0, |it| it.start) + event;
    let Some(it) = trace.events.get(place) else { return Line::default() };
    let word = Action::WORDS.iter().find(|word| word.1 == it.action).map_or("unknown", |word| word.0);
    let size = it.size.map_or_else(String::new, |bytes| format!(" {}", Bytes(bytes)));
    let stack = trace.stacks.line(it.stack);
    let begun = trace.events.range(trace.devices.get(device.ordinal as usize).cloned().unwrap_or_default());
    let begun = begun.take(1).find_map(|first| first.unix_us);
    let after = it.unix_us.zip(begun).and_then(|(now, begun)| now.checked_sub(begun));
    let after = after.map_or_else(String::new, |us| format!(" (+{:.3}s)", us as f64 / 1e6));
    let role = if it.action == Action::Oom { Role::Bad } else { Role::Text };
    let style = |role| scene.context.style(role);
    Line::from(vec![
        Span::styled(format!(" event {} of {}{after}: ", event + 1, device.events), style(Role::Dim)),
        Span::styled(format!("{word}{size}"), style(role)),
        Span::styled(format!("  {stack}"), style(Role::Dim)),
    ])
}

/// The stacks at the cursor and at the peak: side by side where there is room, one list where they are the same moment.
fn lists(buffer: &mut Buffer, area: Rect, device: &Device, scene: &Scene) -> Scrolled {
    let (here, peak) = (scene.ui.moment.as_ref(), device.peak.as_ref());
    let is_peak = here.zip(peak).is_some_and(|(here, peak)| here.event == peak.event);
    let scroll = scene.ui.base.scroll;
    if is_peak || peak.is_none() {
        let name = if is_peak { "live at the cursor, the peak" } else { "live at the cursor" };
        return list(buffer, area, name, (here, consists(device).filter(|_| is_peak)), scroll, scene);
    }
    let [first, second] = if area.width >= WIDE {
        let half = area.width / 2;
        let left = Rect { width: half - 1, ..area };
        [left, Rect { x: area.x + half, width: area.width - half, ..area }]
    } else {
        let half = area.height.div_ceil(2);
        [Rect { height: half, ..area }, Rect { y: area.y + half, height: area.height - half, ..area }]
    };
    let scrolled = list(buffer, first, "live at the cursor", (here, None), scroll, scene);
    list(buffer, second, "live at the peak", (peak, consists(device)), scrolled.scroll, scene);
    scrolled
}

fn list(
    buffer: &mut Buffer,
    area: Rect,
    name: &str,
    (moment, consists): (Option<&Moment>, Option<&Anatomy>),
    scroll: usize,
    scene: &Scene,
) -> Scrolled {
    let Some(moment) = moment else { return Scrolled::default() };
    let mut rest = area;
    let older =
        if moment.older > 0 { format!(", {} older than the trace", Bytes(moment.older)) } else { String::new() };
    let right = format!("event {}, {}", moment.event + 1, Bytes(moment.bytes));
    let is_wide = name.len() + right.len() + older.len() + 12 <= usize::from(area.width);
    let right = if is_wide { right + &older } else { right };
    let right = vec![Span::styled(right, scene.context.style(Role::Text))];
    title(buffer, take(&mut rest, 1), name, right, &scene.context);
    peak::draw(buffer, &mut rest, consists, &scene.context);
    let most = stacks::scrolls(&moment.shares, usize::from(rest.height), scene);
    let scroll = scroll.min(most);
    stacks::draw(buffer, rest, &moment.shares, moment.bytes, scroll, scene);
    Scrolled { scroll, most, ..Scrolled::default() }
}

/// The columns of the scale, and the least width of a picture that has one.
const SCALE: u16 = 12;
const LEAST: u16 = 36;

/// Heights that a cell can show.
const EIGHTHS: u128 = 8;

/// What marks the peak, a failed request and the cursor.
const PEAK: &str = "◆";
const FAILED: &str = "✕";
const CURSOR: &str = "▲";

/// Draws a range of a device's events; below it a row with the marks and the range's ends.
pub(super) fn draw_chart(
    buffer: &mut Buffer,
    area: Rect,
    history: &History,
    range: &Range<usize>,
    cursor: Option<usize>,
    scene: &Scene,
) {
    let scale = if area.width >= LEAST { SCALE } else { 0 };
    let plot = Rect { x: area.x + scale, width: area.width - scale, ..area };
    let rows = plot.height.saturating_sub(1);
    if rows == 0 || plot.width == 0 || range.is_empty() {
        return;
    }
    let plot = Rect { height: rows, ..plot };
    let columns = columns(history, range, plot.width);
    let top = columns.iter().map(|it| it.reserved.max(it.live)).max().unwrap_or(0).max(1);
    for (x, stretch) in (plot.x..).zip(&columns) {
        for row in 0..rows {
            let (sign, style) = cell(stretch, row, rows, top, scene);
            if let Some(cell) = buffer.cell_mut((x, plot.bottom() - 1 - row)) {
                cell.set_char(sign).set_style(style);
            }
        }
    }
    if scale > 0 {
        let place = Rect { x: area.x, width: scale - 1, height: rows, ..area };
        let dim = scene.context.style(Role::Dim);
        let highest = Bytes(top).to_string();
        let label =
            |bytes: u64| Line::styled(cells::right(&cells::in_unit_of(&highest, bytes), usize::from(place.width)), dim);
        put(buffer, place, 0, &label(top));
        if rows >= 7 {
            put(buffer, place, usize::from(rows / 2), &label(top / 2));
        }
        if rows > 1 {
            put(buffer, place, usize::from(rows - 1), &label(0));
        }
    }
    let last = range.end.saturating_sub(1);
    scene.context.claim(plot, Target::Run(range.start as u64, last as u64));
    let column = |event: usize| -> Option<u16> {
        let at = columns.iter().rposition(|it| it.first <= event).filter(|_| range.contains(&event))?;
        u16::try_from(at).ok()
    };
    let cursor = cursor.and_then(column);
    if let Some(column) = cursor {
        for row in plot.y..plot.bottom() {
            if let Some(cell) = buffer.cell_mut((plot.x + column, row)) {
                cell.set_char('│').set_style(scene.context.style(Role::Title));
            }
        }
    }
    let below = Rect { y: plot.bottom(), height: 1, ..plot };
    let failures = columns.iter().zip(0_u16..).filter(|it| it.0.failed).map(|it| (it.1, FAILED, Role::Bad));
    let peak = history.peak.and_then(column).map(|at| (at, PEAK, Role::Warning));
    let cursor = cursor.map(|at| (at, CURSOR, Role::Title));
    let marks: Vec<_> = peak.into_iter().chain(failures).chain(cursor).collect();
    ends(buffer, below, range, &marks.iter().map(|it| usize::from(it.0)).collect::<Vec<_>>(), scene);
    for (column, sign, role) in marks {
        if let Some(cell) = buffer.cell_mut((below.x + column, below.y)) {
            cell.set_symbol(sign).set_style(scene.context.style(role));
        }
    }
}

/// A stretch for each column; where there are fewer events than columns, one event has several.
fn columns(history: &History, range: &Range<usize>, width: u16) -> Vec<Stretch> {
    let width = usize::from(width);
    let all = history.stretches(range.clone(), width);
    if all.len() == width || all.is_empty() {
        return all;
    }
    (0..width).filter_map(|at| all.get(at * all.len() / width).copied()).collect()
}

/// What a cell shows: live memory in eighths, and above it what else segments had.
fn cell(it: &Stretch, row: u16, rows: u16, top: u64, scene: &Scene) -> (char, Style) {
    let eighths = |bytes: u64| u128::from(bytes) * u128::from(rows) * EIGHTHS / u128::from(top);
    let floor = u128::from(row) * EIGHTHS;
    let live = eighths(it.live).saturating_sub(floor).min(EIGHTHS);
    let ink = |gap| scene.context.style(Role::Gap(gap));
    if live == EIGHTHS {
        return (glyph(Gap::Wanted, &scene.context), ink(Gap::Wanted));
    }
    let is_reserved = eighths(it.reserved) > floor;
    if live == 0 {
        return if is_reserved {
            (glyph(Gap::Cached, &scene.context), ink(Gap::Cached))
        } else {
            (' ', Style::default())
        };
    }
    let part = usize::try_from(live).ok().and_then(|it| scene.context.eighths().get(it - 1).copied());
    (part.unwrap_or(' '), ink(Gap::Wanted))
}

/// The first event and the last, where they have room between the marks.
fn ends(buffer: &mut Buffer, row: Rect, range: &Range<usize>, marks: &[usize], scene: &Scene) {
    let dim = scene.context.style(Role::Dim);
    let (first, last) = (format!("event {}", range.start + 1), range.end.to_string());
    let width = usize::from(row.width);
    let Some(right) = width.checked_sub(last.len()).filter(|right| first.len() + 2 <= *right) else { return };
    if marks.iter().all(|column| *column > first.len()) {
        put(buffer, row, 0, &Line::styled(first, dim));
    }
    if marks.iter().all(|column| column + 1 < right) {
        put(buffer, row, 0, &Line::styled(last, dim).right_aligned());
    }
}
