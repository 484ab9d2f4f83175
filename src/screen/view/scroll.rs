//! The lines of an open box from the scroll offset on, and the alerts among them, which can be selected.

use super::{RenderContext, put};
use crate::screen::{
    theme::Role,
    ui::{alert_list::Sight, mouse::Target},
};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};
use std::ops::Range;

/// How far the open box is scrolled, and can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrolled {
    /// The first visible line.
    pub scroll: usize,
    /// The largest offset.
    pub most: usize,
    /// How much of the selected alert is visible.
    pub sight: Sight,
}

/// A clickable item and its lines.
pub(super) type Spot = (Target, Range<usize>);

/// Moves the items of a part whose lines are put below others.
pub(super) fn moved(spots: Vec<Spot>, below: usize) -> Vec<Spot> {
    spots.into_iter().map(|(target, it)| (target, it.start + below..it.end + below)).collect()
}

/// Draws lines below a title, and scrolls so that the selected alert is visible.
pub(super) fn scrolled(
    buffer: &mut Buffer,
    area: Rect,
    lines: &[Line],
    spots: &[Spot],
    context: &RenderContext,
) -> Scrolled {
    let height = usize::from(area.height).saturating_sub(1);
    let most = lines.len().saturating_sub(height);
    let selected = context.selected_alert().and_then(|it| spots.iter().find(|spot| spot.0 == Target::Alert(it)));
    let mut scroll = context.ui.scroll.min(most);
    if let Some((_, place)) = selected.filter(|_| context.ui.sight.reveal) {
        // If it does not fit, show its beginning.
        scroll = scroll.max(place.end.saturating_sub(height)).min(place.start);
    }
    let row = |line: usize| {
        let y = u16::try_from(line.checked_sub(scroll)? + 1).ok().filter(|it| *it < area.height)?;
        Some(Rect { y: area.y + y, height: 1, ..area })
    };
    for (row, line) in lines.iter().skip(scroll).take(height).enumerate() {
        put(buffer, area, row + 1, line);
    }
    for (target, place) in spots {
        place.clone().filter_map(row).for_each(|it| context.claim(it, target.clone()));
    }
    let Some((_, place)) = selected else { return Scrolled { scroll, most, ..Scrolled::default() } };
    if let Some(row) = row(place.start) {
        select(buffer, row, context);
    }
    let sight = Sight { reveal: false, above: place.start < scroll, below: place.end > scroll + height };
    Scrolled { scroll, most, sight }
}

/// Marks a row as the selected one.
pub(super) fn select(buffer: &mut Buffer, row: Rect, context: &RenderContext) {
    buffer.set_style(row, context.style(Role::Selected));
    if let Some(cell) = buffer.cell_mut((row.x, row.y)) {
        cell.set_symbol("▸");
    }
}
