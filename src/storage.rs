//! Stores events and reads them back.

/// Opens files that a user names.
pub mod input;

/// Folders that no other user can change.
pub mod own_folder;

/// Standard output, and new files.
pub mod output;

/// Reads PyTorch's memory snapshots from their pickles without running code.
pub mod pickle;

/// The recording's format: events as lines, lines in frames.
pub mod recording;

/// A machine's events for a gpuwatch on another machine.
pub mod stream;

/// Traces of jobs, stored next to their recordings.
pub mod traces;

/// A directory with the recordings of several machines.
pub mod host_index;

/// Consumers of events.
pub mod sink;

/// Plays a recording: position, speed, seeks.
pub mod replay;
