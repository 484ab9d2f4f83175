//! The queue between the job's threads and the probe's one: what goes through it, and how much.

use crate::{history::Note, reading::Reading};

/// Entries the queue holds: 40,000 samples a second between two looks of an unwatched probe.
pub(crate) const QUEUE: usize = 4096;

/// What the job hands over.
#[expect(clippy::large_enum_variant, reason = "a sample is the rule, and a box would allocate in the hot path")]
pub(crate) enum Entry {
    Sample(Reading),
    Note(Box<Note>),
}
