//! Sessions in the course of the recordings, stored in a file: a seek restores the last one before its position.
//!
//! They are in a file and not in memory because a session takes a megabyte or two and there are hundreds; compressed,
//! each takes about a twentieth.
//!
//! # How a recording is opened
//!
//! `replay::recording_set` merges one or several files into one stream of events in order of time. `replay::preview`
//! shows the end of a long one from its last frames while the whole is read once. Meanwhile `replay::index` notes what
//! happened when, and `replay::checkpoints` stores some 400 sessions in a file (MessagePack with names, zstd; on its
//! own thread). A seek restores the last one before its position and folds the rest. The file stays in the user's cache
//! (`replay::cache`): only the same program uses it, and only for the same, unchanged files, so neither the session nor
//! the analysis needs a stable format. Recordings have only raw facts; if anything is wrong with the cache, they are
//! read again.

use super::{
    index::Folded,
    recording_set::{Bookmark, Cursor, RecordingSet},
};
use crate::facts::units::Stamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
};

/// Most bytes of one piece after decompression: far more than any session.
const PIECE_MAX: u64 = 64 << 20;

/// zstd's level: higher ones do not make the pieces smaller.
const LEVEL: i32 = 1;

/// A session and its position in the recordings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Stop {
    pub(super) folded: Folded,
    /// `None` is the beginning.
    pub(super) bookmark: Option<Bookmark>,
}

impl Stop {
    pub(super) fn new(folded: &Folded, cursor: &Cursor) -> Self {
        Self { folded: folded.clone(), bookmark: Some(cursor.bookmark()) }
    }

    /// Returns a cursor that reads from there on.
    pub(super) fn cursor(&self, recordings: &RecordingSet) -> Cursor {
        self.bookmark.as_ref().map_or_else(|| recordings.play(), |it| recordings.resume(it))
    }
}

/// Where a stop is in the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    /// Events folded so far.
    pub(super) place: u64,
    /// The session's time.
    pub(super) now: Stamp,
    piece: Piece,
}

/// A range of a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The stops of the recordings, in order.
#[derive(Debug)]
pub(super) struct Checkpoints {
    file: File,
    slots: Vec<Slot>,
    end: u64,
}

impl Checkpoints {
    /// Creates it in an empty file.
    pub(super) fn new(file: File) -> Self {
        Self { file, slots: Vec::new(), end: 0 }
    }

    /// Opens it from a file with these stops.
    pub(super) fn filled(file: File, slots: Vec<Slot>) -> Self {
        Self { file, slots, end: 0 }
    }

    /// Appends a stop, which is later than all others.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn put(&mut self, stop: &Stop) -> io::Result<()> {
        let piece = self.write(stop)?;
        self.slots.push(Slot { place: stop.folded.place, now: stop.folded.session.now, piece });
        Ok(())
    }

    /// Returns the last stop at or before a position or a time, if it is readable.
    pub(super) fn before(&self, is_before: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        let after = self.slots.partition_point(is_before);
        self.slots.get(after.checked_sub(1)?)
    }

    /// Reads the session of a stop; if its piece is unreadable, an earlier one.
    pub(super) fn take(&self, slot: &Slot) -> Stop {
        let until = self.slots.partition_point(|it| it.place <= slot.place);
        let upto = self.slots.get(..until).unwrap_or_default();
        upto.iter().rev().find_map(|it| read(&self.file, it.piece).ok()).unwrap_or_default()
    }

    pub(super) fn last(&self) -> Option<Stop> {
        read(&self.file, self.slots.last()?.piece).ok()
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes the index and where the stops are.
    pub(super) fn write_contents(&mut self, key: &impl Serialize, index: &impl Serialize) -> io::Result<Piece> {
        let slots = std::mem::take(&mut self.slots);
        let piece = self.write(&(key, index, &slots));
        self.slots = slots;
        piece
    }

    fn write(&mut self, it: &impl Serialize) -> io::Result<Piece> {
        let text = rmp_serde::to_vec_named(it).map_err(io::Error::other)?;
        let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
        compressor.include_checksum(true)?;
        let packed = compressor.compress(&text)?;
        let piece = Piece { offset: self.end, bytes: packed.len() as u64 };
        self.append(&packed)?;
        Ok(piece)
    }

    /// Appends bytes to the file.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a piece of a file.
///
/// # Errors
/// Fails if it is unreadable or not what it should be.
pub(super) fn read<T: DeserializeOwned>(file: &File, piece: Piece) -> io::Result<T> {
    if piece.bytes > PIECE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut packed = vec![0; usize::try_from(piece.bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut packed, piece.offset)?;
    let mut text = Vec::new();
    // Read to the end, where the checksum is.
    zstd::Decoder::with_buffer(packed.as_slice())?.take(PIECE_MAX).read_to_end(&mut text)?;
    rmp_serde::from_slice(&text).map_err(io::Error::other)
}
