//! Recorded events made longer, so that what takes minutes or hours needs no waiting: what was last reported lasts, or
//! the clock runs faster.

use gpuwatch::facts::{
    event::{Event, Fact, Line, wire::Edge},
    units::Stamp,
};

const SECOND: u64 = 1_000_000;

/// The last seconds, which are repeated: every source reports within them.
const LAST: u64 = 4 * SECOND;

/// Appends so many seconds in which the driver's lists and metrics, and what probes read between steps, stay as they
/// were in the last seconds.
pub(crate) fn goes_on(events: &[Event], seconds: u64) -> Vec<Event> {
    let end = events.iter().map(|it| it.at.0).max().unwrap_or(0);
    let lasts = |it: &&Event| {
        let is_tick = it.sample().is_some_and(|(_, sample)| sample.edge == Edge::Tick);
        is_tick || matches!(it.fact, Fact::Processes { .. } | Fact::Memory { .. })
    };
    let mut last: Vec<Event> = events.iter().filter(|it| it.at.0 + LAST > end).filter(lasts).cloned().collect();
    // Metrics come when they change, and once a minute.
    let metrics = events.iter().filter(|it| matches!(it.fact, Fact::Metrics { .. }));
    last.extend(metrics.map(|it| Event { at: Stamp(end), fact: it.fact.clone() }));
    let mut all = events.to_vec();
    for after in (LAST..=seconds * SECOND).step_by(usize::try_from(LAST).unwrap()) {
        all.extend(last.iter().map(|it| moved(it, |at| at + after)));
    }
    all
}

/// Makes the clock run so many times as fast.
pub(crate) fn faster(events: &[Event], times: u64) -> Vec<Event> {
    let begun = events.iter().map(|it| it.at.0).min().unwrap_or(0);
    events.iter().map(|it| moved(it, |at| begun + at.saturating_sub(begun) * times)).collect()
}

fn moved(it: &Event, change: impl Fn(u64) -> u64) -> Event {
    let mut event = Event { at: Stamp(change(it.at.0)), fact: it.fact.clone() };
    if let Fact::Probe { line, .. } = &mut event.fact
        && let Line::Sample(sample) = &mut **line
    {
        sample.at_us = change(sample.at_us);
    }
    event
}
