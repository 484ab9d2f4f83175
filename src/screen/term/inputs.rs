//! What a user types, without the terminal's replies.

use super::replies::{Replies, Topic};
use crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyModifiers};
use std::{collections::VecDeque, io};
use tokio::sync::watch;

/// Keys that terminals send as a sequence, without the Escape and `[` or `O` at its beginning.
const SEQUENCES: [(&str, KeyCode); 30] = [
    ("A", KeyCode::Up),
    ("B", KeyCode::Down),
    ("C", KeyCode::Right),
    ("D", KeyCode::Left),
    ("H", KeyCode::Home),
    ("F", KeyCode::End),
    ("Z", KeyCode::BackTab),
    ("1~", KeyCode::Home),
    ("2~", KeyCode::Insert),
    ("3~", KeyCode::Delete),
    ("4~", KeyCode::End),
    ("5~", KeyCode::PageUp),
    ("6~", KeyCode::PageDown),
    ("7~", KeyCode::Home),
    ("8~", KeyCode::End),
    ("P", KeyCode::F(1)),
    ("Q", KeyCode::F(2)),
    ("R", KeyCode::F(3)),
    ("S", KeyCode::F(4)),
    ("11~", KeyCode::F(1)),
    ("12~", KeyCode::F(2)),
    ("13~", KeyCode::F(3)),
    ("14~", KeyCode::F(4)),
    ("15~", KeyCode::F(5)),
    ("17~", KeyCode::F(6)),
    ("18~", KeyCode::F(7)),
    ("19~", KeyCode::F(8)),
    ("20~", KeyCode::F(9)),
    ("21~", KeyCode::F(10)),
    ("24~", KeyCode::F(12)),
];

/// Reads what a user types.
#[derive(Debug, Default)]
pub struct Inputs {
    ready: VecDeque<Input>,
    /// Recognises a reply that arrives after the wait for it; `None` if none is missing.
    late: Option<Replies<Input>>,
    /// Whether the terminal has replied to no question yet.
    unanswered: watch::Sender<bool>,
}

impl Inputs {
    /// Returns whether the terminal was asked and has not replied yet.
    pub fn unanswered(&self) -> watch::Receiver<bool> {
        self.unanswered.subscribe()
    }

    /// Begins with the bytes that were typed during the wait for a reply. If `is_late`, the reply about the background
    /// is missing, and if `is_unanswered`, every reply.
    pub(super) fn begin(&mut self, typed: &[u8], mut replies: Replies<u8>, is_late: bool, is_unanswered: bool) {
        self.unanswered.send_replace(is_unanswered);
        self.ready.extend(keys(typed));
        if is_late {
            self.late = Some(replies.continued(|it| keys(&it)));
        } else {
            self.ready.extend(keys(&replies.give_up()));
        }
    }

    /// Waits for the next input.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn read(&mut self) -> io::Result<Input> {
        loop {
            if let Some(input) = self.ready.pop_front() {
                return Ok(input);
            }
            let Some(late) = &mut self.late else { return event::read() };
            let is_pause = match late.patience() {
                Some(patience) => !event::poll(patience)?,
                None => false,
            };
            self.ready.extend(if is_pause { late.give_up() } else { taken(late, event::read()?) });
            if let Some((topic, _)) = late.complete_one() {
                self.unanswered.send_replace(false);
                // It comes once.
                self.late = self.late.take().filter(|_| topic != Topic::Background);
            }
        }
    }
}

/// Returns the inputs that are typed, with one more.
fn taken(late: &mut Replies<Input>, input: Input) -> Vec<Input> {
    match bytes(&input) {
        Some(bytes) => late.take(input, &bytes),
        None => vec![input],
    }
}

/// Returns the bytes that crossterm made a key of, as far as replies have them; a zero for other keys, `None` for what
/// is not a key.
fn bytes(input: &Input) -> Option<Vec<u8>> {
    let Input::Key(key) = input else { return None };
    let mut bytes = Vec::new();
    if key.modifiers.contains(KeyModifiers::ALT) {
        bytes.push(0x1b);
    }
    match key.code {
        KeyCode::Char(it @ 'a'..='z') if key.modifiers.contains(KeyModifiers::CONTROL) => bytes.push(it as u8 & 0x1f),
        KeyCode::Char(it) => bytes.extend(it.to_string().as_bytes()),
        KeyCode::Esc => bytes.push(0x1b),
        _ => bytes.push(0),
    }
    Some(bytes)
}

/// Returns the keys of bytes, because crossterm reads none that others have read. Sequences that are not a key of
/// gpuwatch are left out.
fn keys(bytes: &[u8]) -> Vec<Input> {
    let text = String::from_utf8_lossy(bytes);
    let (mut rest, mut keys) = (text.as_ref(), Vec::new());
    while let Some((input, after)) = next(rest) {
        keys.extend(input);
        rest = after;
    }
    keys
}

/// Returns the first key of a text, and what follows it.
fn next(text: &str) -> Option<(Option<Input>, &str)> {
    if let Some((pasted, after)) = text.strip_prefix("\x1b[200~").and_then(|it| it.split_once("\x1b[201~")) {
        return Some((Some(Input::Paste(pasted.to_owned())), after));
    }
    let sequence = text.strip_prefix("\x1b[").or_else(|| text.strip_prefix("\x1bO"));
    let end = |it: &str| it.find(|c| matches!(c, '@'..='~'));
    if let Some((sequence, after)) = sequence.and_then(|it| it.split_at_checked(end(it)? + 1)) {
        let known = SEQUENCES.iter().find(|it| it.0 == sequence);
        return Some((known.map(|it| key(it.1, KeyModifiers::NONE)), after));
    }
    let (alt, text) = match text.strip_prefix('\x1b') {
        Some(rest) if !rest.is_empty() => (KeyModifiers::ALT, rest),
        _ => (KeyModifiers::NONE, text),
    };
    let mut chars = text.chars();
    let input = match chars.next()? {
        '\r' => key(KeyCode::Enter, alt),
        '\t' => key(KeyCode::Tab, alt),
        '\x7f' => key(KeyCode::Backspace, alt),
        '\x1b' => key(KeyCode::Esc, KeyModifiers::NONE),
        c @ '\x01'..='\x1a' => key(KeyCode::Char((c as u8 | 0x60).into()), alt | KeyModifiers::CONTROL),
        c if c.is_uppercase() => key(KeyCode::Char(c), alt | KeyModifiers::SHIFT),
        c => key(KeyCode::Char(c), alt),
    };
    Some((Some(input), chars.as_str()))
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Input {
    // crossterm reports Shift with this key, which no terminal sends without it.
    let shift = if code == KeyCode::BackTab { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    Input::Key(KeyEvent::new(code, modifiers | shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: KeyModifiers = KeyModifiers::NONE;

    #[test]
    fn keys_that_were_typed_early_are_the_same_as_later() {
        for (bytes, expected) in [
            ("q", vec![key(KeyCode::Char('q'), NONE)]),
            ("T?", vec![key(KeyCode::Char('T'), KeyModifiers::SHIFT), key(KeyCode::Char('?'), NONE)]),
            ("\x1b[B\x1bOA", vec![key(KeyCode::Down, NONE), key(KeyCode::Up, NONE)]),
            ("\x1b[Z\x1b[21~", vec![key(KeyCode::BackTab, KeyModifiers::SHIFT), key(KeyCode::F(10), NONE)]),
            (
                "\r\x7f\x03",
                vec![
                    key(KeyCode::Enter, NONE),
                    key(KeyCode::Backspace, NONE),
                    key(KeyCode::Char('c'), KeyModifiers::CONTROL),
                ],
            ),
            ("\x1bx\x1b", vec![key(KeyCode::Char('x'), KeyModifiers::ALT), key(KeyCode::Esc, NONE)]),
            ("\x1b[200~qq\x1b[201~é", vec![Input::Paste("qq".into()), key(KeyCode::Char('é'), NONE)]),
            ("\x1b[1;5Dj", vec![key(KeyCode::Char('j'), NONE)]),
            ("\x1b[<0;3;4Mj", vec![key(KeyCode::Char('j'), NONE)]),
            ("", vec![]),
        ] {
            assert_eq!(keys(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    /// The parts as crossterm makes them of a late reply, whole and torn after its Escapes.
    #[test]
    fn a_late_reply_is_no_key() {
        let typed = |parts: &[&str]| {
            let mut late = Replies::default();
            let inputs = parts.iter().flat_map(|it| keys(it.as_bytes()));
            inputs.flat_map(|it| taken(&mut late, it)).collect::<Vec<_>>()
        };
        let body = "11;rgb:ffff/ffff/ffff";
        for parts in [
            &["\x1b]", body, "\x07"][..],
            &["\x1b]", body, "\x1b\\"],
            &["\x1b", "]", body, "\x1b", "\\"],
            &["\x1b", "[", "?62;22c"],
            &["\x1b]", "11;\r\t\x01\x1b[A\x7f", "\x07"],
        ] {
            assert_eq!(typed(&[parts, &["q"]].concat()), keys(b"q"), "{parts:?}");
        }
        assert_eq!(typed(&["\x1b", "q"]), [keys(b"\x1b"), keys(b"q")].concat());
        assert_eq!(typed(&["\x1b]", "12"]), [keys(b"\x1b]"), keys(b"12")].concat());
        assert_eq!(typed(&["\x1b]", "11;", "\x03"]), keys(b"\x03"));
    }
}
