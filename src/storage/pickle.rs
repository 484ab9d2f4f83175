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
//! range (`pickle::lists`). So an event takes 37 bytes, and 24 in the memo; a repeated stack takes none. Texts are cut
//! at 16 KiB, claimed lengths reserve nothing, and compressed contents may be 250 times as large as their file. A
//! truncated file is read up to its end: open lists end there, and incomplete dictionaries are dropped.
//! `tests/it/snapshot.rs` compares every column with the result of CPython's `pickle.load`.

/// Why a file cannot be read.
mod fault;
/// The bytes of a file.
mod input;
/// Converts lists.
mod lists;
/// Opcodes, one after the other.
mod machine;
/// Values that a pickle stores to use them again.
mod memo;
/// The opcodes of pickles, and which of them could run code.
mod opcode;
/// How much of a file is read.
mod progress;
/// Converts dictionaries.
mod rows;
/// Values on the stack.
mod value;
/// The keys and values of snapshots.
mod words;

pub use fault::Fault;
pub use progress::Progress;

use self::progress::Reporting;
use crate::{model::trace::Trace, storage::input as files};
use std::{io::Read, path::Path};

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
