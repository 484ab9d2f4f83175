//! The steps of a recorded run: the step of an event of a trace, by its time.

use crate::{
    facts::{
        event::{
            Line, ProbeId,
            wire::{Edge, Hello, Sample},
        },
        units::Stamp,
    },
    storage::replay::find,
};
use std::{collections::BTreeMap, path::Path};

/// The completed steps of a process, with their times in µs of Unix time.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(Vec<(u64, u64)>);

impl Steps {
    /// Returns the last step that was completed by then; 0 before the first.
    pub(super) fn at(&self, unix_us: u64) -> u64 {
        let done = self.0.partition_point(|it| it.0 <= unix_us);
        done.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |it| it.1)
    }

    fn push(&mut self, unix_us: u64, step: u64) {
        let is_next = self.0.last().is_none_or(|last| unix_us >= last.0 && step != last.1);
        if is_next {
            self.0.push((unix_us, step));
        }
    }
}

/// Reads the steps of a recording's processes, by the pid that each reports; nothing if it cannot be read.
pub(super) fn read(recording: &Path) -> BTreeMap<u32, Steps> {
    let Ok(found) = find::find(&[recording.to_owned()]) else { return BTreeMap::new() };
    let recordings = found.recordings;
    let mut all: BTreeMap<ProbeId, (u32, Steps)> = BTreeMap::new();
    let mut cursor = recordings.play();
    while let Some((_, event)) = cursor.next_by(Stamp(u64::MAX)) {
        match event.line() {
            Some((probe, Line::Hello(Hello { pid, .. }))) => all.entry(probe).or_default().0 = *pid,
            Some((probe, Line::Sample(Sample { edge: Edge::Step | Edge::Call, step: Some(step), at_us, .. }))) => {
                if let Some(unix_us) = recordings.unix_us(Stamp(*at_us)) {
                    all.entry(probe).or_default().1.push(unix_us, *step);
                }
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_the_step_that_was_completed_before_it() {
        let mut steps = Steps::default();
        assert_eq!(steps.at(5), 0);
        // The second device of a process repeats its steps.
        for (at, step) in [(10, 1), (11, 1), (20, 2), (19, 3)] {
            steps.push(at, step);
        }
        assert_eq!([9, 10, 19, 20, 99].map(|it| steps.at(it)), [0, 1, 1, 2, 2]);
    }
}
