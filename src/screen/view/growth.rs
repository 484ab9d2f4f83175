//! Growth of the selected process's memory: the whole run as a curve, the fitted line ahead of it, the verdict in
//! words.

use crate::{
    facts::{
        event::DriverState,
        units::{self, Bytes, Stamp},
    },
    model::{
        analysis::{
            curve::Curve,
            episode::{Axis, Resource},
        },
        findings::Finding,
        session::{
            process::{OnDevice, Process},
            timeline::Level,
        },
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells, messages::short, processes, put, title, verdict},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Most rows of a curve.
const CURVE_MAX: usize = 12;

/// The columns of a title apart from its name and its right end.
const TITLE: usize = 8;

/// The columns kept for the scale.
const SCALE: usize = 11;

/// Shown next to the lowest figure of an axis that does not begin at 0.
pub(super) const CUT: &str = "⋮";

/// Returns the rows that the box wants, if the processes below it want `below`.
pub(super) fn height(area: Rect, below: usize) -> usize {
    match usize::from(area.height) {
        rows @ 0..=3 => rows,
        4..=6 => 2,
        rows => rows.saturating_sub(below).clamp(3, (rows / 2).max(3)).min(CURVE_MAX),
    }
}

/// Draws the title and the curve, or how to get one.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    match context.ui.process(context.session) {
        Some((process, it)) => of_process(buffer, area, context, process, it),
        None => of_device(buffer, area, context),
    }
}

fn of_process(buffer: &mut Buffer, area: Rect, context: &RenderContext, process: &Process, it: &OnDevice) {
    let growing = context.findings.growing(process.probe, it.ordinal);
    let growing = growing.or_else(|| context.findings.growing_on_host(process.probe));
    // What is worse than growth is shown instead of it.
    let strained = context.findings.strained(process.probe, it.ordinal);
    let strained = strained.filter(|it| growing.is_none_or(|growing| it.1.severity > growing.severity));
    let growing = growing.filter(|_| strained.is_none());
    let plotted = growing.and_then(|growing| history(process, it, growing));
    let plotted = plotted.or_else(|| strained.and_then(|(resource, _)| Some((resource, it.growth.curve(resource)?))));
    // The allocator takes more from the device, and what is allocated does not show it.
    let rises = plotted.is_none() && it.growth.watched() >= it.growth.enough() && verdict::rises(it);
    let plotted =
        plotted.or_else(|| Some((Resource::Reserved, it.growth.curve(Resource::Reserved).filter(|_| rises)?)));
    let plotted = plotted.or_else(|| Some((Resource::Allocated, it.growth.curve(Resource::Allocated)?)));
    let resource = plotted.map_or(Resource::Allocated, |it| it.0);
    let owner = short(process);
    let mark = process.marks.last().map_or_else(String::new, |it| {
        format!(" · {} {}", cells::raw(&it.name), it.value.map_or_else(String::new, |value| value.to_string()))
    });
    let ended = process.ended_at().map_or_else(String::new, |_| format!(" · {}", processes::end(process, it, context)));
    let name = format!("{} · {owner}{mark}{ended}", resource.name());
    let (words, role) = match (growing, strained) {
        (None, Some((_, it))) => (it.cause.entry().title.to_owned(), verdict::role(it.severity)),
        (Some(growing), _) => {
            // The forecast is worth more than the end of the name, and the beginning of the name more than all of it.
            let room = usize::from(area.width).saturating_sub(cells::width(name.trim_end()) + TITLE);
            let slope = if growing.resource == Some(resource) { growing.slope() } else { growing.growth() };
            (of_growth(growing, slope, verdict::continues(process, context), room), verdict::role(growing.severity))
        }
        (None, None) if rises => ("rises, no growth found".to_owned(), Role::Text),
        (None, None) => nothing_grows(it, context.found_for(process, it).is_some_and(|it| it.approximate)),
    };
    let role = if process.is_alive() { role } else { Role::Dim };
    title(buffer, area, name.trim_end(), vec![Span::styled(words, context.style(role))], context);
    let Some((_, curve)) = plotted else {
        let why = if it.step.is_none() { "no step yet" } else { "no figure yet" };
        put(buffer, area, 1, &Line::styled(format!(" {why}"), context.style(Role::Dim)));
        return;
    };
    let growing = growing.filter(|it| it.resource == Some(resource));
    plot(buffer, area, context, curve, growing.map(|it| (it, verdict::continues(process, context))), Unit::Bytes);
}

/// Draws the unused part of reserved memory over the run.
pub(super) fn unused(buffer: &mut Buffer, area: Rect, process: &Process, it: &OnDevice, context: &RenderContext) {
    let mut curve = Curve::default();
    for column in it.timeline.columns() {
        let (active, reserved) = (column.high.get(Level::Active), column.high.get(Level::Reserved));
        if let (Some(active), Some(reserved)) = (active, reserved.filter(|it| *it > 0)) {
            let place =
                if it.step.is_some() { column.step.unwrap_or(0) } else { column.at.since(Stamp(0)) / 1_000_000 };
            curve.push(place, u64::try_from(u128::from(reserved - active) * 1000 / u128::from(reserved)).unwrap_or(0));
        }
    }
    let now = context.found_for(process, it).and_then(|it| it.fragmentation.share());
    let now = vec![Span::styled(cells::share(now), context.style(Role::Text))];
    title(buffer, area, "reserved and not in use", now, context);
    plot(buffer, area, context, &curve, None, Unit::Permille);
}

/// Returns the curve of a growing resource. Any device of the process has the curve of host memory.
fn history<'a>(process: &'a Process, it: &'a OnDevice, growing: &Finding) -> Option<(Resource, &'a Curve)> {
    let resource = growing.resource?;
    let others = process.devices.iter().filter(|_| growing.ordinal.is_none());
    let mut on = std::iter::once(it).chain(others).filter(|on| on.growth.axis() == Some(growing.axis));
    Some((resource, on.find_map(|on| on.growth.curve(resource))?))
}

/// Draws used memory of the selected device over its known past.
pub(super) fn of_device(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(device) = context.device() else { return };
    let span = device.history.ends().map_or(0, |(first, last)| last - first);
    let span = vec![Span::styled(format!("the last {}", units::duration(span)), context.style(Role::Dim))];
    title(buffer, area, "used on the device", span, context);
    if context.session.driver_shown().is_some_and(|it| !matches!(it.1, DriverState::Up { .. }))
        && device.history.buckets().is_empty()
    {
        return;
    }
    plot(buffer, area, context, &device.history, None, Unit::BytesOverTime);
}

/// Returns the slope and when the device is full at that pace: as much as fits.
fn of_growth(it: &Finding, slope: Option<String>, is_alive: bool, room: usize) -> String {
    let slope = slope.unwrap_or_else(|| cells::UNKNOWN.to_owned());
    let since = format!("since {}", it.since());
    // An ended process does not fill the device.
    let forecast = it.forecast().filter(|_| is_alive);
    let mut choices = vec![format!("{slope} {since}"), slope.clone()];
    if let Some(full) = forecast {
        choices.splice(0..0, [format!("growing {slope} {since} · {full}"), format!("{slope} · {full}")]);
        // The end is worth more than the beginning.
        let soon = it.left().map(|it| format!("{slope} · full in {it}"));
        choices.splice(2..2, soon);
    }
    choices.into_iter().find(|it| cells::width(it) <= room).unwrap_or(slope)
}

fn nothing_grows(it: &OnDevice, is_approximate: bool) -> (String, Role) {
    let (watched, enough) = (it.growth.watched(), it.growth.enough());
    let unit = if it.growth.axis() == Some(Axis::Seconds) { "s" } else { "steps" };
    if watched < enough {
        (format!("growth: {} seen", it.growth.progress()), Role::Dim)
    } else {
        (format!("{}flat over {watched} {unit}", if is_approximate { "≈ " } else { "" }), Role::Good)
    }
}

/// Draws a thin line with the scale at the left; from the start of growth on, bars in its colour, and ahead of them the
/// fitted line.
fn plot(
    buffer: &mut Buffer,
    area: Rect,
    context: &RenderContext,
    curve: &Curve,
    growing: Option<(&Finding, bool)>,
    unit: Unit,
) {
    let scale = if usize::from(area.width) > 3 * SCALE { SCALE + 1 } else { 0 };
    let left = u16::try_from(scale + 1).unwrap_or(u16::MAX).min(area.width);
    let top = area.height.min(1);
    let inner = Rect { x: area.x + left, y: area.y + top, width: area.width - left, height: area.height - top };
    let fit = growing.and_then(|(it, is_alive)| Fit::new(curve, it, is_alive));
    let plane =
        fit.as_ref().map_or_else(|| Plane::new(curve, inner, unit.shortest_axis(), None), |it| it.plane(curve, inner));
    let Some(mut plane) = plane else { return };
    if let Unit::Permille = unit {
        plane.low = 0;
    }
    let high = unit.written(plane.high);
    let low = unit.beside(&high, plane.low);
    let labels = [high, low];
    bars(buffer, area, (scale, &labels), &plane, growing.map(|it| it.0), context);
    if let Some(fit) = fit {
        fit.draw(buffer, &plane, context);
    }
}

/// The unit of the curve.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    /// Bytes of a device, over an axis of µs.
    BytesOverTime,
    /// Shares, which begin at 0.
    Permille,
}

impl Unit {
    /// The first minute is filled from the left, so that a new curve is not redrawn completely with each reading.
    fn shortest_axis(self) -> u64 {
        if matches!(self, Self::BytesOverTime) { 60_000_000 } else { 0 }
    }

    /// Formats a value in the unit of the label at the top.
    fn beside(self, top: &str, value: u64) -> String {
        match self {
            Self::Bytes | Self::BytesOverTime => cells::in_unit_of(top, value),
            Self::Permille => self.written(value),
        }
    }

    fn written(self, value: u64) -> String {
        match self {
            Self::Bytes | Self::BytesOverTime => cells::bytes(Some(Bytes(value))),
            Self::Permille => cells::share(Some(value as f64 / 1000.0)),
        }
    }
}

fn bars(
    buffer: &mut Buffer,
    area: Rect,
    (scale, [high, low]): (usize, &[String; 2]),
    plane: &Plane,
    growing: Option<&Finding>,
    context: &RenderContext,
) {
    let rows = plane.rows();
    let symbols = context.eighths();
    let from = growing.map_or(plane.highs.len(), |it| plane.column(it.since_step));
    let role = growing.map_or(Role::Spark, |it| verdict::role(it.severity));
    // A column without a sample belongs to the stretch before it.
    let mut before = None;
    let heights: Vec<usize> = plane
        .highs
        .iter()
        .map(|it| {
            before = it.or(before);
            before.map_or(0, |value| plane.level(value))
        })
        .collect();
    let (level, grown) = heights.split_at_checked(from).unwrap_or((&heights, &[]));
    for row in 0..rows {
        let label = if row == 0 {
            high.clone()
        } else if row + 1 == rows {
            low.clone()
        } else {
            String::new()
        };
        let floor = (rows - 1 - row) * symbols.len();
        let left = std::iter::once(&0).chain(level);
        let line: String = left.zip(level).map(|(before, it)| stroke(*before, *it, floor)).collect();
        let bars: String = grown.iter().map(|it| symbol(it.saturating_sub(floor), &symbols)).collect();
        let label = if scale > 0 { cells::right(&label, scale) } else { String::new() };
        let axis = if row + 1 == rows && plane.low > 0 { CUT } else { " " };
        let line = Line::from(vec![
            Span::styled(format!("{label}{axis}"), context.style(Role::Dim)),
            Span::styled(line, context.style(Role::Spark)),
            Span::styled(bars, context.style(role)),
        ]);
        put(buffer, area, row + 1, &line);
    }
}

fn symbol(levels: usize, symbols: &[char; LEVELS]) -> char {
    levels.checked_sub(1).map_or(' ', |it| symbols[it.min(symbols.len() - 1)])
}

/// Returns a thin line's part of the cell whose levels begin above `floor`: a dash at its height, or what connects it
/// to the column before.
fn stroke(before: usize, level: usize, floor: usize) -> char {
    let cell = floor + 1..=floor + LEVELS;
    let is_between = |one: usize, other: usize| one < *cell.start() && *cell.end() < other;
    match level.checked_sub(1).filter(|_| cell.contains(&level)) {
        Some(level) => dash(level),
        None if before > 0 && (is_between(before, level) || is_between(level, before)) => '⡇',
        None => ' ',
    }
}

/// Longest forecast drawn ahead of the curve, in multiples of the curve's span; beyond it there are only words.
const AHEAD: u64 = 3;

/// Below this many rows a forecast has no room for its words.
const ROWS_AHEAD: usize = 3;

/// Columns between two dashes.
const EVERY: usize = 2;

/// A line, in positions on the axis and bytes.
struct Fit<'a> {
    growing: &'a Finding,
    height: f64,
    slope: f64,
    /// Where the device is full; `None` if that is unknown, or too far away to draw.
    full: Option<u64>,
}

impl<'a> Fit<'a> {
    /// Fits a finding's line to its curve. An ended process does not fill the device.
    fn new(curve: &Curve, growing: &'a Finding, is_alive: bool) -> Option<Self> {
        let slope = growing.bytes_per_step?;
        let height = curve.height(growing.since_step, slope)?;
        let (first, last) = curve.ends()?;
        let left = match growing.axis {
            Axis::Steps => growing.full_in_steps,
            Axis::Seconds => growing.full_in_us.map(|it| it / 1_000_000),
        };
        let near = left.filter(|it| is_alive && *it > 0 && *it <= AHEAD.saturating_mul(last - first));
        Some(Self { growing, height, slope, full: near.and_then(|it| last.checked_add(it)) })
    }

    /// Returns the curve with the forecast ahead of it, if both fit.
    fn plane(&self, curve: &Curve, area: Rect) -> Option<Plane> {
        let ahead = self.full.filter(|_| usize::from(area.height) >= ROWS_AHEAD);
        let plane = ahead.and_then(|it| Plane::new(curve, area, 0, Some((it, self.at(it as f64)))));
        plane.filter(|it| self.has_room(it)).or_else(|| Plane::new(curve, area, 0, None))
    }

    /// Draws the line ahead of the curve; the curve itself shows measurements.
    fn draw(&self, buffer: &mut Buffer, plane: &Plane, context: &RenderContext) {
        if !plane.is_ahead {
            return;
        }
        let (words, width) = (self.words(), usize::from(plane.area.width));
        for (at, c) in (width.saturating_sub(cells::width(&words))..).zip(words.chars()) {
            draw_cell(buffer, plane, at, 0, c, context);
        }
        for column in (plane.highs.len()..width).filter(|it| (width - 1 - it) % EVERY == 0) {
            let level = self.level(plane, column);
            draw_cell(buffer, plane, column, level / LEVELS, dash(level), context);
        }
    }

    /// Describes where the device is full.
    fn words(&self) -> String {
        format!("full at {}", self.growing.place(self.full.unwrap_or(0)))
    }

    /// Whether the words fit below the line, ahead of the curve.
    fn has_room(&self, plane: &Plane) -> bool {
        let words = cells::width(&self.words()) + 1;
        let from = usize::from(plane.area.width).checked_sub(words);
        from.is_some_and(|it| it >= plane.highs.len() && self.level(plane, it) >= LEVELS)
    }

    fn at(&self, x: f64) -> u64 {
        units::whole(self.height + self.slope * (x - self.growing.since_step as f64))
    }

    /// Returns the level of the line in a column, from 0.
    fn level(&self, plane: &Plane, column: usize) -> usize {
        plane.level(self.at(plane.place(column))) - 1
    }
}

/// Draws one cell; rows count from the bottom.
fn draw_cell(buffer: &mut Buffer, plane: &Plane, column: usize, row: usize, symbol: char, context: &RenderContext) {
    let (Ok(column), Ok(row)) = (u16::try_from(column), u16::try_from(row)) else { return };
    if column < plane.area.width
        && row < plane.area.height
        && let Some(cell) = buffer.cell_mut((plane.area.x + column, plane.area.bottom() - 1 - row))
    {
        cell.set_char(symbol).set_style(context.style(Role::Text));
    }
}

/// Heights that a cell can show.
const LEVELS: usize = 8;

/// A dash at each height within a cell, from the bottom: it differs from any bar, with or without colours.
const DASHES: [char; 4] = ['⣀', '⠤', '⠒', '⠉'];

/// A curve's scale spans at least this part of its top, so that noise does not look large.
const FLATTEST: u64 = 20;

/// The axis ends at a multiple of this part of the span, so that a new reading changes the end of the frame and not all
/// of it, which is expensive over a slow line.
const ENDS: u32 = 3;

/// A curve in an area.
struct Plane {
    /// Its cells.
    area: Rect,
    /// The highest value of each column with a sample; none ahead of the curve.
    highs: Vec<Option<u64>>,
    /// The value of the lowest level.
    low: u64,
    /// The value of the highest level.
    high: u64,
    /// Whether there is a forecast ahead of the curve.
    is_ahead: bool,
    first: u64,
    last: u64,
}

impl Plane {
    /// Creates a plane for a curve over an axis of at least `shortest`, with room ahead of it up to a position and a
    /// value. `None` for an empty curve.
    fn new(curve: &Curve, area: Rect, shortest: u64, ahead: Option<(u64, u64)>) -> Option<Self> {
        let (first, end) = curve.ends()?;
        let span = grid(end - first).max(shortest);
        let last = ahead.map_or_else(|| first.saturating_add(span), |it| it.0.max(end));
        let highs = curve.highs_to(last, usize::from(area.width));
        let known = || highs.iter().flatten().copied();
        let high = known().max()?.max(ahead.map_or(0, |it| it.1));
        let low = known().min()?.min(high - high / FLATTEST);
        Some(Self { area, highs, low, high, is_ahead: ahead.is_some(), first, last })
    }

    /// Returns the rows of cells.
    fn rows(&self) -> usize {
        usize::from(self.area.height)
    }

    /// Returns the column of a position on the axis; the nearest for one outside.
    fn column(&self, x: u64) -> usize {
        let place = u128::from(x.clamp(self.first, self.last) - self.first) * u128::from(self.area.width);
        usize::try_from(place / (u128::from(self.last - self.first) + 1)).unwrap_or(0)
    }

    /// Returns the position in the middle of a column.
    fn place(&self, column: usize) -> f64 {
        let part = (column as f64 + 0.5) / f64::from(self.area.width.max(1));
        self.first as f64 + part * (self.last - self.first) as f64
    }

    /// Returns the levels of a value, at least one, so that it is visible; values outside are clamped.
    fn level(&self, value: u64) -> usize {
        let levels = self.rows() * LEVELS;
        let (part, span) = (u128::from(value.clamp(self.low, self.high) - self.low), u128::from(self.high - self.low));
        if span == 0 {
            return levels.div_ceil(2);
        }
        usize::try_from(part * (levels.max(1) - 1) as u128 / span).unwrap_or(0) + 1
    }
}

/// Returns the dash of a level, counted from 0.
pub(super) fn dash(level: usize) -> char {
    DASHES.get(level % LEVELS * DASHES.len() / LEVELS).copied().unwrap_or(' ')
}

/// Rounds a span up to a multiple of an eighth to a sixteenth of it.
fn grid(span: u64) -> u64 {
    let part = span.checked_ilog2().map_or(1, |it| 1 << it.saturating_sub(ENDS));
    span.checked_next_multiple_of(part).unwrap_or(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_few_places_and_is_never_far_ahead() {
        let ends: std::collections::BTreeSet<u64> = (1000..2000).map(grid).collect();
        assert!(ends.len() <= 10, "{ends:?}");
        for span in [0, 1, 7, 8, 100, 12_345, u64::MAX - 1, u64::MAX] {
            assert!(grid(span) >= span && grid(span) - span <= span / 8, "{span}: {}", grid(span));
        }
    }

    #[test]
    fn one_more_value_leaves_what_was_drawn() {
        let area = Rect::new(0, 0, 97, 4);
        let mut curve = Curve::default();
        (0..200).for_each(|it| curve.push(it, it * it % 31));
        let mut moved = 0;
        for it in 200..240 {
            let before = Plane::new(&curve, area, 0, None).unwrap();
            curve.push(it, it * it % 31);
            let after = Plane::new(&curve, area, 0, None).unwrap();
            assert!(after.highs.len() <= 97 && after.highs.len() > 85, "{}", after.highs.len());
            let same = before.highs.len().min(after.highs.len()) - 1;
            moved += usize::from(before.highs[..same] != after.highs[..same]);
        }
        assert!(moved <= 3, "{moved}");
    }
}
