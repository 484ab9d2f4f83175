//! How long snapshots of a running allocator held up the program: bounds, from the times of its events.

use super::Trace;

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
