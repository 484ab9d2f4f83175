//! Other machines: their names, the commands that reach them, and their streams as news of a cluster.

/// Lists of machines.
pub mod list;

/// The command that reaches a machine.
pub mod transport;

/// Which machines to reach, and how.
pub mod plan;

/// When to connect again.
pub mod retry;

/// The lines of one machine.
pub mod intake;

/// The children that read machines' streams.
pub mod link;
