//! Where facts are kept and read back.

/// Files that a user names, opened for reading.
pub mod input;

/// Standard output, and files that a command makes.
pub mod output;

/// PyTorch's memory snapshots, read from their pickles without running anything.
pub mod pickle;

/// The recording's format: events as lines, lines in frames.
pub mod recording;

/// Where events go.
pub mod sink;

/// A recording being played: position, speed, seeks.
pub mod replay;
