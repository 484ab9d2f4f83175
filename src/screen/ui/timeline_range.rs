//! The part of a run that the timeline shows: its axis, its zoom, and the cursor at its centre.

use super::{Chart, Motion};
use crate::{
    facts::units::Stamp,
    model::session::{process::OnDevice, timeline::Column},
};

/// Smallest spans: in steps, and in µs.
const LEAST_STEPS: u64 = 16;
const LEAST_US: u64 = 2_000_000;

/// A key moves the cursor by this part of the span, and a page key by that.
const MOVE: u64 = 64;
const PAGE: u64 = 8;

/// The unit of the timeline's axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XAxis {
    /// Steps of the job.
    #[default]
    Steps,
    /// µs.
    Time,
}

/// What the user selected of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The unit, if there are steps.
    pub axis: XAxis,
    /// Whether only the range of the values is drawn, instead of the whole device from 0.
    pub fitted: bool,
    /// How often the whole run is halved.
    pub zoom: u8,
    /// The cursor's position on the axis; `None` is the end, which may move.
    pub cursor: Option<u64>,
}

/// The visible part of a run, in positions on its axis, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleRange {
    /// The unit.
    pub axis: XAxis,
    /// Where the run begins and ends.
    pub whole: (u64, u64),
    /// The first visible position.
    pub from: u64,
    /// The last visible position.
    pub to: u64,
    /// The cursor's position, between them.
    pub cursor: u64,
}

impl XAxis {
    /// Returns the position of a column: that of its last sample.
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
    /// Returns the visible part of a run; `None` if it is empty. A job that counts no steps uses time.
    pub fn span(&self, on: &OnDevice) -> Option<VisibleRange> {
        let run = &on.timeline;
        let axis = if on.step.is_none() { XAxis::Time } else { self.axis };
        let first = axis.of(run.places().next()?);
        let last = axis.of(run.places().last()?).max(first);
        let length = ((last - first) >> self.zoom.min(63)).max(axis.least()).min(last - first);
        let cursor = self.cursor.unwrap_or(last).clamp(first, last);
        let from = cursor.saturating_sub(length / 2).clamp(first, last - length);
        Some(VisibleRange { axis, whole: (first, last), from, to: from + length, cursor })
    }

    /// Returns the column that the cursor is in: the first that reaches it.
    pub fn under_cursor(&self, on: &OnDevice) -> Option<Column> {
        let span = self.span(on)?;
        let before = on.timeline.places().take_while(|it| span.axis.of(*it) < span.cursor).count();
        on.timeline.columns().nth(before)
    }

    /// Moves the cursor; up and down belong to the list of processes.
    pub(super) fn seek(&mut self, motion: Motion, on: &OnDevice) {
        let Some(span) = self.span(on) else { return };
        let length = span.to - span.from;
        let back = |part: u64| span.cursor.saturating_sub((length / part).max(1)).max(span.whole.0);
        let forward = |part: u64| span.cursor.saturating_add((length / part).max(1));
        let place = match motion {
            Motion::Left => back(MOVE),
            Motion::Right => forward(MOVE),
            Motion::PageUp => back(PAGE),
            Motion::PageDown => forward(PAGE),
            Motion::First => span.whole.0,
            Motion::Last => span.whole.1,
            Motion::Up | Motion::Down => return,
        };
        self.cursor = Some(place).filter(|it| *it < span.whole.1);
    }

    /// Changes the zoom, the scale or the axis.
    pub(super) fn change(&mut self, chart: Chart, on: &OnDevice) {
        let Some(span) = self.span(on) else { return };
        match chart {
            Chart::Plus => self.zoom += u8::from(span.to - span.from > span.axis.least()),
            Chart::Minus => self.zoom = self.zoom.saturating_sub(1),
            Chart::Reset => (self.zoom, self.cursor) = (0, None),
            Chart::Scale => self.fitted = !self.fitted,
            Chart::Axis => self.turn(on),
        }
    }

    /// Switches the unit; the cursor stays at the same moment.
    fn turn(&mut self, on: &OnDevice) {
        let under = self.cursor.and_then(|_| self.under_cursor(on));
        self.axis = match self.axis {
            XAxis::Steps => XAxis::Time,
            XAxis::Time => XAxis::Steps,
        };
        self.cursor = under.map(|it| self.axis.place(&it));
    }
}

/// Returns when a step completed, to the resolution of the run: at the end of its column.
pub fn when(on: &OnDevice, step: u64) -> Option<Stamp> {
    on.timeline.places().find(|(_, last)| last.is_some_and(|last| last >= step)).map(|(at, _)| at)
}

/// Returns the step in progress at a time, to the resolution of the run.
pub fn step_at(on: &OnDevice, at: Stamp) -> Option<u64> {
    on.timeline.places().find(|it| it.0 >= at)?.1
}
