//! The steps before the demo's view began: computed at once, with stamps at the job's usual pace. The jobs began, and
//! reached their first epoch, before these steps.

use super::{HEAD_START, job::RATE};
use crate::facts::{
    event::{Event, Fact, Line},
    units::Stamp,
};

const STEP_US: u64 = 1_000_000 / RATE as u64;

/// The µs that the head start would have taken.
const HEAD_START_US: u64 = HEAD_START * STEP_US;

/// Returns the event with the stamp of its step at the job's usual pace, the first epoch's mark at the first step, and
/// the start of the process before it. Leaves other events unchanged.
pub(super) fn paced(mut event: Event) -> Event {
    let Fact::Probe { line, .. } = &mut event.fact else { return event };
    match &mut **line {
        Line::Sample(sample) => {
            let ahead = sample.step.and_then(|it| (HEAD_START + 1).checked_sub(it)).unwrap_or(0) * STEP_US;
            sample.at_us = sample.at_us.saturating_sub(ahead);
            event.at = Stamp(event.at.0.saturating_sub(ahead));
        }
        Line::Mark(mark) if mark.value == Some(0) => {
            mark.at_us = mark.at_us.saturating_sub(HEAD_START_US);
            event.at = Stamp(event.at.0.saturating_sub(HEAD_START_US));
        }
        Line::Hello(hello) => hello.start_us = hello.start_us.map(|it| it.saturating_sub(HEAD_START_US)),
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{ProbeId, wire::Sample};

    #[test]
    fn the_head_start_goes_over_into_the_steps_after_it() {
        let at_us = 100_000_000;
        let stamps: Vec<u64> = (1..=HEAD_START + 1)
            .map(|step| {
                let line = Box::new(Line::Sample(Sample { at_us, step: Some(step), ..Sample::default() }));
                let event = paced(Event { at: Stamp(at_us), fact: Fact::Probe { probe: ProbeId(0), line } });
                let Fact::Probe { line, .. } = &event.fact else { panic!("another fact: {event:?}") };
                let Line::Sample(sample) = &**line else { panic!("another line: {event:?}") };
                assert_eq!(Stamp(sample.at_us), event.at);
                sample.at_us
            })
            .collect();
        assert!(stamps.windows(2).all(|it| it[1] - it[0] == STEP_US), "{stamps:?}");
        assert_eq!(stamps.last(), Some(&at_us));
    }
}
