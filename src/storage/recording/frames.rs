//! The text of a recording, and the position in the file of each byte: zstd frames, or plain lines.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read};
use thiserror::Error;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// 128 MiB, which zstd's own tools allow by default, so that a recording compressed by other tools can be read.
/// gpuwatch's own frames need less; a hostile one must not force it to allocate more.
const WINDOW_LOG_MAX: u32 = 27;

const CHUNK: usize = 64 << 10;

/// Largest ratio of a recording's text to its file. Those of steady jobs unpack to 90 times their size.
const RATIO: u64 = 250;

/// Bytes that may be decompressed in any case.
const UNPACKED: u64 = 8 << 20;

/// Bytes that may hold no text, and how many a byte of text may take: text takes less in a frame than by itself.
const EMPTY: u64 = 1 << 20;
const EMPTY_RATIO: u64 = 4;

/// The text of a recording is far longer than a recording's can be.
#[derive(Debug, Error)]
#[error("it unpacks to more than {RATIO} times its size")]
struct Bomb;

/// Returns whether reading ended because the text is too long.
pub(super) fn is_bomb(error: &io::Error) -> bool {
    let bomb: Option<&Bomb> = error.get_ref().and_then(|it| it.downcast_ref());
    bomb.is_some()
}

/// A position between two lines from which reading can continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where the frame begins in the file; in a plain file, any byte before the position.
    pub offset: u64,
    /// Bytes of its text before the position.
    skip: u64,
    /// Lines before the position.
    pub(super) lines: u64,
    pub(super) compressed: bool,
}

impl Place {
    /// Returns the beginning of a compressed frame; the number of earlier lines is unknown and counts as 0.
    pub fn of_frame(offset: u64) -> Self {
        Self { offset, skip: 0, lines: 0, compressed: true }
    }
}

/// Text, read in chunks; no chunk has bytes of two frames.
pub(super) struct Text<R> {
    from: R,
    decoder: Option<Decoder<'static>>,
    input: Chunk,
    output: Chunk,
    /// Where `input` begins in the file.
    input_offset: u64,
    /// Where the current frame begins in the file, and how much text it has produced.
    frame: u64,
    given: u64,
    inside: bool,
    /// Bytes read of the file, and bytes of text decompressed from them.
    read: u64,
    unpacked: u64,
    /// Whether the decoder may have text that did not fit the last chunk.
    full: bool,
    /// Where `output` begins: its frame, and the length of the frame's text before it.
    output_at: u64,
    output_skip: u64,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Chunk {
    fn left(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }

    /// Refills the buffer; false at the end of the file.
    fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        self.bytes.resize(CHUNK, 0);
        (self.at, self.end) = (0, 0);
        while let Err(e) = from.read(&mut self.bytes).map(|read| self.end = read) {
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
        Ok(self.end > 0)
    }
}

impl<R: Read> Text<R> {
    /// Reads the first bytes to detect zstd.
    pub(super) fn new(mut from: R) -> io::Result<Self> {
        let mut magic = Vec::with_capacity(4);
        from.by_ref().take(4).read_to_end(&mut magic)?;
        let compressed = is_zstd(&magic);
        let mut text = Self::at(from, &Place { compressed, ..Place::default() })?;
        let end = magic.len();
        let first = Chunk { bytes: magic, at: 0, end };
        if compressed {
            text.input = first;
        } else {
            text.output = first;
            text.frame = end as u64;
        }
        Ok(text)
    }

    /// Continues from a position; `from` is at its offset.
    pub(super) fn resume(from: R, place: &Place) -> io::Result<Self> {
        let mut text = Self::at(from, place)?;
        let mut skip = place.skip;
        while skip > 0 {
            let have = text.fill_buf()?.len() as u64;
            if have == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let step = have.min(skip);
            text.consume(usize::try_from(step).unwrap_or(CHUNK));
            skip -= step;
        }
        Ok(text)
    }

    fn at(from: R, place: &Place) -> io::Result<Self> {
        let decoder = place.compressed.then(Decoder::new).transpose()?;
        let mut text = Self {
            from,
            decoder,
            input: Chunk::default(),
            output: Chunk::default(),
            input_offset: place.offset,
            frame: place.offset,
            given: 0,
            inside: false,
            read: 0,
            unpacked: 0,
            full: false,
            output_at: place.offset,
            output_skip: 0,
        };
        if let Some(decoder) = &mut text.decoder {
            decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        }
        Ok(text)
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.decoder.is_some()
    }

    /// Returns the position of the next byte.
    pub(super) fn place(&self, lines: u64) -> Place {
        let (offset, skip) = if self.output.left().is_empty() {
            (self.frame, self.given)
        } else {
            (self.output_at, self.output_skip + self.output.at as u64)
        };
        Place { offset, skip, lines, compressed: self.is_compressed() }
    }

    /// Reads the next chunk of text; none at the end.
    fn next(&mut self) -> io::Result<()> {
        let Self { decoder, from, input, output, .. } = self;
        let Some(decoder) = decoder else {
            (self.output_at, self.output_skip) = (self.frame, 0);
            output.fill(from)?;
            self.frame += output.end as u64;
            return Ok(());
        };
        output.bytes.resize(CHUNK, 0);
        (output.at, output.end) = (0, 0);
        loop {
            if input.left().is_empty() && !self.full {
                self.input_offset += input.end as u64;
                if !input.fill(from)? {
                    return if self.inside { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) };
                }
            }
            if !self.inside {
                decoder.reinit()?;
                self.inside = true;
            }
            let mut fed = InBuffer::around(input.left());
            let mut made = OutBuffer::around(output.bytes.as_mut_slice());
            let hint = decoder.run(&mut fed, &mut made)?;
            let (taken, written) = (fed.pos(), made.pos());
            input.at += taken;
            output.end = written;
            self.read += taken as u64;
            self.unpacked += written as u64;
            if self.unpacked > UNPACKED + self.read.saturating_mul(RATIO) {
                output.end = 0;
                return Err(io::Error::other(Bomb));
            }
            // Blocks can be empty, and a file that takes no room on its disk can have them without end.
            if self.read > EMPTY + self.unpacked.saturating_mul(EMPTY_RATIO) {
                output.end = 0;
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.full = written == CHUNK && hint != 0;
            (self.output_at, self.output_skip) = (self.frame, self.given);
            self.given += written as u64;
            if hint == 0 {
                self.inside = false;
                self.frame = self.input_offset + input.at as u64;
                self.given = 0;
            }
            if written > 0 {
                return Ok(());
            }
        }
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buf)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Text<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.output.left().is_empty() {
            self.next()?;
        }
        Ok(self.output.left())
    }

    fn consume(&mut self, amount: usize) {
        self.output.at = (self.output.at + amount).min(self.output.end);
    }
}

/// Whether this is a zstd frame, or one of the sixteen kinds of skippable frame.
fn is_zstd(magic: &[u8]) -> bool {
    matches!(magic, [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}
