//! What figures mean: the ladder, fragmentation, growth. Values in, values out; unknown is `None`.

/// Where a device's memory is, rung by rung.
pub mod ladder;

/// How much of what an allocator holds is not in use.
pub mod fragmentation;

/// Whether memory grows from step to step.
pub mod growth;

/// A whole run in a bounded number of buckets.
pub mod buckets;

/// A value over a rising axis, in bounded memory.
pub mod curve;

/// Spans of growth: what the detector raises, and what a cause is found for.
pub mod episode;

/// Why it grows: named causes and their remedies.
pub mod cause;

/// Figures that a finding rests on.
pub mod evidence;

/// How all counters moved together over a span.
pub mod signature;

/// From a span of growth to its cause.
pub mod diagnosis;

/// How much it matters.
pub mod severity;

/// Which line allocates what grows, and who keeps it.
pub mod culprit;

/// What PyTorch says when it is out of memory.
pub mod oom;

/// A condition that is raised and resolved without flapping.
pub mod latch;

/// What wears on a job besides growth.
pub mod strain;
