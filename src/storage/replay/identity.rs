//! Which file something was read from.

use serde::{Deserialize, Serialize};
use std::{fs::File, io, os::unix::fs::MetadataExt};

/// Which file, and as of when: another one, or the same after a change, is not equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Identity {
    place: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Of an open file.
    ///
    /// # Errors
    /// When nothing can be learnt of it.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let it = file.metadata()?;
        Ok(Self { place: (it.dev(), it.ino()), bytes: it.len(), changed: (it.mtime(), it.mtime_nsec()) })
    }
}
