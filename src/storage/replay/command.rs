//! Commands of a replay.

/// A command of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Play or pause; at the end, play from the beginning.
    Play,
    /// Increase the speed.
    Faster,
    /// Decrease the speed.
    Slower,
    /// Seek by this many hundredths of the whole, at least a second each; backward if negative.
    Hundredths(i8),
    /// Seek to the first event.
    Start,
    /// Seek to the last event.
    End,
    /// Seek to the end of the previous step.
    PreviousStep,
    /// Seek to the end of the next step.
    NextStep,
    /// Seek to the previous mark.
    PreviousMark,
    /// Seek to the next mark.
    NextMark,
    /// Seek to the previous trouble or alert.
    PreviousTrouble,
    /// Seek to the next trouble or alert.
    NextTrouble,
}
