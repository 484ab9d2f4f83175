//! Where events go. A sink has a bounded queue and its own thread: a slow one loses, counts and says so.

/// Recordings: the event stream on disk.
pub mod record;

/// A recording's file and its frames.
pub mod writing;

/// Where recordings are kept, and for how long.
pub mod store;

/// A program that runs for each alert.
pub mod hook;

/// Alerts on their way out.
pub mod delivery;

/// Runs the sources until they are stopped.
pub mod follow;
