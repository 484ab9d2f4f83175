//! Windows: traces of some steps, which a probe writes next to its socket at a viewer's request.

use super::{Line, PIECE_MAX, line};
use gpuwatch_probe::error_file;
use std::{
    io::{self, BufReader, Seek, SeekFrom},
    path::Path,
};

/// What a window covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Number of optimizer steps that it covers.
    pub steps: u64,
    /// How long it lasted, in milliseconds.
    pub ms: u64,
    /// Number of allocations during these steps.
    pub allocations: u64,
    /// Snapshots of the allocator.
    pub snapshots: u64,
    /// The longest pause of the job by one of them, in µs; an upper bound.
    pub longest_us: u64,
    /// All pauses together, in µs.
    pub paused_us: u64,
}

/// A window's file so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The trace continues; allocations so far.
    Tracing(u64),
    /// The job cannot be traced, for this reason.
    Refused(String),
    /// The trace is complete.
    Complete,
}

/// Returns the name of a window's file.
pub fn name(pid: u32, id: u32) -> String {
    format!("{pid}.{id}.{}", super::TRACE)
}

/// Returns how far a window is; `None` before its file exists.
///
/// # Errors
/// Fails if the file cannot be read, or is not a regular file of this user.
pub fn state(path: &Path) -> io::Result<Option<State>> {
    let file = match error_file::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut from = BufReader::new(file);
    let (mut first, mut last) = (None, None);
    // The first line describes the process.
    line(&mut from)?;
    while let Some(it) = line(&mut from)?.and_then(|it| serde_json::from_str::<Line>(&it).ok()) {
        if let Some(why) = it.refused {
            return Ok(Some(State::Refused(why)));
        }
        if it.end.is_some() {
            return Ok(Some(State::Complete));
        }
        first = first.or(it.allocations);
        last = it.allocations.or(last);
        let bytes = it.bytes.filter(|it| *it <= PIECE_MAX).and_then(|it| i64::try_from(it).ok());
        from.seek(SeekFrom::Current(bytes.unwrap_or(0)))?;
    }
    let allocations = last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
    Ok(Some(State::Tracing(allocations)))
}
