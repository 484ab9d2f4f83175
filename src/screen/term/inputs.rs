//! What a user types, without the terminal's replies.

use crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyModifiers};
use std::{collections::VecDeque, io, mem, time::Duration};
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

/// Most bytes of a reply; what follows counts as typed.
const BYTES_MAX: usize = 4096;

/// Ends a reply that is incomplete, so that a user can always quit.
const CTRL_C: &[u8] = b"\x03";

/// The longest pause within the beginning of a reply. A lone Escape is a key after this.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause within the rest of a reply.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// What a reply is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// The background (OSC 11).
    Background,
    /// The primary device attributes (DA1).
    Attributes,
}

/// How a reply is recognised.
struct Form {
    topic: Topic,
    begin: &'static [u8],
    ends: &'static [&'static [u8]],
}

const FORMS: [Form; 2] = [
    Form { topic: Topic::Background, begin: b"\x1b]11;", ends: &[b"\x07", b"\x1b\\"] },
    Form { topic: Topic::Attributes, begin: b"\x1b[?", ends: &[b"c"] },
];

/// Recognises replies in a stream of items: bytes, or the inputs that a library makes of them.
#[derive(Debug)]
pub(super) struct Replies<T> {
    /// The bytes since one that may begin a reply.
    bytes: Vec<u8>,
    /// The items of these bytes, while they may also be typed.
    held: Vec<T>,
    /// The latest complete reply, without its beginning and end.
    complete: Option<(Topic, Vec<u8>)>,
}

impl<T> Default for Replies<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), held: Vec::new(), complete: None }
    }
}

impl<T> Replies<T> {
    /// Takes an item with its bytes, and returns the items that are typed.
    pub(super) fn take(&mut self, item: T, bytes: &[u8]) -> Vec<T> {
        let is_within = self.form().is_some();
        self.bytes.extend_from_slice(bytes);
        if let Some(form) = self.form() {
            self.held.clear();
            if is_within && bytes == CTRL_C {
                self.bytes.clear();
                return vec![item];
            }
            self.complete(form);
            return Vec::new();
        }
        if FORMS.iter().any(|it| it.begin.starts_with(&self.bytes)) {
            self.held.push(item);
            return Vec::new();
        }
        let mut typed = self.give_up();
        if typed.is_empty() {
            return vec![item];
        }
        // The item that does not continue one reply may begin another.
        typed.extend(self.take(item, bytes));
        typed
    }

    /// Returns the form of the reply whose rest is expected.
    fn form(&self) -> Option<&'static Form> {
        FORMS.iter().find(|it| self.bytes.starts_with(it.begin))
    }

    /// Ends the reply if it is complete or too long.
    fn complete(&mut self, form: &Form) {
        let body = self.bytes.strip_prefix(form.begin).unwrap_or_default();
        if let Some(body) = form.ends.iter().find_map(|it| body.strip_suffix(*it)) {
            self.complete = Some((form.topic, body.to_vec()));
        } else if self.bytes.len() < BYTES_MAX {
            return;
        }
        self.bytes.clear();
    }

    /// Takes the latest complete reply.
    pub(super) fn complete_one(&mut self) -> Option<(Topic, Vec<u8>)> {
        self.complete.take()
    }

    /// Returns how long the next item of a reply may take; `None` if no reply has begun.
    pub(super) fn patience(&self) -> Option<Duration> {
        let pause = if self.form().is_some() { LONG_PAUSE } else { PAUSE };
        (!self.bytes.is_empty()).then_some(pause)
    }

    /// Ends a reply that is incomplete, and returns its items, which count as typed.
    pub(super) fn give_up(&mut self) -> Vec<T> {
        self.bytes.clear();
        mem::take(&mut self.held)
    }

    /// Continues with items of another kind.
    pub(super) fn continued<U>(self, items: impl FnOnce(Vec<T>) -> Vec<U>) -> Replies<U> {
        Replies { bytes: self.bytes, held: items(self.held), complete: self.complete }
    }
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

    /// Returns what is typed, and the replies.
    fn separated(bytes: &[u8]) -> (String, Vec<(Topic, String)>) {
        let (mut replies, mut typed, mut complete) = (Replies::default(), Vec::new(), Vec::new());
        for byte in bytes {
            typed.extend(replies.take(*byte, &[*byte]));
            complete.extend(replies.complete_one().map(|(topic, it)| (topic, String::from_utf8(it).unwrap())));
        }
        typed.extend(replies.give_up());
        (String::from_utf8(typed).unwrap(), complete)
    }

    #[test]
    fn replies_are_separated_from_keys() {
        let background = |it: &str| (Topic::Background, it.to_owned());
        let attributes = || (Topic::Attributes, "62;22".to_owned());
        for (bytes, typed, replies) in [
            ("q", "q", vec![]),
            ("\x1b]11;rgb:ff/ff/ff\x07", "", vec![background("rgb:ff/ff/ff")]),
            ("?\x1b]11;#fff\x1b\\j\x1b[?62;22ck", "?jk", vec![background("#fff"), attributes()]),
            ("\x1b\x1b]11;a\x07", "\x1b", vec![background("a")]),
            ("\x1b[A\x1b[?62;22c\x1bOB", "\x1b[A\x1bOB", vec![attributes()]),
            ("\x1b]1]11;q", "\x1b]1]11;q", vec![]),
            ("\x1b]11;rgb:\x03q", "\x03q", vec![]),
            ("\x1b]11;q\x1b]11;\x07", "", vec![background("q\x1b]11;")]),
            ("\x1b", "\x1b", vec![]),
            ("\x1b]11", "\x1b]11", vec![]),
            ("\x1b]11;rgb:ff", "", vec![]),
        ] {
            assert_eq!(separated(bytes.as_bytes()), (typed.to_owned(), replies), "{bytes:?}");
        }
    }

    #[test]
    fn a_reply_without_an_end_is_bounded() {
        let mut bytes = b"\x1b]11;".to_vec();
        bytes.resize(BYTES_MAX, b'f');
        bytes.extend(b"q");
        assert_eq!(separated(&bytes), ("q".to_owned(), Vec::new()));
    }

    #[test]
    fn only_what_may_begin_a_reply_waits_for_more() {
        let mut replies = Replies::default();
        for (byte, patience) in
            [(b'q', None), (0x1b, Some(PAUSE)), (b']', Some(PAUSE)), (b'q', None), (0x1b, Some(PAUSE))]
        {
            replies.take(byte, &[byte]);
            assert_eq!(replies.patience(), patience);
        }
        b"]11;".iter().for_each(|it| assert!(replies.take(*it, &[*it]).is_empty()));
        assert_eq!(replies.patience(), Some(LONG_PAUSE));
        assert!(replies.give_up().is_empty());
    }
}
