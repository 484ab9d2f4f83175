//! What figures mean: the ladder, fragmentation, growth. Values in, values out; unknown is `None`.

/// Where a device's memory is, rung by rung.
pub mod ladder;

/// How much of what an allocator holds is not in use.
pub mod fragmentation;

/// Whether memory grows from step to step.
pub mod growth;

/// A value over a rising axis, in bounded memory.
pub mod curve;

/// Spans of growth: what the detector raises, and what a cause is found for.
pub mod episode;
