//! One trace from overlapping pieces, which are snapshots of an allocator's ring of latest events.
//!
//! Pieces overlap: the join searches a piece for the last events of the piece before it, by their addresses, sizes and
//! times. PyTorch reads a counter of the processor at an event, and converts it to a time again at each snapshot, with
//! the mean pace of the clock since the job began. The same event's time therefore differs from piece to piece: by a
//! microsecond, or by more after an hour in which the clock was adjusted. What stays is the time between neighbours. If
//! the join does not find the events, the ring was overwritten in between, and the trace is a window from there on. The
//! window starts from what the allocator held when that piece was taken. A snapshot leaves an event of its own in the
//! ring, so the next piece shows after which event the snapshot was taken.

use super::{Action, AllocatorState, Event, Events, StackId, Stacks, Trace};
use std::collections::BTreeMap;

/// Events by which the end of a piece is found in the next one.
const TAIL: usize = 32;

/// How far the times of one event in two pieces differ at most, µs.
const NEAR_US: u64 = 2_000;

/// How far the time between two events differs in two pieces, µs: each of both times is rounded.
const ROUNDED_US: u64 = 2;

/// By how many parts of itself the time between two events differs as well, because the pace differs.
const PACE: u64 = 1_000;

/// Pieces so far.
#[derive(Debug, Default)]
pub struct Join {
    /// Events that the ring holds.
    ring: usize,
    devices: Vec<Joined>,
    last: Option<Trace>,
    /// The call stacks of all pieces, if they have any.
    stacks: Stacks,
    /// Times that events were lost.
    gaps: u64,
}

/// One device's.
#[derive(Debug, Default)]
struct Joined {
    events: Events,
    tail: Vec<Event>,
    start: Start,
}

/// The state before the first event.
#[derive(Debug, Default)]
enum Start {
    /// Nothing.
    #[default]
    Empty,
    /// The state of the latest piece; the next one shows after which event it was taken.
    Soon(AllocatorState),
    /// This state.
    Held(AllocatorState),
}

/// The trace of several pieces.
#[derive(Debug, Default)]
pub struct JoinedTrace {
    /// All events, and what was held after the last one.
    pub trace: Trace,
    /// How many times events were lost between two pieces; the trace begins after the last of them.
    pub gaps: u64,
}

impl Join {
    /// Returns a join for a ring of so many events.
    pub fn new(ring: usize) -> Self {
        Self { ring, ..Self::default() }
    }

    /// Adds the next piece. `is_late`: memory was held before the history began, so the trace starts from the contents
    /// of the first piece.
    pub fn add(&mut self, piece: Trace, is_late: bool) {
        let is_first = self.last.is_none();
        let mut translated = BTreeMap::new();
        for (device, range) in (0..).zip(&piece.devices) {
            let mut events: Vec<Event> = piece.events.range(range.clone()).collect();
            for it in events.iter_mut().filter(|it| it.stack != StackId::default()) {
                let of = *translated.entry(it.stack).or_insert_with(|| self.stacks.copy(&piece.stacks, it.stack));
                it.stack = of;
            }
            if self.devices.len() <= device as usize {
                self.devices.resize_with(device as usize + 1, Joined::default);
            }
            let Some(joined) = self.devices.get_mut(device as usize) else { continue };
            let is_late = is_first && is_late;
            let is_lost = !is_late && !joined.add(&events, self.ring);
            if is_lost || is_late {
                joined.events = Events::default();
                joined.start = Start::Soon(AllocatorState::at_end(&piece, device));
                self.gaps += u64::from(is_lost);
            }
            joined.tail = events.get(events.len().saturating_sub(TAIL)..).unwrap_or_default().to_vec();
        }
        self.last = Some(piece);
    }

    /// Whether a piece overlaps all that came before on every device: where it does not, events were lost, and only a
    /// piece with all blocks can follow.
    pub fn continues_with(&self, piece: &Trace) -> bool {
        self.devices.iter().zip(&piece.devices).all(|(joined, range)| {
            let events: Vec<Event> = piece.events.range(range.clone()).collect();
            joined.continues_with(&events, self.ring)
        })
    }

    /// Returns the whole; `None` of no piece.
    pub fn finish(self) -> Option<JoinedTrace> {
        let mut last = self.last?;
        if self.devices.iter().any(|it| matches!(it.start, Start::Soon(_))) {
            // No piece came after the loss, so the last piece is all there is.
            return Some(JoinedTrace { trace: last, gaps: self.gaps });
        }
        let stacks = if self.stacks.count() > 1 { self.stacks } else { last.stacks };
        let mut trace = Trace { stacks, settings: last.settings.take(), ..Trace::default() };
        for (device, joined) in (0..).zip(self.devices) {
            let mut held = if let Start::Held(it) = joined.start { it } else { AllocatorState::default() };
            let first = trace.events.len();
            for mut event in joined.events.range(0..joined.events.len()) {
                // Each piece numbers its pools from 0.
                event.pool = event.pool.map(|it| trace.pools.id(if it == 0 { (0, 0) } else { (0, u64::from(it)) }));
                held.apply(&event);
                trace.events.push(&event);
            }
            trace.devices.push(first..trace.events.len());
            held.put(device, &mut trace);
        }
        Some(JoinedTrace { trace, gaps: self.gaps })
    }
}

impl Joined {
    /// Appends the new events of a ring; returns false if events in between were lost.
    fn add(&mut self, ring: &[Event], most: usize) -> bool {
        let Some(known) = self.known(ring, most) else { return false };
        let mut new = ring.get(known..).unwrap_or_default();
        match std::mem::take(&mut self.start) {
            Start::Soon(held) => {
                // The state includes events from before its snapshot.
                let Some(taken) = new.iter().position(|it| it.action == Action::Snapshot) else { return false };
                new = new.get(taken + 1..).unwrap_or_default();
                self.start = Start::Held(held);
            }
            other => self.start = other,
        }
        for it in new {
            self.events.push(it);
        }
        true
    }

    fn continues_with(&self, ring: &[Event], most: usize) -> bool {
        let Some(known) = self.known(ring, most) else { return false };
        let new = ring.get(known..).unwrap_or_default();
        !matches!(self.start, Start::Soon(_)) || new.iter().any(|it| it.action == Action::Snapshot)
    }

    /// Returns how many of a ring's events the piece before has; `None` if they do not overlap.
    fn known(&self, ring: &[Event], most: usize) -> Option<usize> {
        let Some(last) = self.tail.last() else { return (ring.len() < most).then_some(0) };
        let moved = |end: &usize| Some(ring.get(end - 1)?.unix_us?.abs_diff(last.unix_us?));
        let is_near = |end: &usize| moved(end).is_some_and(|it| it <= NEAR_US);
        let ends_here = |end: &usize| {
            let Some((new, _)) = ring.split_at_checked(*end) else { return false };
            let mut pairs = new.iter().rev().zip(self.tail.iter().rev());
            new.last().is_some_and(|at| pairs.all(|(a, b)| is_same((a, at), (b, last))))
        };
        (1..=ring.len()).filter(is_near).filter(ends_here).min_by_key(moved)
    }
}

/// Whether two events are the same one, in two pieces; each comes with the last event of its tail.
fn is_same((a, last_a): (&Event, &Event), (b, last_b): (&Event, &Event)) -> bool {
    let of = |it: &Event| (it.action, it.address, it.size);
    let before = |it: &Event, last: &Event| last.unix_us.unwrap_or_default().abs_diff(it.unix_us.unwrap_or_default());
    let (a_us, b_us) = (before(a, last_a), before(b, last_b));
    of(a) == of(b) && a_us.abs_diff(b_us) <= ROUNDED_US + a_us / PACE
}

/// Pauses by snapshots, in µs. They are upper bounds: a program may have had nothing to allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// All together.
    pub total_us: u64,
    /// The longest one.
    pub longest_us: u64,
}

impl Pauses {
    /// Bounds the pauses by snapshots, given when each began (µs of Unix time) and how many µs it took: the longest
    /// time within it without an event. Snapshots after the last event are left out.
    pub fn of(trace: &Trace, snapshots: &[(u64, u64)]) -> Self {
        let mut pauses = Self::default();
        for (begin, took) in snapshots {
            let end = begin.saturating_add(*took);
            let pause = trace.devices.iter().filter_map(|range| {
                let times = trace.events.range(range.clone()).filter_map(|event| event.unix_us);
                longest_gap(times, *begin, end)
            });
            let pause = pause.max().unwrap_or(0);
            pauses.total_us += pause;
            pauses.longest_us = pauses.longest_us.max(pause);
        }
        pauses
    }
}

/// Returns the longest time without an event between two instants; `None` if no event comes afterwards.
fn longest_gap(times: impl Iterator<Item = u64>, begin: u64, end: u64) -> Option<u64> {
    let (mut last, mut longest) = (begin, 0);
    for at in times.filter(|at| *at > begin) {
        longest = longest.max(at.min(end).saturating_sub(last));
        if at >= end {
            return Some(longest);
        }
        last = at;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::Event;

    const MIB: u64 = 1 << 20;

    fn event(action: Action, at: u64, unix_us: u64) -> Event {
        Event { action, address: Some(at * MIB), size: Some(MIB), unix_us: Some(unix_us), ..Event::default() }
    }

    fn piece(events: &[Event]) -> Trace {
        let mut trace = Trace::default();
        for it in events {
            trace.events.push(it);
        }
        trace.devices.push(0..events.len());
        trace
    }

    /// A loop: the same addresses again and again, every 10 ms.
    fn run() -> Vec<Event> {
        let of = |step: u64| {
            let at = 10_000 * step;
            [event(Action::Alloc, 1, at), event(Action::Alloc, 2, at), event(Action::FreeCompleted, 1, at + 5_000)]
                .into_iter()
                .chain([event(Action::FreeCompleted, 2, at + 6_000)])
        };
        [event(Action::SegmentAlloc, 1, 0)].into_iter().chain((0..20).flat_map(of)).collect()
    }

    #[test]
    fn pieces_that_overlap_are_the_run() {
        let run = run();
        let mut join = Join::new(16);
        for end in [0, 5, 14, 28, 40, 40, 54, 64, 79, 81] {
            let first = usize::saturating_sub(end, 16);
            join.add(piece(&run[first..end]), false);
        }
        let whole = join.finish().unwrap();
        let all: Vec<_> = whole.trace.events.range(whole.trace.devices[0].clone()).collect();
        assert!(all == run && whole.gaps == 0, "{} of {} events", all.len(), run.len());
        assert_eq!((whole.trace.segments.len(), whole.trace.blocks.len()), (1, 0));
        assert!(Join::new(16).finish().is_none());
    }

    /// A loop of little more than a microsecond an event, whose last events alone show where the next piece continues.
    #[test]
    fn pieces_whose_clocks_differ_are_joined() {
        let mut run = run();
        for (at, it) in (0..).zip(&mut run) {
            it.unix_us = Some(1_000_000 + 3 * at + at * at % 7);
        }
        let (first, second) = run.split_at(60);
        // The second piece's clock is ahead, and is rounded in another way.
        for ahead in [0, 1, 40] {
            let moved = run[30..]
                .iter()
                .zip(0..)
                .map(|(it, at)| Event { unix_us: it.unix_us.map(|us| us + ahead + at % 2), ..*it });
            let moved: Vec<Event> = moved.collect();
            let mut join = Join::new(64);
            join.add(piece(first), false);
            join.add(piece(&moved), false);
            let JoinedTrace { trace, gaps } = join.finish().unwrap();
            assert_eq!((trace.events.len(), gaps), (run.len(), 0), "{ahead} µs ahead");
            assert_eq!(trace.events.get(60).map(|it| it.action), second.first().map(|it| it.action));
        }
    }

    #[test]
    fn after_a_loss_the_trace_starts_from_what_was_held_then() {
        let mut run = run();
        run.insert(50, event(Action::Snapshot, 0, 121_000));
        let held = |live: &[u64], mut piece: Trace| {
            let mut held = AllocatorState::default();
            held.apply(&event(Action::SegmentAlloc, 1, 0));
            for it in live {
                held.apply(&event(Action::Alloc, *it, 0));
            }
            held.put(0, &mut piece);
            piece
        };
        let mut join = Join::new(16);
        join.add(piece(&run[..12]), false);
        // Two more were freed or given away before the capture.
        join.add(held(&[1], piece(&run[32..48])), false);
        join.add(held(&[], piece(&run[40..56])), false);
        let JoinedTrace { trace, gaps } = join.finish().unwrap();
        let all: Vec<_> = trace.events.range(trace.devices[0].clone()).collect();
        assert!(all == run[51..56] && gaps == 1, "{gaps} gaps: {all:?}");
        assert_eq!(trace.segments.len(), 1);
        // Nothing came after the loss: the last piece is all there is.
        let mut join = Join::new(16);
        join.add(piece(&run[..12]), false);
        join.add(held(&[1], piece(&run[32..48])), false);
        let JoinedTrace { trace, gaps } = join.finish().unwrap();
        assert_eq!((trace.events.len(), trace.blocks.len(), gaps), (16, 1, 1));
        // A history that was switched on late starts from what its first piece has.
        let mut join = Join::new(16);
        join.add(held(&[2], piece(&[])), true);
        join.add(held(&[], piece(&run[50..60])), false);
        let JoinedTrace { trace, gaps } = join.finish().unwrap();
        assert_eq!((trace.events.len(), trace.segments.len(), gaps), (9, 1, 0));
    }

    #[test]
    fn a_pause_is_at_most_the_longest_time_without_an_event() {
        let mut trace = Trace::default();
        for unix_us in [5, 12, 13, 60, 64, 90, 400] {
            trace.events.push(&Event { unix_us: Some(unix_us), ..Event::default() });
        }
        trace.devices.push(0..7);
        assert_eq!(Pauses::of(&trace, &[(10, 90)]), Pauses { total_us: 47, longest_us: 47 });
        // Within the third snapshot nothing comes, and after the fourth nothing more.
        let pauses = Pauses::of(&trace, &[(10, 4), (61, 9), (100, 20), (390, 50)]);
        assert_eq!(pauses, Pauses { total_us: 2 + 6 + 20, longest_us: 20 });
    }
}
