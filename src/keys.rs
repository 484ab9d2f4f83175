//! The table of keys: key, command, and the help's line for it, in one place.

/// The keys that only a replay has.
pub mod replay;

use crate::ui::Command;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// One line of the help: what it does, how its keys are written, and the keys.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// What it does.
    pub command: Command,
    /// Its keys as the help writes them.
    pub keys: &'static str,
    /// What the help says.
    pub help: &'static str,
    codes: &'static [(KeyModifiers, KeyCode)],
}

const NONE: KeyModifiers = KeyModifiers::NONE;

/// Every key. `1`–`9` stand at the end because their command carries the number.
pub const BINDINGS: [Binding; 23] = [
    binding(
        Command::Quit,
        "q Ctrl-C F10",
        "quit",
        &[(NONE, KeyCode::Char('q')), (KeyModifiers::CONTROL, KeyCode::Char('c')), (NONE, KeyCode::F(10))],
    ),
    binding(Command::Help, "? F1", "this help", &[(NONE, KeyCode::Char('?')), (NONE, KeyCode::F(1))]),
    binding(Command::Back, "Esc", "back", &[(NONE, KeyCode::Esc)]),
    binding(Command::Up, "↑ k", "row above", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]),
    binding(Command::Down, "↓ j", "row below", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]),
    binding(Command::Left, "← h", "device or place before", &[(NONE, KeyCode::Left), (NONE, KeyCode::Char('h'))]),
    binding(Command::Right, "→ l", "device or place after", &[(NONE, KeyCode::Right), (NONE, KeyCode::Char('l'))]),
    binding(Command::NextBox, "Tab", "next box", &[(NONE, KeyCode::Tab)]),
    binding(Command::PreviousBox, "Shift-Tab", "previous box", &[(NONE, KeyCode::BackTab)]),
    binding(Command::First, "g Home", "first row", &[(NONE, KeyCode::Char('g')), (NONE, KeyCode::Home)]),
    binding(Command::Last, "G End", "last row", &[(NONE, KeyCode::Char('G')), (NONE, KeyCode::End)]),
    binding(Command::PageUp, "PgUp", "ten rows up", &[(NONE, KeyCode::PageUp)]),
    binding(Command::PageDown, "PgDn", "ten rows down", &[(NONE, KeyCode::PageDown)]),
    binding(Command::Open, "Enter", "open, then further in", &[(NONE, KeyCode::Enter)]),
    binding(Command::Timeline, "t", "timeline", &[(NONE, KeyCode::Char('t'))]),
    binding(Command::Axis, "x", "timeline: steps or time", &[(NONE, KeyCode::Char('x'))]),
    binding(Command::Scale, "y", "timeline: whole or moves", &[(NONE, KeyCode::Char('y'))]),
    binding(Command::Plus, "+", "timeline: nearer", &[(NONE, KeyCode::Char('+'))]),
    binding(Command::Minus, "-", "timeline: wider", &[(NONE, KeyCode::Char('-'))]),
    binding(Command::Reset, "=", "timeline: all of it", &[(NONE, KeyCode::Char('='))]),
    binding(Command::Alerts, "a", "alerts", &[(NONE, KeyCode::Char('a'))]),
    binding(Command::All, "p", "processes everywhere", &[(NONE, KeyCode::Char('p'))]),
    binding(Command::Freeze, "Space", "freeze, or go on", &[(NONE, KeyCode::Char(' '))]),
];

/// The help's line for the number keys.
pub const DEVICES: (&str, &str) = ("1 … 9", "that device");

const fn binding(
    command: Command,
    keys: &'static str,
    help: &'static str,
    codes: &'static [(KeyModifiers, KeyCode)],
) -> Binding {
    Binding { command, keys, help, codes }
}

/// The command of a key, if it has one. Only presses and repeats count.
pub fn command(key: KeyEvent) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    // Shift is already in the character.
    let pressed = (key.modifiers - KeyModifiers::SHIFT, key.code);
    if let (NONE, KeyCode::Char(digit @ '1'..='9')) = pressed {
        return Some(Command::Device(digit as u8 - b'1'));
    }
    BINDINGS.iter().find(|it| it.codes.contains(&pressed)).map(|it| it.command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_has_two_meanings_and_every_one_is_documented() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            assert!(!binding.codes.is_empty() && !binding.keys.is_empty() && !binding.help.is_empty());
            assert_eq!(binding.keys.split(' ').count(), binding.codes.len(), "{}", binding.keys);
            for (modifiers, code) in binding.codes {
                assert!(seen.insert((*modifiers, *code)), "{code:?}");
                assert_eq!(command(KeyEvent::new(*code, *modifiers)), Some(binding.command));
            }
        }
        let commands: HashSet<_> = BINDINGS.iter().map(|it| it.command).collect();
        assert_eq!(commands.len(), BINDINGS.len());
    }

    #[test]
    fn digits_releases_and_shift() {
        let key = |code, modifiers| command(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('1'), NONE), Some(Command::Device(0)));
        assert_eq!(key(KeyCode::Char('0'), NONE), None);
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Command::Last));
        assert_eq!(key(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Command::PreviousBox));
        assert_eq!(key(KeyCode::Char('c'), NONE), None);
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), NONE, KeyEventKind::Release);
        assert_eq!(command(release), None);
    }
}
