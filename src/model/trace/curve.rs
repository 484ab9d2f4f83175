//! Live and reserved bytes in the course of a trace.

use super::{Action, Trace, peak::Walk};

/// A run of consecutive events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Its first event, by index in the device's trace.
    pub first: usize,
    /// Number of events.
    pub events: usize,
    /// The most requested bytes that were live after one of its events.
    pub live: u64,
    /// That event.
    pub highest: usize,
    /// The most bytes in segments after one of its events.
    pub reserved: u64,
    /// Whether a request failed in it.
    pub failed: bool,
}

/// Live and reserved bytes after one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Requested bytes that are live.
    pub live: u64,
    /// Bytes of the segments.
    pub reserved: u64,
    /// Whether the event changed either.
    pub has_changed: bool,
}

impl Trace {
    /// Returns live and reserved bytes after each event of a device's trace, in order.
    pub fn levels(&self, device: u32) -> impl Iterator<Item = Levels> {
        let range = self.devices.get(device as usize).cloned().unwrap_or_default();
        let mut walk = Walk::from_start(self, device);
        let mut reserved = self.reserved_before(device);
        self.events.range(range).map(move |event| {
            let before = (walk.bytes, reserved);
            let size = event.size.unwrap_or(0);
            match event.action {
                Action::Alloc | Action::FreeRequested | Action::FreeCompleted => walk.go(event),
                Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(size),
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(size),
                _ => {}
            }
            Levels { live: walk.bytes, reserved, has_changed: before != (walk.bytes, reserved) }
        })
    }

    /// Splits a device's trace into `stretches` runs of equally many events, or fewer if it has fewer events.
    pub fn curve(&self, device: u32, stretches: usize) -> Vec<Stretch> {
        let range = self.devices.get(device as usize).cloned().unwrap_or_default();
        let events = range.len();
        let count = stretches.min(events);
        let mut all: Vec<Stretch> = Vec::with_capacity(count);
        for (place, (levels, event)) in self.levels(device).zip(self.events.range(range)).enumerate() {
            // Runs differ by one event at most.
            if all.len().saturating_mul(events) <= place.saturating_mul(count) {
                all.push(Stretch { first: place, highest: place, ..Stretch::default() });
            }
            let Some(stretch) = all.last_mut() else { continue };
            stretch.events += 1;
            stretch.failed |= event.action == Action::Oom;
            stretch.reserved = stretch.reserved.max(levels.reserved);
            if levels.live > stretch.live {
                (stretch.live, stretch.highest) = (levels.live, place);
            }
        }
        all
    }

    /// Returns the bytes in a device's segments before its trace: those at the end, minus allocations, plus releases.
    fn reserved_before(&self, device: u32) -> u64 {
        let range = self.devices.get(device as usize).cloned().unwrap_or_default();
        let end = self.segments_on(device).map(|segment| u128::from(segment.size)).sum::<u128>();
        let (mut came, mut went) = (0_u128, 0_u128);
        for event in self.events.range(range) {
            let size = u128::from(event.size.unwrap_or(0));
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => came += size,
                Action::SegmentFree | Action::SegmentUnmap => went += size,
                _ => {}
            }
        }
        u64::try_from((end + went).saturating_sub(came)).unwrap_or(u64::MAX)
    }
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
        let curve = trace.curve(0, 2);
        let seen: Vec<_> = curve.iter().map(|it| (it.first, it.events, it.live, it.highest, it.reserved)).collect();
        // Block 7 is older than the trace.
        assert_eq!(seen, [(0, 4, 180, 1, 6000), (4, 4, 780, 4, 6000)]);
        assert_eq!(curve.iter().map(|it| it.failed).collect::<Vec<_>>(), [false, true]);
        assert_eq!(trace.curve(0, 100).len(), 8, "no stretch is empty");
        assert_eq!(trace.curve(0, 100)[0].reserved, 2000);
        assert!(trace.curve(7, 10).is_empty());
    }
}
