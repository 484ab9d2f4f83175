//! Analysis of figures: the ladder, fragmentation, growth. Values in, values out; unknown is `None`.

/// Where a device's memory is, rung by rung.
pub mod ladder;

/// A host's memory, rung by rung, and its limits.
pub mod host;

/// Reserved memory that is not in use.
pub mod fragmentation;

/// Detects growth from step to step.
pub mod growth;

/// Rows of numbers in little memory.
pub mod packed;

/// A whole run in a bounded number of buckets.
pub mod buckets;

/// A value over a rising axis, in bounded memory.
pub mod curve;

/// Spans of growth, from the detector to the diagnosis.
pub mod episode;

/// Named causes and their remedies.
pub mod cause;

/// The figures that support a finding.
pub mod evidence;

/// The course of all counters over a span.
pub mod signature;

/// Determines the cause of a span of growth.
pub mod diagnosis;

/// The severity of growth.
pub mod severity;

/// Which line allocates what grows, and what keeps it.
pub mod culprit;

/// Parses and explains out-of-memory messages.
pub mod oom;

/// A condition with hysteresis.
pub mod latch;

/// Problems other than growth.
pub mod strain;

/// How long steps take, and whether they become slower.
pub mod pace;

/// Ranks that are slower than the others of their run.
pub mod skew;

/// Jobs whose steps have stopped.
pub mod stall;

/// Processes that hold device memory and do nothing.
pub mod idle;

/// Hardware that slows a job down or needs service.
pub mod hardware;
