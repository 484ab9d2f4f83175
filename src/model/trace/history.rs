//! What was live and reserved after each event of a device's trace.
//!
//! One pass over the events finds when each block was allocated and when it was freed. From that, the live blocks after
//! any event follow without a second pass.

use super::{Action, BlockState, Event, Moment, StackId, Trace, tree::shares};
use hashbrown::{HashMap, HashSet};
use std::ops::Range;

/// No block is larger: sums of what a damaged file claims stay below what a number holds.
const SIZE_MAX: u64 = 1 << 48;

/// Some events side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them, by its place in the device's trace.
    pub first: usize,
    /// How many.
    pub events: usize,
    /// The most bytes that were asked for and live after one of them.
    pub live: u64,
    /// That event.
    pub highest: usize,
    /// The most bytes that segments had after one of them.
    pub reserved: u64,
    /// Whether a request failed in it.
    pub failed: bool,
}

/// From when to when a block was live. Time 0 is before the first event, and event `n` happens at time `n + 1`.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Where the block is.
    pub address: u64,
    /// What allocated it.
    pub stack: StackId,
    /// When it was allocated.
    pub born: u32,
    /// When it was freed; `u32::MAX` of a block that is live at the end.
    pub died: u32,
    /// Bytes that were asked for.
    pub bytes: u64,
}

impl Life {
    /// Whether the block was allocated before the first event.
    pub fn is_older(&self) -> bool {
        self.born == 0
    }
}

/// A device's trace, walked through.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Bytes that were asked for and live after each event, and before the first.
    live: Vec<u64>,
    before: u64,
    /// Bytes of the segments, from an event on.
    reserved: Vec<(usize, u64)>,
    lives: Vec<Life>,
    /// The event after which most was live; `None` where nothing was allocated or freed.
    pub peak: Option<usize>,
    /// The requests that failed, by their places in the device's trace.
    pub failures: Vec<usize>,
}

impl Trace {
    /// Walks through a device's trace.
    pub fn history(&self, device: u32) -> History {
        let range = self.devices.get(device as usize).cloned().unwrap_or_default();
        let mut walk = Walk::new(self, range.clone(), device);
        for (place, event) in self.events.range(range).enumerate() {
            walk.go(place, &event);
        }
        walk.close(self, device)
    }
}

impl History {
    /// Returns how many events there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns the bytes that were asked for and live after an event; `None` where there is no such event.
    pub fn live(&self, event: usize) -> Option<u64> {
        self.live.get(event).copied()
    }

    /// Returns the bytes of the segments after an event.
    pub fn reserved(&self, event: usize) -> u64 {
        let after = self.reserved.partition_point(|it| it.0 <= event);
        after.checked_sub(1).and_then(|at| self.reserved.get(at)).map_or(0, |it| it.1)
    }

    /// Returns the events of a range in so many stretches of equally many; fewer where it has fewer events.
    pub fn stretches(&self, range: Range<usize>, count: usize) -> Vec<Stretch> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let count = count.min(range.len());
        let edge = |at: usize| range.start + at * range.len() / count.max(1);
        (0..count).map(|at| self.stretch(edge(at)..edge(at + 1))).collect()
    }

    fn stretch(&self, range: Range<usize>) -> Stretch {
        let live = self.live.get(range.clone()).unwrap_or_default();
        // Of equal ones the first.
        let highest = live.iter().enumerate().rev().max_by_key(|it| it.1).map_or((0, 0), |(at, bytes)| (at, *bytes));
        let changes = self.reserved.partition_point(|it| it.0 <= range.start)..;
        let later = self.reserved.get(changes).unwrap_or_default().iter().take_while(|it| it.0 < range.end);
        let failed = self.failures.partition_point(|it| *it < range.start);
        Stretch {
            first: range.start,
            events: range.len(),
            live: highest.1,
            highest: range.start + highest.0,
            reserved: later.map(|it| it.1).fold(self.reserved(range.start), u64::max),
            failed: self.failures.get(failed).is_some_and(|it| range.contains(it)),
        }
    }

    /// Returns how many events had passed when most was live.
    pub fn highest(&self) -> usize {
        let highest = self.peak.filter(|it| self.live(*it) >= Some(self.before));
        highest.map_or(0, |it| it + 1)
    }

    /// Returns what was live after an event; `None` where there is no such event.
    pub fn moment(&self, trace: &Trace, device: u32, event: usize) -> Option<Moment> {
        let bytes = self.live(event)?;
        let range = trace.devices.get(device as usize)?;
        let unix_us = trace.events.get(range.start.checked_add(event)?)?.unix_us;
        let older = self.lives(event).filter(|it| it.is_older()).map(|it| it.bytes).fold(0, u64::saturating_add);
        let shares = shares(self.lives(event).map(|it| (it.stack, it.bytes)));
        Some(Moment { event, unix_us, bytes, older, shares })
    }

    /// Returns the live blocks after an event: address, requested bytes, stack.
    pub fn blocks(&self, event: usize) -> impl Iterator<Item = (u64, u64, StackId)> {
        self.blocks_after(event.saturating_add(1))
    }

    /// Returns the same after so many events.
    pub fn blocks_after(&self, passed: usize) -> impl Iterator<Item = (u64, u64, StackId)> {
        self.lives_after(passed).map(|it| (it.address, it.bytes, it.stack))
    }

    /// Returns the blocks that were live after an event.
    pub fn lives(&self, event: usize) -> impl Iterator<Item = &Life> {
        self.lives_after(event.saturating_add(1))
    }

    fn lives_after(&self, passed: usize) -> impl Iterator<Item = &Life> {
        let now = u32::try_from(passed).unwrap_or(u32::MAX);
        self.lives.iter().filter(move |it| it.born <= now && it.died > now)
    }

    /// Returns the blocks that are live at the end.
    pub fn last_lives(&self) -> impl Iterator<Item = &Life> {
        self.lives.iter().filter(|it| it.died == u32::MAX)
    }
}

/// What is known at an address: which block is live there, if any.
type Live = Option<usize>;

struct Walk<'a> {
    history: History,
    /// What does not count, and the device.
    left: (&'a HashSet<(u32, u64)>, u32),
    at: HashMap<u64, Live>,
    /// What frees a block that no event allocated. Where frees have requests, a completion without a request belongs to
    /// a block that was freed before the trace.
    frees: Action,
    /// Bytes that are live, beside those that were live before the first event.
    change: i64,
    changes: Vec<i64>,
    /// The same for segments.
    taken: i64,
    older: i64,
}

impl<'a> Walk<'a> {
    fn new(trace: &'a Trace, range: Range<usize>, device: u32) -> Self {
        let is_requested = trace.events.actions(range.clone()).contains(&Action::FreeRequested);
        Self {
            history: History::default(),
            left: (&trace.left, device),
            at: HashMap::new(),
            frees: if is_requested { Action::FreeRequested } else { Action::FreeCompleted },
            change: 0,
            changes: Vec::with_capacity(range.len()),
            taken: 0,
            older: 0,
        }
    }

    fn go(&mut self, place: usize, event: &Event) {
        let size = signed(event.size.unwrap_or(0));
        match event.action {
            Action::Alloc | Action::FreeRequested | Action::FreeCompleted => self.block(place, event),
            Action::SegmentAlloc | Action::SegmentMap => self.segment(place, size),
            Action::SegmentFree | Action::SegmentUnmap => self.segment(place, -size),
            Action::Oom => self.history.failures.push(place),
            _ => {}
        }
        self.changes.push(self.change);
    }

    fn block(&mut self, place: usize, event: &Event) {
        let (Some(address), Some(bytes)) = (event.address, event.size) else { return };
        let bytes = bytes.min(SIZE_MAX);
        let now = time(place);
        let known = self.at.insert(address, None);
        // A block goes with its free request, and the completion then finds nothing. Some traces have only completions.
        match known {
            Some(Some(life)) => {
                if let Some(life) = self.history.lives.get_mut(life) {
                    life.died = now;
                    self.change = self.change.saturating_sub(signed(life.bytes));
                }
            }
            None if event.action == self.frees && !self.is_left(address) => {
                self.history.lives.push(Life { address, stack: StackId::default(), born: 0, died: now, bytes });
                self.older = self.older.saturating_add(signed(bytes));
                self.change = self.change.saturating_sub(signed(bytes));
            }
            _ => {}
        }
        if event.action == Action::Alloc {
            self.at.insert(address, Some(self.history.lives.len()));
            self.history.lives.push(Life { address, stack: event.stack, born: now, died: u32::MAX, bytes });
            self.change = self.change.saturating_add(signed(bytes));
        }
        let best = self.history.peak.and_then(|it| self.changes.get(it));
        if best.is_none_or(|it| self.change > *it) {
            self.history.peak = Some(place);
        }
    }

    /// Whether a block that no event allocated does not count.
    fn is_left(&self, address: u64) -> bool {
        self.left.0.contains(&(self.left.1, address))
    }

    fn segment(&mut self, place: usize, change: i64) {
        self.taken = self.taken.saturating_add(change);
        // Made whole when the end is known.
        self.history.reserved.push((place, self.taken.cast_unsigned()));
    }

    /// Adds what was there before the first event: blocks that are freed or live at the end and that no event made, and
    /// segments: those of the end, without what came and with what went.
    fn close(mut self, trace: &Trace, device: u32) -> History {
        let blocks = trace.segments_on(device).flat_map(|it| trace.blocks_of(it));
        for it in blocks.filter(|it| it.state == BlockState::Live) {
            if !self.at.contains_key(&it.address) && !self.is_left(it.address) {
                let bytes = it.requested.unwrap_or(it.size).min(SIZE_MAX);
                let life = Life { address: it.address, stack: it.stack, born: 0, died: u32::MAX, bytes };
                self.history.lives.push(life);
                self.older = self.older.saturating_add(signed(bytes));
            }
        }
        let end = trace.segments_on(device).map(|it| signed(it.size)).fold(0, i64::saturating_add);
        let before = end.saturating_sub(self.taken);
        let unsigned = |it: i64| u64::try_from(it).unwrap_or(0);
        let mut history = self.history;
        history.before = unsigned(self.older);
        history.live = self.changes.into_iter().map(|it| unsigned(self.older.saturating_add(it))).collect();
        for (_, bytes) in &mut history.reserved {
            *bytes = unsigned(before.saturating_add(bytes.cast_signed()));
        }
        if history.reserved.first().is_none_or(|it| it.0 > 0) {
            history.reserved.insert(0, (0, unsigned(before)));
        }
        history
    }
}

/// Returns the time of an event, by its place.
pub fn time(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)
}

fn signed(bytes: u64) -> i64 {
    bytes.min(SIZE_MAX).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Segment};
    use super::*;

    #[test]
    fn a_stretch_has_its_highest_and_what_was_there_before_counts() {
        let mut trace = Trace::default();
        let (alloc, free) = (Action::Alloc, Action::FreeCompleted);
        let moves = [
            (alloc, 1, 100),
            (alloc, 2, 50),
            (free, 1, 100),
            (Action::SegmentAlloc, 9, 4000),
            (alloc, 3, 700),
            (Action::Oom, 0, 1),
            (free, 3, 700),
            (free, 7, 30),
        ];
        for (action, address, size) in moves {
            let event = Event { action, address: Some(address), size: Some(size), ..Event::default() };
            trace.events.push(&event);
        }
        trace.devices = std::iter::once(0..moves.len()).collect();
        trace.segments = vec![Segment { device: Some(0), size: 6000, ..Segment::default() }];
        let history = trace.history(0);
        let seen = |count| history.stretches(0..99, count);
        let two: Vec<_> = seen(2).iter().map(|it| (it.first, it.events, it.live, it.highest, it.reserved)).collect();
        // Block 7 is older than the trace.
        assert_eq!(two, [(0, 4, 180, 1, 6000), (4, 4, 780, 4, 6000)]);
        assert_eq!(seen(2).iter().map(|it| it.failed).collect::<Vec<_>>(), [false, true]);
        assert_eq!(seen(100).len(), 8, "no stretch is empty");
        assert_eq!(seen(100)[0].reserved, 2000);
        assert_eq!((history.peak, &history.failures[..]), (Some(4), &[5][..]));
        let at = |event| history.moment(&trace, 0, event).map(|it| (it.bytes, it.older));
        assert_eq!([at(0), at(4), at(7), at(8)], [Some((130, 30)), Some((780, 30)), Some((50, 0)), None]);
        assert!(trace.history(7).is_empty() && trace.history(7).stretches(0..10, 10).is_empty());
    }
}
