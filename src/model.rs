//! What is known of a job, and what it means. Pure: no clock, no file, no process.

/// What an allocator did and held: events, segments, call stacks.
pub mod trace;

/// What figures mean: the ladder, fragmentation, growth.
pub mod analysis;

/// What is known: the fold over all events.
pub mod session;

/// The most that was held on each device.
pub mod peaks;

/// Every analysis of one session, at its own now.
pub mod findings;

/// Which findings are open, which are expected or silenced, and which are news.
pub mod alerts;
