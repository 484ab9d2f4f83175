//! One observation of a series for growth detection.

use serde::{Deserialize, Serialize};

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) at: u64,
    pub(super) bytes: f64,
    /// Bytes of the remainder after the lengths of batches.
    pub(super) beside: Option<f64>,
    /// The lengths' unit, in bytes; 0 if there is none.
    pub(super) unit: u64,
    pub(super) blocks: Option<f64>,
    /// Whether the lowest count of a tooth was just passed.
    pub(super) ends_tooth: bool,
    /// Whether a tooth begins with it.
    pub(super) begins_tooth: bool,
}
