//! The course of a device's metrics: a row of bars for each, aligned with an axis of time or of steps.

mod ranks;
mod waits;

pub(super) use self::ranks::{draw as draw_pace, height as pace_height};
use super::{RenderContext, cells, device_name, heading, put, title};
use crate::{
    facts::{
        metrics::{Metric, Reason, Unit},
        units::{self, Stamp},
    },
    model::session::{
        course::{Full, Pick, Row, Stretch, TABLE},
        device::Device,
        process::OnDevice,
    },
    screen::{
        theme::Role,
        ui::timeline::{Span as Shown, XAxis},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use std::ops::Range;

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

fn bars(device: &Device, row: &Row, width: usize, placed: &[(Range<usize>, Stretch)], symbols: &[char; 8]) -> String {
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
    let value = |row: &Row| {
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
    (shown, width): (&Shown, usize),
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
