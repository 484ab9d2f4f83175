//! The course of a device's metrics: a row of bars for each, aligned with an axis of time or of steps.

use crate::{
    facts::{
        event::ProbeId,
        metrics::{Metric, Reason, Unit},
        units::{self, Stamp},
    },
    model::{
        analysis::pace,
        session::{
            course::{CourseRow, Full, Pick, Stretch, TABLE},
            device::Device,
            process::{OnDevice, Process},
        },
    },
    screen::{
        theme::Role,
        ui::{
            rows::ProcessRow,
            timeline_range::{VisibleRange, XAxis},
        },
        view::{
            RenderContext, cells, device_name, heading, messages, put,
            step_times::{self, Means, Scale},
            title,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Columns of a label, and of a value at the end of a row.
const LABEL: usize = 13;
const VALUE: usize = 16;

/// The shortest axis of time, in µs: a new course is filled from the left.
const AXIS_US: u64 = 60_000_000;

/// The label of the row of throttle reasons.
const SLOWED: &str = "slowed by";

/// A row: its label, its bars, and their role.
pub(super) type Bars = (&'static str, String, Role);

/// Returns the number of rows: none without a course.
pub(super) fn count(device: &Device) -> usize {
    let known = device.course.stretches().next().map_or(0, |_| TABLE.len());
    known + usize::from(known > 0 && device.course.is_slowed())
}

/// Returns a row for each metric, and one for what slows the device down if anything ever did. `columns` returns the
/// columns between two times.
pub(super) fn rows(
    device: &Device,
    width: usize,
    columns: impl Fn(Stamp, Stamp) -> Range<usize>,
    context: &RenderContext,
) -> Vec<Bars> {
    let placed: Vec<(Range<usize>, Stretch)> =
        device.course.stretches().map(|(from, it)| (columns(from, it.at), it)).filter(|it| !it.0.is_empty()).collect();
    if count(device) == 0 {
        return Vec::new();
    }
    let symbols = context.eighths();
    let mut rows: Vec<Bars> =
        TABLE.iter().map(|row| (row.label, bars(device, row, width, &placed, &symbols), Role::Spark)).collect();
    if device.course.is_slowed() {
        rows.insert(1, (SLOWED, reasons(width, &placed), Role::Warning));
    }
    rows
}

fn bars(
    device: &Device,
    row: &CourseRow,
    width: usize,
    placed: &[(Range<usize>, Stretch)],
    symbols: &[char; 8],
) -> String {
    let mut cells: Vec<Option<(u64, u64)>> = vec![None; width];
    for (columns, it) in placed {
        let Some(value) = it.get(row, row.shows) else { continue };
        for cell in cells.get_mut(columns.clone()).unwrap_or_default() {
            let (sum, count) = cell.unwrap_or_default();
            *cell = Some(match (row.shows, count) {
                (Pick::Mean, _) | (_, 0) => (sum + value, count + 1),
                (Pick::Lowest, _) => (sum.min(value), 1),
                (Pick::Highest, _) => (sum.max(value), 1),
            });
        }
    }
    let values: Vec<Option<u64>> =
        cells.into_iter().map(|it| it.and_then(|(sum, count)| sum.checked_div(count))).collect();
    let full = match row.full {
        Full::Value(it) => Some(it),
        Full::Metric(it) => device.metric(it),
    };
    let full = full.or_else(|| values.iter().flatten().max().copied()).unwrap_or(1).max(1);
    let top = symbols.len() as u64 - 1;
    let bar = |value: u64| {
        let level = usize::try_from(value.min(full).saturating_mul(top) / full).unwrap_or(0);
        symbols.get(level).copied().unwrap_or(' ')
    };
    values.into_iter().map(|it| it.map_or(' ', bar)).collect()
}

/// Returns the gravest reason along the columns: in words where they fit, or as a letter.
fn reasons(width: usize, placed: &[(Range<usize>, Stretch)]) -> String {
    let mut cells = vec![0; width];
    for (columns, it) in placed {
        cells.get_mut(columns.clone()).unwrap_or_default().iter_mut().for_each(|cell| *cell |= it.reasons());
    }
    let gravest: Vec<Option<&Reason>> = cells.into_iter().map(|it| slowdowns(it).next()).collect();
    let stretches = gravest.chunk_by(|one, other| one.map(|it| it.sign) == other.map(|it| it.sign));
    stretches.map(|it| named(it.first().copied().flatten(), it.len())).collect()
}

/// Returns a reason over some columns: `power cap ------`, `PPP`.
fn named(reason: Option<&Reason>, columns: usize) -> String {
    match reason {
        None => " ".repeat(columns),
        Some(it) if it.words.len() + 2 <= columns => format!("{:-<columns$}", format!("{} ", it.words)),
        Some(it) => it.sign.to_string().repeat(columns),
    }
}

fn slowdowns(bits: u64) -> impl Iterator<Item = &'static Reason> {
    Reason::of(bits).filter(|it| it.is_slowdown)
}

/// Returns what held at a time: `power cap · SM 1410 to 1980 MHz`, and `97 % · 512 W · 61 °C`.
pub(super) fn words(device: &Device, at: Stamp) -> Vec<String> {
    let Some(it) = device.course.at(at) else { return Vec::new() };
    let value = |row: &CourseRow| {
        let unit = row.metric.row().unit;
        if unit != Unit::Megahertz {
            return Some(unit.format(it.get(row, row.shows)?));
        }
        let (low, high) = (it.get(row, Pick::Lowest)?, it.get(row, Pick::Highest)?);
        Some(if low == high { format!("SM {low} MHz") } else { format!("SM {low} to {high} MHz") })
    };
    let slowed = slowdowns(it.reasons()).map(|it| it.words.to_owned());
    let (first, rest) = TABLE.split_at(1);
    let first: Vec<String> = slowed.chain(first.iter().filter_map(value)).collect();
    let rest: Vec<String> = rest.iter().filter_map(value).collect();
    [first, rest].into_iter().filter(|it| !it.is_empty()).map(|it| it.join(" · ")).collect()
}

/// Returns the course as lines below a heading; none without a course.
pub(super) fn lines(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let mut lines = over_time(device, width, context);
    if !lines.is_empty() {
        lines.insert(0, heading(&format!("the last {}", span(device)), width, context));
    }
    lines
}

/// Returns the rows of the box, with its title.
pub(super) fn height(context: &RenderContext) -> usize {
    context.device().map_or(0, |it| 1 + count(it).max(1))
}

/// Draws the course of the selected device.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(device) = context.device().filter(|_| area.height > 0) else { return };
    let lines = over_time(device, usize::from(area.width), context);
    let right = Span::styled(format!("the last {}", span(device)), context.style(Role::Dim));
    let right = if lines.is_empty() { Vec::new() } else { vec![right] };
    title(buffer, area, &format!("course of {}", device_name(device)), right, context);
    if lines.is_empty() {
        let words = " no reading yet: gpuwatch keeps clocks, utilisation, power and temperature of each second";
        put(buffer, area, 1, &Line::styled(words, context.style(Role::Dim)));
    }
    for (row, line) in lines.iter().enumerate() {
        put(buffer, area, row + 1, line);
    }
}

fn ends(device: &Device) -> Option<(u64, u64)> {
    let first = device.course.stretches().next()?.0.0;
    Some((first, device.course.stretches().last()?.1.at.0))
}

fn span(device: &Device) -> String {
    units::duration(ends(device).map_or(0, |(first, last)| last - first))
}

fn over_time(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some((first, last)) = ends(device) else { return Vec::new() };
    let room = room(width);
    let length = u128::from((last - first).max(AXIS_US)) + 1;
    let column = |at: Stamp| {
        usize::try_from(u128::from(at.0.saturating_sub(first)) * room as u128 / length).unwrap_or(0).min(room)
    };
    let all = rows(device, room, |from, to| column(from)..(column(to) + 1).min(room), context);
    written(device, &all, room, context)
}

/// Returns the columns for bars.
fn room(width: usize) -> usize {
    width.saturating_sub(LABEL + VALUE + 3)
}

fn written(device: &Device, all: &[Bars], room: usize, context: &RenderContext) -> Vec<Line<'static>> {
    all.iter()
        .map(|(label, bars, role)| {
            let row = TABLE.iter().find(|it| it.label == *label);
            let value = row.map_or_else(|| now_slowed(device), |it| value(device, it.metric));
            line(label, (bars, context.style(*role)), &value, room, context)
        })
        .collect()
}

fn value(device: &Device, metric: Metric) -> String {
    let value = device.metrics.as_ref().and_then(|it| it.value.format(metric));
    let unit = if metric.row().unit == Unit::Megahertz { " MHz" } else { "" };
    value.map_or_else(|| cells::UNKNOWN.to_owned(), |it| format!("{it}{unit}"))
}

/// Returns what slows the device down now.
fn now_slowed(device: &Device) -> String {
    let gravest = slowdowns(device.metric(Metric::ThrottleReasons).unwrap_or(0)).next();
    gravest.map_or_else(|| "nothing now".to_owned(), |it| it.words.to_owned())
}

fn line(label: &str, bars: (&str, Style), value: &str, room: usize, context: &RenderContext) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!(" {}", cells::left(label, LABEL)), context.style(Role::Dim)),
        Span::styled(cells::left(bars.0, room), bars.1),
        Span::styled(format!(" {}", cells::left(&cells::elide(value, VALUE), VALUE)), context.style(Role::Text)),
    ])
}

/// The times at which steps completed, to place times on an axis of steps.
pub(super) struct StepTimes(Vec<(Stamp, u64)>);

impl StepTimes {
    /// Returns those of a run.
    pub(super) fn of(on: &OnDevice) -> Self {
        Self(on.timeline.places().filter_map(|(at, step)| Some((at, step?))).collect())
    }

    /// Returns the first and the last step in progress between two times; `None` outside of the run.
    pub(super) fn between(&self, from: Stamp, to: Stamp) -> Option<(u64, u64)> {
        let first = self
            .0
            .get(self.0.partition_point(|it| it.0 < from))
            .filter(|_| self.0.first().is_some_and(|it| it.0 <= to))?
            .1;
        let done = self.0.partition_point(|it| it.0 <= to).checked_sub(1).and_then(|it| self.0.get(it));
        Some((first, done.map_or(first, |it| it.1.max(first))))
    }
}

/// Returns the rows on the axis of a timeline, `width` columns wide; `columns` returns those between two positions.
pub(super) fn along(
    device: &Device,
    on: &OnDevice,
    (shown, width): (&VisibleRange, usize),
    columns: impl Fn(u64, u64) -> Range<u16>,
    context: &RenderContext,
) -> Vec<Bars> {
    let steps = StepTimes::of(on);
    let place = |from: Stamp, to: Stamp| {
        let places = match shown.axis {
            XAxis::Steps => steps.between(from, to),
            XAxis::Time => Some((from.0, to.0)),
        };
        let places = places.filter(|(from, to)| *from <= shown.to && *to >= shown.from);
        places.map_or(0..0, |(from, to)| columns(from, to)).into_usize()
    };
    rows(device, width, place, context)
}

/// Columns as indices.
trait IntoUsize {
    fn into_usize(self) -> Range<usize>;
}

impl IntoUsize for Range<u16> {
    fn into_usize(self) -> Range<usize> {
        usize::from(self.start)..usize::from(self.end)
    }
}

/// The row's label.
const WAITS_LABEL: &str = "last to step";

/// Shows no rank, or one without a number.
const NONE: char = ' ';
const UNNUMBERED: char = '?';

/// Returns whether the ranks have been compared.
fn is_known(ranks: &[(&Process, &OnDevice)]) -> bool {
    ranks.len() > 1 && ranks.iter().any(|(_, on)| !on.skew.late().buckets().is_empty())
}

/// Returns the last digit of the rank that the others wait for in each column, and the latest such rank in words.
/// `columns` returns the columns of a range of steps.
fn waits_row(
    ranks: &[(&Process, &OnDevice)],
    room: usize,
    columns: impl Fn(u64, u64) -> Range<u16>,
) -> (String, String) {
    let mut shown: Vec<(u64, char)> = vec![(0, NONE); room];
    for (process, on) in ranks {
        let least = on.skew.latest().map_or(u64::MAX, |it| it.least_delay_us());
        let digit = process.rank().and_then(|it| char::from_digit(u32::try_from(it % 10).ok()?, 10));
        let mut from = on.skew.late().buckets().oldest().map_or(0, |it| it.x);
        for it in on.skew.late().buckets() {
            let cells = columns(from, it.x);
            from = it.x.saturating_add(1);
            let cells = shown.get_mut(usize::from(cells.start)..usize::from(cells.end)).unwrap_or_default();
            for cell in cells.iter_mut().filter(|cell| it.high >= least && it.high > cell.0) {
                *cell = (it.high, digit.unwrap_or(UNNUMBERED));
            }
        }
    }
    (shown.into_iter().map(|(_, digit)| digit).collect(), latest(ranks).unwrap_or_else(|| "all together".to_owned()))
}

/// Returns `rank 1, 85 ms`.
fn latest(ranks: &[(&Process, &OnDevice)]) -> Option<String> {
    let late = ranks.iter().filter_map(|(process, on)| {
        let compared = on.skew.latest()?;
        let us = units::whole(compared.later_us?.max(0.0));
        (us >= compared.least_delay_us()).then_some((us, *process))
    });
    let (us, process) = late.max_by_key(|(us, process)| (*us, std::cmp::Reverse(process.probe)))?;
    Some(format!("{}, {}", messages::short(process), units::brief(us)))
}

type Own<'a> = (&'a Process, &'a OnDevice);

/// The listed ranks that count steps.
struct Ranks<'a> {
    /// Those that run; without any, the latest of each rank.
    current: Vec<Own<'a>>,
    /// Those of ended runs.
    ended: Vec<Own<'a>>,
}

impl<'a> Ranks<'a> {
    /// Returns a row for each process. The selected one comes first, so that its steps stand above its device.
    fn of(context: &RenderContext<'a>) -> Self {
        let rows = context.ui.rows(context.session);
        let mut all: Vec<Own> = rows.iter().filter_map(ProcessRow::probed).collect();
        all.retain(|(_, on)| !on.pace.stretches().is_empty());
        let selected = selected(context);
        all.sort_by_key(|it| Some(id(it)) != selected);
        let mut seen = BTreeSet::new();
        all.retain(|(process, _)| seen.insert(process.probe));
        let latest = ranks_latest(&all);
        let any_runs = all.iter().any(|(process, _)| process.is_alive());
        let is_latest = |process: &Process| name(process).is_none_or(|it| latest.get(&it) == Some(&process.probe));
        let is_current = |(process, _): &Own| process.is_alive() || !any_runs && is_latest(process);
        let (current, ended) = all.into_iter().partition(is_current);
        Self { current, ended }
    }

    /// Returns as many as there are rows, with the selected one among them; and whether each is of an ended run.
    fn fitting(&self, rows: usize, context: &RenderContext) -> Vec<(Own<'a>, bool)> {
        let ended = self.ended.iter().map(|it| (*it, true));
        let mut all: Vec<_> = self.current.iter().map(|it| (*it, false)).chain(ended).collect();
        let (selected, last) = (selected(context), rows.saturating_sub(1));
        if let Some(place) = all.iter().position(|(it, _)| Some(id(it)) == selected).filter(|it| *it > last) {
            all.swap(last, place);
        }
        all.truncate(rows);
        all
    }
}

fn id((process, on): &Own) -> (ProbeId, u32) {
    (process.probe, on.ordinal)
}

fn selected(context: &RenderContext) -> Option<(ProbeId, u32)> {
    context.ui.process(context.session).map(|it| id(&it))
}

/// Returns the run and the rank of a process: a rank that was started again has the same.
fn name(process: &Process) -> Option<(String, u64)> {
    process.group().zip(process.rank())
}

/// Returns the latest probe of each rank.
fn ranks_latest(all: &[Own]) -> BTreeMap<(String, u64), ProbeId> {
    let mut probes: Vec<_> = all.iter().filter_map(|(process, _)| Some((name(process)?, process.probe))).collect();
    probes.sort();
    probes.into_iter().collect()
}

/// Returns the rows that step times and course of all listed ranks take, with the title.
pub(super) fn pace_height(context: &RenderContext) -> usize {
    let course = context.device().map_or(0, count);
    let Ranks { current, ended } = Ranks::of(context);
    let all = current.len() + ended.len();
    if all == 0 { 0 } else { 1 + all + usize::from(is_known(&current)) + course }
}

/// Draws the time of steps of the selected rank, then of the others, then which rank the others wait for, then those of
/// ended runs, and below them the course of the selected rank's device at those steps.
pub(super) fn draw_pace(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let (ranks, width) = (Ranks::of(context), usize::from(area.width));
    let Some((_, on)) = context.ui.process(context.session) else { return };
    let (Some(device), Some(span)) = (context.session.device(&on.device), context.ui.timeline.span(on)) else { return };
    let (from, to) = if span.axis == XAxis::Steps { span.whole } else { (0, 0) };
    let room = room(width);
    let column = |step: u64| {
        let part = u128::from(step.checked_sub(from).filter(|_| step <= to)?) * room as u128;
        u16::try_from(part / (u128::from(to - from) + 1)).ok()
    };
    let columns = |from: u64, to: u64| match (column(from), column(to)) {
        (Some(from), Some(to)) => from..to + 1,
        _ => 0..0,
    };
    let whole = VisibleRange { from, to, ..span };
    let course = along(device, on, (&whole, room), columns, context);
    let named = format!("step time · below, {} at these steps", device_name(device));
    let right = Span::styled(format!("steps {from} – {to}"), context.style(Role::Text));
    title(buffer, area, &named, vec![right], context);
    let waits = is_known(&ranks.current).then(|| waits_row(&ranks.current, room, columns));
    let others = 1 + course.len() + usize::from(waits.is_some());
    let shown = ranks.fitting(usize::from(area.height).saturating_sub(others).max(1), context);
    let place = |it: &pace::Stretch| column(it.step).map(usize::from);
    let means: Vec<Means> =
        shown.iter().map(|((_, on), _)| step_times::means(on.pace.stretches(), room, place)).collect();
    let scale = Scale::of(&means);
    let row = |((process, on), is_ended): &(Own, bool), means: &Means| {
        let bars = scale.map_or_else(String::new, |it| it.bars(means, &context.eighths()));
        let typical = on.pace.typical();
        let (role, words) = match (is_ended, typical) {
            (true, Some(it)) => (Role::Dim, format!("ended, {}", units::brief(it.us))),
            (true, None) => (Role::Dim, "ended".to_owned()),
            (false, it) => (Role::Spark, it.map_or_else(|| cells::UNKNOWN.to_owned(), |it| it.words())),
        };
        line(&messages::short(process), (&bars, context.style(role)), &words, room, context)
    };
    let rows =
        |ended: bool| shown.iter().zip(&means).filter(move |(it, _)| it.1 == ended).map(|(it, its)| row(it, its));
    let waits =
        waits.map(|(digits, words)| line(WAITS_LABEL, (&digits, context.style(Role::Text)), &words, room, context));
    let lines: Vec<Line> =
        rows(false).chain(waits).chain(rows(true)).chain(written(device, &course, room, context)).collect();
    for (row, line) in lines.iter().enumerate() {
        put(buffer, area, row + 1, line);
    }
}
