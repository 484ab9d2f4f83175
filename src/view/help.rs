//! The keys, and what the picture means, over everything else.

use super::{Look, cells, put};
use crate::{keys, theme::Role};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, Clear, Widget},
};

/// The width of a line of the help; where two fit, they stand side by side.
const ENTRY: usize = 37;

/// What is not a key and still asks to be explained.
const NOTES: [&str; 6] = [
    "–  unknown; it is never drawn as 0",
    "≈  approximate: samples are missing in what it rests on",
    "!  two readings contradict each other; the rest is unattributed",
    "⠤  the line fitted to a growth; ahead of the curve, until it is full",
    "Alerts: critical and warning end the run, or slow it; info does neither.",
    "The bar is the whole device, from what the job wanted to what is free.",
];

/// Draws a box in the middle, as large as needed and as fits, from where the user scrolled to; says how far that can be.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) -> usize {
    let width = area.width.min(76);
    let replay = look.progress.is_some();
    let entries: Vec<_> = keys::BINDINGS
        .iter()
        // Filter and menu say their own keys.
        .filter(|it| keys::reaches(it, look.ui) && !(replay && keys::replay::replaces(it.command)))
        .map(|it| (it.keys, it.help))
        .chain(keys::replay::HELP.into_iter().filter(|_| replay))
        .chain([keys::DEVICES])
        .collect();
    let columns = if usize::from(width) >= 2 * ENTRY + 2 { 2 } else { 1 };
    let rows = entries.len().div_ceil(columns);
    let mut lines: Vec<Line> = (0..rows)
        .map(|row| {
            let both = entries.iter().skip(row).step_by(rows);
            both.flat_map(|(keys, help)| {
                [
                    Span::styled(format!(" {}", cells::left(keys, 13)), look.style(Role::Key)),
                    Span::styled(cells::left(help, ENTRY - 14), look.style(Role::Text)),
                ]
            })
            .collect()
        })
        .collect();
    lines.extend(NOTES.iter().map(|it| Line::styled(format!(" {it}"), look.style(Role::Dim))));
    let height = area.height.min(u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let most = lines.len().saturating_sub(usize::from(height.saturating_sub(2)));
    Clear.render(place, buffer);
    buffer.set_style(place, look.style(Role::Text));
    let frame = Block::bordered()
        .border_style(look.style(Role::Border))
        .title(Span::styled(" help ", look.style(Role::Title)))
        .title(
            Line::styled(if most > 0 { " ↑↓: more  Esc: back " } else { " Esc: back " }, look.style(Role::Dim))
                .right_aligned(),
        );
    let inner = frame.inner(place);
    frame.render(place, buffer);
    for (row, line) in lines.iter().skip(look.ui.help_scroll.min(most)).enumerate() {
        put(buffer, inner, row, line);
    }
    most
}
