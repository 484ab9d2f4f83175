//! Events: what can happen, its types, and how they are written.

/// Units: bytes and stamps, and how they are written.
pub mod units;

/// Quoting for shells.
pub mod shell;

/// Text from outside, escaped wherever it is written.
pub mod text;

/// A device's metrics beside its memory.
pub mod metrics;

/// Everything that can happen.
pub mod event;

/// Hides secrets in events before anything reads them.
pub mod redact;
