//! The past of a rank's figure: a chart between its lowest and its highest value, and the rank's current figures.

use super::{Scene, cells, put, take};
use crate::{
    facts::units,
    model::cluster::{Answers, Past, overview::figure::Unit},
    screen::{
        theme::Role,
        view::{cluster, growth::CUT, title},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The columns of the scale, and the least width of a chart with one.
const SCALE: u16 = 15;
const LEAST: u16 = 40;

/// The least width with the lowest and the highest value beside the rank's name.
const WIDE: u16 = 72;

/// A scale spans at least this part of its highest value, so that noise does not look large.
const FLATTEST: f64 = 0.02;

/// Rows from which on the rank's figures are below the chart, and their rows.
const DETAILED: u16 = 10;
const DETAIL: u16 = 3;

/// A day in µs.
const DAY_US: u64 = 86_400_000_000;

/// Draws the title, the chart or why there is none, and the rank's current figures.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, answers: &Answers, scene: &Scene) {
    let (figure, span) = (scene.ui.figure, scene.ui.span.name());
    let rank = scene.ui.chosen(scene.overview).and_then(|it| scene.overview.ranks.get(it));
    let name = rank.map_or_else(|| "a rank without current figures".to_owned(), |it| cluster::name(it, scene));
    let past = answers.past.as_ref().filter(|it| it.figure == figure);
    let mut rest = area;
    let head = take(&mut rest, 1);
    let range = past.filter(|_| area.width >= WIDE).and_then(range).map(|(low, high)| {
        let (low, high) = (figure.format(low), figure.format(high));
        let words = if low == high { low } else { format!("{low} to {high}") };
        Span::styled(words, scene.context.style(Role::Dim))
    });
    title(
        buffer,
        head,
        &format!("{}, the last {span}: {name}", figure.row().label),
        range.into_iter().collect(),
        &scene.context,
    );
    if area.height >= DETAILED {
        let bottom = Rect { y: rest.bottom() - DETAIL, height: DETAIL, ..rest };
        rest.height -= DETAIL;
        let figures = rank.map(cluster::detail_figures).unwrap_or_default();
        let bottom = Rect { y: bottom.y + 1, height: DETAIL - 1, ..bottom };
        words(buffer, bottom, &figures, Role::Text, scene);
    }
    match past {
        Some(Past { trouble: Some(why), .. }) => {
            let rows = words(buffer, rest, &cells::foreign(why), Role::Warning, scene);
            take(&mut rest, rows);
        }
        Some(it) if it.end_us.is_some() && it.points.is_empty() => {
            let why = format!("{} has no value of the last {span}", cells::foreign(&answers.store));
            words(buffer, rest, &why, Role::Dim, scene);
        }
        Some(it) if it.end_us.is_some() => {}
        _ => drop(words(buffer, rest, &format!("asking {}", cells::foreign(&answers.store)), Role::Dim, scene)),
    }
    if let Some(it) = past.filter(|it| !it.points.is_empty()) {
        chart(buffer, rest, it, scene);
    }
}

/// Draws a sentence, and returns its rows.
fn words(buffer: &mut Buffer, area: Rect, words: &str, role: Role, scene: &Scene) -> usize {
    let lines = cells::wrapped(words, usize::from(area.width).saturating_sub(2));
    for (row, words) in lines.iter().enumerate() {
        put(buffer, area, row, &Line::styled(format!(" {words}"), scene.context.style(role)));
    }
    lines.len()
}

/// Returns the lowest and the highest value.
fn range(past: &Past) -> Option<(f64, f64)> {
    let values = || past.points.iter().map(|it| it.1);
    Some((values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?))
}

/// Draws scale and values, and below them the ends of the axis.
fn chart(buffer: &mut Buffer, area: Rect, past: &Past, scene: &Scene) {
    let Some((low, high)) = range(past) else { return };
    let rows = area.height.saturating_sub(1);
    let scale = if area.width >= LEAST { SCALE } else { 0 };
    let plot = Rect { x: area.x + scale, width: area.width - scale, height: rows, ..area };
    let margin = (high - low).max(high.abs() * FLATTEST) / 4.0;
    let bottom = if low < 0.0 { low } else { (low - margin).max(0.0) };
    let top = high.max(bottom + margin * 4.0);
    let symbols = scene.context.eighths();
    let eighths = symbols.len() as u64;
    for (x, value) in (plot.x..).zip(past.columns(usize::from(plot.width))) {
        let Some(value) = value else { continue };
        let level = ((value - bottom) / (top - bottom)).clamp(0.0, 1.0);
        // The lowest value is an eighth, so that it differs from a gap.
        let height = units::whole(level * (u64::from(rows) * eighths) as f64).max(1);
        for (row, y) in (0..).zip((plot.y..plot.bottom()).rev()) {
            let filled = height.saturating_sub(row * eighths).min(eighths);
            let symbol = filled.checked_sub(1).and_then(|it| symbols.get(usize::try_from(it).ok()?));
            if let Some((cell, symbol)) = buffer.cell_mut((x, y)).zip(symbol) {
                cell.set_char(*symbol).set_style(scene.context.style(Role::Spark));
            }
        }
    }
    let dim = scene.context.style(Role::Dim);
    if let Some(width) = scale.checked_sub(1) {
        let place = Rect { width, height: rows, ..area };
        let highest = past.figure.format(top);
        let written = |value: f64| match past.figure.row().unit {
            Unit::Bytes => cells::in_unit_of(&highest, units::whole(value)),
            _ => past.figure.format(value),
        };
        let label = |value: f64| Line::styled(cells::right(&written(value), usize::from(width)), dim);
        put(buffer, place, 0, &label(top));
        if rows >= 7 {
            put(buffer, place, usize::from(rows / 2), &label(f64::midpoint(bottom, top)));
        }
        if rows > 1 {
            put(buffer, place, usize::from(rows - 1), &label(bottom));
        }
        let cut = (place.right(), plot.bottom().saturating_sub(1));
        if let Some(cell) = buffer.cell_mut(cut).filter(|_| bottom > 0.0 && rows > 0) {
            cell.set_symbol(CUT).set_style(dim);
        }
    }
    let axis = Rect { y: plot.bottom(), height: 1, ..plot }.intersection(area);
    let begin = format!("{} earlier", units::duration(past.seconds * 1_000_000));
    let end = past.end_us.map_or_else(String::new, |it| format!("{}Z", cells::clock(it % DAY_US)));
    put(buffer, axis, 0, &Line::styled(end.clone(), dim).right_aligned());
    if cells::width(&begin) + cells::width(&end) + 2 <= usize::from(axis.width) {
        put(buffer, axis, 0, &Line::styled(begin, dim));
    }
}
