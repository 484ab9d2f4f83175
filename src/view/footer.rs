//! The line of keys: what can be done here, and always how to leave.

use super::{Look, cells, put};
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
    ("/", "filter"),
    ("s", "sort"),
    ("1-9", "GPU"),
    ("↑↓", "move"),
    ("Tab", "box"),
    ("c", "copy"),
    ("K", "signal"),
];
const OPENED: Keys =
    &[("Esc", "back"), ("q", "quit"), ("↑↓", "scroll"), ("1-9", "device"), ("Space", "freeze"), ("?", "help")];
const HELP: Keys = &[("Esc", "back"), ("q", "quit")];

/// Whether something is asked or said that is more than keys: then the line is there on any screen.
pub(super) fn speaks(look: &Look) -> bool {
    look.ui.filter.typing || look.ui.word.is_some()
}

/// What is asked or said; else as many keys as fit, none cut.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let width = usize::from(area.width);
    let ui = look.ui;
    if ui.filter.typing {
        // The end of what is typed is what is looked at.
        let text = cells::raw(&ui.filter.text);
        let shown: String = text.chars().skip(text.chars().count().saturating_sub(width.saturating_sub(2))).collect();
        let mut line = vec![Span::styled("/", look.style(Role::Key)), Span::styled(shown, look.style(Role::Text))];
        line.push(Span::styled("█", look.style(Role::Key)));
        line.push(Span::styled("  Enter keep  Esc none", look.style(Role::Dim)));
        put(buffer, area, 0, &Line::from(line));
    } else if let Some(word) = &ui.word {
        put(buffer, area, 0, &Line::styled(cells::elide(&cells::raw(word), width), look.style(Role::Title)));
    } else {
        keys(buffer, area, look);
    }
}

fn keys(buffer: &mut Buffer, area: Rect, look: &Look) {
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
