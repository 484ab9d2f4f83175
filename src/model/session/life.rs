//! Where a probe is in its life: found, speaking, ended, gone.

use crate::facts::{text::Foreign, units::Stamp};
use serde::{Deserialize, Serialize};

/// Where a probe is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Found; it has not sent its hello yet.
    Found,
    /// It speaks another version of the wire, so that only its name is understood.
    Incompatible {
        /// The version it speaks.
        protocol: u32,
    },
    /// Its backlog is coming.
    CatchingUp,
    /// It speaks as things happen.
    Live,
    /// It ended in good order.
    Ended {
        /// When.
        at: Stamp,
        /// `exit`, `stop`, ….
        reason: Foreign,
    },
    /// The connection broke.
    Gone {
        /// When.
        at: Stamp,
        /// The reason and the next step.
        why: Foreign,
    },
}
