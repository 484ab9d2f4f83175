//! Events: what can happen, its types, and how they are written.

/// Units: bytes and stamps, and how they are written.
pub mod units;

/// Text from outside, escaped wherever it is written.
pub mod text;

/// Values of the rows of a table, and what changed of them.
pub mod values;

/// A device's metrics beside its memory.
pub mod metrics;

/// A process's figures beside its device memory.
pub mod figures;

/// Who makes a device.
pub mod maker;

/// A host's memory: limits, and what jobs and their workers hold.
pub mod host_memory;

/// Everything that can happen.
pub mod event;

/// What a gpuwatch on another machine does on request.
pub mod remote;

/// Hides secrets in events before anything reads them.
pub mod redact;
