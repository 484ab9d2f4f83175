//! Whether the selected process's memory grows: the whole run as a curve, the verdict in words.

use super::{Look, cells, messages::short, put, title};
use crate::{
    analysis::{
        curve::Curve,
        growth::{ENOUGH, Trend},
    },
    event::DriverState,
    findings::ProcessFindings,
    session::process::{OnDevice, Process},
    theme::Role,
    units::{self, Bytes},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rows beyond which a curve says no more.
const CURVE_MAX: usize = 12;

/// Below this width the verdict leaves out the steps that it rests on.
const NARROW: usize = 60;

/// The columns kept for the scale.
const SCALE: usize = 11;

/// A curve's scale spans at least this part of its top, so that noise does not look like a mountain.
const FLATTEST: u64 = 20;

/// The rows that the box wants, where the processes below it want `below`.
pub(super) fn height(area: Rect, below: usize) -> usize {
    match usize::from(area.height) {
        rows @ 0..=3 => rows,
        4..=6 => 2,
        rows => rows.saturating_sub(below).clamp(3, (rows / 2).max(3)).min(CURVE_MAX),
    }
}

/// Draws title and curve, or how to get one.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    match chosen(look) {
        Some((process, it, found)) => of_process(buffer, area, look, process, it, found),
        None => of_device(buffer, area, look),
    }
}

/// The process of the selected row, if it is a probed one, else the first one.
fn chosen<'a>(look: &Look<'a>) -> Option<(&'a Process, &'a OnDevice, Option<&'a ProcessFindings>)> {
    let probed = look.session.probed(look.ui.listed(look.session));
    let (process, it) = *probed.get(look.ui.row).or(probed.first())?;
    Some((process, it, look.found_for(process, it)))
}

fn of_process(
    buffer: &mut Buffer,
    area: Rect,
    look: &Look,
    process: &Process,
    it: &OnDevice,
    found: Option<&ProcessFindings>,
) {
    let (words, mut role) = verdict(it.growth.trend(), usize::from(area.width) < NARROW);
    if !process.is_alive() {
        role = Role::Dim;
    }
    let approximate = found.is_some_and(|it| it.approximate);
    let words = if approximate { format!("≈ {words}") } else { words };
    let owner = short(process);
    let mark = process.marks.last().map_or_else(String::new, |it| {
        format!(" · {} {}", cells::raw(&it.name), it.value.map_or_else(String::new, |it| it.to_string()))
    });
    let ended = if process.is_alive() { "" } else { " · ended" };
    let name = format!("allocated · {owner}{mark}{ended}");
    title(buffer, area, name.trim_end(), vec![Span::styled(words, look.style(role))], look);
    let curve = it.growth.curve();
    if curve.buckets().is_empty() {
        let why = if it.step.is_none() { "no step yet" } else { "no figure yet" };
        put(buffer, area, 1, &Line::styled(format!(" {why}"), look.style(Role::Dim)));
        return;
    }
    plot(buffer, area, look, curve);
}

fn of_device(buffer: &mut Buffer, area: Rect, look: &Look) {
    let Some(device) = look.device() else { return };
    let buckets = device.history.buckets();
    let span = buckets.first().zip(buckets.last()).map_or(0, |(first, last)| last.x - first.x);
    let span = vec![Span::styled(format!("the last {}", cells::ago(span)), look.style(Role::Dim))];
    title(buffer, area, "used on the device", span, look);
    if look.session.driver.as_ref().is_some_and(|it| !matches!(it, DriverState::Up { .. }))
        && device.history.buckets().is_empty()
    {
        return;
    }
    plot(buffer, area, look, &device.history);
}

/// The verdict in words.
fn verdict(trend: Trend, short: bool) -> (String, Role) {
    let (words, steps, role) = match trend {
        Trend::TooFew { have } => return (format!("growth: {have} of {ENOUGH} steps seen"), Role::Dim),
        Trend::Flat { steps } => ("flat".to_owned(), steps, Role::Good),
        Trend::Growing { per_step, steps } => (format!("growing {}", units::per_step(per_step)), steps, Role::Warning),
        Trend::Shrinking { per_step, steps } => (format!("shrinking {}", units::per_step(per_step)), steps, Role::Good),
    };
    (if short { words } else { format!("{words} over {steps} steps") }, role)
}

/// Bars from the axis up, the scale's ends at the left.
fn plot(buffer: &mut Buffer, area: Rect, look: &Look, curve: &Curve) {
    let rows = usize::from(area.height).saturating_sub(1);
    let scale = if usize::from(area.width) > 3 * SCALE { SCALE + 1 } else { 0 };
    let width = usize::from(area.width).saturating_sub(scale + 1);
    let columns = curve.highs(width);
    let (Some(high), Some(low)) = (columns.iter().flatten().max(), columns.iter().flatten().min()) else { return };
    let low = (*low).min(high - high / FLATTEST);
    let levels = rows * LEVELS.len();
    // A column between two values has no sample of its own: it is part of the stretch before it.
    let mut before = None;
    let heights: Vec<usize> = columns
        .iter()
        .map(|it| {
            before = it.or(before);
            before.map_or(0, |value| level(value, low, *high, levels))
        })
        .collect();
    for row in 0..rows {
        let label = if row == 0 {
            cells::bytes(Some(Bytes(*high)))
        } else if row + 1 == rows {
            cells::bytes(Some(Bytes(low)))
        } else {
            String::new()
        };
        let floor = (rows - 1 - row) * LEVELS.len();
        let bars: String = heights.iter().map(|it| symbol(it.saturating_sub(floor))).collect();
        put(buffer, area, row + 1, &labelled(&label, scale, bars, look.style(Role::Spark), look));
    }
}

fn labelled(label: &str, scale: usize, bars: String, style: Style, look: &Look) -> Line<'static> {
    let label = if scale > 0 { cells::right(label, scale) } else { String::new() };
    Line::from(vec![Span::styled(label, look.style(Role::Dim)), Span::raw(" "), Span::styled(bars, style)])
}

/// Of `levels`, at least one: what is there is seen.
fn level(value: u64, low: u64, high: u64, levels: usize) -> usize {
    let (part, span) = (u128::from(value.saturating_sub(low)), u128::from(high - low));
    if span == 0 {
        return levels.div_ceil(2);
    }
    usize::try_from(part * (levels.max(1) - 1) as u128 / span).unwrap_or(0) + 1
}

fn symbol(levels: usize) -> char {
    levels.checked_sub(1).map_or(' ', |it| LEVELS[it.min(LEVELS.len() - 1)])
}
