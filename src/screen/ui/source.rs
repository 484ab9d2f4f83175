//! What the view is of: live events, recordings, a snapshot, many machines, their recordings, or their figures.

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
    /// The recordings of many machines, on the same screen.
    Recordings,
    /// The figures of many machines in a store, on the same screen.
    Store,
}

/// Another machine that the view is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its place in the list of machines.
    pub node: usize,
    /// Its name.
    pub host: Foreign,
    /// Why its events do not arrive; `None` if they do.
    pub trouble: Option<Foreign>,
}

impl Ui {
    /// Returns whether it plays recordings.
    pub fn is_replay(&self) -> bool {
        matches!(self.source, Source::Replay | Source::Recordings)
    }

    /// Returns ` on NAME` if the view is of another machine.
    pub fn on_machine(&self) -> String {
        self.machine.as_ref().map_or_else(String::new, |it| format!(" on {}", it.host))
    }

    /// Returns whether the view is of a memory snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.source == Source::Snapshot
    }

    /// Returns whether the view is of many machines.
    pub fn is_of_many(&self) -> bool {
        matches!(self.source, Source::Cluster | Source::Recordings | Source::Store)
    }

    /// Returns whether the view has the screens of one machine.
    pub fn is_of_one(&self) -> bool {
        matches!(self.source, Source::Live | Source::Replay)
    }
}
