//! What a key asks of a replay.

/// What a key asks of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Play, or pause; at the end, play from the beginning.
    Play,
    /// The next higher speed.
    Faster,
    /// The next lower speed.
    Slower,
    /// So many hundredths of the whole, and not less than a second each: forward, or backward below 0.
    Hundredths(i8),
    /// The first event.
    Start,
    /// The last event.
    End,
    /// The end of the step before.
    PreviousStep,
    /// The end of the next step.
    NextStep,
    /// The mark before.
    PreviousMark,
    /// The next mark.
    NextMark,
    /// The trouble or alert before.
    PreviousTrouble,
    /// The next trouble or alert.
    NextTrouble,
}
