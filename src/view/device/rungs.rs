//! The ladder large: the bar over the whole width, and under it each rung where it ends.

use crate::{
    analysis::ladder::Gap,
    theme::Role,
    units::Bytes,
    view::{Look, cells, ladder, put},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The names under the bar, the most telling first.
const NAMES_TOLD: [&str; 4] = ["taken", "allocated", "reserved", "probed"];

/// The rows that it takes.
pub(super) fn height(area: Rect) -> usize {
    bar_height(area) + names_height(area)
}

fn bar_height(area: Rect) -> usize {
    if area.height >= 28 { 3 } else { 2 }
}

fn names_height(area: Rect) -> usize {
    if area.height >= 28 { 3 } else { 2 }
}

/// Draws bar and names.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let Some(found) = look.found() else { return };
    let (rungs, width) = (ladder::rungs(look), usize::from(area.width));
    let whole = found.ladder.total.unwrap_or_else(|| found.ladder.sum());
    let bar = ladder::bar(&rungs, whole, width, look);
    let rows = usize::from(area.height) / 2;
    for row in 0..rows {
        put(buffer, area, row, &bar);
    }
    let mut ends: Vec<(usize, &str, Bytes)> = Vec::new();
    let (mut column, mut sum) = (0, Bytes(0));
    for (rung, cells) in rungs.iter().zip(ladder::widths(&rungs, whole, width)) {
        let Some(bytes) = rung.bytes else { continue };
        (column, sum) = (column + cells, sum.plus(bytes));
        let Some(name) = end(rung.gap) else { continue };
        // What is further out takes the name's place where both end.
        ends.retain(|it| it.1 != name && it.0 != column);
        ends.push((column, name, sum));
    }
    names(buffer, area, rows, &ends, look);
}

/// What is reached at the end of a gap.
fn end(gap: Gap) -> Option<&'static str> {
    match gap {
        Gap::Allocated | Gap::Rounding => Some("allocated"),
        Gap::Releasable | Gap::Cached | Gap::Reserved => Some("reserved"),
        Gap::NonTorch => Some("probed"),
        Gap::Others | Gap::Unattributed => Some("taken"),
        _ => None,
    }
}

/// `╵51.61 GiB allocated` under the cell that it ends in, on the first row that has room; the most telling first.
fn names(buffer: &mut Buffer, area: Rect, first: usize, ends: &[(usize, &str, Bytes)], look: &Look) {
    let width = usize::from(area.width);
    let mut taken: Vec<(usize, usize, usize)> = Vec::new();
    let told = NAMES_TOLD.iter().filter_map(|name| ends.iter().find(|it| it.1 == *name));
    for (column, name, bytes) in told {
        let words = format!("{} {name}", cells::bytes(Some(*bytes)));
        let (at, long) = (column.saturating_sub(1), cells::width(&words) + 1);
        // The words lie to the right of their end, or to its left where there is no room.
        let right = Some((at, true)).filter(|_| at + long <= width);
        let left = (at + 1).checked_sub(long).map(|it| (it, false));
        let rows = usize::from(area.height).saturating_sub(first);
        let places = (0..rows).flat_map(|row| right.into_iter().chain(left).map(move |place| (row, place)));
        let is_free = |row: usize, from: usize| taken.iter().all(|it| it.0 != row || from > it.2 || from + long < it.1);
        let Some((row, (from, is_right))) = { places }.find(|(row, place)| is_free(*row, place.0)) else { continue };
        taken.push((row, from, from + long));
        let (tick, text) = (Span::styled("╵", look.style(Role::Border)), Span::styled(words, look.style(Role::Text)));
        let line = Line::from(if is_right { vec![tick, text] } else { vec![text, tick] });
        let offset = u16::try_from(from).unwrap_or(u16::MAX);
        let place = Rect { x: area.x.saturating_add(offset), ..area }.intersection(area);
        put(buffer, place, first + row, &line);
    }
}
