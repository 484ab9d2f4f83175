//! Plays a recording: the fold of its events up to a position that moves and jumps. Uses no clock.

/// The contents of a set of recordings.
pub mod index;

/// The position and speed.
pub mod playhead;

/// Finds the files of a run.
pub mod find;

/// Short names of recordings.
pub mod short_name;

/// Merges files into one stream of events.
pub mod recording_set;

/// Folds whole runs.
pub mod run;

/// Plays the recordings of several machines.
pub mod host_replay;

/// Caches the index of long recordings.
pub mod cache;

/// Stored sessions, for quick seeks.
mod checkpoints;
pub use self::playhead::Command;
use crate::{
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::{Stamp, counted},
    },
    model::session::Session,
    storage::recording::Fault,
};
use cache::{Cache, unkept};
use checkpoints::{Checkpoints, Slot, Stop};
use index::{Folded, Index, Moment};
use playhead::Playhead;
use recording_set::{Cursor, Ending, RecordingSet};
use std::{io, path::Path, sync::mpsc::sync_channel, thread};

/// Stops that may be queued for writing while reading continues.
const STOPS_WAITING: usize = 2;

/// What a frame shows of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The recordings are read for the first time.
    Loading {
        /// Bytes read.
        read: u64,
        /// Bytes of the files.
        total: u64,
        /// Whether the end is shown already, without the analyses that need the whole run.
        preview: bool,
    },
    /// The recordings are read.
    At(Position),
}

/// The position of a replay in its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The time shown.
    pub at: Stamp,
    /// The time of the first event.
    pub from: Stamp,
    /// The time of the last event.
    pub to: Stamp,
    /// The wall clock at the position, µs of Unix time.
    pub unix_us: Option<u64>,
    /// Whether it plays.
    pub playing: bool,
    /// Its speed in percent of the recorded one.
    pub percent: u64,
    /// The highest completed step.
    pub step: Option<u64>,
    /// Times of the jobs' marks.
    pub marks: Vec<Stamp>,
    /// Times of troubles.
    pub troubles: Vec<Stamp>,
    /// When alerts were raised.
    pub alerts: Vec<Stamp>,
    /// The message about this position, and whether it is a warning.
    pub word: Option<(String, bool)>,
}

/// A recording during replay.
pub struct Replay {
    /// The files.
    pub recordings: RecordingSet,
    /// Their contents.
    pub index: Index,
    /// The position.
    pub head: Playhead,
    folded: Folded,
    cursor: Cursor,
    /// `None` if no file can be created for it; then a seek backward starts at the beginning.
    checkpoints: Option<Checkpoints>,
    /// At the end of a run: the session with its devices as they were when its jobs ended.
    ended: Option<Box<Session>>,
}

impl Replay {
    /// Restores a long recording from the cache directory, at its end.
    pub fn kept(recordings: &RecordingSet, cache: &Path) -> Option<Self> {
        let (index, checkpoints) = Cache::of(recordings, cache)?.find()?;
        let end = checkpoints.last()?;
        Some(Self::new(recordings.clone(), index, end.cursor(recordings), end.folded, Some(checkpoints)))
    }

    /// Reads all recordings once and stops at the end. Calls `progress` now and then with the bytes read and the
    /// session so far. Caches the index of a long recording.
    pub fn load(recordings: RecordingSet, cache: Option<&Path>, progress: impl FnMut(u64, &Session)) -> Self {
        let cache = cache.and_then(|it| Cache::of(&recordings, it));
        let file = cache.as_ref().and_then(|it| it.begin().ok()).map_or_else(unkept, Ok);
        let mut checkpoints = file.ok().map(Checkpoints::new);
        let (index, folded, cursor) = read(&recordings, &mut checkpoints, progress);
        if let Some((cache, checkpoints)) = cache.zip(checkpoints.as_mut()) {
            // Without the cache the recordings are read again the next time.
            let _ = cache.keep(&index, checkpoints);
        }
        Self::new(recordings, index, cursor, folded, checkpoints)
    }

    fn new(
        recordings: RecordingSet,
        index: Index,
        cursor: Cursor,
        folded: Folded,
        checkpoints: Option<Checkpoints>,
    ) -> Self {
        let head = Playhead::new(index.from, index.to);
        let mut replay = Self { recordings, index, head, folded, cursor, checkpoints, ended: None };
        replay.update_ended();
        replay
    }

    /// Returns the session at the position.
    pub fn session(&self) -> &Session {
        &self.folded.session
    }

    /// Returns the session to show: at the end of a run, with the devices as they were when its jobs ended.
    pub fn shown(&self) -> &Session {
        self.ended.as_deref().unwrap_or(&self.folded.session)
    }

    fn update_ended(&mut self) {
        let is_at_end = self.folded.place == self.index.events;
        self.ended = is_at_end.then(|| self.folded.session.as_it_ended().map(Box::new)).flatten();
    }

    /// Returns the highest step completed at the position.
    pub fn step(&self) -> Option<u64> {
        self.folded.step
    }

    /// Applies a command.
    pub fn update(&mut self, command: Command) {
        match command {
            Command::NextStep => self.next_step(),
            Command::PreviousStep => self.jump(self.folded.began.unwrap_or(0)),
            Command::NextMark => self.jump_to(after(self.index.marks.iter(), self.folded.place)),
            Command::NextTrouble => self.next_trouble(),
            Command::PreviousMark => self.jump_to(before(self.index.marks.iter(), self.folded.place)),
            Command::PreviousTrouble => self.previous_trouble(),
            _ => {
                if let Some(at) = self.head.apply_input(command) {
                    self.seek(at);
                }
            }
        }
        self.update_ended();
    }

    /// Advances by this many µs of elapsed time.
    pub fn tick(&mut self, us: u64) {
        if self.head.playing {
            let at = self.head.tick(us);
            self.fold_by(at);
            self.update_ended();
        }
    }

    /// Describes problems with the files' ends: unclosed files, damage, losses.
    pub fn troubles_of_files(&self) -> Vec<String> {
        troubles(&self.recordings, &self.index.endings)
    }

    /// Returns the position, for a frame.
    pub fn position(&self) -> Position {
        let here = self.here();
        let mut warns = here.is_some_and(|it| it.1);
        let mut words: Vec<String> = here.map(|it| it.0.raw().to_owned()).into_iter().collect();
        if self.head.is_at_end() {
            let ends = self.troubles_of_files();
            warns |= !ends.is_empty();
            words.extend(ends);
        }
        Position {
            at: self.head.at,
            from: self.head.from,
            to: self.head.to,
            unix_us: self.recordings.unix_us(self.head.at),
            playing: self.head.playing,
            percent: self.head.percent(),
            step: self.folded.step,
            marks: self.index.marks.iter().map(|it| it.at).collect(),
            troubles: self.index.troubles.iter().map(|it| it.at).collect(),
            alerts: self.index.alerts.iter().map(|it| it.at).collect(),
            word: (!words.is_empty()).then(|| (words.join("; "), warns)),
        }
    }

    /// Returns the trouble, alert or mark at the position, and whether it is one of the first two.
    pub fn here(&self) -> Option<(&Foreign, bool)> {
        let is_here = |it: &&Moment| it.place == self.folded.place;
        let trouble = self.index.troubles.iter().find(is_here).map(|it| &it.text);
        let alert = || self.index.alerts.iter().find(|it| it.at == self.head.at).map(|it| &it.text);
        let wrong = trouble.or_else(alert).map(|it| (it, true));
        wrong.or_else(|| self.index.marks.iter().find(is_here).map(|it| (&it.text, false)))
    }

    /// Seeks to a time: all events up to it have happened, and its second has passed.
    pub fn seek(&mut self, at: Stamp) {
        self.restore(at < self.head.at, |it| it.now <= at);
        self.fold_by(at);
        self.head.at = at;
        self.update_ended();
    }

    fn fold_by(&mut self, at: Stamp) {
        while self.folded.place < self.index.events
            && let Some((_, event)) = self.cursor.next_by(at)
        {
            self.folded.apply(&event);
        }
        // Between events a replay sends seconds, as a source does in a live view.
        self.folded.session.apply(&Event { at, fact: Fact::Second });
    }

    /// Seeks to the position after this many events.
    fn jump(&mut self, place: u64) {
        self.restore(place < self.folded.place, |it| it.place <= place);
        while self.folded.place < place
            && let Some((_, event)) = self.cursor.next_by(Stamp(u64::MAX))
        {
            self.folded.apply(&event);
        }
        self.rest();
    }

    fn next_trouble(&mut self) {
        let trouble = self.index.troubles.iter().find(|it| it.place > self.folded.place).map(|it| (it.at, it.place));
        let alert = self.index.alerts.iter().find(|it| it.at > self.head.at).map(|it| it.at);
        match (trouble, alert) {
            (Some((at, place)), alert) if alert.is_none_or(|it| at <= it) => self.jump(place),
            (_, Some(at)) => self.stand_at(at),
            _ => {}
        }
    }

    fn previous_trouble(&mut self) {
        let trouble =
            self.index.troubles.iter().rev().find(|it| it.place < self.folded.place).map(|it| (it.at, it.place));
        let alert = self.index.alerts.iter().rev().find(|it| it.at < self.head.at).map(|it| it.at);
        match (trouble, alert) {
            (Some((at, place)), alert) if alert.is_none_or(|it| at >= it) => self.jump(place),
            (_, Some(at)) => self.stand_at(at),
            _ => {}
        }
    }

    fn stand_at(&mut self, at: Stamp) {
        self.seek(at);
        self.head.playing = false;
    }

    fn jump_to(&mut self, moment: Option<u64>) {
        if let Some(place) = moment {
            self.jump(place);
        }
    }

    /// Seeks to where every rank that keeps up has completed the step: just before the next one begins.
    fn next_step(&mut self) {
        let from = self.folded.place;
        while self.folded.place < self.index.events
            && let Some((at, event)) = self.cursor.next_by(Stamp(u64::MAX))
        {
            if self.folded.place > from && self.folded.begins_step(&event) {
                self.cursor.put_back(at, event);
                break;
            }
            self.folded.apply(&event);
        }
        self.rest();
    }

    /// Pauses after a seek.
    fn rest(&mut self) {
        self.head.at = self.folded.session.now.max(self.head.from).min(self.head.to);
        self.head.playing = false;
    }

    /// Restores the last stored session before a position, if that is the shorter way.
    fn restore(&mut self, backward: bool, is_before: impl Fn(&Slot) -> bool) {
        let kept =
            self.checkpoints.as_ref().and_then(|checkpoints| Some((checkpoints, checkpoints.before(is_before)?)));
        if !backward && kept.is_none_or(|(_, slot)| slot.place <= self.folded.place) {
            return;
        }
        let stop = kept.map_or_else(Stop::default, |(checkpoints, slot)| checkpoints.take(slot));
        self.cursor = stop.cursor(&self.recordings);
        self.folded = stop.folded;
    }
}

/// Reads recordings to the end and stores the stops meanwhile, on another thread.
fn read(
    recordings: &RecordingSet,
    checkpoints: &mut Option<Checkpoints>,
    progress: impl FnMut(u64, &Session),
) -> (Index, Folded, Cursor) {
    let (put, stops) = sync_channel::<Stop>(STOPS_WAITING);
    thread::scope(move |scope| {
        let checkpoints = checkpoints.as_mut();
        let set_down = move || -> io::Result<()> {
            let Some(checkpoints) = checkpoints else { return Ok(()) };
            stops.iter().try_for_each(|it| checkpoints.put(&it))
        };
        let written = thread::Builder::new().name("stops".into()).spawn_scoped(scope, set_down);
        // The thread ends with the sender, which is dropped after reading.
        let put = put;
        Index::build(recordings, progress, move |folded, cursor| {
            // Without new checkpoints, seeks take longer.
            if written.as_ref().is_ok_and(|it| !it.is_finished()) {
                let _ = put.send(Stop::new(folded, cursor));
            }
        })
    })
}

fn after<'a>(mut moments: impl Iterator<Item = &'a Moment>, place: u64) -> Option<u64> {
    moments.find(|it| it.place > place).map(|it| it.place)
}

fn before<'a>(moments: impl DoubleEndedIterator<Item = &'a Moment>, place: u64) -> Option<u64> {
    moments.rev().find(|it| it.place < place).map(|it| it.place)
}

/// Describes problems with the files' ends.
pub fn troubles(recordings: &RecordingSet, endings: &[Ending]) -> Vec<String> {
    let alone = recordings.tracks.len() == 1;
    let named = |(track, ending): (&recording_set::Track, &Ending)| {
        let words = words(ending, track.header.is_some())?;
        Some(if alone { words } else { format!("{}: {words}", track.name) })
    };
    recordings.tracks.iter().zip(endings).filter_map(named).collect()
}

/// Describes a problem with a file's end; `None` if there is none. A captured stream has no last line.
pub fn words(ending: &Ending, has_header: bool) -> Option<String> {
    match ending {
        Ending::Closed(closed) if closed.lost > 0 => {
            Some(format!("{} lost while recording", counted(closed.lost, "event")))
        }
        Ending::Closed(_) => None,
        Ending::Open => has_header.then(|| "not closed: its writer was killed here, or still writes".to_owned()),
        Ending::Fault(fault) => Some(match fault {
            Fault::Cut { .. } => format!("not closed: {fault}"),
            _ => fault.to_string(),
        }),
    }
}
