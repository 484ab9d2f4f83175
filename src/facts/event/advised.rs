//! What `gpuwatch fit --advise` measured for a job: what it takes as it is, and with techniques.

use super::{Event, Fact, ProbeId};
use crate::facts::{text::Foreign, units::Stamp};
use gpuwatch_probe::wire::limits;
use serde::{Deserialize, Serialize};

/// Most rows that are kept, those that take the least.
pub const ROWS_MAX: usize = 8;

/// Most lines of an edit that are kept.
pub const EDIT_MAX: usize = 16;

/// A measured answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advised {
    /// The probe of the process that shows it.
    #[serde(rename = "from")]
    pub probe: ProbeId,
    /// Bytes of the device that the job takes as it is.
    pub peak: u64,
    /// How many techniques and combinations were measured.
    pub measured: u64,
    /// Those that save memory, the one that takes the least first.
    #[serde(deserialize_with = "limits::list::<_, _, ROWS_MAX>")]
    pub rows: Vec<AdvisedRow>,
}

/// What the job takes with a technique, or with several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvisedRow {
    /// Their names, as in `checkpoint + bf16`.
    pub techniques: Foreign,
    /// Bytes of the device.
    pub peak: u64,
    /// The class of the price, as in `same result`.
    pub price: Foreign,
    /// The verdict: on the devices that were asked for, or the smallest known card that is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Foreign>,
    /// The lines to write.
    #[serde(default, deserialize_with = "limits::list::<_, _, EDIT_MAX>")]
    pub edit: Vec<Foreign>,
}

impl Advised {
    /// Returns it as an event.
    pub fn event(self, at: Stamp) -> Event {
        Event { at, fact: Fact::Advised(Box::new(self)) }
    }
}
