//! Recordings read to their end: what was known then, and the highest figures on the way.

use super::recording_set::{Ending, RecordingSet, Track};
use crate::{
    facts::{event::Event, text::Foreign, units::Stamp},
    model::{
        peaks::Peaks,
        session::{
            Session,
            process::{OnDevice, Process},
        },
    },
};

/// A whole run.
#[derive(Debug, Default)]
pub struct Run {
    /// What was known at the end.
    pub session: Session,
    /// The highest figures.
    pub peaks: Peaks,
    /// From the first event to the last, µs; `None` where there was none.
    pub span_us: Option<u64>,
    /// How each file ends.
    pub files: Vec<File>,
    /// Whether every file was ended in good order.
    pub closed: bool,
    /// Whether the end of the run is recorded; without it all this is of what came before.
    pub is_whole: bool,
}

/// How a file ends.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: Foreign,
    /// Whether it is a recording, and no captured stream.
    pub has_header: bool,
    /// How it ends.
    pub ending: Ending,
}

impl Run {
    /// Reads recordings to their end; `hear` takes each event with the recordings' time once the session has taken it, so
    /// that nothing need be read twice.
    pub fn read(recordings: &RecordingSet, mut hear: impl FnMut(Stamp, &Event, &Session)) -> Self {
        let mut run = Self::default();
        let mut cursor = recordings.play();
        let mut began = None;
        while let Some((at, event)) = cursor.next_by(Stamp(u64::MAX)) {
            let began = *began.get_or_insert(at);
            run.span_us = Some(at.since(began).max(run.span_us.unwrap_or(0)));
            run.session.apply(&event);
            run.peaks.apply(&event, &run.session);
            hear(at, &event, &run.session);
        }
        let file = |(track, ending): (&Track, Ending)| File {
            name: track.name.clone(),
            has_header: track.header.is_some(),
            ending,
        };
        run.files = recordings.tracks.iter().zip(cursor.endings()).map(file).collect();
        run.closed = run.files.iter().all(|it| matches!(it.ending, Ending::Closed(_)));
        // A captured stream has no last line, but each probe says goodbye.
        let is_captured = run.files.iter().all(|it| !it.has_header && matches!(it.ending, Ending::Open));
        run.is_whole = run.closed || (is_captured && run.living().next().is_none());
        run
    }

    /// The highest step that any process has done; `None` without steps.
    pub fn steps(&self) -> Option<u64> {
        self.on_devices().filter_map(|it| it.step).max()
    }

    /// The last step of which everything was seen, where the end of the run is not recorded: of the process that had
    /// done the fewest by then.
    pub fn seen_to_step(&self) -> Option<u64> {
        let steps = self.living().filter_map(|it| it.devices.iter().filter_map(|on| on.step).max());
        steps.min().or_else(|| self.steps())
    }

    /// Each process on each device.
    pub fn on_devices(&self) -> impl Iterator<Item = &OnDevice> {
        self.session.processes.iter().flat_map(|it| &it.devices)
    }

    /// Those that had not ended when the recording did.
    fn living(&self) -> impl Iterator<Item = &Process> {
        self.session.processes.iter().filter(|it| it.is_alive())
    }
}
