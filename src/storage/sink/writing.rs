//! Writes a recording's file: lines in zstd frames with checksums, flushed on request. Uses no clock.

use crate::{
    facts::{event::Event, text::escape_json, units::Stamp},
    storage::recording::encode,
};
use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};
use zstd::zstd_safe::CParameter;

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
    file: File,
    frame: Option<Frame>,
    /// The last flush.
    flushed: Instant,
    /// Lines since then.
    lines: u32,
    /// Most lines between two flushes with the exhaustive search.
    slow_lines: u32,
    last: Stamp,
    text: String,
}

struct Frame {
    encoder: zstd::Encoder<'static, Counted>,
    began: Instant,
    slow: bool,
}

impl Writing {
    /// Creates a writer; writes nothing yet.
    pub fn new(file: File, now: Instant) -> Self {
        Self {
            file,
            frame: None,
            flushed: now,
            lines: 0,
            slow_lines: SLOW_LINES_MAX,
            last: Stamp(0),
            text: String::new(),
        }
    }

    /// Lets fewer lines between two flushes have the exhaustive search: recordings that are written together share its
    /// time.
    #[must_use]
    pub fn with_slow_lines(self, most: u32) -> Self {
        Self { slow_lines: most.min(SLOW_LINES_MAX), ..self }
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the time of the latest event.
    pub fn last(&self) -> Stamp {
        self.last
    }

    /// Writes an event; sources have hidden its secrets.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.last = event.at;
        let mut text = std::mem::take(&mut self.text);
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
            slow.encoder.finish()?;
        }
        if self.frame.is_none() {
            self.frame = Some(Frame::begin(self.file.try_clone()?, self.flushed, self.lines <= self.slow_lines)?);
        }
        self.frame.as_mut().map_or(Ok(()), |it| it.encoder.write_all(line.as_bytes()))
    }

    /// Ends the block, and the frame if it is old or large enough.
    ///
    /// # Errors
    /// Fails if the file cannot be written or was removed.
    pub fn flush(&mut self, now: Instant) -> io::Result<()> {
        self.flushed = now;
        if std::mem::take(&mut self.lines) > 0 {
            if let Some(frame) = &mut self.frame {
                frame.encoder.flush()?;
            }
            self.stands()?;
        }
        if let Some(frame) = self.frame.take_if(|it| it.is_full(now)) {
            frame.encoder.finish()?;
        }
        Ok(())
    }

    /// Fails if the file has no name any more.
    fn stands(&self) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed"));
        }
        Ok(())
    }

    /// Ends the last frame.
    ///
    /// # Errors
    /// Fails if the file cannot be written or was removed.
    pub fn finish(mut self) -> io::Result<File> {
        if let Some(frame) = self.frame.take() {
            frame.encoder.finish()?;
        }
        self.stands()?;
        Ok(self.file)
    }
}

impl Frame {
    fn begin(file: File, began: Instant, slow: bool) -> io::Result<Self> {
        let level = if slow { LEVEL_SLOW } else { LEVEL_FAST };
        let mut encoder = zstd::Encoder::new(Counted { file, bytes: 0 }, level)?;
        encoder.include_checksum(true)?;
        encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        encoder.set_parameter(CParameter::HashLog(TABLE_LOG))?;
        encoder.set_parameter(CParameter::ChainLog(TABLE_LOG))?;
        if slow {
            encoder.set_parameter(CParameter::MinMatch(MATCH_LEAST))?;
        }
        Ok(Self { encoder, began, slow })
    }

    fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= FRAME_AGE_MAX || self.encoder.get_ref().bytes >= FRAME_BYTES_MAX
    }
}

/// A file that counts the bytes of the current frame.
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
