//! One device: its ladder large, every gap explained, its processes, the driver's figures; above them, all messages in
//! full.

use crate::{
    facts::{
        event::{DriverState, ProcessUse},
        metrics::{Metric, Reason, Shown},
        units::{self, Bytes, Stamp},
    },
    model::{
        analysis::ladder::{Gap, Level, Rung},
        findings::DeviceFindings,
        session::{
            device::Device,
            process::{OnDevice, Process},
        },
    },
    screen::{
        theme::Role,
        ui::{mouse::Target, rows::ProcessRow},
        view::{
            RenderContext, Scrolled, alerts, cells, course, device_name, devices, growth, heading,
            ladder::{self, glyph},
            messages, put,
            scroll::{Spot, moved, scrolled},
            title,
        },
    },
    sources::makers::gives,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// From this width on, the facts are next to the explanations.
const WIDE: u16 = 132;

/// The width of the explanations next to the facts.
const EXPLAINED: u16 = 82;

/// Shown for a driver that has only the first version of the memory call.
const RESERVE_UNKNOWN: &str = "this driver counts its own reserve as used and does not say how much it is: it is part of what \
    is unattributed; drivers from 510 on tell it apart";

/// Below this many rows there is only text.
const LADDER: u16 = 12;

/// Draws the visible part, and returns how far it can be scrolled:
///
/// ```text
/// title      which device, how full
/// ladder     the bar, and under it the rungs where they end
/// explained  every gap: its bytes, where it comes from, what to do about it
/// processes  everybody on the device
/// device     the driver's facts about it
/// ```
///
/// From 132 columns on, processes, device and its past are next to the explanations. Below 12 rows there is no ladder;
/// the part below it scrolls.
pub(super) fn draw(buffer: &mut Buffer, mut area: Rect, context: &RenderContext) -> Scrolled {
    let Some(device) = context.device() else { return Scrolled::default() };
    let full = vec![Span::styled(full(device, context), context.style(Role::Text))];
    title(buffer, area, &format!("{} · {}", device_name(device), cells::foreign(&device.name)), full, context);
    if area.height >= LADDER {
        let (mut ladder, rows) = (area, rungs_height(area));
        super::take(&mut ladder, 1);
        super::take(&mut area, rows);
        draw_rungs(buffer, Rect { height: u16::try_from(rows).unwrap_or(0), ..ladder }, context);
    }
    let mut left = area;
    if area.width >= WIDE {
        let mut right = Rect { x: area.x + EXPLAINED + 2, width: area.width - EXPLAINED - 2, ..area };
        left.width = EXPLAINED;
        // The lines under the ladder begin a row lower, because the scrolled part has a title above it.
        super::take(&mut right, 1);
        facts_and_past(buffer, right, context);
    }
    let width = usize::from(left.width).saturating_sub(1);
    let (mut lines, mut spots) = explained(width, context);
    if area.width < WIDE {
        let (facts, rows) = facts_lines(device, width + 1, context);
        spots.extend(moved(rows, lines.len()));
        lines.extend(facts);
    }
    scrolled(buffer, left, &lines, &spots, context)
}

fn facts_and_past(buffer: &mut Buffer, mut area: Rect, context: &RenderContext) {
    let Some(device) = context.device() else { return };
    let (lines, rows) = facts_lines(device, usize::from(area.width), context);
    let kept = lines.len().min(usize::from(area.height).saturating_sub(6));
    let top = super::take(&mut area, kept);
    for (row, line) in lines.iter().take(kept).enumerate() {
        super::put(buffer, top, row, line);
    }
    for (target, place) in rows {
        top.rows().skip(place.start).take(place.len()).for_each(|row| context.claim(row, target.clone()));
    }
    growth::of_device(buffer, area, context);
}

/// Returns all messages in full, all alerts and all gaps, and which lines belong to an alert.
fn explained(width: usize, context: &RenderContext) -> (Vec<Line<'static>>, Vec<Spot>) {
    let Some(found) = context.found() else { return (Vec::new(), Vec::new()) };
    let mut lines: Vec<Line> = messages::lines(&messages::messages(context), width, usize::MAX, None)
        .into_iter()
        .map(|(role, text)| Line::styled(format!(" {text}"), context.style(role)))
        .collect();
    let (alerts, spots) = alerts::listed(width, context);
    let spots = moved(spots, lines.len());
    lines.extend(alerts);
    let (folded, shown): (Vec<_>, Vec<_>) =
        found.ladder.rungs.iter().partition(|it| context.ui.is_folded(&found.device, it));
    for rung in shown {
        explain(rung, found, context, width, &mut lines);
    }
    if !folded.is_empty() {
        let mut names: Vec<&str> = folded.iter().map(|it| it.gap.row().name).collect();
        names.dedup();
        let words = cells::wrapped(&format!("0 B: {}", names.join(", ")), width.saturating_sub(3));
        lines.extend(words.into_iter().map(|it| Line::styled(format!("   {it}"), context.style(Role::Dim))));
    }
    (lines, spots)
}

fn explain(rung: &Rung, found: &DeviceFindings, context: &RenderContext, width: usize, lines: &mut Vec<Line<'static>>) {
    let row = rung.gap.row();
    let (text, dim) = (context.style(Role::Text), context.style(Role::Dim));
    let owner = rung.owner.and_then(|it| found.processes.get(it)).and_then(|it| context.session.process(it.probe));
    let owner = owner.filter(|_| found.processes.len() > 1).map(messages::who);
    let mut line = Line::from(vec![
        Span::styled(format!(" {} ", glyph(rung.gap, context)), context.style(Role::Gap(rung.gap))),
        Span::styled(cells::left(row.name, 13), text),
        Span::styled(cells::right(&cells::bytes(rung.bytes), 11), text),
        Span::styled(cells::right(&cells::percent(rung.bytes, found.ladder.total), 6), dim),
        Span::styled(owner.map_or_else(String::new, |it| format!("  {it}")), text),
    ]);
    // The cause follows on the same line if it fits.
    let cause = format!("  {}", row.cause);
    let fits = line.width() + cells::width(&cause) <= width;
    if fits {
        line.push_span(Span::styled(cause, dim));
    }
    lines.push(line);
    let mut note = |words: &str, role| {
        let wrapped = cells::wrapped(words, width.saturating_sub(3));
        lines.extend(wrapped.into_iter().map(|it| Line::styled(format!("   {it}"), context.style(role))));
    };
    if !fits {
        note(row.cause, Role::Dim);
    }
    if !row.remedy.is_empty() && rung.bytes.is_some_and(|it| it.0 > 0) {
        note(&format!("→ {}", row.remedy), Role::Good);
    }
    if rung.gap == Gap::Driver && rung.bytes.is_none() && context.device().is_some_and(|it| it.figures().is_some()) {
        note(RESERVE_UNKNOWN, Role::Dim);
    }
    if let Some((one, other)) = rung.inconsistent {
        let words = if one == other {
            format!("! figures of one reading, at {}, contradict each other", seconds(one))
        } else {
            format!("! read at {} and {}: they contradict each other", seconds(one), seconds(other))
        };
        note(&words, Role::Warning);
    }
}

fn seconds(at: Stamp) -> String {
    format!("{}.{:06} s", at.0 / 1_000_000, at.0 % 1_000_000)
}

/// Returns `76.83 GiB used of 140.40 GiB, 55 %`.
fn full(device: &Device, context: &RenderContext) -> String {
    let (used, total) = (devices::used(device, context), devices::total(device, context));
    let share = cells::percent(used, total);
    format!("{} used of {}, {share}", cells::bytes(used), cells::bytes(total))
}

/// Returns its clickable processes, then the driver's figures.
fn facts_lines(device: &Device, width: usize, context: &RenderContext) -> (Vec<Line<'static>>, Vec<Spot>) {
    let mut lines = vec![heading("on this device", width, context)];
    let probed = context.ui.probed(Some(&device.id), context.session);
    let unprobed = context.session.unprobed(Some(&device.id));
    lines.extend(probed.iter().map(|(process, on)| own(process, on, device, width, context)));
    lines.extend(unprobed.iter().map(|(_, it)| stranger(it, device, width, context)));
    let rows = probed.iter().map(|(process, on)| ProcessRow::Probed(process, on));
    let rows = rows.chain(unprobed.iter().map(|(device, it)| ProcessRow::Unprobed(device, *it)));
    let spots = rows.zip(1..).map(|(it, line)| (Target::Row(it.id()), line..line + 1)).collect();
    if probed.is_empty() && unprobed.is_empty() {
        let words =
            if device.process_list().is_some() { " no process" } else { " unknown: the driver has not reported it" };
        lines.push(Line::styled(words, context.style(Role::Dim)));
    }
    lines.extend(course::lines(device, width, context));
    lines.push(heading("device", width, context));
    lines.extend(metric_lines(device, width, context));
    lines.extend(source(device, width, context));
    (lines, spots)
}

/// Returns `rank 1   pid 8891   67.82 GiB  48 %  train.py --leaking`.
fn own(process: &Process, on: &OnDevice, device: &Device, width: usize, context: &RenderContext) -> Line<'static> {
    let found = context.found_for(process, on);
    let argv = process.hello.as_ref().map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = cells::command(argv.iter().map(String::as_str));
    let reserved = on.counters.reserved.map(Bytes).filter(|_| process.is_alive());
    let used = found.and_then(|it| it.driver_used).or(reserved);
    // A process whose probe has ended runs on.
    let is_over = !process.is_alive() && !process.has_left();
    let name = if is_over { "ended".to_owned() } else { messages::short(process) };
    row(&name, process.any_pid(), used, device, &command, width, context)
}

fn stranger(it: &ProcessUse, device: &Device, width: usize, context: &RenderContext) -> Line<'static> {
    let who = context.session.process_info.get(&it.pid);
    let command = who.map_or_else(
        || cells::UNKNOWN.to_owned(),
        |it| {
            format!(
                "{}: {}",
                cells::foreign(&it.user),
                cells::command(it.argv.iter().map(crate::facts::text::Foreign::raw))
            )
        },
    );
    row("no probe", Some(it.pid), it.used, device, &command, width, context)
}

fn row(
    name: &str,
    pid: Option<u32>,
    used: Option<Bytes>,
    device: &Device,
    command: &str,
    width: usize,
    context: &RenderContext,
) -> Line<'static> {
    let figures = vec![
        Span::styled(format!(" {}", cells::left(name, 9)), context.style(Role::Text)),
        Span::styled(cells::right(&cells::known(pid, ""), 8), context.style(Role::Dim)),
        Span::styled(cells::right(&cells::bytes(used), 12), context.style(Role::Text)),
        Span::styled(cells::right(&cells::percent(used, devices::total(device, context)), 6), context.style(Role::Dim)),
    ];
    let taken: usize = figures.iter().map(Span::width).sum();
    let mut line = Line::from(figures);
    let room = width.saturating_sub(taken + 2);
    if room >= 8 {
        line.push_span(Span::styled(format!("  {}", cells::elide(command, room)), context.style(Role::Dim)));
    }
    line
}

/// Returns the driver's version, the time of its last reading, and the device's identity.
fn source(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let version = match context.session.driver_of(device.maker) {
        Some(DriverState::Up { version: Some(version) }) => format!("driver {}, ", cells::foreign(version)),
        _ => String::new(),
    };
    let read = device.memory.as_ref().map(|it| units::duration(context.session.now.since(it.at)));
    let read = read.map_or_else(|| "never read".to_owned(), |it| format!("read {it} ago"));
    let mut words = vec![format!(" {version}{read}, {}", cells::raw(&device.id.0))];
    words.extend(device.parent.as_ref().map(|parent| format!(" a part of {}", cells::raw(&parent.0))));
    words.iter().map(|it| Line::styled(cells::elide(it, width), context.style(Role::Dim))).collect()
}

/// Columns of a label, of a value, and of both with their gaps.
const LABEL: usize = 12;
const VALUE: usize = 10;
const ENTRY: usize = LABEL + VALUE + 2;

/// Most entries in a row.
const COLUMNS: usize = 5;

/// Returns the rows of entries, then the metrics that have a line of their own.
fn metric_lines(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let given = Metric::TABLE.iter().filter(|it| gives(device.maker, it.metric));
    let own = given.filter_map(|it| Some((it.metric, own_line(it.shown)?)));
    let own = own.map(|(metric, label)| {
        let words = format!(" {label} {}", value(device, metric));
        Line::styled(cells::elide(&words, width), context.style(role(device)))
    });
    grid(&entries(device, |_| true), width, context).into_iter().chain(own).collect()
}

/// Returns the rows of entries without the metrics that the device list of the hardware preset has.
pub(super) fn other_metrics(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    grid(&entries(device, |it| !devices::hardware_lists(it)), width, context)
}

fn grid(entries: &[(&'static str, String)], width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let rows = entries.len().div_ceil((width / ENTRY).clamp(1, COLUMNS));
    let entry = |(label, value): &(&str, String)| {
        [
            Span::styled(format!(" {}", cells::left(label, LABEL)), context.style(Role::Dim)),
            Span::styled(format!("{} ", cells::right(value, VALUE)), context.style(Role::Text)),
        ]
    };
    let row = |row: usize| entries.iter().skip(row).step_by(rows).flat_map(entry).collect::<Line>();
    (0..rows).map(row).collect()
}

/// Returns labels and values: the metrics of the table, then those of the memory.
fn entries(device: &Device, is_shown: impl Fn(Metric) -> bool) -> Vec<(&'static str, String)> {
    let label = |shown| if let Shown::As(label) = shown { Some(label) } else { None };
    let shown = Metric::TABLE.iter().filter(|it| is_shown(it.metric) && gives(device.maker, it.metric));
    let metrics = shown.filter_map(|it| Some((label(it.shown)?, value(device, it.metric))));
    let memory = device.figures();
    let of_memory = [
        ("total", memory.map(|it| it.total)),
        ("free", memory.map(|it| it.free)),
        ("reserve", memory.and_then(|it| it.reserved)),
    ];
    metrics.chain(of_memory.map(|(label, bytes)| (label, cells::bytes(bytes)))).collect()
}

fn own_line(shown: Shown) -> Option<&'static str> {
    if let Shown::Line(label) = shown { Some(label) } else { None }
}

fn value(device: &Device, metric: Metric) -> String {
    let known = device.metrics.as_ref().and_then(|it| it.value.format(metric));
    known.unwrap_or_else(|| cells::UNKNOWN.to_owned())
}

fn role(device: &Device) -> Role {
    let bits = device.metric(Metric::ThrottleReasons).unwrap_or(0);
    if Reason::of(bits).any(|it| it.is_slowdown) { Role::Warning } else { Role::Dim }
}

/// The levels named under the bar, most important first.
const NAMED: [Level; 4] = [Level::Used, Level::Allocated, Level::Reserved, Level::Process];

/// Returns its rows.
fn rungs_height(area: Rect) -> usize {
    bar_height(area) + names_height(area)
}

fn bar_height(area: Rect) -> usize {
    if area.height >= 28 { 3 } else { 2 }
}

fn names_height(area: Rect) -> usize {
    if area.height >= 28 { 3 } else { 2 }
}

/// Draws the bar and the names.
fn draw_rungs(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(found) = context.found() else { return };
    let (rungs, width) = (ladder::rungs(context), usize::from(area.width));
    let whole = found.ladder.total.unwrap_or_else(|| found.ladder.sum());
    let bar = ladder::bar(&rungs, whole, width, context);
    let rows = usize::from(area.height) / 2;
    for row in 0..rows {
        put(buffer, area, row, &bar);
    }
    let mut ends: Vec<(usize, Level, Bytes)> = Vec::new();
    let (mut column, mut sum, mut reserve) = (0, Bytes(0), None);
    for (rung, cells) in rungs.iter().zip(ladder::widths(&rungs, whole, width)) {
        let Some(bytes) = rung.bytes else { continue };
        (column, sum) = (column + cells, sum.plus(bytes));
        reserve = reserve.or(Some(bytes).filter(|_| rung.gap == Gap::Driver));
        let Some(name) = rung.gap.row().level.filter(|it| NAMED.contains(it)) else { continue };
        // If two end at the same cell, the outer one is named.
        ends.retain(|it| it.1 != name && it.0 != column);
        ends.push((column, name, sum));
    }
    let words = |end: Level, bytes: Bytes| match end {
        Level::Allocated => vec!["allocated".to_owned()],
        Level::Reserved => vec!["reserved".to_owned()],
        Level::Process if found.processes.len() == 1 => vec!["this process".to_owned()],
        Level::Process => vec![format!("{} processes", found.processes.len())],
        Level::Used => used(bytes, reserve),
        _ => Vec::new(),
    };
    let named = NAMED.iter().filter_map(|name| ends.iter().find(|it| it.1 == *name));
    let named: Vec<_> = named
        .map(|(column, end, bytes)| {
            let figure = cells::bytes(Some(*bytes));
            (*column, words(*end, *bytes).iter().map(|it| format!("{figure} {it}")).collect())
        })
        .collect();
    names(buffer, area, rows, &named, context);
}

/// Returns used memory as the driver counts it, and its own reserve, which it does not count; longest wording first.
fn used(sum: Bytes, reserve: Option<Bytes>) -> Vec<String> {
    let Some((reserve, used)) = reserve.filter(|it| it.0 > 0).and_then(|it| Some((it, sum.checked_sub(it)?))) else {
        return vec!["used".to_owned()];
    };
    let (used, reserve) = (cells::bytes(Some(used)), cells::bytes(Some(reserve)));
    vec![format!("= {used} used + {reserve} reserve"), "used + reserve".to_owned()]
}

/// Draws `╵51.61 GiB allocated` under the cell where it ends, on the first row with room; most important first, in the
/// longest wording that leaves room for the others.
fn names(buffer: &mut Buffer, area: Rect, first: usize, ends: &[(usize, Vec<String>)], context: &RenderContext) {
    let size = (usize::from(area.width), usize::from(area.height).saturating_sub(first));
    let longest = ends.iter().map(|it| it.1.len()).max().unwrap_or(0);
    let choices = (0..longest).rev().map(|choice| placed(ends, choice, size));
    // Among choices with as many names, the last one has the longest wording.
    for it in choices.max_by_key(Vec::len).unwrap_or_default() {
        let (tick, text) =
            (Span::styled("╵", context.style(Role::Border)), Span::styled(it.words, context.style(Role::Text)));
        let line = Line::from(if it.is_right { vec![tick, text] } else { vec![text, tick] });
        let offset = u16::try_from(it.from).unwrap_or(u16::MAX);
        let place = Rect { x: area.x.saturating_add(offset), ..area }.intersection(area);
        put(buffer, place, first + it.row, &line);
    }
}

/// A name with its place.
struct Placed<'a> {
    row: usize,
    from: usize,
    to: usize,
    /// Whether the words are to the right of their end.
    is_right: bool,
    words: &'a str,
}

/// Returns the names that have room, in the wording of this choice, or the shortest.
fn placed(ends: &[(usize, Vec<String>)], choice: usize, (width, rows): (usize, usize)) -> Vec<Placed<'_>> {
    let mut out: Vec<Placed> = Vec::new();
    for (column, choices) in ends {
        let Some(words) = choices.get(choice).or(choices.last()) else { continue };
        let (at, long) = (column.saturating_sub(1), cells::width(words) + 1);
        // The words are to the right of their end, or to its left if there is no room.
        let right = Some((at, true)).filter(|_| at + long <= width);
        let left = (at + 1).checked_sub(long).map(|it| (it, false));
        let mut places = (0..rows).flat_map(|row| right.into_iter().chain(left).map(move |place| (row, place)));
        let is_free =
            |row: usize, from: usize| out.iter().all(|it| it.row != row || from > it.to || from + long < it.from);
        if let Some((row, (from, is_right))) = places.find(|(row, place)| is_free(*row, place.0)) {
            out.push(Placed { row, from, to: from + long, is_right, words });
        }
    }
    out
}
