//! The ladder large: the bar over the whole width, and each rung's name under its end.

use crate::{
    facts::units::Bytes,
    model::analysis::ladder::{Gap, Level},
    screen::{
        theme::Role,
        view::{RenderContext, cells, ladder, put},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The levels named under the bar, most important first.
const NAMED: [Level; 4] = [Level::Used, Level::Allocated, Level::Reserved, Level::Process];

/// Returns its rows.
pub(super) fn height(area: Rect) -> usize {
    bar_height(area) + names_height(area)
}

fn bar_height(area: Rect) -> usize {
    if area.height >= 28 { 3 } else { 2 }
}

fn names_height(area: Rect) -> usize {
    if area.height >= 28 { 3 } else { 2 }
}

/// Draws the bar and the names.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(found) = context.found() else { return };
    let (rungs, width) = (ladder::rungs(context), usize::from(area.width));
    let whole = found.ladder.total.unwrap_or_else(|| found.ladder.sum());
    let bar = ladder::bar(&rungs, whole, width, context);
    let rows = usize::from(area.height) / 2;
    for row in 0..rows {
        put(buffer, area, row, &bar);
    }
    let mut ends: Vec<(usize, Level, Bytes)> = Vec::new();
    let (mut column, mut sum, mut reserve) = (0, Bytes(0), None);
    for (rung, cells) in rungs.iter().zip(ladder::widths(&rungs, whole, width)) {
        let Some(bytes) = rung.bytes else { continue };
        (column, sum) = (column + cells, sum.plus(bytes));
        reserve = reserve.or(Some(bytes).filter(|_| rung.gap == Gap::Driver));
        let Some(name) = rung.gap.row().level.filter(|it| NAMED.contains(it)) else { continue };
        // If two end at the same cell, the outer one is named.
        ends.retain(|it| it.1 != name && it.0 != column);
        ends.push((column, name, sum));
    }
    let words = |end: Level, bytes: Bytes| match end {
        Level::Allocated => vec!["allocated".to_owned()],
        Level::Reserved => vec!["reserved".to_owned()],
        Level::Process if found.processes.len() == 1 => vec!["this process".to_owned()],
        Level::Process => vec![format!("{} processes", found.processes.len())],
        Level::Used => used(bytes, reserve),
        _ => Vec::new(),
    };
    let named = NAMED.iter().filter_map(|name| ends.iter().find(|it| it.1 == *name));
    let named: Vec<_> = named
        .map(|(column, end, bytes)| {
            let figure = cells::bytes(Some(*bytes));
            (*column, words(*end, *bytes).iter().map(|it| format!("{figure} {it}")).collect())
        })
        .collect();
    names(buffer, area, rows, &named, context);
}

/// Returns used memory as the driver counts it, and its own reserve, which it does not count; longest wording first.
fn used(sum: Bytes, reserve: Option<Bytes>) -> Vec<String> {
    let Some((reserve, used)) = reserve.filter(|it| it.0 > 0).and_then(|it| Some((it, sum.checked_sub(it)?))) else {
        return vec!["used".to_owned()];
    };
    let (used, reserve) = (cells::bytes(Some(used)), cells::bytes(Some(reserve)));
    vec![format!("= {used} used + {reserve} reserve"), "used + reserve".to_owned()]
}

/// Draws `╵51.61 GiB allocated` under the cell where it ends, on the first row with room; most important first, in the
/// longest wording that leaves room for the others.
fn names(buffer: &mut Buffer, area: Rect, first: usize, ends: &[(usize, Vec<String>)], context: &RenderContext) {
    let size = (usize::from(area.width), usize::from(area.height).saturating_sub(first));
    let longest = ends.iter().map(|it| it.1.len()).max().unwrap_or(0);
    let choices = (0..longest).rev().map(|choice| placed(ends, choice, size));
    // Among choices with as many names, the last one has the longest wording.
    for it in choices.max_by_key(Vec::len).unwrap_or_default() {
        let (tick, text) =
            (Span::styled("╵", context.style(Role::Border)), Span::styled(it.words, context.style(Role::Text)));
        let line = Line::from(if it.is_right { vec![tick, text] } else { vec![text, tick] });
        let offset = u16::try_from(it.from).unwrap_or(u16::MAX);
        let place = Rect { x: area.x.saturating_add(offset), ..area }.intersection(area);
        put(buffer, place, first + it.row, &line);
    }
}

/// A name with its place.
struct Placed<'a> {
    row: usize,
    from: usize,
    to: usize,
    /// Whether the words are to the right of their end.
    is_right: bool,
    words: &'a str,
}

/// Returns the names that have room, in the wording of this choice, or the shortest.
fn placed(ends: &[(usize, Vec<String>)], choice: usize, (width, rows): (usize, usize)) -> Vec<Placed<'_>> {
    let mut out: Vec<Placed> = Vec::new();
    for (column, choices) in ends {
        let Some(words) = choices.get(choice).or(choices.last()) else { continue };
        let (at, long) = (column.saturating_sub(1), cells::width(words) + 1);
        // The words are to the right of their end, or to its left if there is no room.
        let right = Some((at, true)).filter(|_| at + long <= width);
        let left = (at + 1).checked_sub(long).map(|it| (it, false));
        let mut places = (0..rows).flat_map(|row| right.into_iter().chain(left).map(move |place| (row, place)));
        let is_free =
            |row: usize, from: usize| out.iter().all(|it| it.row != row || from > it.to || from + long < it.from);
        if let Some((row, (from, is_right))) = places.find(|(row, place)| is_free(*row, place.0)) {
            out.push(Placed { row, from, to: from + long, is_right, words });
        }
    }
    out
}
