//! The table of keys: key, command, and the line for it in the help, the README and the manual, in one place.

/// The mouse.
pub mod mouse;
/// The keys that only a replay has.
pub mod replay;
/// Every key as text: for README and manual.
pub mod sheet;

use crate::ui::{Command, Screen, Ui};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Where a key means what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Wherever nothing else has the keys.
    Anywhere,
    /// On the timeline, before those of anywhere.
    Timeline,
    /// While a filter is typed; every other key is a letter of it.
    Filter,
    /// While the menu of signals is open.
    Signal,
}

/// One line of the help: what it does, how its keys are written, and the keys.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Where.
    pub place: Place,
    /// What it does.
    pub command: Command,
    /// Its keys as the help writes them.
    pub keys: &'static str,
    /// What the help says.
    pub help: &'static str,
    codes: &'static [(KeyModifiers, KeyCode)],
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const CONTROL: KeyModifiers = KeyModifiers::CONTROL;

/// Every key. `1`–`9` stand at the end because their command carries the number.
pub const BINDINGS: [Binding; 47] = [
    anywhere(
        Command::Quit,
        "q Ctrl-C F10",
        "quit",
        &[(NONE, KeyCode::Char('q')), (CONTROL, KeyCode::Char('c')), (NONE, KeyCode::F(10))],
    ),
    anywhere(Command::Help, "? F1", "this help", &[(NONE, KeyCode::Char('?')), (NONE, KeyCode::F(1))]),
    anywhere(Command::Back, "Esc", "back; no filter", &[(NONE, KeyCode::Esc)]),
    anywhere(Command::Up, "↑ k", "row above", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]),
    anywhere(Command::Down, "↓ j", "row below", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]),
    anywhere(Command::Left, "← h", "device or place before", &[(NONE, KeyCode::Left), (NONE, KeyCode::Char('h'))]),
    anywhere(Command::Right, "→ l", "device or place after", &[(NONE, KeyCode::Right), (NONE, KeyCode::Char('l'))]),
    anywhere(Command::NextBox, "Tab", "next box", &[(NONE, KeyCode::Tab)]),
    anywhere(Command::PreviousBox, "Shift-Tab", "previous box", &[(NONE, KeyCode::BackTab)]),
    anywhere(Command::First, "g Home", "first row", &[(NONE, KeyCode::Char('g')), (NONE, KeyCode::Home)]),
    anywhere(Command::Last, "G End", "last row", &[(NONE, KeyCode::Char('G')), (NONE, KeyCode::End)]),
    anywhere(Command::PageUp, "PgUp", "ten rows up", &[(NONE, KeyCode::PageUp)]),
    anywhere(Command::PageDown, "PgDn", "ten rows down", &[(NONE, KeyCode::PageDown)]),
    anywhere(Command::Open, "Enter", "open, then further in", &[(NONE, KeyCode::Enter)]),
    anywhere(Command::Timeline, "t", "timeline", &[(NONE, KeyCode::Char('t'))]),
    anywhere(Command::Alerts, "a", "alerts", &[(NONE, KeyCode::Char('a'))]),
    anywhere(Command::All, "p", "processes everywhere", &[(NONE, KeyCode::Char('p'))]),
    anywhere(Command::Filter, "/", "filter processes", &[(NONE, KeyCode::Char('/'))]),
    anywhere(Command::NextMatch, "n", "next match", &[(NONE, KeyCode::Char('n'))]),
    anywhere(Command::PreviousMatch, "N", "match before", &[(NONE, KeyCode::Char('N'))]),
    anywhere(Command::Order, "s F6", "order by next column", &[(NONE, KeyCode::Char('s')), (NONE, KeyCode::F(6))]),
    anywhere(Command::Invert, "i", "other end first", &[(NONE, KeyCode::Char('i'))]),
    anywhere(Command::Copy, "c", "copy command or name", &[(NONE, KeyCode::Char('c'))]),
    anywhere(Command::Sites, "w", "which line allocates it", &[(NONE, KeyCode::Char('w'))]),
    anywhere(Command::Signal, "K F9", "signal a process", &[(NONE, KeyCode::Char('K')), (NONE, KeyCode::F(9))]),
    anywhere(Command::Freeze, "Space f", "freeze, or go on", &[(NONE, KeyCode::Char(' ')), (NONE, KeyCode::Char('f'))]),
    anywhere(Command::Slower, "+", "read less often", &[(NONE, KeyCode::Char('+'))]),
    anywhere(Command::Faster, "-", "read more often", &[(NONE, KeyCode::Char('-'))]),
    anywhere(Command::Theme, "T F2", "next theme", &[(NONE, KeyCode::Char('T')), (NONE, KeyCode::F(2))]),
    anywhere(
        Command::Redraw,
        "r F5 Ctrl-L",
        "draw it again",
        &[(NONE, KeyCode::Char('r')), (NONE, KeyCode::F(5)), (CONTROL, KeyCode::Char('l'))],
    ),
    anywhere(Command::Suspend, "Ctrl-Z", "suspend; fg goes on", &[(CONTROL, KeyCode::Char('z'))]),
    timeline(Command::Plus, "+", "nearer", &[(NONE, KeyCode::Char('+'))]),
    timeline(Command::Minus, "-", "wider", &[(NONE, KeyCode::Char('-'))]),
    timeline(Command::Reset, "=", "all of it", &[(NONE, KeyCode::Char('='))]),
    timeline(Command::Axis, "x", "steps, or time", &[(NONE, KeyCode::Char('x'))]),
    timeline(Command::Scale, "y", "the whole, or what moves", &[(NONE, KeyCode::Char('y'))]),
    filter(Command::Open, "Enter", "keep the filter", &[(NONE, KeyCode::Enter)]),
    filter(Command::Back, "Esc", "no filter", &[(NONE, KeyCode::Esc)]),
    filter(Command::Up, "↑", "row above", &[(NONE, KeyCode::Up)]),
    filter(Command::Down, "↓", "row below", &[(NONE, KeyCode::Down)]),
    filter(Command::Erase, "Backspace", "a letter less", &[(NONE, KeyCode::Backspace)]),
    filter(Command::EraseAll, "Ctrl-U", "none of it", &[(CONTROL, KeyCode::Char('u'))]),
    signal(Command::Up, "↑ k", "signal above", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]),
    signal(Command::Down, "↓ j", "signal below", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]),
    signal(Command::Open, "Enter", "choose it", &[(NONE, KeyCode::Enter)]),
    signal(Command::Yes, "y", "send it", &[(NONE, KeyCode::Char('y'))]),
    signal(Command::Back, "Esc n", "send none", &[(NONE, KeyCode::Esc), (NONE, KeyCode::Char('n'))]),
];

/// The help's line for the number keys.
pub const DEVICES: (&str, &str) = ("1 … 9", "that device");

type Codes = &'static [(KeyModifiers, KeyCode)];

const fn anywhere(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Anywhere, command, keys, help, codes }
}

const fn timeline(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Timeline, command, keys, help, codes }
}

const fn filter(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Filter, command, keys, help, codes }
}

const fn signal(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Signal, command, keys, help, codes }
}

impl Place {
    /// Whether a place has the keys of another one as well.
    fn has(self, other: Self) -> bool {
        self == other || (self == Self::Timeline && other == Self::Anywhere)
    }

    /// Whether keys are letters or answers here, and nothing else.
    pub fn is_asking(self) -> bool {
        matches!(self, Self::Filter | Self::Signal)
    }

    /// What has the keys now.
    pub fn of(ui: &Ui) -> Self {
        if ui.dialog.is_some() {
            Self::Signal
        } else if ui.filter.typing {
            Self::Filter
        } else if ui.screen == Screen::Timeline {
            Self::Timeline
        } else {
            Self::Anywhere
        }
    }
}

/// Whether a line of the table holds on a screen: no key of the screen's own takes it away, and it is not forbidden.
pub fn reaches(binding: &Binding, ui: &Ui) -> bool {
    if matches!(binding.command, Command::Signal | Command::Sites) && ui.no_signals.is_some() {
        return false;
    }
    let here = if ui.screen == Screen::Timeline { Place::Timeline } else { Place::Anywhere };
    let taken = |it: &Binding| it.place == here && it.codes.iter().any(|code| binding.codes.contains(code));
    binding.place == here || (binding.place == Place::Anywhere && !BINDINGS.iter().any(taken))
}

/// The command of a key, if it has one. Only presses and repeats count.
pub fn command(key: KeyEvent, ui: &Ui) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    // Shift is already in the character.
    let pressed = (key.modifiers - KeyModifiers::SHIFT, key.code);
    let place = Place::of(ui);
    let bound = |of: Place| BINDINGS.iter().find(move |it| it.place == of && it.codes.contains(&pressed));
    let bound = bound(place).or_else(|| bound(Place::Anywhere).filter(|_| place.has(Place::Anywhere)));
    bound.map(|it| it.command).or(match (place, pressed) {
        // Whatever has the keys, these leave.
        (_, (CONTROL, KeyCode::Char('c'))) => Some(Command::Quit),
        (_, (CONTROL, KeyCode::Char('z'))) => Some(Command::Suspend),
        (it, (NONE, KeyCode::Char(digit @ '1'..='9'))) if it.has(Place::Anywhere) => {
            Some(Command::Device(digit as u8 - b'1'))
        }
        (Place::Filter, (NONE, KeyCode::Char(letter))) => Some(Command::Type(letter)),
        // What was no yes is a no.
        (Place::Signal, _) if ui.dialog.as_ref().is_some_and(|it| it.asked) => Some(Command::Back),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{text::Foreign, ui::signal::Dialog};
    use std::collections::HashSet;

    fn ui(place: Place) -> Ui {
        let mut ui = Ui::default();
        match place {
            Place::Anywhere => {}
            Place::Timeline => ui.screen = Screen::Timeline,
            Place::Filter => ui.filter.typing = true,
            Place::Signal => {
                let (command, user) = (String::new(), Foreign::default());
                ui.dialog = Some(Dialog { pid: 1, command, user, place: 0, asked: false });
            }
        }
        ui
    }

    #[test]
    fn no_key_has_two_meanings_in_one_place_and_every_one_is_documented() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            assert!(!binding.codes.is_empty() && !binding.keys.is_empty() && !binding.help.is_empty());
            assert_eq!(binding.keys.split(' ').count(), binding.codes.len(), "{}", binding.keys);
            for (modifiers, code) in binding.codes {
                assert!(seen.insert((binding.place, *modifiers, *code)), "{code:?}");
                let key = KeyEvent::new(*code, *modifiers);
                assert_eq!(command(key, &ui(binding.place)), Some(binding.command));
            }
        }
        let commands: HashSet<_> = BINDINGS.iter().map(|it| (it.place, it.command)).collect();
        assert_eq!(commands.len(), BINDINGS.len());
    }

    #[test]
    fn digits_releases_and_shift() {
        let key = |code, modifiers| command(KeyEvent::new(code, modifiers), &Ui::default());
        assert_eq!(key(KeyCode::Char('1'), NONE), Some(Command::Device(0)));
        assert_eq!(key(KeyCode::Char('0'), NONE), None);
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Command::Last));
        assert_eq!(key(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Command::PreviousBox));
        assert_eq!(key(KeyCode::Char('x'), NONE), None);
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), NONE, KeyEventKind::Release);
        assert_eq!(command(release, &Ui::default()), None);
    }

    #[test]
    fn letters_of_a_filter_are_letters_and_a_question_takes_only_a_yes() {
        let typed = |code, modifiers| command(KeyEvent::new(code, modifiers), &ui(Place::Filter));
        assert_eq!(typed(KeyCode::Char('q'), NONE), Some(Command::Type('q')));
        assert_eq!(typed(KeyCode::Char('K'), KeyModifiers::SHIFT), Some(Command::Type('K')));
        assert_eq!(typed(KeyCode::Char('c'), CONTROL), Some(Command::Quit));
        let mut asked = ui(Place::Signal);
        assert_eq!(command(KeyCode::Char('q').into(), &asked), None);
        asked.dialog.as_mut().unwrap().asked = true;
        assert_eq!(command(KeyCode::Char('q').into(), &asked), Some(Command::Back));
        assert_eq!(command(KeyCode::Char('y').into(), &asked), Some(Command::Yes));
    }
}
