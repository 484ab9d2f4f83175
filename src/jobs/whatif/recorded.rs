//! Properties of the recorded run from its trace: reserved memory, when the cache was emptied, the size of the device.

use crate::model::trace::{Action, Event, StackId, Trace};

/// The recorded run of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Bytes reserved before the first event.
    pub(super) start: u64,
    /// The peak of reserved bytes.
    pub(super) peak: u64,
    /// Bytes reserved after the last event.
    pub(super) end: u64,
    /// Allocated and released segments, with their bytes.
    pub(super) segments: Vec<(Action, u64)>,
    /// The events before which the program emptied the cache, by index in the device's trace.
    pub(super) emptied: Vec<usize>,
    /// Bytes that the allocator could reserve; `None` if the run did not come close.
    pub(super) capacity: Option<u64>,
    /// The request that failed and after which the run made no other, by its place in the device's trace. What the run
    /// would have needed later is unknown.
    pub(super) died_at: Option<usize>,
    /// Whether releases counted as a retry's may be the program's.
    pub(super) is_ambiguous: bool,
}

/// If more than this part of the peak was reserved before the first event, the trace is a window.
const EARLY: f64 = 0.01;

impl Recorded {
    /// Returns the part of the peak that was reserved before the first event.
    pub(super) fn before(&self) -> f64 {
        if self.peak == 0 { 0.0 } else { self.start as f64 / self.peak as f64 }
    }

    /// Returns whether so much was reserved before the first event that the trace shows only directions.
    pub(super) fn is_late(&self) -> bool {
        self.before() > EARLY
    }
}

/// Consecutive releases of segments.
#[derive(Clone, Copy)]
struct Release {
    event: usize,
    stack: StackId,
    /// Bytes reserved before.
    before: u64,
}

/// A possible retry of an allocation: it released free segments because it would have exceeded the device.
struct Retry {
    event: usize,
    /// Bytes that would have been reserved.
    wanted: u64,
    /// Whether both stacks are known.
    is_sure: bool,
}

/// Reads a device's trace. `None` if its segments contradict each other: it releases more than there was. Segments
/// released without a call stack may be the program's or a retry's; with `all_emptied` they count as the program's.
pub(super) fn recorded(trace: &Trace, device: u32, all_emptied: bool) -> Option<Recorded> {
    let range = trace.devices.get(device as usize).cloned().unwrap_or_default();
    let end = trace.segments_on(device).map(|it| it.size).fold(0, u64::saturating_add);
    let events = || trace.events.range(range.clone()).enumerate();
    let change: i128 = events().map(|it| change(&it.1)).sum();
    let start = u64::try_from(i128::from(end) - change).ok()?;
    let mut it = Recorded { start, end, peak: start, ..Recorded::default() };
    let (mut held, mut release, mut retries) = (start, None::<Release>, Vec::<Retry>::new());
    let mut room: Option<u64> = None;
    for (at, event) in events() {
        let size = event.size.unwrap_or(0);
        if is_release(event.action) {
            release.get_or_insert(Release { event: at, stack: event.stack, before: held });
        } else if event.action != Action::FreeCompleted
            && let Some(release) = release.take()
        {
            match retry(&release, &event) {
                Some(retry) if retry.is_sure || !all_emptied => {
                    it.is_ambiguous |= !retry.is_sure;
                    retries.push(retry);
                }
                _ => it.emptied.push(release.event),
            }
        }
        if event.action == Action::Alloc {
            it.died_at = None;
        }
        if event.action == Action::Oom {
            it.died_at = Some(at);
            room = room.or(event.address.map(|free| held.saturating_add(free)));
        }
        held = u64::try_from(i128::from(held) + self::change(&event)).ok()?;
        it.peak = it.peak.max(held);
        if matches!(event.action, Action::SegmentAlloc | Action::SegmentMap) || is_release(event.action) {
            it.segments.push((event.action, size));
        }
    }
    it.emptied.extend(release.map(|it| it.event));
    // A request that would have fitted was not a retry.
    it.emptied.extend(retries.iter().filter(|retry| retry.wanted <= it.peak).map(|it| it.event));
    it.emptied.sort_unstable();
    let limits = retries.iter().map(|it| it.wanted).filter(|wanted| *wanted > it.peak).map(|wanted| wanted - 1);
    it.capacity = limits.chain(room.map(|room| room.max(it.peak))).min();
    Some(it)
}

fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

/// Returns by how much an event changes reserved memory.
fn change(event: &Event) -> i128 {
    let size = i128::from(event.size.unwrap_or(0));
    match event.action {
        Action::SegmentAlloc | Action::SegmentMap => size,
        Action::SegmentFree | Action::SegmentUnmap => -size,
        _ => 0,
    }
}

/// A release and the request right after it, with the same call stack, may be one allocation that was retried.
fn retry(release: &Release, next: &Event) -> Option<Retry> {
    let asks = matches!(next.action, Action::SegmentAlloc | Action::SegmentMap | Action::Oom);
    let is_sure = [release.stack, next.stack].iter().all(|it| *it != StackId::default());
    let same = release.stack == next.stack || !is_sure;
    let wanted = release.before.saturating_add(next.size?);
    (asks && same).then_some(Retry { event: release.event, wanted, is_sure })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::Segment;

    fn trace(events: &[(Action, u64, u32)], end: u64) -> Trace {
        let mut trace = Trace::default();
        for (action, size, stack) in events {
            let address = (*action == Action::Oom).then_some(3);
            let event =
                Event { action: *action, size: Some(*size), address, stack: StackId(*stack), ..Event::default() };
            trace.events.push(&event);
        }
        trace.devices.push(0..events.len());
        trace.segments.push(Segment { device: Some(0), size: end, ..Segment::default() });
        trace
    }

    #[test]
    fn the_first_reserved_bytes_are_the_last_ones_less_the_changes() {
        use Action::{Alloc, SegmentAlloc, SegmentFree};
        let it = trace(&[(SegmentAlloc, 20, 1), (Alloc, 5, 1), (SegmentFree, 30, 2), (SegmentAlloc, 2, 3)], 12);
        let it = recorded(&it, 0, false).unwrap();
        assert_eq!((it.start, it.peak, it.end, it.emptied, it.capacity), (20, 40, 12, vec![2], None));
        assert_eq!(it.segments, [(SegmentAlloc, 20), (SegmentFree, 30), (SegmentAlloc, 2)]);
        assert!(recorded(&trace(&[(SegmentAlloc, 20, 1)], 12), 0, false).is_none(), "more came than there is");
    }

    #[test]
    fn a_release_before_its_own_request_is_a_retry_and_bounds_the_device() {
        use Action::{Alloc, FreeCompleted, Oom, SegmentAlloc, SegmentFree};
        let events =
            |stack| [(SegmentAlloc, 60, 1), (SegmentFree, 50, stack), (FreeCompleted, 1, 9), (SegmentAlloc, 30, 7)];
        let retried = |stack| recorded(&trace(&events(stack), 40), 0, false).unwrap();
        assert_eq!((retried(7).emptied, retried(7).capacity), (vec![], Some(89)));
        assert_eq!((retried(0).emptied, retried(0).capacity), (vec![], Some(89)), "stacks are not known");
        let emptied = recorded(&trace(&events(0), 40), 0, true).unwrap();
        assert_eq!((emptied.emptied, emptied.capacity, retried(0).is_ambiguous), (vec![1], None, true));
        assert_eq!((retried(8).emptied, retried(8).capacity), (vec![1], None), "somebody else's request");
        // It would have fitted: more was reserved at another time.
        let events = [events(7).as_slice(), &[(SegmentAlloc, 60, 3)]].concat();
        let it = recorded(&trace(&events, 100), 0, false).unwrap();
        assert_eq!((it.peak, it.emptied, it.capacity), (100, vec![1], None));
        // An error reports how much was free.
        let it = recorded(&trace(&[(SegmentAlloc, 60, 1), (Oom, 9, 1)], 60), 0, false).unwrap();
        assert_eq!((it.capacity, it.died_at), (Some(63), Some(1)));
        // Another request follows.
        let it = recorded(&trace(&[(SegmentAlloc, 60, 1), (Oom, 9, 1), (Alloc, 1, 2)], 60), 0, false).unwrap();
        assert_eq!((it.capacity, it.died_at), (Some(63), None));
    }
}
