//! Reads recordings to the end: the final session, and the peaks. Of long ones it first shows a preview of the end.

use super::recording_set::{Cursor, Ending, RecordingSet, Track};
use crate::{
    facts::{
        event::{Event, WritingProcess},
        text::Foreign,
        units::Stamp,
    },
    model::{
        peaks::Peaks,
        session::{
            Session,
            process::{OnDevice, Process},
        },
    },
    storage::recording::Place,
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
    /// The process that wrote it.
    pub writer: Option<WritingProcess>,
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
            writer: track.header.as_ref().and_then(|it| it.writer.clone()),
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
    pub fn living(&self) -> impl Iterator<Item = &Process> {
        self.session.processes.iter().filter(|it| it.is_alive())
    }
}

/// Recordings from this size on, in bytes, take noticeable time to read.
pub const LONG: u64 = 1 << 20;

/// Events at the beginning that include the hellos.
const FIRST: usize = 2048;

/// Bytes at the end of a file within which a frame begins: longer than any frame that gpuwatch writes.
const LAST: u64 = 320 << 10;

/// Returns the session at the end of long recordings, without reading all of them: from the beginning, with the
/// processes, and from the last frames. Analyses of the whole run, above all growth, follow when all of it is read.
/// `None` if the files are shorter than `long` bytes, or not in this program's form.
///
/// ```text
/// |■■■■■|░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░|■■■■|
///  probes, no samples          not read            last frames
/// ```
pub fn preview(recordings: &RecordingSet, long: u64) -> Option<Session> {
    if recordings.bytes() < long {
        return None;
    }
    let mut session = Session::default();
    let mut beginning = recordings.play();
    for _ in 0..FIRST {
        let Some((_, event)) = beginning.next_by(Stamp(u64::MAX)) else { break };
        if event.sample().is_none() {
            session.apply(&event);
        }
    }
    let places = recordings.tracks.iter().map(last_frame).collect::<Option<Vec<_>>>()?;
    let mut end: Cursor = recordings.resume(&beginning.bookmark().moved(places));
    while let Some((_, event)) = end.next_by(Stamp(u64::MAX)) {
        session.apply(&event);
    }
    // A process without lines in this part ended in the part that was not read.
    session.processes.retain(|it| it.devices.iter().any(|on| on.first.is_some()));
    (!session.devices.is_empty()).then_some(session)
}

/// Returns the first frame that begins near the end of a file.
fn last_frame(track: &Track) -> Option<Place> {
    let from = track.bytes.saturating_sub(LAST);
    let mut bytes = Vec::new();
    track.read_from(from, LAST, &mut bytes).ok()?;
    let starts = bytes.windows(4).enumerate().filter(|(_, it)| it == &[0x28, 0xb5, 0x2f, 0xfd]);
    // The same four bytes may occur inside a frame by chance, but only a real frame decodes to a line.
    starts.map(|(at, _)| Place::of_frame(from + at as u64)).find(|it| track.begins_at(it))
}
