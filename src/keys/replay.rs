//! The keys of a replay: they come before those of the live view.

use crate::{
    replay::Command,
    ui::{self, Screen},
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What the help says of them.
pub const HELP: [(&str, &str); 8] = [
    ("Space f", "play, or pause"),
    ("← →", "a hundredth back, forward"),
    ("Shift-← →", "a tenth back, forward"),
    ("Home End", "beginning, end"),
    ("[ ]", "step before, next"),
    ("< >", "slower, faster"),
    ("m M", "next mark, before"),
    ("{ }", "trouble or alert before, next"),
];

/// Whether a command of the live view has no key, or another one, in a replay.
pub fn replaces(command: ui::Command) -> bool {
    use ui::Command::{Faster, First, Freeze, Last, Left, Right, Signal, Slower};
    matches!(command, Freeze | Left | Right | First | Last | Slower | Faster | Signal)
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
    let far = if key.modifiers.contains(KeyModifiers::SHIFT) { 10 } else { 1 };
    Some(match key.code {
        KeyCode::Char(' ' | 'f') => Command::Play,
        KeyCode::Left => Command::Hundredths(-far),
        KeyCode::Right => Command::Hundredths(far),
        KeyCode::Home => Command::Start,
        KeyCode::End => Command::End,
        KeyCode::Char('[') => Command::PreviousStep,
        KeyCode::Char(']') => Command::NextStep,
        KeyCode::Char('<') => Command::Slower,
        KeyCode::Char('>') => Command::Faster,
        KeyCode::Char('m') => Command::NextMark,
        KeyCode::Char('M') => Command::PreviousMark,
        KeyCode::Char('{') => Command::PreviousTrouble,
        KeyCode::Char('}') => Command::NextTrouble,
        _ => return None,
    })
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
}
