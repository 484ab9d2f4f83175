//! Why a snapshot cannot be read, or not completely.

use std::io;
use thiserror::Error;

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
