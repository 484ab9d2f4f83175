//! The ranks, a cell each: the figure as a digit from 0 (best) to 9 (worst) and a colour, and a mark if gpuwatch found
//! something.

use super::{Scene, cell, mark, put, summary};
use crate::screen::{
    theme::Role,
    ui::mouse::Target,
    view::{table::first_row, title},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// What the signs mean.
const LEGEND: &str = " 0 best  9 worst  ! critical  + warning  - unknown  x ended  ? no link";

/// Rows from which on there is a legend.
const EXPLAINED: usize = 6;

/// The width of a cell with a mark of its own; if not all ranks fit so, a mark takes the digit's place.
const WIDE: usize = 2;

/// Draws the title, the cells and the legend; returns the cells in a row.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) -> usize {
    let listed = scene.ui.ranks(scene.overview);
    let style = scene.context.style(Role::Dim);
    let height = usize::from(area.height);
    let (head, foot) = (usize::from(height > 2), usize::from(height >= EXPLAINED));
    let rows = height.saturating_sub(head + foot);
    let inner = usize::from(area.width).saturating_sub(2);
    let cell_width = if listed.len() <= inner / WIDE * rows { WIDE } else { 1 };
    let columns = inner / cell_width;
    if columns == 0 || rows == 0 {
        return 0;
    }
    let selected = scene.ui.rank_place(&listed, scene.overview);
    let first = first_row(selected / columns, listed.len().div_ceil(columns), rows);
    if head > 0 {
        let right = summary(scene).map(|it| Span::styled(it, style)).into_iter().collect();
        let hidden = listed.len() > columns * rows;
        let range =
            if hidden { format!(" {}–{}", first * columns + 1, (first + rows) * columns) } else { String::new() };
        let name = format!("ranks by {}{range}", scene.ui.figure.row().label);
        title(buffer, area, &name, right, &scene.context);
    }
    if listed.is_empty() {
        let words = if scene.overview.ranks.is_empty() { " no rank yet" } else { " no rank matches the filter" };
        put(buffer, area, head, &Line::styled(words, style));
    }
    for (place, rank) in listed.iter().enumerate().skip(first * columns).take(columns * rows) {
        let (row, column) = (place / columns - first, place % columns);
        let at = |offset: usize| u16::try_from(offset).unwrap_or(u16::MAX);
        let own = Rect {
            x: area.x.saturating_add(1 + at(column * cell_width)),
            y: area.y.saturating_add(at(head + row)),
            width: at(cell_width),
            height: 1,
        };
        let own = own.intersection(area);
        put(buffer, own, 0, &line(*rank, cell_width, scene));
        if place == selected {
            buffer.set_style(own, scene.context.style(Role::Selected));
        }
        scene.context.claim(own, Target::Line(place));
    }
    if foot > 0 {
        put(buffer, area, height - 1, &Line::styled(LEGEND, style));
    }
    columns
}

fn line(place: usize, width: usize, scene: &Scene) -> Line<'static> {
    let Some(it) = scene.overview.ranks.get(place) else { return Line::default() };
    let (digit, role) = cell(it, scene);
    let found = mark(it.worst.as_ref().map(|worst| worst.severity)).filter(|_| !it.ended);
    let span = |(sign, role): (char, Role)| Span::styled(sign.to_string(), scene.context.style(role));
    if width < WIDE {
        return Line::from(span(found.unwrap_or((digit, role))));
    }
    Line::from(vec![span((digit, role)), span(found.unwrap_or((' ', Role::Text)))])
}
