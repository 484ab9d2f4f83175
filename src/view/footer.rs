//! The line of keys: what can be done here, and always how to leave.

use super::{Look, put};
use crate::{theme::Role, ui::Screen};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

type Keys = &'static [(&'static str, &'static str)];

/// The keys worth a place here, most useful first.
const OVERVIEW: Keys = &[
    ("q", "quit"),
    ("?", "help"),
    ("a", "alerts"),
    ("Space", "freeze"),
    ("Enter", "explain"),
    ("p", "all"),
    ("1-9", "GPU"),
    ("↑↓", "move"),
    ("Tab", "box"),
];
const OPENED: Keys =
    &[("Esc", "back"), ("q", "quit"), ("↑↓", "scroll"), ("1-9", "device"), ("Space", "freeze"), ("?", "help")];
const HELP: Keys = &[("Esc", "back"), ("q", "quit")];

/// As many keys as fit, none cut.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let keys = match look.ui.screen {
        _ if look.ui.help => HELP,
        Screen::Overview => OVERVIEW,
        _ => OPENED,
    };
    let mut spans = Vec::new();
    let mut left = usize::from(area.width);
    for (key, word) in keys {
        let (key, word) = (Span::styled(*key, look.style(Role::Key)), format!(" {word}  "));
        let word = Span::styled(word, look.style(Role::Dim));
        let Some(rest) = left.checked_sub(key.width() + word.width() - 2) else { break };
        left = rest.saturating_sub(2);
        spans.extend([key, word]);
    }
    put(buffer, area, 0, &Line::from(spans));
}
