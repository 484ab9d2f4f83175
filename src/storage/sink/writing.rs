//! Writes a recording's file: lines in zstd frames with checksums, flushed on request. Uses no clock.
//!
//! A flush writes everything since the last one or nothing. If the disk takes it no more, the current frame ends with
//! the last flush ([`Writing::cut`]), so that what is written stays readable and further frames can follow.

use super::disk::{Disk, Sync};
use crate::{
    facts::{event::Event, text::escape_json},
    storage::recording::encode,
};
use std::{
    fs::File,
    hash::Hasher,
    io::{self, Write},
    mem,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use twox_hash::XxHash64;
use zstd::zstd_safe::CParameter;

/// More text is written before the next flush: a full disk takes no part of a write.
const TEXT_MAX: usize = 64 << 10;

/// The last block of a frame: it is empty. The checksum follows.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

/// A frame ends at this age or size, which bounds the damage of a bad byte. If lines are few, a frame's first line,
/// which has no earlier context, is a large part of it.
const FRAME_AGE_MAX: Duration = Duration::from_secs(300);
const FRAME_BYTES_MAX: u64 = 256 << 10;

/// zstd's levels for fast and for slow lines. A block of one second's few lines is all literals and matches, and only
/// an exhaustive search makes it small. That takes about 0.15 ms per line, too much for hundreds of lines; those share
/// a block with similar lines.
const LEVEL_FAST: i32 = 9;
const LEVEL_SLOW: i32 = 19;

/// Most lines between two flushes with the exhaustive search, so that it takes at most 10 ms.
const SLOW_LINES_MAX: u32 = 64;

/// 128 KiB, which holds the latest hundreds of lines; older ones do not help to predict the next. It keeps the tables
/// below 2 MiB, for readers too.
const WINDOW_LOG: u32 = 17;
const TABLE_LOG: u32 = 16;

/// Shortest match in slow lines: three equal digits save less than the match takes.
const MATCH_LEAST: u32 = 4;

/// The open file and its current frame.
pub struct Writing {
    disk: Disk,
    frame: Option<Frame>,
    /// Bytes since the last write, and the length of their text.
    out: Vec<u8>,
    unwritten: usize,
    /// The checksum of the frame in which the file ends; `None` between two frames.
    checksum: Option<[u8; 4]>,
    /// How often the disk took bytes.
    writes: u64,
    /// The last flush.
    flushed: Instant,
    /// Lines since then.
    lines: u32,
    /// Most lines between two flushes with the exhaustive search.
    slow_lines: u32,
    text: String,
}

struct Frame {
    encoder: zstd::Encoder<'static, Vec<u8>>,
    /// Of its text.
    hash: XxHash64,
    /// Bytes that were taken from the encoder.
    bytes: u64,
    began: Instant,
    slow: bool,
}

impl Writing {
    /// Creates a writer; writes nothing yet.
    pub fn new(file: File, now: Instant) -> Self {
        Self::on(Disk::of(file), now)
    }

    /// The same with a file that is made at the first flush for which there is room.
    pub fn planned(path: PathBuf, now: Instant) -> Self {
        Self::on(Disk::planned(path), now)
    }

    fn on(disk: Disk, now: Instant) -> Self {
        Self {
            disk,
            frame: None,
            out: Vec::new(),
            unwritten: 0,
            checksum: None,
            writes: 0,
            flushed: now,
            lines: 0,
            slow_lines: SLOW_LINES_MAX,
            text: String::new(),
        }
    }

    /// Lets fewer lines between two flushes have the exhaustive search: recordings that are written together share its
    /// time.
    #[must_use]
    pub fn with_slow_lines(self, most: u32) -> Self {
        Self { slow_lines: most.min(SLOW_LINES_MAX), ..self }
    }

    /// Returns a request to sync what is written, if one is due.
    pub(super) fn sync(&mut self) -> Option<Sync> {
        self.disk.sync()
    }

    /// Returns the file's path; `None` of a pipe.
    pub(super) fn path(&self) -> Option<&Path> {
        self.disk.path()
    }

    /// Returns how often the disk took everything before.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Writes an event; sources have hidden its secrets.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let mut text = mem::take(&mut self.text);
        text.clear();
        encode(event, &mut text);
        let written = if text.is_empty() { Ok(()) } else { self.line(&text) };
        self.text = text;
        written
    }

    /// Writes a line, with its newline. It is in the file after the next flush.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn line(&mut self, line: &str) -> io::Result<()> {
        self.lines += 1;
        // A recording may be read on a terminal, as by `zstdcat`.
        let escaped = line.bytes().any(|it| it >= 0x7f).then(|| escape_json(line));
        let line = escaped.as_deref().unwrap_or(line);
        if self.lines > self.slow_lines
            && let Some(slow) = self.frame.take_if(|it| it.slow)
        {
            self.out.extend(slow.encoder.finish()?);
        }
        let frame = match &mut self.frame {
            Some(frame) => frame,
            none => none.insert(Frame::begin(self.flushed, self.lines <= self.slow_lines)?),
        };
        frame.hash.write(line.as_bytes());
        frame.encoder.write_all(line.as_bytes())?;
        frame.give(&mut self.out);
        self.unwritten += line.len();
        if self.unwritten > TEXT_MAX { self.store() } else { Ok(()) }
    }

    /// Ends the block, and the frame if it is old or large enough.
    ///
    /// # Errors
    /// Fails if the file cannot be written or was removed. Then [`Self::cut`] what is not written.
    pub fn flush(&mut self, now: Instant) -> io::Result<()> {
        self.flushed = now;
        let has_lines = mem::take(&mut self.lines) > 0;
        if let Some(frame) = self.frame.take_if(|it| it.is_full(now)) {
            self.out.extend(frame.encoder.finish()?);
            self.store()?;
        } else if has_lines {
            self.store()?;
        }
        if has_lines { self.stands() } else { Ok(()) }
    }

    /// Checks that the disk has room again.
    ///
    /// # Errors
    /// Fails if it has not.
    pub fn has_room(&mut self) -> io::Result<()> {
        self.disk.has_room()
    }

    /// Takes back what is not written, and ends the frame there.
    pub fn cut(&mut self) {
        self.frame = None;
        self.out.clear();
        self.unwritten = 0;
        if let Some(checksum) = self.checksum {
            self.out.extend(LAST_BLOCK);
            self.out.extend(checksum);
        }
    }

    /// Begins another file in the place of one that was removed; false if that is not possible or not necessary.
    pub fn begin_again(&mut self) -> bool {
        let is_removed = self.disk.is_removed();
        if is_removed {
            self.disk.begin_again();
            self.checksum = None;
            self.cut();
        }
        is_removed
    }

    /// Writes what was not written, up to a whole block.
    fn store(&mut self) -> io::Result<()> {
        if let Some(frame) = &mut self.frame {
            frame.encoder.flush()?;
            frame.give(&mut self.out);
        }
        if !self.out.is_empty() {
            self.disk.append(&self.out)?;
            self.is_stored();
        }
        Ok(())
    }

    fn is_stored(&mut self) {
        self.writes += 1;
        self.unwritten = 0;
        self.out.clear();
        self.checksum = self.frame.as_ref().map(Frame::checksum);
    }

    /// Fails if the file has no name any more.
    fn stands(&self) -> io::Result<()> {
        if self.disk.is_removed() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed"));
        }
        Ok(())
    }

    /// Ends the last frame, which may take the room that is kept for it.
    ///
    /// # Errors
    /// Fails if the file cannot be written or was removed. Then [`Self::cut`] what is not written.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(frame) = self.frame.take() {
            self.out.extend(frame.encoder.finish()?);
        }
        if !self.out.is_empty() {
            self.disk.append_last(&self.out)?;
            self.is_stored();
        }
        self.stands()
    }

    /// Ends the last frame and closes the file.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub fn finish(mut self) -> io::Result<()> {
        let ended = self.end();
        drop(self.into_disk());
        ended
    }

    /// Returns the file, without the room that it kept.
    pub(super) fn into_disk(mut self) -> Disk {
        self.disk.release();
        self.disk
    }
}

impl Frame {
    fn begin(began: Instant, slow: bool) -> io::Result<Self> {
        let level = if slow { LEVEL_SLOW } else { LEVEL_FAST };
        let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
        encoder.include_checksum(true)?;
        encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        encoder.set_parameter(CParameter::HashLog(TABLE_LOG))?;
        encoder.set_parameter(CParameter::ChainLog(TABLE_LOG))?;
        if slow {
            encoder.set_parameter(CParameter::MinMatch(MATCH_LEAST))?;
        }
        Ok(Self { encoder, hash: XxHash64::with_seed(0), bytes: 0, began, slow })
    }

    /// Returns the lower half of the hash, its least byte first.
    fn checksum(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.hash.finish().to_le_bytes();
        [a, b, c, d]
    }

    /// Hands over what the encoder has made.
    fn give(&mut self, out: &mut Vec<u8>) {
        let made = self.encoder.get_mut();
        self.bytes += made.len() as u64;
        out.append(made);
    }

    fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= FRAME_AGE_MAX || self.bytes >= FRAME_BYTES_MAX
    }
}

/// Appends events to a closed recording, in a frame of their own.
///
/// # Errors
/// Fails if the file is gone or cannot be written.
pub fn append(path: &Path, events: &[Event]) -> io::Result<()> {
    append_to(File::options().append(true).open(path)?, events)
}

/// The same through a descriptor that was opened to append.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn append_to(file: File, events: &[Event]) -> io::Result<()> {
    let mut writing = Writing::new(file, Instant::now());
    for it in events {
        writing.event(it)?;
    }
    writing.finish()
}
