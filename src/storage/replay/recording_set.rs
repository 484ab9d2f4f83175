//! Merges the events of one or several files into one stream, in order of time; reading continues from any bookmark.

use crate::{
    facts::{
        event::{DriverState, Event, Fact, ProbeId},
        text::Foreign,
        units::Stamp,
    },
    storage::recording::{Closed, Entry, Fault, Header, Place, Reader},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::{FileExt, MetadataExt},
    sync::Arc,
};

/// Recordings that began within this time on one host share a clock, in µs: a boot takes longer.
const SAME_BOOT_US: u64 = 5_000_000;

/// Files that belong together, each opened once.
#[derive(Clone, Debug)]
pub struct RecordingSet {
    /// The files, by start.
    pub tracks: Vec<Track>,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Track {
    /// Its name.
    pub name: Foreign,
    /// Its size in bytes when it was opened.
    pub bytes: u64,
    /// Its first line; `None` for a captured stream.
    pub header: Option<Header>,
    file: Arc<File>,
    /// Added to its stamps, in µs, because the clocks of two hosts are unrelated.
    shift_us: i64,
}

/// How a file ends.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ending {
    /// Closed properly.
    Closed(Closed),
    /// Between two lines, without the last one: its writer was killed.
    Open,
    /// With a fault.
    Fault(Fault),
}

impl Ending {
    /// Returns whether a part of the file that was written cannot be read.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Fault(it) if !matches!(it, Fault::Cut { .. }))
    }
}

impl Track {
    /// Creates a track from a file and its parsed first line.
    pub fn new(file: File, name: Foreign, header: Option<Header>) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { name, bytes, header, file: Arc::new(file), shift_us: 0 })
    }

    /// Reads at most this many bytes from an offset on.
    pub(super) fn read_from(&self, offset: u64, most: u64, into: &mut Vec<u8>) -> io::Result<usize> {
        From { file: Arc::clone(&self.file), offset }.take(most).read_to_end(into)
    }

    /// Returns whether a whole entry can be read at a position.
    pub(super) fn begins_at(&self, place: &Place) -> bool {
        let from = From { file: Arc::clone(&self.file), offset: place.offset };
        Reader::resume(from, place).is_ok_and(|mut it| matches!(it.next(), Some(Ok(_))))
    }

    /// Identifies the file and its state.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        Identity::of(&self.file)
    }

    /// Returns the µs of Unix time at stamp 0.
    fn epoch(&self) -> Option<i64> {
        let header = self.header.as_ref()?;
        i64::try_from(i128::from(header.started_unix_us) - i128::from(header.monotonic_us)).ok()
    }
}

impl RecordingSet {
    /// Combines the files of one run, on the clock of the one that began first.
    pub fn new(tracks: Vec<Track>) -> Self {
        Self::combined(tracks, |first, header, shift| {
            // A wall clock may have been set between them.
            let boots = first.writer.as_ref().zip(header.writer.as_ref());
            let is_same_boot =
                boots.map_or(shift.unsigned_abs() < SAME_BOOT_US, |(one, other)| one.boot_id == other.boot_id);
            header.host == first.host && is_same_boot
        })
    }

    /// Combines the recordings of one machine that another one recorded: one for each boot. Who wrote them was not
    /// there, so nothing follows from its boot.
    pub fn of_boots(tracks: Vec<Track>) -> Self {
        Self::combined(tracks, |_, _, _| false)
    }

    /// Combines files; `is_one` says whether two share a clock, by how much they seem to differ, in µs.
    fn combined(mut tracks: Vec<Track>, is_one: impl Fn(&Header, &Header, i64) -> bool) -> Self {
        tracks.sort_by_key(|it| it.header.as_ref().map(|header| header.started_unix_us));
        let first = tracks.iter().find_map(|it| Some((it.epoch()?, it.header.clone()?)));
        for track in &mut tracks {
            let Some(((zero, first), (epoch, header))) = first.as_ref().zip(track.epoch().zip(track.header.as_ref()))
            else {
                continue;
            };
            let shift = epoch.saturating_sub(*zero);
            track.shift_us = if is_one(first, header, shift) { 0 } else { shift };
        }
        Self { tracks }
    }

    /// Returns the wall clock at a stamp, µs of Unix time; `None` without a header.
    pub fn unix_us(&self, at: Stamp) -> Option<u64> {
        let epoch = self.tracks.iter().find_map(|it| it.epoch().map(|epoch| epoch.saturating_sub(it.shift_us)))?;
        at.0.checked_add_signed(epoch)
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.tracks.iter().map(|it| it.bytes).sum()
    }

    /// Returns a cursor at the first event.
    pub fn play(&self) -> Cursor {
        let join = if self.tracks.len() > 1 { Some(Join::default()) } else { None };
        let head = Bookmark { marks: vec![Mark::default(); self.tracks.len()], join };
        self.resume(&head)
    }

    /// Returns a cursor at a bookmark.
    pub fn resume(&self, from: &Bookmark) -> Cursor {
        let heads = self.tracks.iter().zip(&from.marks).map(|(track, mark)| Head::new(track, *mark)).collect();
        let host = |(place, it): (usize, &Track)| {
            it.header.as_ref().map_or_else(|| Foreign::new(place.to_string()), |header| header.host.clone())
        };
        Cursor {
            heads,
            hosts: self.tracks.iter().enumerate().map(host).collect(),
            join: from.join.clone(),
            put_back: None,
        }
    }
}

/// A position between two events of the recordings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bookmark {
    marks: Vec<Mark>,
    join: Option<Join>,
}

impl Bookmark {
    /// Returns the same joined identities at other positions of the files.
    pub(super) fn moved(self, places: impl IntoIterator<Item = Place>) -> Self {
        let marks = places.into_iter().map(|it| Mark { place: Some(it), now: Stamp(0) }).collect();
        Self { marks, join: self.join }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Mark {
    /// `None` is the beginning.
    place: Option<Place>,
    now: Stamp,
}

/// A reader of the recordings.
pub struct Cursor {
    heads: Vec<Head>,
    hosts: Vec<Foreign>,
    join: Option<Join>,
    put_back: Option<(Stamp, Event)>,
}

impl Cursor {
    /// Returns the next event and its time, which never falls, unless it is later than `until`.
    pub fn next_by(&mut self, until: Stamp) -> Option<(Stamp, Event)> {
        if let Some((at, _)) = &self.put_back {
            return if *at > until { None } else { self.put_back.take() };
        }
        loop {
            let (at, track) = self.first().filter(|(at, _)| *at <= until)?;
            let head = self.heads.get_mut(track)?;
            let (event, clock) = (head.take()?, head.shift_us);
            let Some(join) = &mut self.join else { return Some((at, event)) };
            let host = self.hosts.get(track)?;
            if let Some(event) = join.take(track, (host, clock), event) {
                return Some((at, event));
            }
        }
    }

    /// Makes this the next event again, just after it was returned.
    pub fn put_back(&mut self, at: Stamp, event: Event) {
        self.put_back = Some((at, event));
    }

    /// Returns the position before the next event that was not put back.
    pub fn bookmark(&self) -> Bookmark {
        Bookmark { marks: self.heads.iter().map(|it| it.mark).collect(), join: self.join.clone() }
    }

    /// Returns the bytes of the files read so far.
    pub fn read(&self) -> u64 {
        self.heads.iter().map(|it| it.mark.place.map_or(0, |place| place.offset)).sum()
    }

    /// Returns how the files end, in the recordings' order, once all is read.
    pub fn endings(&mut self) -> Vec<Ending> {
        self.heads.iter_mut().map(|it| it.ending.replace(Ending::Open).unwrap_or(Ending::Open)).collect()
    }

    /// Returns the file with the next event and its time; the first file of several.
    fn first(&self) -> Option<(Stamp, usize)> {
        let waiting = self.heads.iter().enumerate().filter(|(_, it)| it.next.is_some());
        waiting.map(|(track, it)| (it.now, track)).min()
    }
}

/// Reads one file, one event ahead.
struct Head {
    reader: Option<Reader<From>>,
    shift_us: i64,
    next: Option<Event>,
    /// The latest time of the events up to `next`.
    now: Stamp,
    /// The position before `next`.
    mark: Mark,
    closed: Option<Closed>,
    ending: Option<Ending>,
}

impl Head {
    fn new(track: &Track, mark: Mark) -> Self {
        let from = From { file: Arc::clone(&track.file), offset: mark.place.map_or(0, |it| it.offset) };
        let reader = match &mark.place {
            Some(place) => Reader::resume(from, place),
            None => Reader::new(from),
        };
        let (reader, ending) = match reader {
            Ok(reader) => (Some(reader), None),
            Err(e) => (None, Some(Ending::Fault(Fault::Io(e)))),
        };
        let mut head = Self { reader, shift_us: track.shift_us, next: None, now: mark.now, mark, closed: None, ending };
        head.advance();
        head
    }

    fn take(&mut self) -> Option<Event> {
        let event = self.next.take();
        self.advance();
        event
    }

    fn advance(&mut self) {
        while let Some(reader) = self.reader.as_mut().filter(|_| self.ending.is_none()) {
            self.mark = Mark { place: Some(reader.place()), now: self.now };
            match reader.next() {
                Some(Ok(Entry::Event(event))) => {
                    let event = shifted(event, self.shift_us);
                    self.now = self.now.max(event.at);
                    self.next = Some(event);
                    return;
                }
                Some(Ok(Entry::Header(_) | Entry::Unknown)) => {}
                // What was found after the job's end follows; it may still be written.
                Some(Ok(Entry::Closed(closed))) => self.closed = Some(closed),
                Some(Err(fault)) => self.ending = Some(self.closed.map_or(Ending::Fault(fault), Ending::Closed)),
                None => self.ending = Some(self.closed.map_or(Ending::Open, Ending::Closed)),
            }
        }
    }
}

/// A file read from its own offset, so that several readers can share it.
struct From {
    file: Arc<File>,
    offset: u64,
}

impl Read for From {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// A living process, whichever file records it: its host, the host's clock, its pid there, its socket. Clocks of two
/// boots differ, and in a container each boot may have the same pid.
type ProcessIdentity = (Foreign, i64, Option<u32>, Foreign);

/// A probe of one file.
type Local = (usize, ProbeId);

/// The probes of all files, and the file that reports each: the first that found it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Join {
    reported_by: BTreeMap<ProcessIdentity, Local>,
    /// The common number of each probe; `None` for a probe that another file reports.
    names: BTreeMap<Local, Option<ProbeId>>,
    next: u32,
}

impl Join {
    /// Returns the event with the common numbers; `None` if another file reports it too.
    pub(super) fn take(&mut self, track: usize, (host, clock): (&Foreign, i64), mut event: Event) -> Option<Event> {
        let over = event.ends_probe();
        let (probe, found) = match &mut event.fact {
            Fact::ProbeFound { probe, pid, socket } => (probe, Some((host.clone(), clock, *pid, socket.clone()))),
            Fact::Probe { probe, .. } | Fact::ProbeGone { probe, .. } => (probe, None),
            Fact::Replayed(it) => (&mut it.probe, None),
            Fact::PeakMoment(it) => (&mut it.probe, None),
            Fact::Advised(it) => (&mut it.probe, None),
            _ => return Some(event),
        };
        let local = (track, *probe);
        *probe = self.name(local, found)?;
        if over {
            // Another process may get its pid now.
            self.reported_by.retain(|_, it| *it != local);
        }
        Some(event)
    }

    fn name(&mut self, local: Local, found: Option<ProcessIdentity>) -> Option<ProbeId> {
        if let Some(name) = self.names.get(&local) {
            return *name;
        }
        let mut doubled = false;
        if let Some(identity) = found {
            doubled = self.reported_by.get(&identity).is_some_and(|it| it.0 != local.0);
            self.reported_by.entry(identity).or_insert(local);
        }
        let name = (!doubled).then_some(ProbeId(self.next));
        self.next += u32::from(!doubled);
        self.names.insert(local, name);
        name
    }
}

/// Moves every stamp of an event, if two hosts' clocks count from different instants.
pub(super) fn shifted(mut event: Event, by_us: i64) -> Event {
    if by_us == 0 {
        return event;
    }
    let shift = |us: &mut u64| *us = us.saturating_add_signed(by_us);
    shift(&mut event.at.0);
    match &mut event.fact {
        Fact::Driver(DriverState::Stalled { since: Stamp(since) })
        | Fact::KernelDriver { state: DriverState::Stalled { since: Stamp(since) }, .. } => shift(since),
        Fact::Probe { line, .. } => line.stamps_mut().for_each(shift),
        _ => {}
    }
    event
}

/// A file at a time: another file, or the same after a change, is not equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Identity {
    place: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Identifies an open file.
    ///
    /// # Errors
    /// Fails if its metadata cannot be read.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let it = file.metadata()?;
        Ok(Self { place: (it.dev(), it.ino()), bytes: it.len(), changed: (it.mtime(), it.mtime_nsec()) })
    }
}
