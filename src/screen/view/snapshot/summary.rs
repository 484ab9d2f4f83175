//! The overview of a snapshot: devices, and the ladder, streams and pools, trace and stacks of the selected one.

use super::{Scene, stacks};
use crate::{
    facts::units::{Bytes, counted},
    model::{analysis::ladder::Rung, snapshot::Device},
    screen::{
        theme::Role,
        ui::mouse::Target,
        view::{
            cells,
            columns::{self, Column, TableRow},
            ladder, peak, put,
            scroll::select,
            snapshot::{segments, trace},
            take, title,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

const COLUMNS: [Column; 6] = [
    Column { title: "reserved", width: 11, rank: 0 },
    Column { title: "live", width: 11, rank: 1 },
    Column { title: "stuck", width: 11, rank: 3 },
    Column { title: "releasable", width: 11, rank: 5 },
    Column { title: "largest free", width: 12, rank: 4 },
    Column { title: "peak", width: 11, rank: 2 },
];

/// The device's name has this much room.
const NAME: usize = 10;

/// Devices that are listed where not all have room, streams and pools.
const DEVICES: usize = 4;
const PARTS: usize = 6;

/// The columns of a stream's and pool's name.
const PART: usize = 30;

/// Rows that the stacks keep, and those of the chart.
const STACKS: u16 = 4;
const CHART: u16 = 7;
const CHART_MAX: u16 = 18;

/// The narrowest entry of the ladder.
const ENTRY: usize = 36;

/// Draws the boxes, from the top. Where rows are short it leaves out the chart, then streams and pools, then the list
/// of a single device.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let Some(device) = scene.device() else { return };
    let mut rest = area;
    let devices = scene.snapshot.devices.len();
    if devices > 1 || area.height >= 16 {
        let room = if area.height >= 30 { devices } else { devices.min(DEVICES) };
        list(buffer, take(&mut rest, room + 1), scene);
    }
    memory(buffer, &mut rest, device, scene);
    put(buffer, take(&mut rest, 1), 0, &segments::fits_line(scene, area.width));
    let end = device.consists.as_ref().map(|it| &it.end);
    let parts = device.parts.len().min(PARTS);
    if device.parts.len() > 1 && rest.height > u16::try_from(parts).unwrap_or(0) + STACKS + 2 {
        streams(buffer, take(&mut rest, parts + 1), device, scene);
    }
    if rest.height > CHART + STACKS && device.events > 0 {
        let listed = u16::try_from(peak::rows(end) + device.live.len() + 1).unwrap_or(u16::MAX);
        let rows = CHART.max(rest.height / 3).max(rest.height.saturating_sub(listed)).min(CHART_MAX);
        over_events(buffer, take(&mut rest, usize::from(rows)), device, scene);
    }
    let words = format!("live blocks of device {}", device.ordinal);
    let count = counted(device.live.len() as u64, "call stack");
    title(
        buffer,
        take(&mut rest, 1),
        &words,
        vec![Span::styled(count, scene.context.style(Role::Dim))],
        &scene.context,
    );
    peak::draw(buffer, &mut rest, end, &scene.context);
    stacks::draw(buffer, rest, &device.live, device.totals.allocated, 0, scene);
}

/// A row for each device.
fn list(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let devices = &scene.snapshot.devices;
    let rows = usize::from(area.height).saturating_sub(1);
    let first = columns::first_row(scene.ui.device, devices.len(), rows);
    let text = scene.context.style(Role::Text);
    let row = |it: &Device| {
        let sizes = [it.totals.reserved, it.totals.allocated, it.totals.stuck, it.totals.releasable];
        let mut figures: Vec<_> = sizes.iter().map(|bytes| (Bytes(*bytes).to_string(), text)).collect();
        figures.push((Bytes(it.totals.largest_free).to_string(), text));
        let peak = it.peak.as_ref().map(|peak| Bytes(peak.bytes));
        figures.push((cells::known(peak, ""), text));
        TableRow { figures, text: (format!("device {}", it.ordinal), text), style: None }
    };
    let shown: Vec<TableRow> = devices.iter().skip(first).take(rows).map(row).collect();
    columns::draw(buffer, area, &COLUMNS, "device", &shown, NAME, scene.context.style(Role::Dim));
    for (place, at) in columns::places(area).zip(first..devices.len()) {
        scene.context.claim(place, Target::Line(at));
        if at == scene.ui.device {
            select(buffer, place, &scene.context);
        }
    }
}

/// The ladder as a bar and its legend.
fn memory(buffer: &mut Buffer, rest: &mut Rect, device: &Device, scene: &Scene) {
    let rungs: Vec<Rung> =
        device.ladder.by_gap().into_iter().filter(|it| it.bytes.is_some_and(|bytes| bytes.0 > 0)).collect();
    let whole = device.ladder.sum();
    let width = usize::from(rest.width);
    let columns = (width / ENTRY).clamp(1, 3);
    let right = format!("{} in {}", Bytes(device.totals.reserved), counted(device.totals.segments, "segment"));
    let name = format!("memory of device {}", device.ordinal);
    title(buffer, take(rest, 1), &name, vec![Span::styled(right, scene.context.style(Role::Text))], &scene.context);
    let bar = ladder::bar(&rungs, whole, width, &scene.context);
    let bars = take(rest, if rest.height >= 24 { 2 } else { 1 });
    (0..bars.height).for_each(|row| put(buffer, bars, usize::from(row), &bar));
    // Below the legend there is room for one answer and two stacks.
    let height = rungs.len().div_ceil(columns).min(usize::from(rest.height.saturating_sub(4)).max(1));
    let legend = take(rest, height);
    let cell = width / columns;
    for (at, rung) in rungs.iter().enumerate() {
        let (column, row) = (at / height.max(1), at % height.max(1));
        let offset = u16::try_from(column * cell).unwrap_or(u16::MAX);
        if column < columns {
            let place = Rect { x: legend.x.saturating_add(offset), width: u16::try_from(cell).unwrap_or(0), ..legend };
            put(buffer, place.intersection(legend), row, &entry(rung, whole, cell, scene));
        }
    }
}

/// `█ wanted        12.00 GiB   9 %  what the job asked for`
fn entry(rung: &Rung, whole: Bytes, width: usize, scene: &Scene) -> Line<'static> {
    let row = rung.gap.row();
    let style = |role| scene.context.style(role);
    let mut spans = vec![
        Span::styled(format!(" {}", ladder::glyph(rung.gap, &scene.context)), style(Role::Gap(rung.gap))),
        Span::styled(format!(" {}", cells::left(row.name, 12)), style(Role::Text)),
        Span::styled(cells::right(&cells::known(rung.bytes, ""), 11), style(Role::Text)),
        Span::styled(cells::right(&cells::percent(rung.bytes, Some(whole)), 6), style(Role::Dim)),
    ];
    let taken: usize = spans.iter().map(Span::width).sum();
    if width > taken + 24 {
        let cause = cells::elide(row.cause, width - taken - 3);
        spans.push(Span::styled(format!("  {cause}"), style(Role::Dim)));
    }
    Line::from(spans)
}

/// A row for each stream and pool.
fn streams(buffer: &mut Buffer, area: Rect, device: &Device, scene: &Scene) {
    title(buffer, area, "by stream and pool", Vec::new(), &scene.context);
    let rows = usize::from(area.height).saturating_sub(1);
    let hidden = device.parts.len().saturating_sub(rows);
    for (row, (stream, pool, it)) in device.parts.iter().take(rows).enumerate() {
        let more = if hidden > 0 && row + 1 == rows { format!("  (+{hidden} more: m)") } else { String::new() };
        let words = format!(
            " {} {:>11} {:>11} live {:>11} stuck{more}",
            cells::left(&scene.snapshot.part_name(*stream, *pool), PART),
            Bytes(it.reserved),
            Bytes(it.allocated),
            Bytes(it.stuck),
        );
        put(buffer, area, row + 1, &Line::styled(words, scene.context.style(Role::Text)));
    }
}

/// What was live over the trace.
fn over_events(buffer: &mut Buffer, area: Rect, device: &Device, scene: &Scene) {
    let right = device.peak.as_ref().map(|it| format!("peak {} at event {}", Bytes(it.bytes), it.event + 1));
    let right = right.map(|it| Span::styled(it, scene.context.style(Role::Text))).into_iter().collect();
    title(buffer, area, "memory over the trace", right, &scene.context);
    let mut below = area;
    take(&mut below, 1);
    match &device.history {
        Some(history) => trace::draw_chart(buffer, below, history, &(0..history.len()), None, scene),
        None => put(buffer, below, 0, &Line::styled(" walking through the trace…", scene.context.style(Role::Dim))),
    }
}
