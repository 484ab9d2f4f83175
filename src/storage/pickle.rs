//! PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`), read from their pickles without running anything in them.
//!
//! A machine for the opcodes of plain data reads the bytes once, from front to back, plain or out of gzip or zstd, and puts what
//! it finds into the columns of a [`Trace`]. It builds no tree of dictionaries, and holds at most some tens of bytes for each
//! byte that it has read, whatever counts the file claims.
//!
//! # How a snapshot is read
//!
//! A snapshot is a pickle: a program for a small machine. `pickle::machine` knows the opcodes of plain data and refuses
//! all others; those that could run code by their names. It reads once from front to back, through a window of 256 KiB,
//! and builds no tree: when a dictionary's items are complete its keys tell what it is, and it becomes a row
//! (`pickle::rows`) of a `trace::Trace`, by which it goes from then on, on the stack and in the memo. A list of frames
//! becomes a stack, a list of rows a range (`pickle::lists`). So an event takes 37 bytes, and 24 in the memo; a stack
//! that recurs takes none. Texts are cut at 16 KiB, lengths that a file claims reserve nothing, and what is packed may
//! be 250 times as large as its file. A file that is cut is read up to there: its open lists end, and dictionaries that
//! are not complete are left out. `tests/it/snapshot.rs` compares every column with what CPython's `pickle.load` gives.

/// Why a file cannot be read.
mod fault;
/// The bytes.
mod input;
/// What lists come to.
mod lists;
/// Opcodes, one after the other.
mod machine;
/// What was memoised.
mod memo;
/// The opcodes.
mod opcode;
/// What dictionaries come to.
mod rows;
/// What is on the stack.
mod value;
/// The words of snapshots.
mod words;

pub use fault::Fault;

use crate::{model::trace::Trace, storage::input as files};
use std::{io::Read, path::Path};

/// What was read of a snapshot.
#[derive(Debug)]
pub struct Reading {
    /// All that was read.
    pub trace: Trace,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Why it is not all that there should be, where that is so.
    pub ended: Option<Fault>,
}

/// Reads a snapshot from a file: a pickle of protocol 2 to 5, plain or packed by gzip or zstd.
///
/// # Errors
/// When it cannot be read at all, is no snapshot, or holds anything that could run code. One that is cut or damaged is read as
/// far as it goes.
pub fn open(path: &Path) -> Result<Reading, Fault> {
    read(files::open(path)?)
}

/// Returns whether a file begins as a pickle does, packed or not. Only regular files are looked at: a pipe would lose its first
/// bytes.
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
