//! The end of long recordings, before everything was read: who is told of, from the beginning, and the last frames.
//!
//! ```text
//! |■■■■■|░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░|■■■■|
//!  who speaks, no samples      not read          what was held
//! ```
//!
//! What needs the whole run, its growth above all, is not known from that, and comes with the rest.

use super::recording_set::{Cursor, RecordingSet, Track};
use crate::{facts::units::Stamp, model::session::Session, storage::recording::Place};

/// Bytes from which on a recording takes longer to read than a glance.
pub const LONG: u64 = 1 << 20;

/// Events at the beginning among which those stand that say who speaks.
const FIRST: usize = 2048;

/// Bytes at the end of a file in which a frame begins: longer than any that we write.
const LAST: u64 = 320 << 10;

/// What was known at the end; `None` where the files are shorter than `long`, or not as this program writes them.
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
    // Who says nothing for so long has ended in the part that was not read.
    session.processes.retain(|it| it.devices.iter().any(|on| on.first.is_some()));
    (!session.devices.is_empty()).then_some(session)
}

/// The first frame that begins near the end of a file.
fn last_frame(track: &Track) -> Option<Place> {
    let from = track.bytes.saturating_sub(LAST);
    let mut bytes = Vec::new();
    track.read_from(from, LAST, &mut bytes).ok()?;
    let starts = bytes.windows(4).enumerate().filter(|(_, it)| it == &[0x28, 0xb5, 0x2f, 0xfd]);
    // The same four bytes may stand inside a frame by chance: only a frame gives a line of ours.
    starts.map(|(at, _)| Place::of_frame(from + at as u64)).find(|it| track.begins_at(it))
}
