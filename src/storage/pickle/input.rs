//! The bytes of a snapshot: a window that moves over a file, decompressed if necessary.

use super::Fault;
use flate2::read::MultiGzDecoder;
use std::{
    cell::Cell,
    io::{self, Cursor, Read},
    rc::Rc,
};

/// Size of the window in bytes.
const WINDOW: usize = 256 << 10;

/// Largest ratio of a snapshot to its file. Real ones compress to a tenth up to a fortieth.
const RATIO: u64 = 250;

/// Bytes that may be decompressed in any case.
const UNPACKED: u64 = 8 << 20;

/// How many bytes of the file a byte of the snapshot may take: blocks can be empty, without end.
const EMPTY_RATIO: u64 = 4;

/// A window over the bytes.
pub(super) struct Input<'a> {
    from: Box<dyn Read + 'a>,
    window: Box<[u8]>,
    at: usize,
    end: usize,
    /// The offset of the window's first byte.
    base: u64,
    is_packed: bool,
}

const TEXT: Fault =
    Fault::NoPickle { what: "this is text, such as JSON or a recording (which gpuwatch replay and report open)" };

impl<'a> Input<'a> {
    /// Reads the first bytes to detect gzip and zstd.
    ///
    /// # Errors
    /// Fails if nothing can be read, or if it has another format.
    pub(super) fn new(mut from: impl Read + 'a) -> Result<Self, Fault> {
        let mut first = Vec::with_capacity(4);
        from.by_ref().take(4).read_to_end(&mut first)?;
        let kind = first.clone();
        let whole = Cursor::new(first).chain(from);
        let (from, is_packed): (Box<dyn Read + 'a>, bool) = match kind[..] {
            [0x1f, 0x8b, ..] => (unpacked(whole, |it| Ok(MultiGzDecoder::new(it)))?, true),
            [0x28, 0xb5, 0x2f, 0xfd] => (unpacked(whole, zstd::Decoder::new)?, true),
            [0x80, 2..=5, ..] => (Box::new(whole), false),
            [] => return Err(Fault::NoPickle { what: "the file is empty" }),
            [b'P', b'K', ..] => {
                return Err(Fault::NoPickle { what: "this is a zip archive, such as torch.save writes" });
            }
            [b'{' | b'[', ..] => return Err(TEXT),
            _ => return Err(Fault::NoPickle { what: "this is not a pickle of protocol 2 to 5" }),
        };
        let mut input = Self { from, window: vec![0; WINDOW].into(), at: 0, end: 0, base: 0, is_packed };
        if is_packed && input.peek(1)?.starts_with(b"{") {
            return Err(TEXT);
        }
        Ok(input)
    }

    /// Returns the offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Returns the next bytes without consuming them: `count`, or all that are left.
    #[inline]
    pub(super) fn peek(&mut self, count: usize) -> Result<&[u8], Fault> {
        if self.end - self.at < count {
            self.fill(count)?;
        }
        Ok(self.window.get(self.at..self.end).unwrap_or_default())
    }

    /// Consumes bytes that were peeked at.
    #[inline]
    pub(super) fn skip(&mut self, count: usize) {
        self.at = (self.at + count).min(self.end);
    }

    /// Consumes this many bytes.
    #[inline]
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some(bytes) = self.peek(N)?.first_chunk().copied() else { return Err(self.cut()) };
        self.at += N;
        Ok(bytes)
    }

    /// Consumes bytes and passes the first ones, at most `WINDOW`, to `keep`.
    pub(super) fn take_long<T>(&mut self, count: u64, keep: impl FnOnce(&[u8]) -> T) -> Result<T, Fault> {
        let short = usize::try_from(count).unwrap_or(usize::MAX).min(WINDOW);
        let bytes = self.peek(short)?.get(..short);
        let Some(bytes) = bytes else { return Err(self.cut()) };
        let kept = keep(bytes);
        self.skip(short);
        let mut rest = count - short as u64;
        while rest > 0 {
            let here = self.peek(1)?.len();
            if here == 0 {
                return Err(self.cut());
            }
            let step = usize::try_from(rest).unwrap_or(usize::MAX).min(here);
            self.skip(step);
            rest -= step as u64;
        }
        Ok(kept)
    }

    /// Decompresses the rest, so that its checksum is verified. Ignores bytes after a plain pickle.
    pub(super) fn rest(&mut self) -> Result<(), Fault> {
        while self.is_packed && !self.peek(1)?.is_empty() {
            self.skip(WINDOW);
        }
        Ok(())
    }

    /// Returns the error for missing bytes.
    fn cut(&self) -> Fault {
        Fault::Cut { at: self.base + self.end as u64 }
    }

    #[cold]
    fn fill(&mut self, count: usize) -> Result<(), Fault> {
        self.window.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        (self.at, self.end) = (0, self.end - self.at);
        while self.end < count.min(WINDOW) {
            let Some(room) = self.window.get_mut(self.end..) else { break };
            match self.from.read(room) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if self.is_packed && e.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(why) if self.is_packed => return Err(Fault::Packed { at: self.base + self.end as u64, why }),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Decompresses within limits relative to its input: a small file must not fill the memory.
fn unpacked<'a, R: Read + 'a>(
    from: impl Read + 'a,
    with: impl FnOnce(Counted<Box<dyn Read + 'a>>) -> io::Result<R>,
) -> io::Result<Box<dyn Read + 'a>> {
    let [taken, given] = [0, 0].map(|none| Rc::new(Cell::new(none)));
    let from = with(Counted { from: Box::new(from), taken: Rc::clone(&taken), given: Rc::clone(&given) })?;
    Ok(Box::new(Proportionate { from, given, taken }))
}

struct Counted<R> {
    from: R,
    taken: Rc<Cell<u64>>,
    given: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buf)?;
        self.taken.set(self.taken.get() + count as u64);
        if self.taken.get() > UNPACKED + self.given.get().saturating_mul(EMPTY_RATIO) {
            return Err(io::Error::other("it is far smaller than the file"));
        }
        Ok(count)
    }
}

struct Proportionate<R> {
    from: R,
    given: Rc<Cell<u64>>,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Proportionate<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buf)?;
        let given = self.given.get() + count as u64;
        self.given.set(given);
        if given > UNPACKED && given / RATIO > self.taken.get() {
            return Err(io::Error::other(format!("it is more than {RATIO} times as large as the file")));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a file of which only the first bytes take room on a disk.
    #[test]
    fn empty_blocks_without_end_are_read_no_further() {
        let head: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, 0];
        let refused = Input::new(head.chain(io::repeat(0))).err().unwrap();
        assert!(refused.to_string().contains("far smaller than the file"), "{refused}");
    }
}
