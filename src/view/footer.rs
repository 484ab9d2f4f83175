//! The line of keys.

use super::{Look, put};
use crate::theme::Role;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The keys worth a place here, most useful first.
const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("?", "help"),
    ("Space", "freeze"),
    ("Enter", "explain"),
    ("a", "all"),
    ("1-9", "device"),
    ("↑↓", "move"),
    ("Tab", "box"),
];

/// As many keys as fit, none cut.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let mut spans = Vec::new();
    let mut left = usize::from(area.width);
    for (key, word) in KEYS {
        let (key, word) = (Span::styled(key, look.style(Role::Key)), format!(" {word}  "));
        let word = Span::styled(word, look.style(Role::Dim));
        let Some(rest) = left.checked_sub(key.width() + word.width() - 2) else { break };
        left = rest.saturating_sub(2);
        spans.extend([key, word]);
    }
    put(buffer, area, 0, &Line::from(spans));
}
