//! The recording's format: events as lines, lines in frames.
