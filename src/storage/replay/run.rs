//! Reads recordings to the end: the final session, and the peaks.

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
    /// The session at the end.
    pub session: Session,
    /// The highest memory of each process on each device.
    pub peaks: Peaks,
    /// From the first event to the last, in µs; `None` without events.
    pub span_us: Option<u64>,
    /// How each file ends.
    pub files: Vec<File>,
    /// Whether every file was closed properly.
    pub closed: bool,
    /// Whether the end of the run is recorded; otherwise all this covers only the part before.
    pub is_whole: bool,
}

/// How a file ends.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: Foreign,
    /// Whether it is a recording and not a captured stream.
    pub has_header: bool,
    /// How it ends.
    pub ending: Ending,
}

impl Run {
    /// Reads recordings to the end. Calls `observe` with each event, the recordings' time and the session after it, so
    /// that nothing is read twice.
    pub fn read(recordings: &RecordingSet, mut observe: impl FnMut(Stamp, &Event, &Session)) -> Self {
        let mut run = Self::default();
        let mut cursor = recordings.play();
        let mut began = None;
        while let Some((at, event)) = cursor.next_by(Stamp(u64::MAX)) {
            let began = *began.get_or_insert(at);
            run.span_us = Some(at.since(began).max(run.span_us.unwrap_or(0)));
            run.session.apply(&event);
            run.peaks.apply(&event, &run.session);
            observe(at, &event, &run.session);
        }
        let file = |(track, ending): (&Track, Ending)| File {
            name: track.name.clone(),
            has_header: track.header.is_some(),
            ending,
        };
        run.files = recordings.tracks.iter().zip(cursor.endings()).map(file).collect();
        run.closed = run.files.iter().all(|it| matches!(it.ending, Ending::Closed(_)));
        // A captured stream has no last line, but each probe ends with a bye.
        let is_captured = run.files.iter().all(|it| !it.has_header && matches!(it.ending, Ending::Open));
        run.is_whole = run.closed || (is_captured && run.living().next().is_none());
        run
    }

    /// Returns the highest step that any process has completed; `None` without steps.
    pub fn steps(&self) -> Option<u64> {
        self.on_devices().filter_map(|it| it.step).max()
    }

    /// Returns the first step that was counted, if every probe was started in a running job.
    pub fn attached_step(&self) -> Option<u64> {
        let first: Option<Vec<u64>> = self.session.processes.iter().map(Process::attached_step).collect();
        first?.into_iter().min()
    }

    /// Returns the last step that was recorded completely, if the end of the run is not: the step of the process with
    /// the fewest.
    pub fn seen_to_step(&self) -> Option<u64> {
        let steps = self.living().filter_map(|it| it.devices.iter().filter_map(|on| on.step).max());
        steps.min().or_else(|| self.steps())
    }

    /// Returns each process on each device.
    pub fn on_devices(&self) -> impl Iterator<Item = &OnDevice> {
        self.session.processes.iter().flat_map(|it| &it.devices)
    }

    /// The processes that had not ended when the recording did.
    fn living(&self) -> impl Iterator<Item = &Process> {
        self.session.processes.iter().filter(|it| it.is_alive())
    }
}
