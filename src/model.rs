//! The state of a job and its interpretation. Pure: no clock, no file, no process.

/// Medians, fits of lines, and chances.
pub mod statistics;

/// An allocation trace: events, segments, call stacks.
pub mod trace;

/// Analysis of figures: the ladder, fragmentation, growth.
pub mod analysis;

/// What is live at a step's highest moment.
pub mod anatomy;

/// A memory snapshot and its analysis.
pub mod snapshot;

/// The session: the fold over all events.
pub mod session;

/// What to show on a machine without a device.
pub mod first_contact;

/// The peaks of each device.
pub mod peaks;

/// Whether a job fits on a device.
pub mod fit;

/// Every analysis of one session, at the session's own time.
pub mod findings;

/// Several machines and the jobs that span them.
pub mod cluster;

/// Which findings are open, which are expected or silenced, and which are news.
pub mod alerts;

/// What an experiment tracker in a job's own process gets.
pub mod tracker;
