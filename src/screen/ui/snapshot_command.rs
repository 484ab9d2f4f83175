//! The screens and the commands that only the view of a memory snapshot has.

/// The screens of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Page {
    /// Devices, the ladder, streams and pools, the largest stacks.
    #[default]
    Overview,
    /// The segments, and whether a request would fit.
    Segments,
    /// Blocks by call stack, as a tree.
    Stacks,
    /// The same as boxes.
    Flame,
    /// Memory over the events of the trace.
    Trace,
}

impl Page {
    /// In the order of their tabs, with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Overview, "overview"),
        (Self::Segments, "map"),
        (Self::Stacks, "blocks"),
        (Self::Flame, "flame graph"),
        (Self::Trace, "trace"),
    ];
}

/// A command that only the view of a memory snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotCommand {
    /// Show a screen.
    Show(Page),
    /// Open the selected call, or close it.
    Toggle,
    /// Show the peak of the trace.
    Peak,
    /// The event before the cursor.
    PreviousEvent,
    /// The event after it.
    NextEvent,
    /// The failed request before the cursor.
    PreviousFailure,
    /// The failed request after it.
    NextFailure,
}
