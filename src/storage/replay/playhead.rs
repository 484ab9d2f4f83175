//! The position and speed of a replay, and the commands that change them. It uses no clock: callers pass the elapsed
//! time.

use crate::facts::units::Stamp;

/// Speeds in percent of the recorded speed.
const SPEEDS: [u64; 10] = [25, 50, 100, 200, 500, 1_000, 3_000, 6_000, 30_000, 100_000];

/// The recorded speed.
const AS_RECORDED: usize = 2;

/// Position, speed, and whether it plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Playhead {
    /// The time shown.
    pub at: Stamp,
    /// The time of the first event.
    pub from: Stamp,
    /// The time of the last event.
    pub to: Stamp,
    /// Whether it plays.
    pub playing: bool,
    speed: usize,
}

impl Playhead {
    /// Creates a paused playhead at the end.
    pub fn new(from: Stamp, to: Stamp) -> Self {
        Self { at: to, from, to, playing: false, speed: AS_RECORDED }
    }

    /// Advances by this many µs of elapsed time and returns the new position. Stops at the end.
    pub fn tick(&mut self, us: u64) -> Stamp {
        if !self.playing {
            return self.at;
        }
        let at = self.at.0.saturating_add(us.saturating_mul(self.percent()) / 100);
        self.playing = at < self.to.0;
        self.at = Stamp(at.min(self.to.0));
        self.at
    }

    /// Applies a command, and returns the time to seek to. Steps, marks and troubles need the recording: `None`.
    pub fn apply_input(&mut self, command: Command) -> Option<Stamp> {
        match command {
            Command::Play => {
                self.playing = !self.playing;
                (self.playing && self.is_at_end()).then_some(self.from)
            }
            Command::Faster => {
                self.speed = (self.speed + 1).min(SPEEDS.len() - 1);
                None
            }
            Command::Slower => {
                self.speed = self.speed.saturating_sub(1);
                None
            }
            Command::Hundredths(count) => Some(self.hundredths(count.into())),
            Command::Start => Some(self.from),
            Command::End => Some(self.to),
            Command::NextStep
            | Command::PreviousStep
            | Command::NextMark
            | Command::PreviousMark
            | Command::NextTrouble
            | Command::PreviousTrouble => None,
        }
    }

    /// Returns the position this many hundredths away, at least a second each.
    fn hundredths(&self, count: i64) -> Stamp {
        let hundredth = (self.to.since(self.from) / 100).max(1_000_000);
        let by = i64::try_from(hundredth).unwrap_or(i64::MAX).saturating_mul(count);
        Stamp(self.at.0.saturating_add_signed(by).clamp(self.from.0, self.to.0))
    }

    /// Returns whether it is at the end.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.to
    }

    /// Returns the speed in percent of the recorded speed.
    pub fn percent(&self) -> u64 {
        SPEEDS.get(self.speed).copied().unwrap_or(100)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn head() -> Playhead {
        let mut head = Playhead::new(Stamp(10 * SECOND), Stamp(1010 * SECOND));
        head.at = head.from;
        head
    }

    #[test]
    fn time_goes_by_at_its_speed_and_stops_at_the_end() {
        let mut head = head();
        assert_eq!(head.tick(SECOND), Stamp(10 * SECOND), "at rest");
        head.playing = true;
        assert_eq!(head.tick(SECOND), Stamp(11 * SECOND));
        head.apply_input(Command::Faster);
        assert_eq!(head.tick(SECOND), Stamp(13 * SECOND));
        assert!((0..20).all(|_| head.apply_input(Command::Slower).is_none()));
        assert_eq!(head.tick(4 * SECOND), Stamp(14 * SECOND));
        assert!((0..20).all(|_| head.apply_input(Command::Faster).is_none()));
        assert_eq!(head.tick(SECOND), Stamp(1010 * SECOND));
        assert!(!head.playing && head.is_at_end());
        head.playing = true;
        assert_eq!(head.tick(u64::MAX), head.to, "no overflow");
    }

    #[test]
    fn to_play_from_the_end_begins_again() {
        let mut head = head();
        assert_eq!((head.apply_input(Command::Play), head.playing), (None, true));
        assert_eq!((head.apply_input(Command::Play), head.playing), (None, false));
        assert_eq!(
            (head.apply_input(Command::Start), head.apply_input(Command::End)),
            (Some(head.from), Some(head.to))
        );
        head.at = head.to;
        assert_eq!((head.apply_input(Command::Play), head.playing), (Some(head.from), true));
    }

    #[test]
    fn hundredths_stay_inside() {
        let mut head = head();
        assert_eq!(head.hundredths(1), Stamp(20 * SECOND));
        assert_eq!(head.hundredths(-1), head.from);
        assert_eq!(head.hundredths(1000), head.to);
        head.to = Stamp(12 * SECOND);
        assert_eq!(head.hundredths(1), Stamp(11 * SECOND), "a second at least");
    }
}
