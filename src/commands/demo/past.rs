//! The steps before the demo's view began: computed at once, with stamps at the job's usual pace.

use super::{HEAD_START, job::RATE};
use crate::facts::{
    event::{Event, Fact, Line},
    units::Stamp,
};

const STEP_US: u64 = 1_000_000 / RATE as u64;

/// Returns the event with the stamp of its step at the job's usual pace. Leaves other events unchanged.
pub(super) fn paced(mut event: Event) -> Event {
    if let Fact::Probe { line, .. } = &mut event.fact
        && let Line::Sample(sample) = &mut **line
        && let Some(step) = sample.step.filter(|it| *it <= HEAD_START)
    {
        let ago = (HEAD_START + 1 - step) * STEP_US;
        sample.at_us = sample.at_us.saturating_sub(ago);
        event.at = Stamp(event.at.0.saturating_sub(ago));
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
