//! The position of a replay: position and speed, the whole as a line with its events, and a message.

use super::{RenderContext, cells, footer, put};
use crate::{
    facts::units::Stamp,
    screen::theme::Role,
    storage::replay::{Position, Progress},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Clear, Widget},
};

/// Takes the last rows of a screen for the position and for the keys, which `keys` draws. Low screens have no row for
/// the keys beside a message of the replay; a question or an answer to the user takes it anyway.
pub(super) fn draw(
    buffer: &mut Buffer,
    rest: &mut Rect,
    whole: u16,
    context: &RenderContext,
    keys: impl FnOnce(&mut Buffer, Rect),
) {
    let Some(progress) = context.progress else { return };
    let height = if whole >= 20 { 3 } else { 2 }.min(rest.height);
    let bottom = Rect { y: rest.bottom() - height, height, ..*rest };
    rest.height -= height;
    let has_keys = match progress {
        Progress::Loading { read, total, glimpse } => {
            loading(buffer, bottom, context, (*read, *total), *glimpse);
            false
        }
        Progress::At(it) => {
            put(buffer, bottom, 0, &first(usize::from(bottom.width), context, it));
            if let Some((words, warns)) = &it.word {
                let words = cells::elide(&cells::raw(words), usize::from(bottom.width));
                let role = if *warns { Role::Warning } else { Role::Text };
                put(buffer, bottom, 1, &Line::styled(words, context.style(role)));
            }
            height > 2 || (height == 2 && it.word.is_none())
        }
    };
    let row = Rect { y: bottom.bottom().saturating_sub(1), height: height.min(1), ..bottom };
    if footer::has_text(context) {
        Clear.render(row, buffer);
        footer::draw(buffer, row, context);
    } else if has_keys {
        keys(buffer, row);
    }
}

/// Draws how much is read.
fn loading(buffer: &mut Buffer, area: Rect, context: &RenderContext, (read, total): (u64, u64), glimpse: bool) {
    let share = read.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let end = if glimpse { "; this is its end, without growth" } else { "" };
    let words = format!("reading the recording: {share} %{end}");
    put(buffer, area, 0, &Line::styled(words, context.style(Role::Title)));
    let filled = usize::from(area.width).saturating_mul(usize::try_from(share).unwrap_or(100)) / 100;
    put(buffer, area, 1, &Line::styled("━".repeat(filled), context.style(Role::Spark)));
}

fn first<'a>(width: usize, context: &RenderContext, it: &Position) -> Line<'a> {
    let state = if it.playing { "▶" } else { "║" };
    let state = if context.theme.is_ascii() && !it.playing { "|" } else { state };
    let at = it.at.since(it.from);
    let left = format!("{state} {}  {} ", speed(it.percent), cells::clock(at));
    let step = it.step.map_or_else(String::new, |it| format!("  step {it}"));
    let wall = it.unix_us.map_or_else(String::new, |it| format!("  {}Z", cells::clock(it % 86_400_000_000)));
    let mut right = format!(" {}{step}{wall}", cells::clock(it.to.since(it.from)));
    if cells::width(&left) + cells::width(&right) + 10 > width {
        right = step;
    }
    let room = width.saturating_sub(cells::width(&left) + cells::width(&right));
    let mut spans = vec![Span::styled(left, context.style(Role::Title))];
    if room >= 10 {
        spans.extend(line(room, context, it));
    }
    spans.push(Span::styled(right, context.style(Role::Text)));
    Line::from(spans)
}

/// Draws the whole recording as a line; the part before the position is heavier.
fn line<'a>(width: usize, context: &RenderContext, it: &Position) -> Vec<Span<'a>> {
    let column = |at: Stamp| {
        let (past, whole) = (u128::from(at.since(it.from)), u128::from(it.to.since(it.from)).max(1));
        usize::try_from(past * (width as u128 - 1) / whole).unwrap_or(0).min(width - 1)
    };
    let here = column(it.at);
    let mut cells: Vec<(&str, Role)> =
        (0..width).map(|x| if x < here { ("━", Role::Spark) } else { ("─", Role::Border) }).collect();
    let marks = it.marks.iter().map(|at| (*at, "◇", Role::Dim));
    let alerts = it.alerts.iter().map(|at| (*at, "▲", Role::Warning));
    let troubles = it.troubles.iter().map(|at| (*at, "◆", Role::Bad));
    for (at, sign, role) in marks.chain(alerts).chain(troubles).chain([(it.at, "●", Role::Title)]) {
        if let Some(cell) = cells.get_mut(column(at)) {
            *cell = (sign, role);
        }
    }
    cells.into_iter().map(|(sign, role)| Span::styled(sign, context.style(role))).collect()
}

fn speed(percent: u64) -> String {
    if percent.is_multiple_of(100) {
        format!("{}×", percent / 100)
    } else {
        format!("{:.2}×", percent as f64 / 100.0)
    }
}
