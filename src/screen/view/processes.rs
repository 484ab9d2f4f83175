//! The processes of the selected device: the probed ones with their counters, the others as the driver lists them, and
//! the command line that would probe them.

use super::{
    RenderContext, cells, device_name, put, ranks,
    table::{self, Column, Row},
    title, verdict,
};
use crate::{
    facts::{
        event::{ProcessInfo, ProcessUse},
        units::{self, Bytes},
    },
    model::session::{
        device::Device,
        process::{Life, OnDevice, Process},
    },
    screen::{
        theme::Role,
        ui::{
            Focus, Scope,
            mouse::Target,
            order::{By, Order},
            rows::Row as Listed,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

/// A probe sends a tick each second; after this silence, in µs, the state shows it.
pub(super) const SILENT_US: u64 = 5_000_000;

/// The columns for state and command line.
const TEXT: usize = 12;

/// The width of the column that only the order has.
const EXTRA: usize = 11;

/// Below this many rows there is no summary above the ranks.
const SUMMED: usize = 8;

const PROBED: [Column; 9] = [
    Column { title: "gpu", width: 3, rank: 0 },
    Column { title: "rank", width: 4, rank: 3 },
    Column { title: "pid", width: 7, rank: 0 },
    Column { title: "step", width: 7, rank: 5 },
    Column { title: "allocated", width: 10, rank: 1 },
    Column { title: "reserved", width: 10, rank: 4 },
    Column { title: "unused", width: 6, rank: 6 },
    Column { title: "per step", width: 10, rank: 2 },
    Column { title: "total", width: 10, rank: 7 },
];

const UNPROBED: [Column; 4] = [
    Column { title: "gpu", width: 3, rank: 0 },
    Column { title: "pid", width: 7, rank: 0 },
    Column { title: "total", width: 10, rank: 1 },
    Column { title: "user", width: 10, rank: 2 },
];

/// Returns the rows to show everything.
pub(super) fn height(context: &RenderContext) -> usize {
    let rows = context.ui.rows(context.session);
    2 + ranks::summary(&rows, context).len() + rows.len().max(1) + usize::from(hint(&rows, context).is_some())
}

/// Draws title, table and hint.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(device) = context.device().filter(|_| area.height >= 2) else { return };
    let all = context.ui.scope == Scope::All;
    let listed = context.ui.rows(context.session);
    let with_probes = listed.iter().any(|it| matches!(it, Listed::Probed(..)));
    let mut rows: Vec<Row> = listed.iter().map(|it| row(it, with_probes, context)).collect();
    let place = context.ui.place(&listed);
    if let Some(row) = rows.get_mut(place).filter(|_| context.ui.focus == Focus::Processes) {
        row.style = Some(context.style(Role::Selected));
    }
    let height = usize::from(area.height);
    let hint = hint(&listed, context).filter(|_| height > 3);
    let mut above = ranks::summary(&listed, context);
    above.truncate(height.saturating_sub(SUMMED));
    let room = height.saturating_sub(2 + above.len() + usize::from(hint.is_some()));
    let first = table::first_row(place, rows.len(), room.max(1));
    context.claim(area, Target::Box(Focus::Processes));
    head(buffer, area, &listed, (first, room), context);
    let body = Rect { y: area.y.saturating_add(1), height: area.height.saturating_sub(1), ..area };
    if rows.is_empty() {
        let words = nothing(device, context);
        put(buffer, body, 0, &Line::styled(format!(" {words}"), context.style(Role::Dim)));
    } else {
        let kept = Rect { height: u16::try_from(room + above.len() + 1).unwrap_or(u16::MAX).min(body.height), ..body };
        let mut columns = if with_probes { PROBED.to_vec() } else { UNPROBED.to_vec() };
        let mut shown = vec![true; columns.len()];
        shown[0] = all;
        if with_probes {
            shown[1] = listed.iter().any(|it| matches!(it, Listed::Probed(process, _) if process.rank().is_some()));
        }
        if let Some(column) = extra(&columns, context) {
            columns.push(column);
            shown.push(true);
            for row in &mut above {
                row.figures.push((String::new(), context.style(Role::Dim)));
            }
            for (row, it) in rows.iter_mut().zip(&listed) {
                row.figures.push(extra_figure(it, context));
            }
        }
        let mut keep = shown.iter();
        columns.retain(|_| keep.next().is_some_and(|it| *it));
        for row in rows.iter_mut().chain(&mut above) {
            let mut keep = shown.iter();
            row.figures.retain(|_| keep.next().is_some_and(|it| *it));
        }
        if let Some((figure, first)) =
            rows.get_mut(place).and_then(|it| it.figures.first_mut()).zip(columns.first_mut())
        {
            // Mark the process that the boxes above are about, whichever box is focused. A long pid may leave no room
            // for it.
            first.width += usize::from(first.title == "pid");
            figure.0 = marked(&figure.0, first.width);
        }
        for (place, it) in table::places(kept).skip(above.len()).zip(listed.iter().skip(first)) {
            context.claim(place, Target::Row(it.id()));
        }
        for (place, title) in table::titles(kept, &columns, "command", TEXT) {
            if let Some(by) = By::named(title) {
                context.claim(place, Target::Column(by));
            }
        }
        above.extend(rows.into_iter().skip(first));
        table::draw(buffer, kept, &columns, "command", &above, TEXT, context.style(Role::Dim));
    }
    if let Some(words) = hint {
        let line = Line::styled(cells::elide(&words, usize::from(area.width)), context.style(Role::Key));
        put(buffer, area, height.saturating_sub(1), &line);
    }
}

/// Returns the column of the order, if the list has it only then.
fn extra(columns: &[Column], context: &RenderContext) -> Option<Column> {
    let title = Some(context.ui.order.by).filter(|it| it.is_extra())?.name();
    columns.iter().all(|it| it.title != title).then_some(Column { title, width: EXTRA, rank: 0 })
}

fn extra_figure(it: &Listed, context: &RenderContext) -> (String, Style) {
    let value = context.ui.order.by.value(it, context.session);
    let role = if value.is_some() { Role::Text } else { Role::Dim };
    (cells::elide(&value.unwrap_or_else(|| cells::UNKNOWN.to_owned()), EXTRA), context.style(role))
}

/// Draws the box's name, the filter and the order, and how many rows are visible.
fn head(buffer: &mut Buffer, area: Rect, listed: &[Listed], (first, room): (usize, usize), context: &RenderContext) {
    let (ui, rows) = (context.ui, listed.len());
    let last = rows.min(first + room);
    let mut right = if room < rows { format!("rows {}–{last}", first + 1) } else { String::new() };
    if !ui.filter.text.trim().is_empty() {
        let hidden = ui.unfiltered(context.session).saturating_sub(rows);
        let gap = if right.is_empty() { "" } else { ", " };
        right = format!("/{} hides {hidden}{gap}{right}", cells::elide(&cells::raw(ui.filter.text.trim()), 24));
    }
    let mut name = named(rows, context);
    if let Some(words) = ranks::imbalance(listed, context) {
        name = format!("{name} · {words}");
    }
    let right = if right.is_empty() { Vec::new() } else { vec![Span::styled(right, context.style(Role::Dim))] };
    title(buffer, area, &name, right, context);
}

/// Returns `processes on GPU 0 by allocated ↓: 2 of 6`: the order, the number of listed rows, and the number on all
/// devices.
fn named(rows: usize, context: &RenderContext) -> String {
    let ui = context.ui;
    let place = match context.device().filter(|_| ui.scope == Scope::Selected) {
        Some(device) => device_name(device),
        None => "all devices".to_owned(),
    };
    let arrow = if ui.order.rises() { "↑" } else { "↓" };
    let is_usual = ui.order == Order::default();
    let order = if is_usual { String::new() } else { format!(" by {} {arrow}", ui.order.by.name()) };
    let all = context.session.probed(None).len() + context.session.unprobed(None).len();
    let of = if all == rows { String::new() } else { format!(" of {all}") };
    format!("processes on {place}{order}: {rows}{of}")
}

/// Formats a figure for a column, with `▸` in the first cell if that is free.
fn marked(figure: &str, columns: usize) -> String {
    let text = cells::right(figure, columns);
    text.strip_prefix(' ').map_or_else(|| text.clone(), |rest| format!("▸{rest}"))
}

/// Returns why there are no rows.
fn nothing(device: &Device, context: &RenderContext) -> &'static str {
    match (&device.processes, device.process_list()) {
        _ if context.ui.unfiltered(context.session) > 0 => "none that the filter lets through; Esc: no filter",
        (_, Some(_)) if context.session.probed(None).is_empty() && context.session.unprobed(None).is_empty() => "none",
        (_, Some(_)) => "none on this device; p: those of all devices",
        (None, _) => "unknown: the driver has not reported it",
        (Some(_), None) => "unknown: the driver does not report it",
    }
}

fn row(it: &Listed, with_probes: bool, context: &RenderContext) -> Row {
    match it {
        Listed::Probed(process, on) => probed_row(process, on, context),
        Listed::Unprobed(device, it) => stranger_row(device, it, with_probes, context),
    }
}

fn probed_row(process: &Process, it: &OnDevice, context: &RenderContext) -> Row {
    let alive = process.is_alive();
    let text = context.style(if alive { Role::Text } else { Role::Dim });
    let found = context.found_for(process, it);
    let (rate, rate_style) = rate(process, it, context);
    let device = context.session.device(&it.device).and_then(|it| it.index);
    let figures = vec![
        (cells::known(device, ""), text),
        (cells::known(process.rank(), ""), text),
        (cells::known(process.any_pid(), ""), text),
        (cells::known(it.step, ""), text),
        (cells::bytes(it.counters.allocated.map(Bytes)), text),
        (cells::bytes(it.counters.reserved.map(Bytes)), text),
        (cells::share(found.and_then(|it| it.fragmentation.share())), text),
        (rate, rate_style),
        (cells::bytes(found.and_then(|it| it.driver_used)), text),
    ];
    let argv = process.hello.as_ref().map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = shortened(argv.iter().map(String::as_str));
    let (state, role) = state(process, context);
    let words = if state.is_empty() { command } else { format!("{state}: {command}") };
    Row { figures, text: (words, context.style(role)), style: None }
}

fn rate(process: &Process, it: &OnDevice, context: &RenderContext) -> (String, Style) {
    let (words, role) = match context.findings.growing(process.probe, it.ordinal) {
        Some(found) => (verdict::rate(found), verdict::role(found.severity)),
        None if it.growth.watched() < it.growth.enough() => (cells::UNKNOWN.to_owned(), Role::Dim),
        None => {
            let is_approximate = context.found_for(process, it).is_some_and(|it| it.approximate);
            (if is_approximate { "≈flat" } else { "flat" }.to_owned(), Role::Good)
        }
    };
    (words, context.style(role))
}

/// Returns a probe's state in a word; empty for a healthy one.
fn state(process: &Process, context: &RenderContext) -> (String, Role) {
    let silent = context.session.now.since(process.last_line_at);
    match &process.life {
        Life::Found => ("no hello".to_owned(), Role::Dim),
        Life::Incompatible { protocol } => (format!("wire {protocol}"), Role::Warning),
        Life::CatchingUp => ("history".to_owned(), Role::Dim),
        Life::Live if silent > SILENT_US => (format!("silent {}", units::duration(silent)), Role::Warning),
        Life::Live => (String::new(), Role::Dim),
        Life::Ended { .. } => ("ended".to_owned(), Role::Dim),
        Life::Gone { .. } => ("lost".to_owned(), Role::Warning),
    }
}

fn stranger_row(device: &Device, it: &ProcessUse, with_probes: bool, context: &RenderContext) -> Row {
    let (text, dim) = (context.style(Role::Text), context.style(Role::Dim));
    let who = context.session.process_info.get(&it.pid);
    let device = (cells::known(device.index, ""), text);
    let (pid, used) = ((it.pid.to_string(), text), (cells::bytes(it.used), text));
    let figures = if with_probes {
        let unknown = || (cells::UNKNOWN.to_owned(), dim);
        vec![device, unknown(), pid, unknown(), unknown(), unknown(), unknown(), unknown(), used]
    } else {
        let owner = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| cells::elide(&cells::foreign(&it.user), 10));
        vec![device, pid, used, (owner, text)]
    };
    let command = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| shortened(words(it)));
    Row { figures, text: (command, dim), style: None }
}

/// Returns the command line that would probe a job: the selected process, otherwise the largest that runs Python. A
/// recording's jobs cannot be started again.
fn hint(rows: &[Listed], context: &RenderContext) -> Option<String> {
    if context.progress.is_some() {
        return None;
    }
    let known = || {
        rows.iter().filter_map(|it| match it {
            Listed::Unprobed(_, it) => context.session.process_info.get(&it.pid),
            Listed::Probed(..) => None,
        })
    };
    let job = known().filter(|it| !it.suspended).find(|it| it.is_python())?;
    let place = if job.contained { ", in its container" } else { "" };
    Some(format!(
        " to probe pid {0}{place}:  gpuwatch attach {0}, or gpuwatch run -- {1}",
        job.pid,
        shortened(words(job))
    ))
}

fn words(who: &ProcessInfo) -> impl Iterator<Item = &str> {
    who.argv.iter().map(crate::facts::text::Foreign::raw)
}

/// Returns a command line with the program's name without its path.
fn shortened<'a>(mut argv: impl Iterator<Item = &'a str>) -> String {
    let program = argv.next().map(|it| it.rsplit('/').next().unwrap_or(it));
    cells::command(program.into_iter().chain(argv))
}
