//! The line of keys: what can be done here, and always how to leave.

use super::{Look, cells, put};
use crate::{
    theme::Role,
    ui::{Command, Screen, mouse::Target},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

type Keys = &'static [(&'static str, &'static str, Option<Command>)];

/// The keys worth a place here, most useful first, and what a click on them does.
const OVERVIEW: Keys = &[
    QUIT,
    HELP,
    ALERTS,
    FREEZE,
    ("Enter", "open", Some(Command::Open)),
    ("t", "timeline", Some(Command::Timeline)),
    ("p", "all", Some(Command::All)),
    ("/", "filter", Some(Command::Filter)),
    ("s", "sort", Some(Command::Order)),
    ("1-9", "GPU", None),
    ("↑↓", "move", None),
    ("Tab", "box", Some(Command::NextBox)),
    ("c", "copy", Some(Command::Copy)),
    ("K", "signal", Some(Command::Signal)),
];
const OPENED: Keys = &[BACK, QUIT, ("↑↓", "scroll", None), ("1-9", "device", None), FREEZE, HELP];
const PROCESS: Keys = &[
    BACK,
    QUIT,
    ("t", "timeline", Some(Command::Timeline)),
    ("w", "which line", Some(Command::Sites)),
    ("←→", "process", None),
    ("↑↓", "scroll", None),
    ("c", "copy", Some(Command::Copy)),
    ("K", "signal", Some(Command::Signal)),
    FREEZE,
    HELP,
];
const TIMELINE: Keys = &[
    BACK,
    QUIT,
    ("←→", "cursor", None),
    ("+", "nearer", Some(Command::Plus)),
    ("-", "wider", Some(Command::Minus)),
    ("=", "all", Some(Command::Reset)),
    ("x", "steps/time", Some(Command::Axis)),
    ("y", "scale", Some(Command::Scale)),
    ("↑↓", "process", None),
    FREEZE,
    HELP,
];
const HELPED: Keys = &[BACK, QUIT, ("↑↓", "scroll", None)];

const QUIT: (&str, &str, Option<Command>) = ("q", "quit", Some(Command::Quit));
const HELP: (&str, &str, Option<Command>) = ("?", "help", Some(Command::Help));
const BACK: (&str, &str, Option<Command>) = ("Esc", "back", Some(Command::Back));
const ALERTS: (&str, &str, Option<Command>) = ("a", "alerts", Some(Command::Alerts));
const FREEZE: (&str, &str, Option<Command>) = ("Space", "freeze", Some(Command::Freeze));

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

/// As many keys as fit, none cut.
fn keys(buffer: &mut Buffer, area: Rect, look: &Look) {
    let keys = match look.ui.screen {
        _ if look.ui.help => HELPED,
        Screen::Overview => OVERVIEW,
        Screen::Process => PROCESS,
        Screen::Timeline => TIMELINE,
        _ => OPENED,
    };
    let mut rest = area;
    for (key, word, command) in keys {
        if matches!(command, Some(Command::Signal | Command::Sites)) && look.ui.no_signals.is_some() {
            continue;
        }
        let (key, word) = (Span::styled(*key, look.style(Role::Key)), format!(" {word}"));
        let word = Span::styled(word, look.style(Role::Dim));
        let width = u16::try_from(key.width() + word.width()).unwrap_or(u16::MAX);
        if width > rest.width {
            break;
        }
        let place = Rect { width, ..rest };
        put(buffer, place, 0, &Line::from(vec![key, word]));
        if let Some(command) = command {
            look.claim(place, Target::Key(*command));
        }
        let taken = width.saturating_add(2).min(rest.width);
        (rest.x, rest.width) = (rest.x + taken, rest.width - taken);
    }
}
