//! Reads PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`) from their pickles without running code in
//! them.
//!
//! A machine for the opcodes of plain data reads the bytes once, from front to back, plain or from gzip or zstd, into
//! the columns of a [`Trace`]. It builds no tree of dictionaries, and uses at most some tens of bytes per byte read,
//! whatever counts the file claims.
//!
//! # How a snapshot is read
//!
//! A snapshot is a pickle: a program for a small machine. `pickle::machine` knows the opcodes of plain data and refuses
//! all others, and names those that could run code. It reads once from front to back, through a window of 256 KiB, and
//! builds no tree: when a dictionary is complete, its keys determine its kind, and it becomes a row (`pickle::rows`) of
//! a `trace::Trace`, which replaces it on the stack and in the memo. A list of frames becomes a stack, a list of rows a
//! range (`pickle::values`). So an event takes 37 bytes, and 24 in the memo; a repeated stack takes none. Texts are cut
//! at 16 KiB, claimed lengths reserve nothing, and compressed contents may be 250 times as large as their file. A
//! truncated file is read up to its end: open lists end there, and incomplete dictionaries are dropped.
//! `tests/it/snapshot.rs` compares every column with the result of CPython's `pickle.load`.

/// The bytes of a file.
mod input;
/// Opcodes, one after the other.
mod machine;
/// Converts dictionaries.
mod rows;
/// Converts lists.
mod values;
use crate::{facts::units::Bytes, model::trace::Trace, storage::input as files};
use std::{
    fmt,
    io::{self, Read},
    path::Path,
};
use thiserror::Error;

/// The contents of a snapshot.
#[derive(Debug)]
pub struct Reading {
    /// The segments, events and call stacks of the snapshot.
    pub trace: Trace,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Why the snapshot is incomplete, if it is.
    pub ended: Option<Fault>,
}

/// Reads a snapshot from a file: a pickle of protocol 2 to 5, plain or compressed by gzip or zstd.
///
/// # Errors
/// Fails if it cannot be read at all, is not a snapshot, or contains anything that could run code. A truncated or
/// damaged file is read as far as possible.
pub fn open(path: &Path) -> Result<Reading, Fault> {
    open_with(path, |_| ())
}

/// The same; `report` gets now and then how much of the file is read, and at the end that all of it is.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: &Path, mut report: impl FnMut(Progress)) -> Result<Reading, Fault> {
    let file = files::open(path)?;
    let total = file.size();
    let reading = read(Reporting::new(file, total, &mut report))?;
    let total = total.unwrap_or(reading.bytes);
    report(Progress { read: total, total: Some(total) });
    Ok(reading)
}

/// Returns whether a file begins like a pickle, compressed or not. Checks only regular files: a pipe would lose its
/// first bytes.
pub fn is_one(path: &Path) -> bool {
    let is_pickle =
        |file| input::Input::new(file).is_ok_and(|mut bytes| bytes.peek(1).is_ok_and(|it| it.first() == Some(&0x80)));
    path.is_file() && files::open(path).is_ok_and(is_pickle)
}

/// Reads a snapshot from its bytes.
///
/// # Errors
/// As [`open`].
pub fn read<'a>(from: impl Read + 'a) -> Result<Reading, Fault> {
    machine::Machine::new(input::Input::new(from)?).read()
}

/// The error, its place in the file, and what to do about it.
#[derive(Debug, Error)]
pub enum Fault {
    /// An opcode with which a pickle calls functions or creates objects.
    #[error(
        "byte {at} holds {name}, with which a pickle can run code; gpuwatch reads snapshots that are plain data: write one \
         with torch.cuda.memory._dump_snapshot"
    )]
    Code {
        /// The opcode's offset.
        at: u64,
        /// The opcode.
        name: &'static str,
    },
    /// An opcode that no snapshot needs, or that does not fit what precedes it.
    #[error(
        "byte {at} holds {what}: the file is damaged, or not a memory snapshot; write it again with torch.cuda.memory._dump_snapshot"
    )]
    Damaged {
        /// The opcode's offset.
        at: u64,
        /// The error.
        what: String,
    },
    /// The file ends before the pickle does.
    #[error(
        "the file ends at byte {at}, in the middle of the snapshot: copy it again, or let the job that writes it finish"
    )]
    Cut {
        /// Where it ends.
        at: u64,
    },
    /// Decompression failed.
    #[error("after byte {at} of what was unpacked: {why}; copy the file again")]
    Packed {
        /// Bytes decompressed so far.
        at: u64,
        /// The decompressor's error.
        why: io::Error,
    },
    /// Not a pickle.
    #[error("{what}: give a file that torch.cuda.memory._dump_snapshot wrote (plain, .gz or .zst)")]
    NoPickle {
        /// What it is.
        what: &'static str,
    },
    /// A pickle of something else.
    #[error(
        "the pickle holds no memory snapshot (no `segments`, no `device_traces`): give a file that torch.cuda.memory._dump_snapshot wrote"
    )]
    NoSnapshot,
    /// The file cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Bytes between two reports.
const STEP: u64 = 1 << 20;

/// How much of a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far, before decompression.
    pub read: u64,
    /// The file's size; `None` of a pipe.
    pub total: Option<u64>,
}

impl Progress {
    /// Returns the percentage that is read; `None` of a pipe.
    pub fn percent(self) -> Option<u64> {
        let total = u128::from(self.total?);
        let share = (u128::from(self.read) * 100).checked_div(total).unwrap_or(100).min(100);
        u64::try_from(share).ok()
    }
}

impl fmt::Display for Progress {
    /// Writes `412.0 MiB of 1.00 GiB`, or `412.0 MiB` of a pipe.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, total } = *self;
        match total {
            Some(total) => write!(f, "{} of {}", Bytes(read.min(total)), Bytes(total)),
            None => write!(f, "{}", Bytes(read)),
        }
    }
}

/// Reports while it is read how much of it is read.
struct Reporting<R, F> {
    from: R,
    progress: Progress,
    reported: u64,
    report: F,
}

impl<R: Read, F: FnMut(Progress)> Reporting<R, F> {
    fn new(from: R, total: Option<u64>, report: F) -> Self {
        Self { from, progress: Progress { read: 0, total }, reported: 0, report }
    }
}

impl<R: Read, F: FnMut(Progress)> Read for Reporting<R, F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buf)?;
        self.progress.read += count as u64;
        if self.progress.read - self.reported >= STEP {
            self.reported = self.progress.read;
            (self.report)(self.progress);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_file_is_reported_once() {
        let bytes = vec![7; 5 * (1 << 20) + 9];
        let mut seen = Vec::new();
        let total = Some(bytes.len() as u64);
        io::copy(&mut Reporting::new(&bytes[..], total, |it: Progress| seen.push(it)), &mut io::sink()).unwrap();
        assert_eq!(seen.iter().map(|it| it.read >> 20).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(seen.iter().all(|it| it.total == total));
        assert_eq!((seen[0].percent(), seen[4].percent()), (Some(19), Some(99)));
    }

    #[test]
    fn a_pipe_has_no_percentage_and_an_empty_file_is_read_at_once() {
        let pipe = Progress { read: 3 << 20, total: None };
        assert_eq!((pipe.percent(), pipe.to_string().as_str()), (None, "3.00 MiB"));
        assert_eq!(Progress { read: 0, total: Some(0) }.percent(), Some(100));
        // A file that grows while it is read.
        let grown = Progress { read: 9 << 20, total: Some(8 << 20) };
        assert_eq!((grown.percent(), grown.to_string().as_str()), (Some(100), "8.00 MiB of 8.00 MiB"));
        assert_eq!(Progress { read: u64::MAX / 2, total: Some(u64::MAX) }.percent(), Some(49));
    }
}
