//! The part of the trace that is shown, and its cursor.

use super::{Page, SnapshotUi};
use crate::{
    model::snapshot::Snapshot,
    screen::ui::{Motion, moved},
};
use std::ops::Range;

/// The fewest events that are shown.
const EVENTS_MIN: usize = 16;

/// A key moves the cursor by one of so many parts of what is shown.
const PARTS: usize = 80;

impl SnapshotUi {
    /// Returns the event under the cursor: the selected one, else the peak; `None` if the device has no known history.
    pub fn event(&self, snapshot: &Snapshot) -> Option<usize> {
        let history = self.device(snapshot)?.history.as_ref()?;
        let last = history.len().checked_sub(1)?;
        Some(self.cursor.or(history.peak).unwrap_or(last).min(last))
    }

    /// The events that are shown.
    pub fn window(&self, snapshot: &Snapshot) -> Range<usize> {
        let Some((device, cursor)) = self.device(snapshot).zip(self.event(snapshot)) else { return 0..0 };
        let events = device.events;
        let shown = (events >> self.zoom.min(60)).max(EVENTS_MIN).min(events);
        let first = cursor.saturating_sub(shown / 2).min(events - shown);
        first..first + shown
    }

    pub(super) fn travel_trace(&mut self, motion: Motion, snapshot: &Snapshot) {
        let Some(event) = self.event(snapshot) else { return };
        let part = (self.window(snapshot).len() / PARTS).max(1);
        let next = match motion {
            Motion::Left => event.saturating_sub(part),
            Motion::Right => event.saturating_add(part),
            Motion::PageUp => event.saturating_sub(part * 10),
            Motion::PageDown => event.saturating_add(part * 10),
            Motion::First => 0,
            Motion::Last => usize::MAX,
            Motion::Up | Motion::Down => {
                self.base.scroll = moved(motion, self.base.scroll);
                return;
            }
        };
        let events = self.device(snapshot).map_or(0, |it| it.events);
        self.cursor = Some(next.min(events.saturating_sub(1)));
    }

    pub(super) fn zoom(&mut self, nearer: bool, snapshot: &Snapshot) {
        if self.event(snapshot).is_none() {
            return;
        }
        self.zoom = if nearer {
            self.zoom + u32::from(self.window(snapshot).len() > EVENTS_MIN)
        } else {
            self.zoom.saturating_sub(1)
        };
    }

    pub(super) fn step(&mut self, forward: bool, snapshot: &Snapshot) {
        self.page = Page::Trace;
        let Some(event) = self.event(snapshot) else { return };
        let last = self.device(snapshot).map_or(0, |it| it.events.saturating_sub(1));
        self.cursor = Some(if forward { (event + 1).min(last) } else { event.saturating_sub(1) });
    }

    /// The failed request after the cursor, or before it.
    pub(super) fn failure(&mut self, forward: bool, snapshot: &Snapshot) {
        self.page = Page::Trace;
        let Some(event) = self.event(snapshot) else { return };
        let history = self.device(snapshot).and_then(|it| it.history.as_ref());
        let failures = history.map(|it| &it.failures[..]).unwrap_or_default();
        let next = if forward {
            failures.iter().find(|it| **it > event)
        } else {
            failures.iter().rev().find(|it| **it < event)
        };
        match next {
            Some(next) => self.cursor = Some(*next),
            None if failures.is_empty() => self.base.show_message("no request failed in this trace"),
            None => self.base.show_message("no more failed requests in this direction"),
        }
    }
}
