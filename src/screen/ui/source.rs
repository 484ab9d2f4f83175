//! What the view is of: live events, recordings, a snapshot, many machines or one of them.

use super::Ui;
use crate::facts::text::Foreign;

/// The source of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Live events.
    #[default]
    Live,
    /// Recordings; their keys come first.
    Replay,
    /// A memory snapshot, which has screens of its own.
    Snapshot,
    /// Many machines, which have a screen of their own.
    Cluster,
}

/// Another machine that the view is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub host: Foreign,
    /// Why its events do not arrive; `None` if they do.
    pub trouble: Option<Foreign>,
}

impl Ui {
    /// Returns whether it plays recordings.
    pub fn is_replay(&self) -> bool {
        self.source == Source::Replay
    }

    /// Returns whether the view is of a memory snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.source == Source::Snapshot
    }

    /// Returns whether the view has the screens of one machine.
    pub fn is_of_one(&self) -> bool {
        matches!(self.source, Source::Live | Source::Replay)
    }
}
