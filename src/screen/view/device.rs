//! One device: its ladder large, every gap explained, its processes, the driver's figures; above them, all messages in
//! full.

mod facts;
mod metrics;
mod rungs;

pub(super) use self::metrics::others as other_metrics;
use super::{
    RenderContext, Scrolled, alerts, cells, device_name, growth,
    ladder::glyph,
    messages,
    scroll::{Spot, moved, scrolled},
    title,
};
use crate::{
    facts::units::Stamp,
    model::{
        analysis::ladder::{Gap, Rung},
        findings::DeviceFindings,
    },
    screen::theme::Role,
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
    let full = vec![Span::styled(facts::full(device, context), context.style(Role::Text))];
    title(buffer, area, &format!("{} · {}", device_name(device), cells::foreign(&device.name)), full, context);
    if area.height >= LADDER {
        let (mut ladder, rows) = (area, rungs::height(area));
        super::take(&mut ladder, 1);
        super::take(&mut area, rows);
        rungs::draw(buffer, Rect { height: u16::try_from(rows).unwrap_or(0), ..ladder }, context);
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
        let (facts, rows) = facts::lines(device, width + 1, context);
        spots.extend(moved(rows, lines.len()));
        lines.extend(facts);
    }
    scrolled(buffer, left, &lines, &spots, context)
}

fn facts_and_past(buffer: &mut Buffer, mut area: Rect, context: &RenderContext) {
    let Some(device) = context.device() else { return };
    let (lines, rows) = facts::lines(device, usize::from(area.width), context);
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
