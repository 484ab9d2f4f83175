//! The processes of the selected device: the probed ones with their counters, the others as the driver lists them, and
//! the command line that would probe them.

mod fields;

pub(super) use crate::screen::view::processes::fields::Field;
use crate::{
    facts::{
        event::ProcessInfo,
        figures::Figure,
        units::{self, Bytes},
    },
    model::{
        findings,
        session::{
            device::Device,
            process::{OnDevice, ProbeState, Process},
        },
    },
    screen::{
        theme::Role,
        ui::{
            Focus, Scope,
            mouse::Target,
            order::{By, Order},
            rows::ProcessRow,
            tree::{self, Limb},
        },
        view::{
            RenderContext, cells,
            columns::{self, Column, TableRow},
            device_name, messages, put, title, verdict,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// A probe sends a tick each second; after this silence, in µs, the state shows it.
pub(super) const SILENT_US: u64 = 5_000_000;

/// The columns for state and command line.
const TEXT: usize = 15;

/// Below this many rows there is no summary above the ranks.
const SUMMED: usize = 8;

/// A line of the list: a process, or in the tree an ancestor that is on no device.
struct Entry {
    row: TableRow,
    /// The place of its process among the rows.
    place: Option<usize>,
}

/// Returns the rows to show everything.
pub(super) fn height(context: &RenderContext) -> usize {
    let rows = context.ui.rows(context.session);
    let lines = context.ui.lines(&rows, context.session).len();
    2 + ranks_height(&rows, context) + lines.max(1) + usize::from(hint(&rows, usize::MAX, context).is_some())
}

/// Draws title, table and hint.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(device) = context.device().filter(|_| area.height >= 2) else { return };
    let listed = context.ui.rows(context.session);
    let fields = fields::of(&listed, context.ui.scope == Scope::All, context);
    let selected = context.ui.place(&listed);
    let mut entries = entries(&listed, &fields, context);
    let place = entries.iter().position(|it| it.place == Some(selected)).unwrap_or(0);
    let height = usize::from(area.height);
    let hint = hint(&listed, usize::from(area.width), context).filter(|_| height > 3);
    let mut above = summary(&listed, fields.iter().map(|it| it.0), context);
    above.truncate(height.saturating_sub(SUMMED));
    let room = height.saturating_sub(2 + above.len() + usize::from(hint.is_some()));
    let first = columns::first_row(place, entries.len(), room.max(1));
    context.claim(area, Target::Box(Focus::Processes));
    head(buffer, area, &listed, (first, room, entries.len()), context);
    let body = Rect { y: area.y.saturating_add(1), height: area.height.saturating_sub(1), ..area };
    if listed.is_empty() {
        let words = nothing(device, context);
        put(buffer, body, 0, &Line::styled(format!(" {words}"), context.style(Role::Dim)));
    } else {
        let kept = Rect { height: u16::try_from(room + above.len() + 1).unwrap_or(u16::MAX).min(body.height), ..body };
        let mut columns: Vec<Column> = fields.iter().map(|it| fields::column(*it)).collect();
        let shown = entries.get_mut(place).and_then(|it| it.row.figures.first_mut());
        if let Some((figure, column)) = shown.zip(columns.first_mut()) {
            // Mark the process that the boxes above are about, whichever box is focused. A long pid may leave no room
            // for it.
            column.width += usize::from(column.title == "pid");
            figure.0 = marked(&figure.0, column.width);
        }
        for (area, it) in columns::places(kept).skip(above.len()).zip(entries.iter().skip(first)) {
            if let Some(row) = it.place.and_then(|it| listed.get(it)) {
                context.claim(area, Target::Row(row.id()));
            }
        }
        for (place, title) in columns::titles(kept, &columns, "command", TEXT) {
            if let Some(by) = By::named(title) {
                context.claim(place, Target::Column(by));
            }
        }
        above.extend(entries.into_iter().skip(first).map(|it| it.row));
        columns::draw(buffer, kept, &columns, "command", &above, TEXT, context.style(Role::Dim));
    }
    if let Some(words) = hint {
        let line = Line::styled(cells::elide(&words, usize::from(area.width)), context.style(Role::Key));
        put(buffer, area, height.saturating_sub(1), &line);
    }
}

/// Returns the lines of the list: a line for each row, and in the tree one for each ancestor.
fn entries(listed: &[ProcessRow], fields: &[(Field, usize, u8)], context: &RenderContext) -> Vec<Entry> {
    let selected = Some(context.ui.place(listed)).filter(|_| context.ui.focus == Focus::Processes);
    let entry = |it: tree::Branch| match it.of {
        Limb::Row(place) => {
            let row = listed.get(place)?;
            let (words, role) = text(row, context);
            let style = context.style(Role::Selected);
            let row = TableRow {
                figures: fields.iter().map(|field| fields::figure(row, *field, context)).collect(),
                text: (format!("{}{words}", it.prefix), context.style(role)),
                style: (selected == Some(place)).then_some(style),
            };
            Some(Entry { row, place: Some(place) })
        }
        Limb::Ancestor(ancestor) => {
            let words = format!("{}{} (pid {})", it.prefix, cells::foreign(&ancestor.name), ancestor.pid);
            let row = TableRow { figures: Vec::new(), text: (words, context.style(Role::Dim)), style: None };
            Some(Entry { row, place: None })
        }
    };
    context.ui.lines(listed, context.session).into_iter().filter_map(entry).collect()
}

/// Returns the state of a process and its command line.
fn text(it: &ProcessRow, context: &RenderContext) -> (String, Role) {
    match it {
        ProcessRow::Probed(process, on) => {
            let argv = process.hello.as_ref().map(|it| it.argv.as_slice()).unwrap_or_default();
            let command = shortened(argv.iter().map(String::as_str));
            let (state, role) = state(process, on, context);
            (if state.is_empty() { command } else { format!("{state}: {command}") }, role)
        }
        ProcessRow::Unprobed(_, it) => {
            let who = context.session.process_info.get(&it.pid);
            let command = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| shortened(words(it)));
            let state = who.and_then(ended).or_else(|| context.session.left(it.pid).map(|_| PROBE_ENDED.to_owned()));
            (state.map_or(command.clone(), |state| format!("{state}: {command}")), Role::Dim)
        }
    }
}

/// Returns which rows are visible, unless all are.
fn visible(first: usize, room: usize, lines: usize) -> String {
    match room {
        _ if room >= lines => String::new(),
        0 => format!("no room for {lines}"),
        _ => format!("rows {}–{}", first + 1, lines.min(first + room)),
    }
}

/// Draws the box's name, the filter and the order, and how many rows are visible.
fn head(
    buffer: &mut Buffer,
    area: Rect,
    listed: &[ProcessRow],
    (first, room, lines): (usize, usize, usize),
    context: &RenderContext,
) {
    let (ui, rows) = (context.ui, listed.len());
    let mut right = visible(first, room, lines);
    if !ui.filter.text.trim().is_empty() {
        let hidden = ui.unfiltered(context.session).saturating_sub(rows);
        let gap = if right.is_empty() { "" } else { ", " };
        right = format!("/{} hides {hidden}{gap}{right}", cells::elide(&cells::raw(ui.filter.text.trim()), 24));
    }
    let mut name = named(rows, context);
    if let Some(words) = imbalance(listed, context) {
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
    let all = ui.unfiltered_of(None, context.session);
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

/// What has ended of a process that continues.
const PROBE_ENDED: &str = "probe ended";

/// Returns what has ended of a process whose probe has: also the process, if a driver that lists processes does not
/// list it.
pub(super) fn end(process: &Process, on: &OnDevice, context: &RenderContext) -> &'static str {
    let may_continue = context.session.is_listed(process) || !is_list_known(process, on, context);
    if process.has_left() && may_continue { PROBE_ENDED } else { "ended" }
}

/// Returns what is to be thought of a process whose connection ended without a word: one that the driver lists no
/// longer was killed, by whomever.
pub(super) fn lost(process: &Process, on: &OnDevice, context: &RenderContext) -> &'static str {
    let has_ended = is_list_known(process, on, context) && !context.session.is_listed(process);
    if has_ended { "killed?" } else { "lost" }
}

/// Whether the driver lists the processes of a device by pids of this namespace.
fn is_list_known(process: &Process, on: &OnDevice, context: &RenderContext) -> bool {
    let is_known = context.session.device(&on.device).is_some_and(|it| it.process_list().is_some());
    let is_foreign = context.findings.device(&on.device).is_some_and(|it| it.foreign_pids);
    process.pid.is_some() && is_known && !is_foreign
}

/// Returns a probe's state in a word; empty for a healthy one.
fn state(process: &Process, on: &OnDevice, context: &RenderContext) -> (String, Role) {
    let silent = context.session.now.since(process.last_line_at);
    match &process.life {
        ProbeState::Found => ("no hello".to_owned(), Role::Dim),
        ProbeState::Incompatible { protocol } => (format!("wire {protocol}"), Role::Warning),
        ProbeState::CatchingUp => ("history".to_owned(), Role::Dim),
        ProbeState::Live if silent > SILENT_US => (format!("silent {}", units::duration(silent)), Role::Warning),
        ProbeState::Live => (String::new(), Role::Dim),
        ProbeState::Ended { .. } => (end(process, on, context).to_owned(), Role::Dim),
        ProbeState::Gone { .. } => (lost(process, on, context).to_owned(), Role::Warning),
    }
}

/// Returns `zombie of pid 17` for a process that has ended, and that its parent has not waited for.
fn ended(who: &ProcessInfo) -> Option<String> {
    let of_parent = |it: u32| format!("zombie of pid {it}");
    who.ended.then(|| who.parent.map_or_else(|| "ended".to_owned(), of_parent))
}

/// Returns the command lines that would probe a job, as many as fit: the largest process that runs Python. A
/// recording's jobs cannot be started again.
fn hint(rows: &[ProcessRow], width: usize, context: &RenderContext) -> Option<String> {
    if context.progress.is_some() {
        return None;
    }
    let known = || {
        rows.iter().filter_map(|it| match it {
            ProcessRow::Unprobed(_, it) => context.session.process_info.get(&it.pid),
            ProcessRow::Probed(..) => None,
        })
    };
    let job = known().find(|it| it.is_python() && !it.commands_for_a_probe().is_empty())?;
    let place = if job.contained { " in its container" } else { "" };
    let state = context.session.left(job.pid).map_or("no probe yet", |_| PROBE_ENDED);
    let mut lines = vec![format!(" {state}: P")];
    for command in job.commands_for_a_probe() {
        lines.extend(lines.last().map(|line| format!("{line}, or{place} {command}")));
    }
    lines.into_iter().rfind(|it| cells::width(it) <= width)
}

fn words(who: &ProcessInfo) -> impl Iterator<Item = &str> {
    who.argv.iter().map(crate::facts::text::Foreign::raw)
}

/// Returns a command line with the program's name without its path.
fn shortened<'a>(mut argv: impl Iterator<Item = &'a str>) -> String {
    let program = argv.next().map(|it| it.rsplit('/').next().unwrap_or(it));
    cells::command(program.into_iter().chain(argv))
}

/// Fewest ranks for a median.
const LEAST: usize = 3;

/// From this ratio to the median on, a rank is named.
const UNEVEN: f64 = 1.05;

type Own<'a> = (&'a Process, &'a OnDevice);

/// Returns the number of rows above the ranks.
fn ranks_height(listed: &[ProcessRow], context: &RenderContext) -> usize {
    if living(listed, context).len() < LEAST { 0 } else { 2 }
}

/// Returns the rows above the ranks: none unless several ranks of all devices are listed.
fn summary(listed: &[ProcessRow], fields: impl Iterator<Item = Field>, context: &RenderContext) -> Vec<TableRow> {
    let own = living(listed, context);
    if own.len() < LEAST {
        return Vec::new();
    }
    let fields: Vec<Field> = fields.collect();
    let style = context.style(Role::Title);
    let row = |worst: bool, name: String| {
        let figure = |field: &Field| match field {
            Field::Device => String::new(),
            Field::Of(by) => summed(&own, *by, worst, context),
        };
        TableRow { figures: fields.iter().map(|it| (figure(it), style)).collect(), text: (name, style), style: None }
    };
    vec![row(true, format!("worst of {}", own.len())), row(false, "median".to_owned())]
}

/// Returns the worst value of a column, or its median.
fn summed(own: &[Own], by: By, worst: bool, context: &RenderContext) -> String {
    let found = |it: Own| context.found_for(it.0, it.1);
    let whole = |figure: &dyn Fn(Own) -> Option<u64>| {
        of(own, |rank| figure(rank).map(|value| value as f64), worst).map(units::whole)
    };
    let bytes = |figure: &dyn Fn(Own) -> Option<u64>| cells::bytes(whole(figure).map(Bytes));
    match by {
        // For steps and for the use of the device, the lowest is the worst: that rank lags.
        By::Step => {
            let behind = of(own, |(_, on)| on.step.map(|step| -(step as f64)), worst).map(|it| units::whole(-it));
            cells::known(behind, "")
        }
        By::Figure(Figure::SmPercent) => {
            let used = |it: Own| Some(-(figure(it, Figure::SmPercent, context)? as f64));
            cells::known(of(own, used, worst).map(|it| units::whole(-it)), " %")
        }
        By::StepTime => cells::known(whole(&|it| Some(it.1.pace.typical()?.us)).map(units::brief), ""),
        By::Allocated => bytes(&|it| it.1.counters.allocated),
        By::Reserved => bytes(&|it| it.1.counters.reserved),
        By::Unused => cells::share(of(own, |it| found(it)?.fragmentation.share(), worst)),
        By::PerStep => {
            let rate = of(own, |it| rate(it, context), worst);
            cells::known(rate.map(|it| if it > 0.0 { cells::rate(it) } else { "flat".to_owned() }), "")
        }
        By::Driver => bytes(&|it| found(it)?.driver_used.map(|bytes| bytes.0)),
        By::Figure(name) => {
            cells::known(whole(&|it| figure(it, name, context)).map(|it| name.row().unit.format(it)), "")
        }
        By::Rank | By::Pid | By::Command | By::User | By::Idle => String::new(),
    }
}

fn figure((process, on): Own, figure: Figure, context: &RenderContext) -> Option<u64> {
    ProcessRow::Probed(process, on).figure(figure, context.session)
}

/// Returns `rank 5 wants 1.4 × the median`, or that they are even: the ratio of the finding about it.
fn imbalance(listed: &[ProcessRow], context: &RenderContext) -> Option<String> {
    let own = living(listed, context);
    let is_several = own.len() >= LEAST;
    let several = own.into_iter().filter(|_| is_several);
    let ratios =
        several.filter_map(|(process, on)| Some((findings::against_others(context.session, process, on)?, process)));
    let (ratio, most) = ratios.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let times = units::times(ratio);
    if ratio < UNEVEN {
        return Some(format!("even: at most {times} the median"));
    }
    Some(format!("{} wants {times} the median", messages::short(most)))
}

fn living<'a>(listed: &[ProcessRow<'a>], context: &RenderContext) -> Vec<Own<'a>> {
    let probed = listed.iter().filter(|_| context.ui.scope == Scope::All).filter_map(ProcessRow::probed);
    probed.filter(|(process, on)| process.is_alive() && on.first.is_some()).collect()
}

/// Returns the highest value of a figure, or its median; `None` if no rank reports it.
fn of(own: &[Own], figure: impl Fn(Own) -> Option<f64>, worst: bool) -> Option<f64> {
    let mut values: Vec<f64> = own.iter().filter_map(|it| figure(*it)).filter(|it| it.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    if worst { values.last().copied() } else { values.get(values.len() / 2).copied() }
}

/// Returns bytes per step, 0 without growth; `None` without enough data.
fn rate((process, on): Own, context: &RenderContext) -> Option<f64> {
    let growing = context.findings.growing(process.probe, on.ordinal).and_then(|it| it.bytes_per_step);
    growing.or((on.growth.watched() >= on.growth.enough()).then_some(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visible_rows_are_named_where_some_are_not() {
        let all = [(0, 2, 2), (0, 3, 2), (0, 0, 0), (0, 0, 2), (0, 1, 2), (3, 2, 9), (8, 2, 9)];
        let words = ["", "", "", "no room for 2", "rows 1–1", "rows 4–5", "rows 9–9"];
        assert_eq!(all.map(|(first, room, lines)| visible(first, room, lines)), words);
    }
}
