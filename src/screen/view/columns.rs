//! Columns that fit: the least important ones are dropped, the last one takes the rest.

use super::{cells, put};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

/// A column of figures, right-aligned.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// The heading above its figures.
    pub title: &'static str,
    /// Its fixed width.
    pub width: usize,
    /// Its importance: the lowest rank stays longest.
    pub rank: u8,
}

/// One row: a figure per column, then a text.
pub(super) struct TableRow {
    /// The figures. In a row without any, the text has the whole line.
    pub figures: Vec<(String, Style)>,
    /// The text.
    pub text: (String, Style),
    /// The style of the whole row, if it has one.
    pub style: Option<Style>,
}

/// Returns where [`draw`] draws the titles.
pub(super) fn titles(
    area: Rect,
    columns: &[Column],
    text_title: &'static str,
    text_least: usize,
) -> Vec<(Rect, &'static str)> {
    let kept = fitting(columns, usize::from(area.width).saturating_sub(text_least));
    let mut rest = Rect { height: area.height.min(1), ..area };
    let mut places = Vec::new();
    for column in kept.iter().filter_map(|it| columns.get(*it)) {
        let width = u16::try_from(column.width + 1).unwrap_or(u16::MAX).min(rest.width);
        places.push((Rect { width, ..rest }, column.title));
        (rest.x, rest.width) = (rest.x + width, rest.width - width);
    }
    places.push((rest, text_title));
    places
}

/// Draws the titles and the rows; the text keeps at least `text_least` columns.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    columns: &[Column],
    text_title: &str,
    rows: &[TableRow],
    text_least: usize,
    dim: Style,
) {
    let kept = fitting(columns, usize::from(area.width).saturating_sub(text_least));
    let text_width = usize::from(area.width)
        .saturating_sub(kept.iter().filter_map(|it| columns.get(*it)).map(|it| it.width + 1).sum::<usize>() + 1);
    let mut titles = String::new();
    for column in kept.iter().filter_map(|it| columns.get(*it)) {
        titles.push_str(&cells::right(column.title, column.width));
        titles.push(' ');
    }
    titles.push(' ');
    titles.push_str(&cells::left(text_title, text_width));
    put(buffer, area, 0, &Line::styled(titles, dim));
    for (place, row) in places(area).zip(rows) {
        if row.figures.is_empty() {
            let text = cells::elide(&row.text.0, usize::from(area.width).saturating_sub(1));
            put(buffer, place, 0, &Line::styled(format!(" {text}"), row.text.1));
            continue;
        }
        let mut spans = Vec::with_capacity(kept.len() + 1);
        for place in &kept {
            if let Some(((figure, style), column)) = row.figures.get(*place).zip(columns.get(*place)) {
                spans.push(Span::styled(cells::right(figure, column.width), *style));
                spans.push(Span::raw(" "));
            }
        }
        spans.push(Span::raw(" "));
        spans.push(Span::styled(cells::left(&row.text.0, text_width), row.text.1));
        let mut line = Line::from(spans);
        if let Some(style) = row.style {
            // The row's style overrides the figures', so that a selected row is one bar.
            line = line.spans.into_iter().map(|it| it.patch_style(style)).collect::<Line>().style(style);
        }
        put(buffer, place, 0, &line);
    }
}

/// Returns the places of the rows, below the titles.
pub(super) fn places(area: Rect) -> impl Iterator<Item = Rect> {
    (area.y..area.bottom()).skip(1).map(move |y| Rect { y, height: 1, ..area })
}

/// Returns the indices of the columns that fit, dropping the least important ones.
fn fitting(columns: &[Column], width: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|place| columns.get(*place).map(|column| column.rank));
    let mut left = width;
    let mut kept = Vec::new();
    for place in order {
        let Some(column) = columns.get(place) else { continue };
        let Some(rest) = left.checked_sub(column.width + 1) else { break };
        left = rest;
        kept.push(place);
    }
    kept.sort_unstable();
    kept
}

/// Returns the first visible row, so that `selected` of `count` rows is among `height`.
pub(super) fn first_row(selected: usize, count: usize, height: usize) -> usize {
    selected.saturating_sub(height.saturating_sub(1)).min(count.saturating_sub(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_column_goes_first() {
        let column = |width, rank| Column { title: "", width, rank };
        let columns = [column(5, 0), column(9, 2), column(5, 1)];
        assert_eq!(fitting(&columns, 30), [0, 1, 2]);
        assert_eq!(fitting(&columns, 13), [0, 2]);
        assert!(fitting(&columns, 0).is_empty());
    }

    #[test]
    fn the_selected_row_is_always_among_those_shown() {
        for count in 0..20 {
            for height in 1..20 {
                for selected in 0..count {
                    let first = first_row(selected, count, height);
                    assert!(first <= selected && selected < first + height, "{selected} {count} {height}");
                }
            }
        }
    }
}
