//! The queue from the job's threads to the probe's thread: its entries and its size.

use crate::{history::Note, reading::Reading};

/// Capacity of the queue: 40,000 samples a second between two turns of an unwatched probe.
pub(crate) const QUEUE: usize = 4096;

/// An entry from the job.
#[expect(clippy::large_enum_variant, reason = "a sample is the rule, and a box would allocate in the hot path")]
pub(crate) enum Entry {
    Sample(Reading),
    Note(Box<Note>),
}
