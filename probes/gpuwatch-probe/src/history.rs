//! The history for a late viewer: the latest samples complete, the run before them at a growing stride, and marks,
//! failures and losses separately.
//!
//! A [`Cursor`] is one viewer's position in it. Lines come in order of sequence number, each at most once.
//!
//! ```text
//! seq      1 ················· raw's first ································ last
//! strided  x   x   x   x   x   |   (kept on, shown no more)
//! raw                          |xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
//! notes         m          m   |        m               o              m
//! ```

mod cursor;
mod raw;
mod stride;

pub(crate) use cursor::Cursor;

use crate::{
    reading::Reading,
    wire::{Line, encode, encode_sites},
};
use raw::Raw;
use std::collections::VecDeque;
use stride::Strided;

/// Memory of a history, in bytes: eleven twentieths for raw samples, a quarter for strided ones, the rest for notes: a
/// thousand errors with their messages.
pub(crate) const BUDGET: usize = 4 << 20;

const NOTES_MAX: usize = 2048;

/// Bytes of a note besides its text.
const NOTE_BYTES: usize = size_of::<Kept>();

/// Anything but a sample.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are the first, and a box would allocate for each mark"
)]
#[derive(Debug)]
pub(crate) enum Note {
    /// A line of the wire.
    Line(Line),
    /// The fields of a `sites` line as its author wrote them, except the first three.
    Sites { at_us: u64, fields: Box<str> },
}

pub(crate) struct History {
    seq: u64,
    at_us: u64,
    raw: Raw,
    strided: Strided,
    notes: VecDeque<Kept>,
    notes_bytes: usize,
    notes_budget: usize,
    /// The part of it that failures take.
    failures_bytes: usize,
    /// How many failures there were, kept or not.
    failures: u64,
}

/// A note in its place.
pub(crate) struct Kept {
    seq: u64,
    /// How many failures came before it, so that a viewer notices those that it missed.
    failures_before: u64,
    note: Note,
}

impl History {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            seq: 0,
            at_us: 0,
            raw: Raw::new(budget / 20 * 11),
            strided: Strided::new(budget / 4 / size_of::<(u64, Reading)>()),
            notes: VecDeque::new(),
            notes_bytes: 0,
            notes_budget: budget / 20 * 4,
            failures_bytes: 0,
            failures: 0,
        }
    }

    /// Returns the last sequence number assigned; 0 before the first.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Adds a sample. Threads may race into the queue by microseconds; stamps rise nevertheless.
    pub(crate) fn sample(&mut self, mut reading: Reading) {
        reading.at_us = self.advance(reading.at_us);
        self.raw.push(self.seq, &reading);
        self.strided.push(self.seq, reading);
    }

    /// Adds a mark, a failure, a loss, sites or the end.
    pub(crate) fn note(&mut self, note: impl Into<Note>) {
        let mut note = note.into();
        let next = self.seq + 1;
        let at_us = match &mut note {
            Note::Sites { at_us, .. } => at_us,
            Note::Line(line) => {
                let (seq, at_us) = match line {
                    Line::Mark(it) => (&mut it.seq, &mut it.at_us),
                    Line::Oom(it) => (&mut it.seq, &mut it.at_us),
                    Line::OomMessage(it) => (&mut it.seq, &mut it.at_us),
                    Line::Sites(it) => (&mut it.seq, &mut it.at_us),
                    Line::Lost(it) => (&mut it.seq, &mut it.at_us),
                    Line::Bye(it) => (&mut it.seq, &mut it.at_us),
                    _ => return,
                };
                *seq = Some(next);
                at_us
            }
        };
        *at_us = self.advance(*at_us);
        let bytes = note.bytes();
        self.notes_bytes += bytes;
        let failures_before = self.failures;
        if note.is_failure() {
            self.failures_bytes += bytes;
            self.failures += 1;
        }
        self.notes.push_back(Kept { seq: self.seq, failures_before, note });
        while self.notes.len() > NOTES_MAX || (self.notes_bytes > self.notes_budget && self.notes.len() > 1) {
            self.forget_a_note();
        }
    }

    fn advance(&mut self, at_us: u64) -> u64 {
        self.seq += 1;
        self.at_us = self.at_us.max(at_us);
        self.at_us
    }

    /// Failures are kept longer than marks: most runs have few of them, and users look for them. The same holds for
    /// sites, but the latest ones replace earlier ones. A job that retries forever has endless failures, which leave an
    /// eighth of the room to other notes. The newest note, which no viewer has received yet, always stays.
    fn forget_a_note(&mut self) {
        let oldest = |goes: &dyn Fn(&Note) -> bool| {
            let seen = self.notes.len().saturating_sub(1);
            self.notes.iter().take(seen).position(|it| goes(&it.note))
        };
        let failure = if self.failures_bytes > self.notes_budget / 8 * 7 { oldest(&Note::is_failure) } else { None };
        let place = failure
            .or_else(|| oldest(&|it| !it.is_failure() && !it.is_sites()))
            .or_else(|| oldest(&Note::is_sites))
            .unwrap_or(0);
        if let Some(Kept { note, .. }) = self.notes.remove(place) {
            let bytes = note.bytes();
            self.notes_bytes -= bytes;
            self.failures_bytes -= if note.is_failure() { bytes } else { 0 };
        }
    }

    /// Returns the bytes of samples and notes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.raw.bytes() + self.strided.bytes() + self.notes_bytes
    }

    fn note_from(&self, seq: u64) -> Option<&Kept> {
        self.notes.get(self.notes.partition_point(|it| it.seq < seq))
    }
}

impl Kept {
    fn failures_before(&self) -> u64 {
        self.failures_before
    }
}

impl From<Line> for Note {
    fn from(line: Line) -> Self {
        Self::Line(line)
    }
}

impl Note {
    fn is_failure(&self) -> bool {
        matches!(self, Self::Line(Line::Oom(_) | Line::OomMessage(_)))
    }

    fn is_sites(&self) -> bool {
        matches!(self, Self::Line(Line::Sites(_)) | Self::Sites { .. })
    }

    /// Returns its bytes in the history.
    fn bytes(&self) -> usize {
        NOTE_BYTES
            + match self {
                Self::Sites { fields, .. } => fields.len(),
                Self::Line(Line::Mark(it)) => it.name.capacity(),
                Self::Line(Line::Oom(it)) => {
                    it.message.as_ref().map_or(0, String::capacity) + it.blocks.capacity() * size_of::<(u64, u64)>()
                }
                Self::Line(Line::OomMessage(it)) => it.message.capacity(),
                Self::Line(line @ Line::Sites(_)) => {
                    let mut text = String::new();
                    encode(line, &mut text);
                    text.len()
                }
                Self::Line(Line::Bye(it)) => it.reason.capacity(),
                Self::Line(_) => 0,
            }
    }

    fn at_us(&self) -> u64 {
        match self {
            Self::Sites { at_us, .. } => *at_us,
            Self::Line(Line::Mark(it)) => it.at_us,
            Self::Line(Line::Oom(it)) => it.at_us,
            Self::Line(Line::OomMessage(it)) => it.at_us,
            Self::Line(Line::Sites(it)) => it.at_us,
            Self::Line(Line::Lost(it)) => it.at_us,
            Self::Line(Line::Bye(it)) => it.at_us,
            Self::Line(_) => 0,
        }
    }

    /// Appends its line.
    fn write(&self, seq: u64, out: &mut String) {
        match self {
            Self::Line(line) => encode(line, out),
            Self::Sites { at_us, fields } => encode_sites(seq, *at_us, fields, out),
        }
    }
}

#[cfg(test)]
mod tests;
