//! Memory over the events of a trace: what was live, up to what segments had.

use super::Scene;
use crate::{
    facts::units::Bytes,
    model::{
        analysis::ladder::Gap,
        trace::{History, Stretch},
    },
    screen::{
        theme::Role,
        ui::mouse::Target,
        view::{cells, ladder::glyph, put},
    },
};
use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};
use std::ops::Range;

/// The columns of the scale, and the least width of a picture that has one.
const SCALE: u16 = 12;
const LEAST: u16 = 36;

/// Heights that a cell can show.
const EIGHTHS: u128 = 8;

/// What marks the peak, a failed request and the cursor.
const PEAK: &str = "◆";
const FAILED: &str = "✕";
const CURSOR: &str = "▲";

/// Draws a range of a device's events; below it a row with the marks and the range's ends.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    history: &History,
    range: &Range<usize>,
    cursor: Option<usize>,
    scene: &Scene,
) {
    let scale = if area.width >= LEAST { SCALE } else { 0 };
    let plot = Rect { x: area.x + scale, width: area.width - scale, ..area };
    let rows = plot.height.saturating_sub(1);
    if rows == 0 || plot.width == 0 || range.is_empty() {
        return;
    }
    let plot = Rect { height: rows, ..plot };
    let columns = columns(history, range, plot.width);
    let top = columns.iter().map(|it| it.reserved.max(it.live)).max().unwrap_or(0).max(1);
    for (x, stretch) in (plot.x..).zip(&columns) {
        for row in 0..rows {
            let (sign, style) = cell(stretch, row, rows, top, scene);
            if let Some(cell) = buffer.cell_mut((x, plot.bottom() - 1 - row)) {
                cell.set_char(sign).set_style(style);
            }
        }
    }
    if scale > 0 {
        let place = Rect { x: area.x, width: scale - 1, height: rows, ..area };
        let dim = scene.context.style(Role::Dim);
        let highest = Bytes(top).to_string();
        let label =
            |bytes: u64| Line::styled(cells::right(&cells::in_unit_of(&highest, bytes), usize::from(place.width)), dim);
        put(buffer, place, 0, &label(top));
        if rows >= 7 {
            put(buffer, place, usize::from(rows / 2), &label(top / 2));
        }
        if rows > 1 {
            put(buffer, place, usize::from(rows - 1), &label(0));
        }
    }
    let last = range.end.saturating_sub(1);
    scene.context.claim(plot, Target::Run(range.start as u64, last as u64));
    let column = |event: usize| -> Option<u16> {
        let at = columns.iter().rposition(|it| it.first <= event).filter(|_| range.contains(&event))?;
        u16::try_from(at).ok()
    };
    let cursor = cursor.and_then(column);
    if let Some(column) = cursor {
        for row in plot.y..plot.bottom() {
            if let Some(cell) = buffer.cell_mut((plot.x + column, row)) {
                cell.set_char('│').set_style(scene.context.style(Role::Title));
            }
        }
    }
    let below = Rect { y: plot.bottom(), height: 1, ..plot };
    let failures = columns.iter().zip(0_u16..).filter(|it| it.0.failed).map(|it| (it.1, FAILED, Role::Bad));
    let peak = history.peak.and_then(column).map(|at| (at, PEAK, Role::Warning));
    let cursor = cursor.map(|at| (at, CURSOR, Role::Title));
    let marks: Vec<_> = peak.into_iter().chain(failures).chain(cursor).collect();
    ends(buffer, below, range, &marks.iter().map(|it| usize::from(it.0)).collect::<Vec<_>>(), scene);
    for (column, sign, role) in marks {
        if let Some(cell) = buffer.cell_mut((below.x + column, below.y)) {
            cell.set_symbol(sign).set_style(scene.context.style(role));
        }
    }
}

/// A stretch for each column; where there are fewer events than columns, one event has several.
fn columns(history: &History, range: &Range<usize>, width: u16) -> Vec<Stretch> {
    let width = usize::from(width);
    let all = history.stretches(range.clone(), width);
    if all.len() == width || all.is_empty() {
        return all;
    }
    (0..width).filter_map(|at| all.get(at * all.len() / width).copied()).collect()
}

/// What a cell shows: live memory in eighths, and above it what else segments had.
fn cell(it: &Stretch, row: u16, rows: u16, top: u64, scene: &Scene) -> (char, Style) {
    let eighths = |bytes: u64| u128::from(bytes) * u128::from(rows) * EIGHTHS / u128::from(top);
    let floor = u128::from(row) * EIGHTHS;
    let live = eighths(it.live).saturating_sub(floor).min(EIGHTHS);
    let ink = |gap| scene.context.style(Role::Gap(gap));
    if live == EIGHTHS {
        return (glyph(Gap::Wanted, &scene.context), ink(Gap::Wanted));
    }
    let is_reserved = eighths(it.reserved) > floor;
    if live == 0 {
        return if is_reserved {
            (glyph(Gap::Cached, &scene.context), ink(Gap::Cached))
        } else {
            (' ', Style::default())
        };
    }
    let part = usize::try_from(live).ok().and_then(|it| scene.context.eighths().get(it - 1).copied());
    (part.unwrap_or(' '), ink(Gap::Wanted))
}

/// The first event and the last, where they have room between the marks.
fn ends(buffer: &mut Buffer, row: Rect, range: &Range<usize>, marks: &[usize], scene: &Scene) {
    let dim = scene.context.style(Role::Dim);
    let (first, last) = (format!("event {}", range.start + 1), range.end.to_string());
    let width = usize::from(row.width);
    let Some(right) = width.checked_sub(last.len()).filter(|right| first.len() + 2 <= *right) else { return };
    if marks.iter().all(|column| *column > first.len()) {
        put(buffer, row, 0, &Line::styled(first, dim));
    }
    if marks.iter().all(|column| column + 1 < right) {
        put(buffer, row, 0, &Line::styled(last, dim).right_aligned());
    }
}
