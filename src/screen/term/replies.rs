//! Separates the terminal's replies from what a user types: both arrive on the same input.

use std::{mem, time::Duration};

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
