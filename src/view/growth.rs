//! Whether the selected process's memory grows: the whole run as a curve, the verdict in words.

use super::{Look, cells, messages::short, put, title, verdict};
use crate::{
    analysis::{
        curve::Curve,
        episode::{Axis, Resource},
    },
    event::DriverState,
    findings::Finding,
    session::process::{OnDevice, Process},
    theme::Role,
    units::{self, Bytes},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rows beyond which a curve says no more.
const CURVE_MAX: usize = 12;

/// The columns of a title that are neither its name nor what stands at its right end.
const TITLE: usize = 8;

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
        Some((process, it)) => of_process(buffer, area, look, process, it),
        None => of_device(buffer, area, look),
    }
}

/// The process of the selected row, if it is a probed one, else the first one.
fn chosen<'a>(look: &Look<'a>) -> Option<(&'a Process, &'a OnDevice)> {
    let probed = look.session.probed(look.ui.listed(look.session));
    probed.get(look.ui.row).or(probed.first()).copied()
}

fn of_process(buffer: &mut Buffer, area: Rect, look: &Look, process: &Process, it: &OnDevice) {
    let growing = look.findings.growing(process.probe, it.ordinal);
    let owner = short(process);
    let mark = process.marks.last().map_or_else(String::new, |it| {
        format!(" · {} {}", cells::raw(&it.name), it.value.map_or_else(String::new, |it| it.to_string()))
    });
    let ended = if process.is_alive() { "" } else { " · ended" };
    let name = format!("allocated · {owner}{mark}{ended}");
    let (words, role) = match growing {
        Some(growing) => {
            // The words are worth more than the end of the name, and the name's beginning more than all of them.
            let room = usize::from(area.width).saturating_sub(cells::width(name.trim_end()) + TITLE);
            (of_growth(growing, process.is_alive(), room), verdict::role(growing.severity))
        }
        None => nothing_grows(it, look.found_for(process, it).is_some_and(|it| it.approximate)),
    };
    let role = if process.is_alive() { role } else { Role::Dim };
    title(buffer, area, name.trim_end(), vec![Span::styled(words, look.style(role))], look);
    let curve = it.growth.curve();
    if curve.buckets().is_empty() {
        let why = if it.step.is_none() { "no step yet" } else { "no figure yet" };
        put(buffer, area, 1, &Line::styled(format!(" {why}"), look.style(Role::Dim)));
        return;
    }
    plot(buffer, area, look, curve, growing.filter(|it| it.resource == Some(Resource::Allocated)));
}

fn of_device(buffer: &mut Buffer, area: Rect, look: &Look) {
    let Some(device) = look.device() else { return };
    let buckets = device.history.buckets();
    let span = buckets.first().zip(buckets.last()).map_or(0, |(first, last)| last.x - first.x);
    let span = vec![Span::styled(format!("the last {}", units::duration(span)), look.style(Role::Dim))];
    title(buffer, area, "used on the device", span, look);
    if look.session.driver.as_ref().is_some_and(|it| !matches!(it, DriverState::Up { .. }))
        && device.history.buckets().is_empty()
    {
        return;
    }
    plot(buffer, area, look, &device.history, None);
}

/// The fitted slope and when the device is full at that pace: as many words as there is room for.
fn of_growth(it: &Finding, is_alive: bool, room: usize) -> String {
    let slope = it.growth().unwrap_or_else(|| cells::UNKNOWN.to_owned());
    let since = format!("since {}", it.place(it.since_step));
    // A process that has ended fills nothing any more.
    let forecast = it.forecast().filter(|_| is_alive);
    let mut choices = vec![format!("{slope} {since}"), slope.clone()];
    if let Some(full) = forecast {
        choices.splice(0..0, [format!("growing {slope} {since} · {full}"), format!("{slope} · {full}")]);
    }
    choices.into_iter().find(|it| cells::width(it) <= room).unwrap_or(slope)
}

fn nothing_grows(it: &OnDevice, is_approximate: bool) -> (String, Role) {
    let (watched, enough) = (it.growth.watched(), it.growth.enough());
    let unit = if it.growth.axis() == Some(Axis::Seconds) { "s" } else { "steps" };
    if watched < enough {
        (format!("growth: {watched} of {enough} {unit} seen"), Role::Dim)
    } else {
        (format!("{}flat over {watched} {unit}", if is_approximate { "≈ " } else { "" }), Role::Good)
    }
}

/// Bars from the axis up, the scale's ends at the left; those of a growth in its own colour.
fn plot(buffer: &mut Buffer, area: Rect, look: &Look, curve: &Curve, growing: Option<&Finding>) {
    let rows = usize::from(area.height).saturating_sub(1);
    let scale = if usize::from(area.width) > 3 * SCALE { SCALE + 1 } else { 0 };
    let width = usize::from(area.width).saturating_sub(scale + 1);
    let columns = curve.highs(width);
    let (Some(high), Some(low)) = (columns.iter().flatten().max(), columns.iter().flatten().min()) else { return };
    let low = (*low).min(high - high / FLATTEST);
    let levels = rows * LEVELS.len();
    let from = growing.map_or(width, |it| curve.column(it.since_step, width));
    let role = growing.map_or(Role::Spark, |it| verdict::role(it.severity));
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
        let bars = |of: &[usize]| of.iter().map(|it| symbol(it.saturating_sub(floor))).collect::<String>();
        let (before, grown) = heights.split_at_checked(from).unwrap_or((&heights, &[]));
        let label = if scale > 0 { cells::right(&label, scale) } else { String::new() };
        let line = Line::from(vec![
            Span::styled(label, look.style(Role::Dim)),
            Span::raw(" "),
            Span::styled(bars(before), look.style(Role::Spark)),
            Span::styled(bars(grown), look.style(role)),
        ]);
        put(buffer, area, row + 1, &line);
    }
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
