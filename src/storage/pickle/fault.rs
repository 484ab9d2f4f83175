//! Why a snapshot cannot be read, or not to its end.

use std::io;
use thiserror::Error;

/// What is wrong with a file, where, and what to do about it.
#[derive(Debug, Error)]
pub enum Fault {
    /// It holds an opcode with which a pickle calls functions or makes objects.
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
    /// It holds an opcode that no snapshot needs, or one that fits nothing before it.
    #[error(
        "byte {at} holds {what}: the file is damaged, or not a memory snapshot; write it again with torch.cuda.memory._dump_snapshot"
    )]
    Damaged {
        /// The opcode's offset.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// It ends before the pickle does.
    #[error(
        "the file ends at byte {at}, in the middle of the snapshot: copy it again, or let the job that writes it finish"
    )]
    Cut {
        /// Where it ends.
        at: u64,
    },
    /// What it was compressed with cannot be undone.
    #[error("after byte {at} of what was unpacked: {why}; copy the file again")]
    Packed {
        /// Bytes that were unpacked.
        at: u64,
        /// What the unpacker says.
        why: io::Error,
    },
    /// It is no pickle.
    #[error("{what}: give a file that torch.cuda.memory._dump_snapshot wrote (plain, .gz or .zst)")]
    NoPickle {
        /// What it is instead.
        what: &'static str,
    },
    /// It is a pickle of something else.
    #[error(
        "the pickle holds no memory snapshot (no `segments`, no `device_traces`): give a file that torch.cuda.memory._dump_snapshot wrote"
    )]
    NoSnapshot,
    /// It cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
}
