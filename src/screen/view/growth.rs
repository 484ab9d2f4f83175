//! Growth of the selected process's memory: the whole run as a curve, the fitted line ahead of it, the verdict in
//! words.

mod fit;
mod plane;

pub(super) use self::plane::dash;
use self::{fit::Fit, plane::Plane};
use super::{RenderContext, cells, messages::short, put, title, verdict};
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
    screen::theme::Role,
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
    let ended = if process.is_alive() { "" } else { " · ended" };
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
    if context.session.driver.as_ref().is_some_and(|it| !matches!(it, DriverState::Up { .. }))
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

fn symbol(levels: usize, symbols: &[char; plane::LEVELS]) -> char {
    levels.checked_sub(1).map_or(' ', |it| symbols[it.min(symbols.len() - 1)])
}

/// Returns a thin line's part of the cell whose levels begin above `floor`: a dash at its height, or what connects it
/// to the column before.
fn stroke(before: usize, level: usize, floor: usize) -> char {
    let cell = floor + 1..=floor + plane::LEVELS;
    let is_between = |one: usize, other: usize| one < *cell.start() && *cell.end() < other;
    match level.checked_sub(1).filter(|_| cell.contains(&level)) {
        Some(level) => dash(level),
        None if before > 0 && (is_between(before, level) || is_between(level, before)) => '⡇',
        None => ' ',
    }
}
