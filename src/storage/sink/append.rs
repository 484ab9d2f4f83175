//! Appends to a recording that is closed: what was found after its job's end.

use super::writing::Writing;
use crate::facts::event::Event;
use std::{fs::File, io, path::Path, time::Instant};

/// Appends events to a closed recording, in a frame of their own.
///
/// # Errors
/// Fails if the file is gone or cannot be written.
pub fn append(path: &Path, events: &[Event]) -> io::Result<()> {
    let file = File::options().append(true).open(path)?;
    let mut writing = Writing::new(file, Instant::now());
    for it in events {
        writing.event(it)?;
    }
    writing.finish()
}
