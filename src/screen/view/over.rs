//! A box over everything else: in the middle, as large as needed and possible.

use super::{RenderContext, put};
use crate::screen::theme::Role;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, Clear, Widget},
};

/// The texts of its frame.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// The available keys, at the right.
    pub(super) hint: &'a str,
    /// The hint if not all lines fit.
    pub(super) hint_more: &'a str,
    pub(super) border: Role,
    /// Its maximum width.
    pub(super) width: u16,
}

/// Below this many rows there is no frame, because its content is worth more.
const FRAMED: u16 = 5;

/// Draws the lines from an offset on. Returns where they are, and how far they can be scrolled.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    frame: &Frame,
    lines: &[Line],
    scroll: usize,
    context: &RenderContext,
) -> (Rect, usize) {
    let width = area.width.min(frame.width);
    let height = area.height.min(u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buffer);
    buffer.set_style(place, context.style(Role::Text));
    let mut inner = place;
    if height >= FRAMED {
        let room = usize::from(height) - 2;
        let hint = if lines.len() > room { frame.hint_more } else { frame.hint };
        let block = Block::bordered()
            .border_style(context.style(frame.border))
            .title(Span::styled(format!(" {} ", frame.title), context.style(Role::Title)))
            .title(Line::styled(format!(" {hint} "), context.style(Role::Dim)).right_aligned());
        inner = block.inner(place);
        block.render(place, buffer);
    }
    let most = lines.len().saturating_sub(usize::from(inner.height));
    for (row, line) in lines.iter().skip(scroll.min(most)).enumerate() {
        put(buffer, inner, row, line);
    }
    (inner, most)
}
