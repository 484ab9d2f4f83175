//! Reads a recording: zstd frames or plain lines, as far as possible, and why they end there.

use super::{
    Entry, FORMAT, Header, decode,
    frames::{Place, Text, is_bomb},
};
use crate::facts::text;
use gpuwatch_probe::wire::LINE_MAX;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read};
use thiserror::Error;

/// Most capacity kept for the next line, in bytes.
const KEPT: usize = 16 << 10;

/// Why reading ended early.
#[derive(Debug, Error, Serialize, Deserialize)]
pub enum Fault {
    /// The file ends inside a line or a frame: its writer was killed, or is still writing.
    #[error("the file is cut after line {lines}: everything before was read")]
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
