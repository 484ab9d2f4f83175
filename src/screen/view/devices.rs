//! The device list: a row each, a grid for many, only the selected one in little room.

use crate::{
    facts::{
        event::ReadError,
        maker::Maker,
        metrics::{Metric, Reason},
        units::Bytes,
    },
    model::{
        analysis::{ladder::Gap, severity::Severity},
        findings::Finding,
        session::{device::Device, process::OnDevice},
    },
    screen::{
        theme::Role,
        ui::{Focus, mouse::Target, preset::Preset},
        view::{
            RenderContext, cells,
            columns::{self, Column, TableRow},
            put, verdict,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

const COLUMNS: [Column; 10] = [
    Column { title: "#", width: 4, rank: 0 },
    Column { title: "used", width: 10, rank: 1 },
    Column { title: "total", width: 11, rank: 5 },
    Column { title: "full", width: 5, rank: 2 },
    Column { title: "", width: BAR, rank: 7 },
    Column { title: "per step", width: 10, rank: 3 },
    Column { title: "full in", width: 7, rank: 4 },
    Column { title: "util", width: 7, rank: 6 },
    Column { title: "temp", width: 7, rank: 8 },
    Column { title: "power", width: 9, rank: 9 },
];

/// Indices of the columns that smaller views choose from.
const NUMBER: usize = 0;
const FULL: usize = 3;
const GAUGE: usize = 4;
const RATE: usize = 5;
const END: usize = 6;
const UTIL: usize = 7;
const TEMP: usize = 8;
const POWER: usize = 9;

const BAR: usize = 10;

/// The least columns of what slows a device down.
const SLOWED: usize = 14;

/// Heights that a cell can show.
const EIGHTHS: usize = 8;

/// °C from which on a device is warm, and likely to be throttled.
const WARM: u64 = 83;
const HOT: u64 = 90;

/// Below this width only a device's model is shown.
const NARROW: u16 = 100;

/// The width of a cell of the grid.
const CELL: u16 = 26;

/// Returns the rows that the list wants.
pub(super) fn height(area: Rect, context: &RenderContext) -> usize {
    let count = context.session.devices.len();
    if area.height < 20 {
        return 1;
    }
    // The compact preset is a list of devices and processes; in the others, the list leaves room for boxes.
    let part = if context.ui.preset == Preset::Compact { 2 } else { 4 };
    let most = usize::from(area.height) / part;
    let grid = count.div_ceil(grid_columns(area)) + 1;
    // One row more is better than one that is missing.
    if count < most {
        count + 1
    } else if grid <= most + 1 {
        grid
    } else {
        most
    }
}

/// Draws as many devices as fit, always including the selected one.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    context.claim(area, Target::Box(Focus::Devices));
    let rows = usize::from(area.height);
    let devices = &context.session.devices;
    let selected = context.ui.selected(context.session);
    if rows == 1 {
        // Without room for titles, draw the row one higher, which clips its titles.
        if let Some(device) = context.device() {
            put(buffer, area, 0, &alone(device, usize::from(area.width), context));
        }
    } else if devices.len() < rows {
        let of_hardware = context.ui.preset == Preset::Hardware;
        let shown = if of_hardware { hardware_row } else { row };
        let mut rows: Vec<TableRow> =
            devices.iter().enumerate().map(|(at, it)| shown(it, at == selected, context)).collect();
        if !of_hardware {
            rows.iter_mut().zip(devices).for_each(|(row, device)| add_bars(row, device, context));
        }
        if area.width < NARROW {
            for name in rows.iter_mut().map(|it| &mut it.text.0) {
                *name = Maker::model(name).to_owned();
            }
        }
        let mut columns = if of_hardware { hardware_columns() } else { COLUMNS.to_vec() };
        if !of_hardware && devices.iter().all(|it| end(it, context).is_none()) {
            columns.remove(END);
            for row in &mut rows {
                row.figures.remove(END);
            }
        }
        for (place, device) in columns::places(area).zip(devices) {
            context.claim(place, Target::Device(device.id.clone()));
        }
        let least = if of_hardware { SLOWED } else { 6 };
        columns::draw(buffer, area, &columns, "name", &rows, least, context.style(Role::Dim));
    } else {
        grid(buffer, area, selected, context);
    }
}

fn row(device: &Device, selected: bool, context: &RenderContext) -> TableRow {
    let text = context.style(Role::Text);
    let metric = |it| device.metric(it);
    let (used, total, full) = (used(device, context), total(device, context), share_of(device, context));
    let urgency = urgency_of(device, full, context);
    let marker = if selected && context.ui.focus == Focus::Devices { "▸" } else { "" };
    let power = match (metric(Metric::PowerMw), metric(Metric::PowerLimitMw)) {
        (Some(now), Some(most)) => format!("{}/{} W", now / 1000, most / 1000),
        (now, _) => cells::known(now.map(|it| it / 1000), " W"),
    };
    let figures = vec![
        (format!("{marker} {}", device.index.map_or_else(|| "?".to_owned(), |it| it.to_string())), text),
        (cells::bytes(used), text),
        (cells::bytes(total), text),
        (cells::share(full), urgency),
        (gauge(full, BAR), urgency),
        rate(device, context),
        (cells::known(end(device, context), ""), rate(device, context).1),
        (cells::known(metric(Metric::GpuPercent), " %"), text),
        (cells::known(metric(Metric::CelsiusNow), " °"), heat(metric(Metric::CelsiusNow), context)),
        (power, text),
    ];
    let (name, name_role) = named(device);
    TableRow { figures, text: (name, context.style(name_role)), style: selected.then(|| context.style(Role::Selected)) }
}

/// Returns a device's name, after what is wrong with the device.
fn named(device: &Device) -> (String, Role) {
    let name = match &device.name {
        name if !name.is_empty() => cells::foreign(name),
        _ if device.id.is_by_index() => String::new(),
        _ => cells::raw(&device.id.0),
    };
    let (wrong, role) = match device.memory.as_ref().map(|it| &it.value) {
        _ if device.gone.is_some() => ("gone".to_owned(), Role::Bad),
        Some(Err(ReadError::Lost)) => ("lost".to_owned(), Role::Bad),
        Some(Err(ReadError::Suspended)) => ("suspended".to_owned(), Role::Dim),
        Some(Err(trouble)) => (trouble.parts(device.maker).0, Role::Warning),
        _ => return (name, Role::Dim),
    };
    (if name.is_empty() { wrong } else { format!("{wrong}: {name}") }, role)
}

/// Draws the selected device in one line, as much of it as fits, most important first:
///
/// ```text
/// GPU 1  76.9/140.4 GiB █████····· 55 %  util 98 %  +4.00 MiB/step  full in 41 min  61 °C  512/700 W  device 2 of 8
/// ```
fn alone(device: &Device, width: usize, context: &RenderContext) -> Line<'static> {
    let row = row(device, false, context);
    let text = context.style(Role::Text);
    let figure = |place: usize| row.figures.get(place).cloned().unwrap_or_default();
    let is_known = |it: &(String, Style)| it.0 != cells::UNKNOWN;
    let (full, gauge, rate, util, temp) = (figure(FULL), figure(GAUGE), figure(RATE), figure(UTIL), figure(TEMP));
    let growing = growing(device, context);
    let slope = growing.and_then(Finding::slope).map(|it| (it, rate.1));
    let end = end(device, context).map(|it| (format!("full in {it}"), rate.1));
    let count = context.session.devices.len();
    let position = format!("device {} of {count}", context.ui.selected(context.session) + 1);
    // Each piece with its priority and its separator.
    let pieces = [
        (0, "", Some((format!("GPU{}", figure(NUMBER).0), context.style(Role::Title)))),
        (1, "  ", Some((filling(device, context), text))),
        (5, " ", Some(gauge).filter(is_known)),
        (3, " ", Some(full.clone()).filter(is_known)),
        (6, "  util ", Some(util).filter(is_known)),
        (4, "  ", slope),
        (2, "  ", end),
        (7, "  ", Some((format!("{}C", temp.0), temp.1)).filter(|_| is_known(&temp))),
        (8, "  ", Some(figure(POWER)).filter(is_known)),
        (9, "  ", Some((position, context.style(Role::Dim))).filter(|_| count > 1)),
    ];
    let mut worth: Vec<usize> = (0..pieces.len()).filter(|it| pieces[*it].2.is_some()).collect();
    worth.sort_by_key(|it| pieces[*it].0);
    let long =
        |place: usize| cells::width(pieces[place].1) + pieces[place].2.as_ref().map_or(0, |it| cells::width(&it.0));
    let mut left = width;
    worth.retain(|it| match left.checked_sub(long(*it)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    worth.sort_unstable();
    let spans =
        worth.iter().filter_map(|it| pieces[*it].2.as_ref().map(|(words, style)| (pieces[*it].1, words, *style)));
    spans
        .flat_map(|(before, words, style)| {
            [Span::styled(before, context.style(Role::Dim)), Span::styled(words.clone(), style)]
        })
        .collect()
}

/// Returns `76.9/140.4 GiB`.
fn filling(device: &Device, context: &RenderContext) -> String {
    let gib = |bytes: Option<Bytes>| bytes.map(|it| format!("{:.1}", it.0 as f64 / 1_073_741_824.0));
    let used = gib(used(device, context)).unwrap_or_else(|| cells::UNKNOWN.to_owned());
    gib(total(device, context)).map_or_else(|| format!("{used} GiB"), |total| format!("{used}/{total} GiB"))
}

fn grid(buffer: &mut Buffer, area: Rect, selected: usize, context: &RenderContext) {
    let columns = grid_columns(area);
    let devices = &context.session.devices;
    let rows = usize::from(area.height).saturating_sub(1);
    let first = columns::first_row(selected / columns, devices.len().div_ceil(columns), rows) * columns;
    for (place, (at, device)) in devices.iter().enumerate().skip(first).take(rows * columns).enumerate() {
        let column = u16::try_from(place % columns).unwrap_or(0);
        let cell = Rect { x: area.x.saturating_add(column * CELL), width: CELL, ..area }.intersection(area);
        if place < columns {
            put(buffer, cell, 0, &Line::styled("   # full  memory     util", context.style(Role::Dim)));
        }
        let full = row(device, at == selected, context);
        let figure = |place: usize| full.figures.get(place).cloned().unwrap_or_default();
        let mut line = Line::default();
        // Growth matters more than the gauge.
        let middle = if growing(device, context).is_some() { RATE } else { GAUGE };
        for (place, width) in [(NUMBER, 4), (FULL, 5), (middle, BAR), (UTIL, 5)] {
            let (text, style) = figure(place);
            let gap = if place == middle { " " } else { "" };
            let style = full.style.map_or(style, |it| style.patch(it));
            line.push_span(Span::styled(format!("{gap}{}", cells::right(&text, width)), style));
        }
        let row = 1 + place / columns;
        if let Some(it) = cell.rows().nth(row) {
            context.claim(it, Target::Device(device.id.clone()));
        }
        put(buffer, cell, row, &line);
    }
}

fn grid_columns(area: Rect) -> usize {
    usize::from((area.width / CELL).max(1))
}

/// Returns used memory, from the driver, or without it what CUDA does not report as free.
pub(super) fn used(device: &Device, context: &RenderContext) -> Option<Bytes> {
    if let Some(memory) = device.figures() {
        return Some(memory.used);
    }
    let ladder = &context.findings.device(&device.id)?.ladder;
    let free = ladder.rungs.iter().find(|it| it.gap == Gap::Free)?.bytes?;
    ladder.total?.checked_sub(free)
}

pub(super) fn total(device: &Device, context: &RenderContext) -> Option<Bytes> {
    context.findings.device(&device.id)?.ladder.total
}

/// Returns the fastest growth on the device.
fn growing<'a>(device: &Device, context: &RenderContext<'a>) -> Option<&'a Finding> {
    context.findings.growing_on(context.findings.device(&device.id)?)
}

/// Returns when the device is full at the pace of that growth.
fn end(device: &Device, context: &RenderContext) -> Option<String> {
    verdict::left(growing(device, context)?, context)
}

/// Returns the fastest growth per step, so that it is visible whichever device is selected.
fn rate(device: &Device, context: &RenderContext) -> (String, Style) {
    if let Some(it) = growing(device, context) {
        return (verdict::rate(it), context.style(verdict::role(it.severity)));
    }
    let is_judged = |on: &&OnDevice| on.growth.watched() >= on.growth.enough();
    let judged = || context.session.on_device(&device.id).filter(|it| it.0.is_alive()).map(|it| it.1).filter(is_judged);
    // One that rises is worth more than others that are flat.
    let one = judged().find(|on| verdict::rises(on)).or_else(|| judged().next());
    (one.map_or(cells::UNKNOWN, verdict::level).to_owned(), context.style(Role::Dim))
}

/// Returns the used share of a device's memory.
fn share_of(device: &Device, context: &RenderContext) -> Option<f64> {
    let (used, total) = (used(device, context)?, total(device, context).filter(|it| it.0 > 0)?);
    Some(used.0 as f64 / total.0 as f64)
}

fn urgency_of(device: &Device, full: Option<f64>, context: &RenderContext) -> Style {
    urgency(full, growing(device, context), context)
}

/// Returns the role for a device by how full it is, or how soon growth fills it, whichever is worse.
fn urgency(share: Option<f64>, growing: Option<&Finding>, context: &RenderContext) -> Style {
    let grows = growing.map(|it| it.severity);
    context.style(match share {
        Some(it) if it >= 0.95 || grows == Some(Severity::Critical) => Role::Bad,
        Some(it) if it >= 0.8 || grows == Some(Severity::Warning) => Role::Warning,
        Some(_) => Role::Good,
        None => Role::Dim,
    })
}

fn heat(celsius: Option<u64>, context: &RenderContext) -> Style {
    context.style(match celsius {
        Some(HOT..) => Role::Bad,
        Some(WARM..) => Role::Warning,
        _ => Role::Text,
    })
}

/// Adds a cell with the height of a figure before it, for utilisation and temperature.
fn add_bars(row: &mut TableRow, device: &Device, context: &RenderContext) {
    for (place, metric) in [(UTIL, Metric::GpuPercent), (TEMP, Metric::CelsiusNow)] {
        if let (Some(percent), Some((text, _))) = (device.metric(metric), row.figures.get_mut(place)) {
            let eighths = usize::try_from(percent.min(100)).unwrap_or(0) * EIGHTHS / 100;
            let bar = eighths.checked_sub(1).map_or(' ', |it| context.eighths()[it.min(EIGHTHS - 1)]);
            *text = format!("{bar} {}", cells::right(text, 5));
        }
    }
}

/// Draws a bar of a width.
fn gauge(share: Option<f64>, width: usize) -> String {
    let Some(share) = share else { return cells::UNKNOWN.to_owned() };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the width of a bar")]
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(filled), "·".repeat(width.saturating_sub(filled)))
}

/// A column of a metric: its title, its width and its rank.
const METRICS: [(Metric, &str, usize, u8); 9] = [
    (Metric::GpuPercent, "util", 5, 2),
    (Metric::SmMhz, "SM MHz", 9, 3),
    (Metric::PowerMw, "power", 9, 4),
    (Metric::CelsiusNow, "temp", 8, 5),
    (Metric::PerformanceState, "state", 5, 10),
    (Metric::MemoryPercent, "mem busy", 8, 6),
    (Metric::MemoryMhz, "mem MHz", 9, 8),
    (Metric::PcieGeneration, "PCIe", 5, 9),
    (Metric::FanPercent, "fan", 5, 11),
];

/// Returns whether the list has a metric.
pub(super) fn hardware_lists(metric: Metric) -> bool {
    METRICS.iter().any(|it| it.0 == metric)
}

/// Returns the columns of the preset of hardware.
fn hardware_columns() -> Vec<Column> {
    let own = [Column { title: "#", width: 4, rank: 0 }, Column { title: "full", width: 5, rank: 1 }];
    let metrics = METRICS.map(|(_, title, width, rank)| Column { title, width, rank });
    own.into_iter().chain(metrics).collect()
}

/// Returns the row of a device; its text is what slows it down, or else its name.
fn hardware_row(device: &Device, selected: bool, context: &RenderContext) -> TableRow {
    let text = context.style(Role::Text);
    let marker = if selected && context.ui.focus == Focus::Devices { "▸" } else { "" };
    let full = share_of(device, context);
    let own = [
        (format!("{marker} {}", cells::known(device.index, "")), text),
        (cells::share(full), urgency_of(device, full, context)),
    ];
    let metrics = METRICS.map(|(metric, ..)| {
        let value = device.metrics.as_ref().and_then(|it| it.value.format(metric));
        let is_heat = metric == Metric::CelsiusNow;
        let style = if is_heat { heat(device.metric(metric), context) } else { text };
        (value.unwrap_or_else(|| cells::UNKNOWN.to_owned()), style)
    });
    let reasons = Reason::of(device.metric(Metric::ThrottleReasons).unwrap_or(0)).filter(|it| it.is_slowdown);
    let slowed: Vec<&str> = reasons.map(|it| it.words).collect();
    let (words, role) = match named(device) {
        (_, Role::Dim) if !slowed.is_empty() => (slowed.join(", "), Role::Warning),
        named => named,
    };
    TableRow {
        figures: own.into_iter().chain(metrics).collect(),
        text: (words, context.style(role)),
        style: selected.then(|| context.style(Role::Selected)),
    }
}
