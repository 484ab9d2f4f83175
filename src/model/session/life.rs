//! A probe's lifecycle: found, connected, ended, gone.

use crate::facts::{text::Foreign, units::Stamp};
use serde::{Deserialize, Serialize};

/// A probe's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Found; it has not sent its hello yet.
    Found,
    /// It uses another version of the wire, of which gpuwatch reads only the name.
    Incompatible {
        /// Its version of the wire.
        protocol: u32,
    },
    /// Its backlog is arriving.
    CatchingUp,
    /// Its lines arrive as they are made.
    Live,
    /// It ended with a bye.
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
