//! The recording's format: events as JSON lines, lines in zstd frames with checksums.
//!
//! A probe's line is stored as received, with `"from":N` added (`probe` is taken: a hello has its program there), and
//! `"seen_us"` if it arrived at another time than its own stamp. Every other fact has its own `type` and `at_us`.
//! Unknown types and fields are ignored. This module uses no paths and no clock.
//!
//! # The size of a recording
//!
//! A step of the corpus's loops takes 15 bytes at ten steps a second (9 to 31; 83 % of the loops within 24) and 30 at
//! one (23 to 47; 99 % within 45), written in 0.5 % of one core at 8 × 100 steps a second
//! (`tests/it/benchmarks/recording.rs`). If lengths vary, every counter changes in every step, and no setting of zstd
//! gets those loops down to 24: of the eight largest (27 bytes on average) the digits that occur in no earlier line are
//! 12 to 16 bytes, each of five to seven changed fields needs a match before it, and the block that ends every second
//! costs 4 bytes a step. Without that block they take 23 on average; plain `xz -9` of the whole file takes 24 and
//! `bzip2` 30. Other field orders, match lengths and search depths change 2 % at most (zstd's level 9 takes 31).
//! Columns or omitted values would take less, but then `jq`, pandas and DuckDB could no longer read the file directly.

mod frames;
mod own;

use self::frames::{Text, is_bomb};
use crate::facts::{
    event::{
        Event, Fact, Line, ProbeId, WritingProcess,
        sample::{self, SampleRow},
        stamp_of,
        wire::Sample,
    },
    redact::redact,
    text::{self, Foreign},
    units::Stamp,
};
pub use frames::Place;
use gpuwatch_probe::wire::{LINE_MAX, limits};
use own::{OWN_TYPES, Own, Stamped};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    io::{self, BufRead, Read},
};
use thiserror::Error;

/// What every recording's name ends in.
pub const ENDING: &str = ".jsonl.zst";

/// The format that this release writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Major version of the format.
    pub format: u32,
    /// Version of the gpuwatch that wrote it.
    #[serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>")]
    pub gpuwatch: String,
    /// The host that wrote it.
    pub host: Foreign,
    /// Wall clock at the start, µs of Unix time.
    pub started_unix_us: u64,
    /// `CLOCK_MONOTONIC` at the same instant, in µs; `at_us` counts on that clock.
    pub monotonic_us: u64,
    /// The name that its user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Foreign>,
    /// The writing process; `None` in recordings of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<WritingProcess>,
}

/// The last line of a recording that was closed properly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Closed {
    /// The time of the latest event.
    pub at_us: Stamp,
    /// Events dropped because they came faster than they could be written.
    pub lost: u64,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The first line.
    Header(Header),
    /// An event.
    Event(Event),
    /// The last line of a recording that was closed properly.
    Closed(Closed),
    /// A type that this release does not know.
    Unknown,
}

/// Returns the header as a line, with its newline.
pub fn encode_header(header: &Header) -> String {
    tagged("recording", header)
}

/// Returns the last line, with its newline.
pub fn encode_closed(closed: &Closed) -> String {
    tagged("closed", closed)
}

/// Returns a raised or resolved alert as a line, with its newline: `type` (`alert`), `at_us`, `edge`, and the finding's
/// fields. It is for other tools; a replay derives the alerts again.
pub fn encode_alert(at: Stamp, edge: &str, finding: Map<String, Value>) -> String {
    let mut object = Map::new();
    object.insert("type".to_owned(), "alert".into());
    object.insert("at_us".to_owned(), at.0.into());
    object.insert("edge".to_owned(), edge.into());
    object.extend(finding);
    let mut line = Value::from(object).to_string();
    line.push('\n');
    line
}

/// Appends an event as a line, with its newline. Skips a [`Fact::Second`], because readers derive it from the stamps,
/// and a line of unknown type. Leaves out a sample's sequence number, which only reconnecting viewers need: it would be
/// a twelfth of a sample's size.
pub fn encode(event: &Event, out: &mut String) {
    let line = match &event.fact {
        Fact::Second => return,
        Fact::Probe { line, .. } if **line == Line::Unknown => return,
        Fact::Probe { probe, line } => {
            let seen_us = (stamp_of(line) != Some(event.at)).then_some(event.at);
            let line = match &**line {
                Line::Sample(it) => &Line::Sample(Sample { seq: None, ..it.clone() }),
                other => other,
            };
            serde_json::to_string(&FromProbe { line, from: *probe, seen_us })
        }
        other => match Own::of(other) {
            Some(own) => serde_json::to_string(&Stamped { at_us: event.at, own }),
            None => return,
        },
    };
    // These types always serialise to JSON: keys are strings and numbers are integers.
    if let Ok(line) = line {
        out.push_str(&line);
        out.push('\n');
    }
}

/// Parses one line, without its newline, and hides its secrets.
///
/// # Errors
/// Fails if it is not a JSON object with a `type`, or lacks a required field.
pub fn decode(line: &str) -> Result<Entry, serde_json::Error> {
    if let Some(SampleRow { line, from, seen_us }) = sample::read(line) {
        let at = seen_us.or_else(|| stamp_of(&line)).unwrap_or_default();
        return Ok(Entry::Event(Event { at, fact: Fact::Probe { probe: from.unwrap_or(ProbeId(0)), line } }));
    }
    let tag: Tag = serde_json::from_str(line)?;
    match tag.kind.as_ref() {
        "recording" => return serde_json::from_str(line).map(Entry::Header),
        "closed" => return serde_json::from_str(line).map(Entry::Closed),
        _ => {}
    }
    if WIRE_TYPES.contains(&tag.kind.as_ref()) {
        let parsed: Line = serde_json::from_str(line)?;
        let at = tag.seen_us.or_else(|| stamp_of(&parsed)).unwrap_or_default();
        let mut fact = Fact::Probe { probe: tag.from.unwrap_or(ProbeId(0)), line: Box::new(parsed) };
        redact(&mut fact);
        return Ok(Entry::Event(Event { at, fact }));
    }
    if !OWN_TYPES.contains(&tag.kind.as_ref()) {
        return Ok(Entry::Unknown);
    }
    let Stamped { at_us, own } = serde_json::from_str(line)?;
    let Some(mut fact) = own.into_fact() else { return Ok(Entry::Unknown) };
    redact(&mut fact);
    Ok(Entry::Event(Event { at: at_us, fact }))
}

const WIRE_TYPES: [&str; 11] =
    ["hello", "sample", "mark", "oom", "oom_message", "sites", "lost", "history", "live", "bye", "refused"];

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    from: Option<ProbeId>,
    #[serde(default)]
    seen_us: Option<Stamp>,
}

/// A probe's line with the viewer's additions.
#[derive(Serialize)]
struct FromProbe<'a> {
    #[serde(flatten)]
    line: &'a Line,
    from: ProbeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_us: Option<Stamp>,
}

pub(super) fn tagged(kind: &str, value: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Tagged<'a, T: Serialize> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(flatten)]
        value: &'a T,
    }
    let mut line = serde_json::to_string(&Tagged { kind, value }).unwrap_or_default();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests;

/// Most capacity kept for the next line, in bytes.
const KEPT: usize = 16 << 10;

/// Why reading ended early.
#[derive(Debug, Error, Serialize, Deserialize)]
pub enum Fault {
    /// The file ends inside a line or a frame: its writer was killed, or is still writing.
    #[error(
        "the file ends in the middle of what follows line {lines}: its writer was killed, or is still writing; everything before \
         was read"
    )]
    Cut {
        /// Whole lines read.
        lines: u64,
    },
    /// A checksum or the compression is wrong.
    #[error("the file is damaged after line {lines}: everything before was read")]
    Damaged {
        /// Whole lines read.
        lines: u64,
    },
    /// It is made to keep a reader busy: no recording unpacks to so much.
    #[error("the file unpacks to far more than a recording can: everything up to line {lines} was read")]
    Bomb {
        /// Whole lines read.
        lines: u64,
    },
    /// Not a line of a recording.
    #[error("line {line} is not a line of a recording ({why})")]
    NotALine {
        /// Its number, from 1.
        line: u64,
        /// The parser's error.
        why: String,
    },
    /// The line exceeds the limit.
    #[error("line {line} is longer than 1 MiB")]
    TooLong {
        /// Its number, from 1.
        line: u64,
    },
    /// Written by a newer release.
    #[error("the recording has format {found}, this gpuwatch reads up to {FORMAT}: use a newer one")]
    Newer {
        /// Its format.
        found: u32,
    },
    /// The file could not be read.
    #[error("cannot read the recording: {0}")]
    #[serde(skip)]
    Io(#[from] io::Error),
}

/// The entries of a recording in order. The last one may be a [`Fault`].
pub struct Reader<R: Read> {
    input: Text<R>,
    line: Vec<u8>,
    lines: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the first bytes to detect zstd.
    ///
    /// # Errors
    /// Fails if nothing can be read.
    pub fn new(from: R) -> io::Result<Self> {
        Ok(Self { input: Text::new(from)?, line: Vec::new(), lines: 0, ended: false })
    }

    /// Whether the file is packed: what is not has no frames, and gets none.
    pub fn is_packed(&self) -> bool {
        self.place().compressed
    }

    /// Continues from a position that [`Reader::place`] returned; `from` is at [`Place::offset`].
    ///
    /// # Errors
    /// Fails if the file no longer reaches that position.
    pub fn resume(from: R, place: &Place) -> io::Result<Self> {
        Ok(Self { input: Text::resume(from, place)?, line: Vec::new(), lines: place.lines, ended: false })
    }

    /// Returns the position before the next entry.
    pub fn place(&self) -> Place {
        self.input.place(self.lines)
    }

    fn entry(&mut self) -> Result<Option<Entry>, Fault> {
        let line = self.lines + 1;
        if !self.read_line()? {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.line).map_err(|e| Fault::NotALine { line, why: text::fault(&e) })?;
        let entry = decode(text).map_err(|e| Fault::NotALine { line, why: text::fault(&e) })?;
        // Free a long line's memory: each of many files may have a reader.
        self.line.truncate(0);
        self.line.shrink_to(KEPT);
        if let Entry::Header(Header { format, .. }) = entry
            && format > FORMAT
        {
            return Err(Fault::Newer { found: format });
        }
        self.lines = line;
        Ok(Some(entry))
    }

    /// Reads one whole line into `self.line`, without its newline; false at a clean end.
    fn read_line(&mut self) -> Result<bool, Fault> {
        let lines = self.lines;
        self.line.clear();
        let got = (&mut self.input).take(LINE_MAX as u64).read_until(b'\n', &mut self.line);
        match got {
            Ok(0) => Ok(false),
            Ok(_) if self.line.last() == Some(&b'\n') => {
                self.line.pop();
                Ok(true)
            }
            Ok(got) if got == LINE_MAX => Err(Fault::TooLong { line: lines + 1 }),
            Ok(_) => Err(Fault::Cut { lines }),
            Err(e) if is_bomb(&e) => Err(Fault::Bomb { lines }),
            Err(e) if !self.input.is_compressed() || e.raw_os_error().is_some() => Err(Fault::Io(e)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Fault::Cut { lines }),
            Err(_) => Err(Fault::Damaged { lines }),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let entry = self.entry();
        self.ended = !matches!(entry, Ok(Some(_)));
        entry.transpose()
    }
}
