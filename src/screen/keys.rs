//! The table of keys: key, command, and the line for it in the help, the reference and the manual, in one place.

/// The mouse.
pub mod mouse;
/// Every key as text: for the reference and the manual.
pub mod sheet;

use crate::{
    screen::ui::{Command, NO_PACE, NO_QUESTIONS, Screen, Ui},
    storage::replay::Command as Replay,
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Where a key means what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Wherever nothing else has the keys.
    Anywhere,
    /// On the timeline, before those of anywhere.
    Timeline,
    /// In a replay, before those of anywhere and of the timeline; there, the keys that seek move its cursor.
    Replay,
    /// While a filter is typed; every other key is a letter of it.
    Filter,
    /// While the menu of signals is open.
    Signal,
    /// While the view asks whether to expect an alert; every other key means no.
    Allow,
}

/// What keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// To open screens, and to leave them.
    Screens,
    /// To move and to select.
    Moving,
    /// For the selected process, and for their list.
    Processes,
    /// For the selected alert.
    Alerts,
    /// For the timeline alone.
    Timeline,
    /// How it is drawn and read.
    Display,
    /// For a replay alone.
    Replay,
    /// Where something is asked.
    Asking,
}

impl Group {
    /// Those of the help, in its order.
    pub const HELP: [Self; 6] =
        [Self::Screens, Self::Moving, Self::Processes, Self::Alerts, Self::Timeline, Self::Display];

    /// Its heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::Screens => "screens",
            Self::Moving => "move and select",
            Self::Processes => "processes",
            Self::Alerts => "the selected alert",
            Self::Timeline => "on the timeline",
            Self::Display => "display",
            Self::Replay => "in a replay",
            Self::Asking => "questions",
        }
    }
}

/// One line of the help: what it does, how its keys are written, and the keys.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Where.
    pub place: Place,
    /// What for.
    pub group: Group,
    /// What it does.
    pub command: Command,
    /// What its last key does, where that is the opposite.
    opposite: Option<Command>,
    /// Its keys as the help writes them.
    pub keys: &'static str,
    /// What the help says.
    pub help: &'static str,
    codes: &'static [(KeyModifiers, KeyCode)],
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const CONTROL: KeyModifiers = KeyModifiers::CONTROL;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

/// Every key, by what it is for. `1`–`9` stand at the end because their command carries the number.
pub const BINDINGS: &[Binding] = &[
    screens(
        Command::Quit,
        "q Ctrl-C F10",
        "quit",
        &[(NONE, KeyCode::Char('q')), (CONTROL, KeyCode::Char('c')), (NONE, KeyCode::F(10))],
    ),
    screens(Command::Open, "Enter", "open what is selected", &[(NONE, KeyCode::Enter)]),
    screens(Command::Back, "Esc", "back; clear the filter", &[(NONE, KeyCode::Esc)]),
    screens(Command::Timeline, "t", "timeline", &[(NONE, KeyCode::Char('t'))]),
    screens(Command::Alerts, "a", "alerts", &[(NONE, KeyCode::Char('a'))]),
    screens(Command::All, "p", "all processes", &[(NONE, KeyCode::Char('p'))]),
    screens(Command::Help, "? F1", "this help", &[(NONE, KeyCode::Char('?')), (NONE, KeyCode::F(1))]),
    moving(Command::Up, "↑ k", "up", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]),
    moving(Command::Down, "↓ j", "down", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]),
    moving(Command::Left, "← h", "previous device, place", &[(NONE, KeyCode::Left), (NONE, KeyCode::Char('h'))]),
    moving(Command::Right, "→ l", "next device, place", &[(NONE, KeyCode::Right), (NONE, KeyCode::Char('l'))]),
    moving(Command::NextBox, "Tab", "next box", &[(NONE, KeyCode::Tab)]),
    moving(Command::PreviousBox, "Shift-Tab", "previous box", &[(NONE, KeyCode::BackTab)]),
    moving(Command::First, "g Home", "first row", &[(NONE, KeyCode::Char('g')), (NONE, KeyCode::Home)]),
    moving(Command::Last, "G End", "last row", &[(NONE, KeyCode::Char('G')), (NONE, KeyCode::End)]),
    moving(Command::PageUp, "PgUp", "ten rows up", &[(NONE, KeyCode::PageUp)]),
    moving(Command::PageDown, "PgDn", "ten rows down", &[(NONE, KeyCode::PageDown)]),
    processes(Command::Filter, "/", "filter processes", &[(NONE, KeyCode::Char('/'))]),
    processes(Command::NextMatch, "n", "next match", &[(NONE, KeyCode::Char('n'))]),
    processes(Command::PreviousMatch, "N", "previous match", &[(NONE, KeyCode::Char('N'))]),
    processes(Command::Order, "s F6", "sort by the next column", &[(NONE, KeyCode::Char('s')), (NONE, KeyCode::F(6))]),
    processes(Command::Invert, "i", "reverse order", &[(NONE, KeyCode::Char('i'))]),
    processes(Command::Copy, "c", "copy what is selected", &[(NONE, KeyCode::Char('c'))]),
    processes(Command::Sites, "w", "find the culprit's line", &[(NONE, KeyCode::Char('w'))]),
    processes(Command::Signal, "K F9", "signal the process", &[(NONE, KeyCode::Char('K')), (NONE, KeyCode::F(9))]),
    alerts(Command::Explain, "e", "explain its cause", &[(NONE, KeyCode::Char('e'))]),
    alerts(Command::Allow, "A", "expect it (allow)", &[(NONE, KeyCode::Char('A'))]),
    display(Command::Freeze, "Space f", "freeze or resume", &[(NONE, KeyCode::Char(' ')), (NONE, KeyCode::Char('f'))]),
    display(Command::Slower, "+", "read devices less often", &[(NONE, KeyCode::Char('+'))]),
    display(Command::Faster, "-", "read devices more often", &[(NONE, KeyCode::Char('-'))]),
    display(Command::Theme, "T F2", "next theme", &[(NONE, KeyCode::Char('T')), (NONE, KeyCode::F(2))]),
    display(
        Command::Redraw,
        "r F5 Ctrl-L",
        "redraw",
        &[(NONE, KeyCode::Char('r')), (NONE, KeyCode::F(5)), (CONTROL, KeyCode::Char('l'))],
    ),
    display(Command::Suspend, "Ctrl-Z", "suspend (fg resumes)", &[(CONTROL, KeyCode::Char('z'))]),
    timeline(Command::Plus, "+", "nearer", &[(NONE, KeyCode::Char('+'))]),
    timeline(Command::Minus, "-", "wider", &[(NONE, KeyCode::Char('-'))]),
    timeline(Command::Reset, "=", "whole run", &[(NONE, KeyCode::Char('='))]),
    timeline(Command::Axis, "x", "steps or time", &[(NONE, KeyCode::Char('x'))]),
    timeline(Command::Scale, "y", "full or fitted scale", &[(NONE, KeyCode::Char('y'))]),
    filter(Command::Open, "Enter", "keep the filter", &[(NONE, KeyCode::Enter)]),
    filter(Command::Back, "Esc", "clear the filter", &[(NONE, KeyCode::Esc)]),
    filter(Command::Up, "↑", "up", &[(NONE, KeyCode::Up)]),
    filter(Command::Down, "↓", "down", &[(NONE, KeyCode::Down)]),
    filter(Command::Erase, "Backspace", "delete a character", &[(NONE, KeyCode::Backspace)]),
    filter(Command::EraseAll, "Ctrl-U", "clear the line", &[(CONTROL, KeyCode::Char('u'))]),
    signal(Command::Up, "↑ k", "signal above", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]),
    signal(Command::Down, "↓ j", "signal below", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]),
    signal(Command::Open, "Enter", "choose it", &[(NONE, KeyCode::Enter)]),
    signal(Command::Yes, "y", "send it", &[(NONE, KeyCode::Char('y'))]),
    signal(Command::Back, "Esc n", "send none", &[(NONE, KeyCode::Esc), (NONE, KeyCode::Char('n'))]),
    allow(Command::Yes, "y", "write it", &[(NONE, KeyCode::Char('y'))]),
    allow(Command::Back, "Esc n", "write nothing", &[(NONE, KeyCode::Esc), (NONE, KeyCode::Char('n'))]),
    replay(
        [Replay::Play, Replay::Play],
        "Space f",
        "play or pause",
        &[(NONE, KeyCode::Char(' ')), (NONE, KeyCode::Char('f'))],
    ),
    replay(
        [Replay::Hundredths(-1), Replay::Hundredths(1)],
        "← →",
        "seek ±1 %",
        &[(NONE, KeyCode::Left), (NONE, KeyCode::Right)],
    ),
    replay(
        [Replay::Hundredths(-10), Replay::Hundredths(10)],
        "Shift-← →",
        "seek ±10 %",
        &[(SHIFT, KeyCode::Left), (SHIFT, KeyCode::Right)],
    ),
    replay([Replay::Start, Replay::End], "Home End", "beginning, end", &[(NONE, KeyCode::Home), (NONE, KeyCode::End)]),
    replay(
        [Replay::PreviousStep, Replay::NextStep],
        "[ ]",
        "previous, next step",
        &[(NONE, KeyCode::Char('[')), (NONE, KeyCode::Char(']'))],
    ),
    replay(
        [Replay::PreviousTrouble, Replay::NextTrouble],
        "{ }",
        "previous, next alert or fault",
        &[(NONE, KeyCode::Char('{')), (NONE, KeyCode::Char('}'))],
    ),
    replay(
        [Replay::NextMark, Replay::PreviousMark],
        "m M",
        "next, previous mark",
        &[(NONE, KeyCode::Char('m')), (NONE, KeyCode::Char('M'))],
    ),
    replay(
        [Replay::Slower, Replay::Faster],
        "< >",
        "slower, faster",
        &[(NONE, KeyCode::Char('<')), (NONE, KeyCode::Char('>'))],
    ),
];

/// The help's line for the number keys.
pub const DEVICES: (&str, &str) = ("1 … 9", "that device");

type Codes = &'static [(KeyModifiers, KeyCode)];

const fn screens(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Anywhere, group: Group::Screens, command, opposite: None, keys, help, codes }
}

const fn moving(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Anywhere, group: Group::Moving, command, opposite: None, keys, help, codes }
}

const fn processes(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Anywhere, group: Group::Processes, command, opposite: None, keys, help, codes }
}

const fn alerts(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Anywhere, group: Group::Alerts, command, opposite: None, keys, help, codes }
}

const fn display(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Anywhere, group: Group::Display, command, opposite: None, keys, help, codes }
}

const fn timeline(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Timeline, group: Group::Timeline, command, opposite: None, keys, help, codes }
}

const fn filter(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Filter, group: Group::Asking, command, opposite: None, keys, help, codes }
}

const fn signal(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Signal, group: Group::Asking, command, opposite: None, keys, help, codes }
}

const fn allow(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    Binding { place: Place::Allow, group: Group::Asking, command, opposite: None, keys, help, codes }
}

const fn replay(pair: [Replay; 2], keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    let [command, opposite] = [Command::Replay(pair[0]), Command::Replay(pair[1])];
    Binding { place: Place::Replay, group: Group::Replay, command, opposite: Some(opposite), keys, help, codes }
}

impl Binding {
    /// What one of its keys does.
    fn command_of(&self, pressed: (KeyModifiers, KeyCode)) -> Option<Command> {
        let at = self.codes.iter().position(|it| *it == pressed)?;
        Some(self.opposite.filter(|_| at + 1 == self.codes.len()).unwrap_or(self.command))
    }

    /// The first of its keys that does this, as the help writes it.
    fn first(&self, command: Command) -> Option<&'static str> {
        let at = self.codes.iter().position(|it| self.command_of(*it) == Some(command))?;
        self.keys.split(' ').nth(at)
    }
}

impl Place {
    /// Whether a place has the keys of another one as well.
    fn has(self, other: Self) -> bool {
        self == other || (self == Self::Timeline && other == Self::Anywhere)
    }

    /// Whether keys are letters or answers here, and nothing else.
    pub fn is_asking(self) -> bool {
        matches!(self, Self::Filter | Self::Signal | Self::Allow)
    }

    /// What has the keys now.
    pub fn of(ui: &Ui) -> Self {
        if ui.dialog.is_some() {
            Self::Signal
        } else if ui.allowing.is_some() {
            Self::Allow
        } else if ui.filter.typing {
            Self::Filter
        } else if ui.screen == Screen::Timeline {
            Self::Timeline
        } else {
            Self::Anywhere
        }
    }
}

/// Why a command can do nothing here, whatever is selected; nothing where it can.
pub fn unavailable(command: Command, ui: &Ui) -> Option<&'static str> {
    match command {
        Command::Signal => ui.no_signals,
        Command::Sites => ui.no_signals.map(|_| NO_QUESTIONS),
        Command::Allow => ui.no_allow,
        Command::Slower | Command::Faster if ui.interval.is_none() => Some(NO_PACE),
        _ => None,
    }
}

/// Whether a key moves the timeline's cursor there, also in a replay.
fn seeks(code: KeyCode) -> bool {
    matches!(code, KeyCode::Left | KeyCode::Right | KeyCode::Home | KeyCode::End)
}

/// Whether a replay has one of the keys of a line for itself.
fn is_taken_by_replay(binding: &Binding, ui: &Ui) -> bool {
    let mut taken = BINDINGS.iter().filter(|it| it.place == Place::Replay && ui.is_replay()).flat_map(|it| it.codes);
    taken.any(|it| binding.codes.contains(it) && !(seeks(it.1) && ui.screen == Screen::Timeline))
}

/// Whether a line of the table holds on a screen: no key of the screen's own takes it away, and it can do something.
pub fn reaches(binding: &Binding, ui: &Ui) -> bool {
    if unavailable(binding.command, ui).is_some() {
        return false;
    }
    if binding.place == Place::Replay {
        return ui.is_replay();
    }
    let here = if ui.screen == Screen::Timeline { Place::Timeline } else { Place::Anywhere };
    let taken = |it: &Binding| it.place == here && it.codes.iter().any(|code| binding.codes.contains(code));
    let is_taken = || BINDINGS.iter().any(taken) || is_taken_by_replay(binding, ui);
    binding.place == here || (binding.place == Place::Anywhere && !is_taken())
}

/// The first key of a command as the line of keys writes it, where it has one on this screen.
pub fn first(command: Command, ui: &Ui) -> Option<&'static str> {
    if let Command::Device(_) = command {
        return Some("1-9");
    }
    BINDINGS.iter().filter(|it| reaches(it, ui)).find_map(|it| it.first(command))
}

/// The command of a key, if it has one. Only presses and repeats count.
pub fn command(key: KeyEvent, ui: &Ui) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    // Shift is already in the character.
    let pressed = (key.modifiers - KeyModifiers::SHIFT, key.code);
    let place = Place::of(ui);
    let bound = |of: Place| {
        let mut own = BINDINGS.iter().filter(move |it| it.place == of);
        own.find_map(|it| it.command_of(pressed))
    };
    let bound = || bound(place).or_else(|| bound(Place::Anywhere).filter(|_| place.has(Place::Anywhere)));
    of_replay(key, ui).or_else(bound).or(match (place, pressed) {
        // Whatever has the keys, these leave.
        (_, (CONTROL, KeyCode::Char('c'))) => Some(Command::Quit),
        (_, (CONTROL, KeyCode::Char('z'))) => Some(Command::Suspend),
        (it, (NONE, KeyCode::Char(digit @ '1'..='9'))) if it.has(Place::Anywhere) => {
            Some(Command::Device(digit as u8 - b'1'))
        }
        (Place::Filter, (NONE, KeyCode::Char(letter))) => Some(Command::Type(letter)),
        // What was no yes is a no.
        (Place::Allow, _) => Some(Command::Back),
        (Place::Signal, _) if ui.dialog.as_ref().is_some_and(|it| it.asked) => Some(Command::Back),
        _ => None,
    })
}

/// What a key does in a replay.
fn of_replay(key: KeyEvent, ui: &Ui) -> Option<Command> {
    if !ui.is_replay() || Place::of(ui).is_asking() || (seeks(key.code) && ui.screen == Screen::Timeline) {
        return None;
    }
    // With Shift, an arrow is another key.
    let is_arrow = matches!(key.code, KeyCode::Left | KeyCode::Right);
    let pressed = (if is_arrow { key.modifiers } else { key.modifiers - SHIFT }, key.code);
    BINDINGS.iter().filter(|it| it.place == Place::Replay).find_map(|it| it.command_of(pressed))
}

/// The answer to a key that does nothing here; nothing where keys are letters or answers.
pub fn unknown(key: KeyEvent, ui: &Ui) -> Option<String> {
    if key.kind == KeyEventKind::Release || Place::of(ui).is_asking() {
        return None;
    }
    let pressed = (key.modifiers - KeyModifiers::SHIFT, key.code);
    let elsewhere = BINDINGS.iter().any(|it| it.place == Place::Timeline && it.codes.contains(&pressed));
    let what = if elsewhere { "a key of the timeline (t)" } else { "no such key" };
    Some(format!("{}: {what} · ? help", name(pressed)))
}

/// `x`, `Ctrl-x`, `Insert`.
fn name((modifiers, code): (KeyModifiers, KeyCode)) -> String {
    let held = [(CONTROL, "Ctrl-"), (KeyModifiers::ALT, "Alt-")];
    let held: String = held.iter().filter(|it| modifiers.contains(it.0)).map(|it| it.1).collect();
    format!("{held}{code}")
}

#[cfg(test)]
mod tests;
