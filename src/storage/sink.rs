//! Consumers of events. A sink has a bounded queue and its own thread; a slow one drops events, counts them and reports
//! that.

/// Writes data to the disk.
mod sync;

/// A file that continues once its disk takes bytes again.
mod disk;

/// What a recording lacks.
mod missed;

/// A recording's file and its frames.
pub mod writing;

/// A recording with its holes.
mod journal;

/// Recordings: the event stream on disk.
pub mod record;

/// Appends to closed recordings.
pub mod append;

/// The directory of recordings and its limits.
pub mod store;

/// Recordings of several machines in one directory.
pub mod nodes;

/// Runs a program for each alert.
pub mod hook;

/// Delivers alerts.
pub mod delivery;

/// Figures for a job's experiment tracker.
pub mod figures;

/// Runs the sources until they are stopped.
pub mod follow;
