//! The keys of a replay: they come before those of the live view.

use crate::{
    screen::ui::{self, Screen},
    storage::replay::Command,
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// One line of the help.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Its keys as the help writes them.
    pub keys: &'static str,
    /// What the help says.
    pub help: &'static str,
    /// What the line of keys says, if it has a place there: the keys, and a word.
    pub brief: Option<(&'static str, &'static str)>,
    codes: &'static [(KeyModifiers, KeyCode, Command)],
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

/// Every key.
pub const BINDINGS: [Binding; 8] = [
    Binding {
        keys: "Space f",
        help: "play or pause",
        brief: Some(("Space", "play")),
        codes: &[(NONE, KeyCode::Char(' '), Command::Play), (NONE, KeyCode::Char('f'), Command::Play)],
    },
    Binding {
        keys: "← →",
        help: "seek ±1 %",
        brief: Some(("←→", "seek")),
        codes: &[(NONE, KeyCode::Left, Command::Hundredths(-1)), (NONE, KeyCode::Right, Command::Hundredths(1))],
    },
    Binding {
        keys: "Shift-← →",
        help: "seek ±10 %",
        brief: None,
        codes: &[(SHIFT, KeyCode::Left, Command::Hundredths(-10)), (SHIFT, KeyCode::Right, Command::Hundredths(10))],
    },
    Binding {
        keys: "Home End",
        help: "beginning, end",
        brief: None,
        codes: &[(NONE, KeyCode::Home, Command::Start), (NONE, KeyCode::End, Command::End)],
    },
    Binding {
        keys: "[ ]",
        help: "previous, next step",
        brief: Some(("[]", "step")),
        codes: &[(NONE, KeyCode::Char('['), Command::PreviousStep), (NONE, KeyCode::Char(']'), Command::NextStep)],
    },
    Binding {
        keys: "{ }",
        help: "previous, next alert or fault",
        brief: Some(("{}", "trouble")),
        codes: &[
            (NONE, KeyCode::Char('{'), Command::PreviousTrouble),
            (NONE, KeyCode::Char('}'), Command::NextTrouble),
        ],
    },
    Binding {
        keys: "m M",
        help: "next, previous mark",
        brief: Some(("m", "mark")),
        codes: &[(NONE, KeyCode::Char('m'), Command::NextMark), (NONE, KeyCode::Char('M'), Command::PreviousMark)],
    },
    Binding {
        keys: "< >",
        help: "slower, faster",
        brief: Some(("<>", "speed")),
        codes: &[(NONE, KeyCode::Char('<'), Command::Slower), (NONE, KeyCode::Char('>'), Command::Faster)],
    },
];

/// Whether a command of the live view has no key, or another one, in a replay; on the timeline the arrows are its own.
pub fn replaces(command: ui::Command, screen: Screen) -> bool {
    use ui::Command::{Faster, First, Freeze, Last, Left, Right, Signal, Sites, Slower};
    match command {
        Left | Right | First | Last => screen != Screen::Timeline,
        it => matches!(it, Freeze | Slower | Faster | Signal | Sites),
    }
}

/// The command of a key, if it is one of a replay. Only presses and repeats count. On the timeline, the keys that seek
/// move its cursor.
pub fn command(key: KeyEvent, screen: Screen) -> Option<Command> {
    let seeks = matches!(key.code, KeyCode::Left | KeyCode::Right | KeyCode::Home | KeyCode::End);
    if seeks && screen == Screen::Timeline {
        return None;
    }
    if key.kind == KeyEventKind::Release || key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return None;
    }
    // Of a character, Shift is already in it.
    let is_arrow = matches!(key.code, KeyCode::Left | KeyCode::Right);
    let held = if is_arrow { key.modifiers & SHIFT } else { NONE };
    let mut codes = BINDINGS.iter().flat_map(|it| it.codes);
    codes.find(|it| (it.0, it.1) == (held, key.code)).map(|it| it.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_seek_step_and_leave_the_rest_to_the_live_view() {
        let key = |code, modifiers| command(KeyEvent::new(code, modifiers), Screen::Overview);
        assert_eq!(key(KeyCode::Left, KeyModifiers::NONE), Some(Command::Hundredths(-1)));
        assert_eq!(key(KeyCode::Right, KeyModifiers::SHIFT), Some(Command::Hundredths(10)));
        assert_eq!(key(KeyCode::Char('M'), KeyModifiers::SHIFT), Some(Command::PreviousMark));
        for other in [KeyCode::Char('q'), KeyCode::Char('h'), KeyCode::Char('1'), KeyCode::Enter, KeyCode::Up] {
            assert_eq!(key(other, KeyModifiers::NONE), None, "{other:?}");
        }
        assert_eq!(key(KeyCode::Left, KeyModifiers::CONTROL), None);
    }

    #[test]
    fn every_key_that_is_written_is_one() {
        for it in BINDINGS {
            assert_eq!(it.keys.split(' ').count(), it.codes.len(), "{}", it.keys);
            let written = it.brief.map(|it| it.0).unwrap_or_default();
            assert!(it.keys.replace(' ', "").contains(written), "{written}");
        }
    }
}
