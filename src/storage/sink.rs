//! Consumers of events. A sink has a bounded queue and its own thread; a slow one drops events, counts them and reports
//! that.

/// Writes data to the disk.
mod sync;

/// Recordings: the event stream on disk.
pub mod record;

/// A recording's file and its frames.
pub mod writing;

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
