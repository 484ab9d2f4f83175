//! Other machines: their names, the commands that reach them, their streams as news of a cluster, and a fleet as a
//! store of figures knows it.

/// Lists of machines.
pub mod list;

/// Which machines to reach, and how.
pub mod plan;

/// Requests to machines, and their answers.
pub mod requests;

/// The lines of one machine.
pub mod intake;

/// Copies this program to machines that lack it.
pub mod push;

/// The children that read machines' streams.
pub mod link;

/// What Prometheus knows of many machines.
pub mod prometheus;
