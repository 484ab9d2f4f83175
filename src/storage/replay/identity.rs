//! Identifies the file that something was read from.

use serde::{Deserialize, Serialize};
use std::{fs::File, io, os::unix::fs::MetadataExt};

/// A file at a time: another file, or the same after a change, is not equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Identity {
    place: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Identifies an open file.
    ///
    /// # Errors
    /// Fails if its metadata cannot be read.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let it = file.metadata()?;
        Ok(Self { place: (it.dev(), it.ino()), bytes: it.len(), changed: (it.mtime(), it.mtime_nsec()) })
    }
}
