//! What part of a run the timeline shows: its axis, its zoom, and the cursor, around which the picture lies.

use super::Command;
use crate::{
    facts::units::Stamp,
    model::session::{process::OnDevice, timeline::Column},
};

/// Nearest looks: steps, and µs.
const LEAST_STEPS: u64 = 16;
const LEAST_US: u64 = 2_000_000;

/// A key moves the cursor by this part of what is shown, and a page key by that.
const MOVE: u64 = 64;
const PAGE: u64 = 8;

/// What the timeline counts from left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XAxis {
    /// Steps of the job.
    #[default]
    Steps,
    /// µs.
    Time,
}

/// What the user asked to see of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// What is counted, where there are steps.
    pub axis: XAxis,
    /// Whether only the range that moves is drawn, and not all from nothing to the whole device.
    pub fitted: bool,
    /// The whole run, halved so often.
    pub zoom: u8,
    /// The place of the cursor on the axis; `None` is the end, wherever that goes.
    pub cursor: Option<u64>,
}

/// The part of a run that is shown, in places of its axis, both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What is counted.
    pub axis: XAxis,
    /// Where the run begins and ends.
    pub whole: (u64, u64),
    /// The first place shown.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// The cursor's place, between them.
    pub cursor: u64,
}

impl XAxis {
    /// The place of a stretch of a run: that of its last sample.
    pub fn place(self, it: &Column) -> u64 {
        self.of((it.at, it.step))
    }

    fn of(self, (at, step): (Stamp, Option<u64>)) -> u64 {
        match self {
            Self::Steps => step.unwrap_or(0),
            Self::Time => at.0,
        }
    }

    fn least(self) -> u64 {
        match self {
            Self::Steps => LEAST_STEPS,
            Self::Time => LEAST_US,
        }
    }
}

impl Section {
    /// What is shown of a run; `None` where there is none yet. A job that counts no steps is counted in time.
    pub fn span(&self, on: &OnDevice) -> Option<Span> {
        let run = &on.timeline;
        let axis = if on.step.is_none() { XAxis::Time } else { self.axis };
        let first = axis.of(run.places().next()?);
        let last = axis.of(run.places().last()?).max(first);
        let length = ((last - first) >> self.zoom.min(63)).max(axis.least()).min(last - first);
        let cursor = self.cursor.unwrap_or(last).clamp(first, last);
        let from = cursor.saturating_sub(length / 2).clamp(first, last - length);
        Some(Span { axis, whole: (first, last), from, to: from + length, cursor })
    }

    /// The stretch that the cursor is in: the first that reaches it.
    pub fn under_cursor(&self, on: &OnDevice) -> Option<Column> {
        let span = self.span(on)?;
        let before = on.timeline.places().take_while(|it| span.axis.of(*it) < span.cursor).count();
        on.timeline.columns().nth(before)
    }

    /// Takes a command.
    pub(super) fn update(&mut self, command: Command, on: &OnDevice) {
        let Some(span) = self.span(on) else { return };
        let length = span.to - span.from;
        let to = |place: u64| Some(place).filter(|it| *it < span.whole.1);
        match command {
            Command::Left => self.cursor = to(span.cursor.saturating_sub((length / MOVE).max(1)).max(span.whole.0)),
            Command::Right => self.cursor = to(span.cursor.saturating_add((length / MOVE).max(1))),
            Command::PageUp => self.cursor = to(span.cursor.saturating_sub((length / PAGE).max(1)).max(span.whole.0)),
            Command::PageDown => self.cursor = to(span.cursor.saturating_add((length / PAGE).max(1))),
            Command::First => self.cursor = to(span.whole.0),
            Command::Last => self.cursor = None,
            Command::Plus if length > span.axis.least() => self.zoom += 1,
            Command::Minus => self.zoom = self.zoom.saturating_sub(1),
            Command::Reset => (self.zoom, self.cursor) = (0, None),
            Command::Scale => self.fitted = !self.fitted,
            Command::Axis => self.turn(on),
            _ => {}
        }
    }

    /// Counts in the other unit; the cursor stays where it is.
    fn turn(&mut self, on: &OnDevice) {
        let under = self.cursor.and_then(|_| self.under_cursor(on));
        self.axis = match self.axis {
            XAxis::Steps => XAxis::Time,
            XAxis::Time => XAxis::Steps,
        };
        self.cursor = under.map(|it| self.axis.place(&it));
    }
}

/// When a step was done, as well as a run tells: at the end of the stretch that it is in.
pub fn when(on: &OnDevice, step: u64) -> Option<Stamp> {
    on.timeline.places().find(|it| it.1.is_some_and(|it| it >= step)).map(|it| it.0)
}

/// The step that was being done at a time, as well as a run tells.
pub fn step_at(on: &OnDevice, at: Stamp) -> Option<u64> {
    on.timeline.places().find(|it| it.0 >= at)?.1
}
