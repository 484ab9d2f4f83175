//! Shows the end of long recordings before all of it is read: from the beginning, with the processes, and from the last
//! frames.
//!
//! ```text
//! |■■■■■|░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░|■■■■|
//!  probes, no samples          not read            held bytes
//! ```
//!
//! Analyses of the whole run, above all growth, follow when all of it is read.

use super::recording_set::{Cursor, RecordingSet, Track};
use crate::{facts::units::Stamp, model::session::Session, storage::recording::Place};

/// Recordings from this size on, in bytes, take noticeable time to read.
pub const LONG: u64 = 1 << 20;

/// Events at the beginning that include the hellos.
const FIRST: usize = 2048;

/// Bytes at the end of a file within which a frame begins: longer than any frame that gpuwatch writes.
const LAST: u64 = 320 << 10;

/// Returns the session at the end; `None` if the files are shorter than `long`, or not in this program's form.
pub fn glimpse(recordings: &RecordingSet, long: u64) -> Option<Session> {
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
