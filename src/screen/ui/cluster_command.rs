//! The commands that only the screen of many machines has.

/// A command that only the screen of many machines has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterCommand {
    /// Compare ranks by the next figure.
    NextFigure,
    /// Compare ranks by the figure before.
    PreviousFigure,
    /// Show the ranks as a map, or the machines as rows.
    Map,
}
