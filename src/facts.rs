//! What can happen, and how it is named and written.

/// Units: bytes and stamps, and how they are written.
pub mod units;

/// Words as shells read them.
pub mod shell;

/// Text from outside, escaped wherever it is written.
pub mod text;

/// Everything that can happen.
pub mod event;

/// Secrets in facts: hidden before anything sees them.
pub mod redact;
