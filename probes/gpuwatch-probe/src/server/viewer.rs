//! One connection: a small buffer and a position in the history; a viewer can affect neither.

use crate::{
    history::{Cursor, History},
    sys,
    sys::Private,
    wire::{self, Line, encode},
};
use std::{
    io::{ErrorKind, Read},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    str::SplitAsciiWhitespace,
};

/// While a viewer has this many bytes unsent, no more lines are formatted.
const OUT_ENOUGH: usize = 48 * 1024;

/// Most buffers filled and sent in one turn.
const ROUNDS: u32 = 4;

/// The longest request, in bytes.
const REQUEST_MAX: usize = 4096;

/// After this many invalid requests, a connection is closed.
const REFUSALS_MAX: u32 = 32;

/// How long a connection may take to send `since` before it gets everything, in µs.
const GRACE_US: u64 = 100_000;

/// What takes requests: accepts each, or returns why not.
pub(crate) trait Requests {
    /// Takes a request for sites.
    fn sites(&mut self, arguments: SplitAsciiWhitespace) -> Result<(), String>;
    /// Takes a request for a window, and returns its bits.
    fn window(&mut self, arguments: SplitAsciiWhitespace) -> Result<u64, String>;
}

pub(crate) struct Viewer {
    stream: Private<UnixStream>,
    accepted_us: u64,
    received: Vec<u8>,
    /// The other side has closed its sending direction; it may still receive.
    mute: bool,
    out: String,
    /// Bytes of `out` that were sent.
    sent: usize,
    sent_before: u64,
    refusals: u32,
    cursor: Option<Cursor>,
    /// The window that it requested last.
    window: Option<u64>,
    /// The version of the hello that it received.
    hello: u64,
    closing: bool,
    /// The history has more lines than were formatted.
    more: bool,
}

impl Viewer {
    pub(crate) fn new(stream: UnixStream, now_us: u64) -> Self {
        Self {
            stream: Private::new(stream),
            accepted_us: now_us,
            received: Vec::new(),
            mute: false,
            out: String::new(),
            sent: 0,
            sent_before: 0,
            refusals: 0,
            cursor: None,
            window: None,
            hello: 0,
            closing: false,
            more: false,
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Returns the window that it requested last.
    pub(crate) fn window(&self) -> Option<u64> {
        self.window
    }

    /// Returns whether this viewer needs a hello, and has room for it.
    pub(crate) fn awaits_hello(&self, version: u64) -> bool {
        self.hello != version && !self.closing && self.out.is_empty()
    }

    /// Queues the hello.
    pub(crate) fn greet(&mut self, version: u64, line: &str) {
        self.hello = version;
        self.out.push_str(line);
    }

    /// Queues the reason for a refusal, then nothing more.
    pub(crate) fn refuse(&mut self, reason: &str) {
        encode(&Line::Refused(wire::Refused { reason: reason.to_owned() }), &mut self.out);
        self.refusals += 1;
        self.closing |= self.refusals >= REFUSALS_MAX;
    }

    /// Refuses and closes.
    pub(crate) fn dismiss(&mut self, reason: &str) {
        self.refuse(reason);
        self.closing = true;
    }

    /// Runs one turn; false when the connection is over.
    pub(crate) fn turn(&mut self, now_us: u64, history: &History, requests: &mut impl Requests) -> bool {
        if !self.stream.is_ours() {
            return false;
        }
        self.listen(history, requests);
        if self.cursor.is_none() && (self.mute || now_us.saturating_sub(self.accepted_us) > GRACE_US) {
            self.cursor = Some(Cursor::new(0, history));
        }
        for _ in 0..ROUNDS {
            self.fill(history);
            if !self.flush() {
                return false;
            }
            if !self.out.is_empty() || !self.more {
                break;
            }
        }
        !(self.closing && self.out.is_empty())
    }

    /// Returns whether it would accept more at once: the server does not wait for one that does not read.
    pub(crate) fn is_eager(&self) -> bool {
        self.out.is_empty() && self.more
    }

    /// Returns the bytes sent over the whole connection.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_before + self.sent as u64
    }

    /// Returns whether everything was sent.
    pub(crate) fn is_served(&self) -> bool {
        self.out.is_empty() && !self.more
    }

    /// Returns whether it has to look for errors in the error file.
    pub(crate) fn has_missed(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::has_missed)
    }

    fn listen(&mut self, history: &History, requests: &mut impl Requests) {
        let mut bytes = [0_u8; REQUEST_MAX];
        if self.mute || self.closing {
            return;
        }
        match (&*self.stream).read(&mut bytes) {
            Ok(0) => self.mute = true,
            Ok(length) => self.received.extend_from_slice(bytes.get(..length).unwrap_or_default()),
            Err(fault) if matches!(fault.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.mute = true,
        }
        while let Some(end) = self.received.iter().position(|&it| it == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            match str::from_utf8(&line) {
                Ok(request) if line.len() <= REQUEST_MAX => self.answer(request.trim(), history, requests),
                Ok(_) => self.dismiss("a request longer than 4096 bytes"),
                Err(_) => self.dismiss("a request that is not UTF-8"),
            }
            if self.closing {
                return;
            }
        }
        if self.received.len() >= REQUEST_MAX {
            self.dismiss("a request longer than 4096 bytes");
        }
    }

    fn answer(&mut self, request: &str, history: &History, requests: &mut impl Requests) {
        let mut parts = request.split_ascii_whitespace();
        match parts.next() {
            None => {}
            Some("since") if self.cursor.is_none() => {
                match (parts.next().and_then(|it| it.strip_prefix("seq=")).map(str::parse), parts.next()) {
                    (Some(Ok(seq)), None) => self.cursor = Some(Cursor::new(seq, history)),
                    _ => self.refuse("since takes seq=N, a whole number"),
                }
            }
            Some("since") => self.refuse("since is one line, `since seq=N`, and comes first"),
            Some("sites") => {
                if let Err(why) = requests.sites(parts) {
                    self.refuse(&why);
                }
            }
            Some("window") => match requests.window(parts) {
                Ok(bits) => self.window = Some(bits),
                Err(why) => self.refuse(&why),
            },
            _ => self.refuse("unknown verb"),
        }
    }

    fn fill(&mut self, history: &History) {
        let Some(cursor) = &mut self.cursor else { return };
        self.more = !self.closing;
        while self.more && self.out.len() < OUT_ENOUGH {
            self.more = cursor.write_next(history, &mut self.out);
        }
    }

    fn flush(&mut self) -> bool {
        while let Some(rest) = self.out.as_bytes().get(self.sent..)
            && !rest.is_empty()
        {
            match sys::send_now(&*self.stream, rest) {
                Ok(0) => break,
                Ok(sent) => self.sent += sent,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent_before += self.sent as u64;
            self.sent = 0;
        }
        !sys::hung_up(&*self.stream)
    }
}
