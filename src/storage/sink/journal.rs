//! A recording that continues after its disk was full or its file was gone, with a description of what it lacks.

use super::{
    disk::{Disk, Sync},
    writing::Writing,
};
use crate::{
    facts::{
        event::{DeviceId, Event, Fact, Gap, Line, ProbeId, Steps},
        maker::Maker,
        text::Foreign,
        units::Stamp,
    },
    storage::recording::{Closed, encode, encode_closed},
};
use std::{collections::BTreeMap, io, mem, path::Path, time::Instant};

/// The reason for losses that no error explains.
pub(super) const TOO_SLOW: &str = "the disk is too slow";

/// A recording in progress.
pub(super) struct Journal {
    writing: Writing,
    /// The time of the latest event.
    latest: Stamp,
    header: String,
    /// Whether the file has no header yet.
    is_new: bool,
    /// Everything, for a file that has to begin again.
    all: Missed,
    /// Since the last flush.
    unflushed: Missed,
    /// The writes up to then.
    writes: u64,
    /// What the file lacks.
    missed: Missed,
    /// Why it lacks that.
    why: Option<String>,
    /// Why the file cannot be written now.
    trouble: Option<String>,
    /// Events that the file lacks, and describes.
    lost: u64,
}

/// How a recording is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Events that it lacks.
    pub lost: u64,
    /// Why it lacks them.
    pub why: Option<String>,
    /// Why it cannot be written now; at its end, why it has no end.
    pub trouble: Option<String>,
}

impl Journal {
    /// Begins a recording with its header.
    ///
    /// # Errors
    /// Fails if the header cannot be written.
    pub(super) fn begin(mut writing: Writing, header: String, now: Instant) -> io::Result<Self> {
        writing.line(&header)?;
        writing.flush(now)?;
        Ok(Self { is_new: false, ..Self::planned(writing, header) })
    }

    /// Begins a recording whose header is written once there is room.
    pub(super) fn planned(writing: Writing, header: String) -> Self {
        Self {
            writing,
            latest: Stamp(0),
            header,
            is_new: true,
            all: Missed::default(),
            unflushed: Missed::default(),
            writes: 0,
            missed: Missed::default(),
            why: None,
            trouble: None,
            lost: 0,
        }
    }

    /// Adds an event.
    pub(super) fn event(&mut self, event: &Event) {
        self.latest = self.latest.max(event.at);
        self.all.event(event);
        if self.is_cut() {
            return self.missed.event(event);
        }
        self.unflushed.event(event);
        let written = self.writing.event(event);
        self.is_added(written);
    }

    /// Adds a line that readers derive themselves.
    pub(super) fn line(&mut self, at: Stamp, line: &str) {
        if self.is_cut() {
            return self.missed.line(at);
        }
        self.unflushed.line(at);
        let written = self.writing.line(line);
        self.is_added(written);
    }

    /// Adds what was lost before it came here.
    pub(super) fn lose(&mut self, missed: Missed) {
        self.all.add(missed.clone());
        self.missed.add(missed);
    }

    /// Writes what is not written yet, and continues after a fault once that is possible.
    pub(super) fn flush(&mut self, now: Instant) {
        if self.is_cut() && self.writing.begin_again() {
            (self.is_new, self.lost) = (true, 0);
            self.missed = self.all.clone();
        }
        // Else it would continue and stop again with every few bytes.
        let has_room = if self.trouble.is_some() { self.writing.has_room() } else { Ok(()) };
        let written = has_room.and_then(|()| self.resume()).and_then(|()| self.writing.flush(now));
        self.note(written);
    }

    /// Closes the recording. Without room it describes at least what it lacks.
    pub(super) fn end(&mut self, now: Instant) {
        self.flush(now);
        let written = self.resume().and_then(|()| self.close());
        self.note(written);
        if self.trouble.is_some() {
            // The lines that are kept may not fit.
            self.missed.forget_lines();
            let written = self.resume().and_then(|()| self.close());
            self.note(written);
        }
    }

    /// Returns how the recording is.
    pub(super) fn state(&self) -> State {
        let lost = self.lost + self.missed.lost();
        let why = if lost > 0 { self.why.clone().or_else(|| Some(TOO_SLOW.to_owned())) } else { None };
        State { lost, why, trouble: self.trouble.clone() }
    }

    /// Returns a request to sync what is written, if one is due.
    pub(super) fn sync(&mut self) -> Option<Sync> {
        self.writing.sync()
    }

    /// Returns the file's path; `None` of a pipe.
    pub(super) fn path(&self) -> Option<&Path> {
        self.writing.path()
    }

    /// Returns the file.
    pub(super) fn into_disk(self) -> Disk {
        self.writing.into_disk()
    }

    /// Whether events are missed, and not written.
    fn is_cut(&self) -> bool {
        self.is_new || self.trouble.is_some() || !self.missed.is_empty()
    }

    /// Writes the header if it is missing, and what the file lacks.
    fn resume(&mut self) -> io::Result<()> {
        if self.is_new {
            self.writing.line(&self.header)?;
        }
        if let Some(gap) = self.missed.gap(self.why.as_deref().unwrap_or(TOO_SLOW)) {
            self.writing.event(&gap)?;
        }
        self.missed.lines().try_for_each(|it| self.writing.line(it))
    }

    fn close(&mut self) -> io::Result<()> {
        let lost = self.state().lost;
        self.writing.line(&encode_closed(&Closed { at_us: self.latest, lost }))?;
        self.writing.end()
    }

    /// Takes the outcome of a line, with which everything before may have been written.
    fn is_added(&mut self, added: io::Result<()>) {
        let writes = self.writing.writes();
        if let Err(why) = added {
            self.fail(&why);
        } else if writes != self.writes {
            self.writes = writes;
            self.unflushed = Missed::default();
        }
    }

    /// Takes the outcome of a write of everything.
    fn note(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) => {
                self.lost += self.missed.lost();
                self.writes = self.writing.writes();
                (self.is_new, self.trouble) = (false, None);
                (self.unflushed, self.missed) = (Missed::default(), Missed::default());
            }
            Err(why) => self.fail(&why),
        }
    }

    fn fail(&mut self, why: &io::Error) {
        self.writing.cut();
        self.missed.add(mem::take(&mut self.unflushed));
        let why = reason(why);
        self.why = Some(why.clone());
        self.trouble = Some(why);
    }
}

/// Describes why a file cannot be written.
fn reason(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle => "its file or directory is gone".to_owned(),
        _ => why.to_string(),
    }
}

/// Most bytes of the lines that are kept.
const KEPT_MAX: usize = 4 << 20;

/// What is kept once, in the order in which it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Driver,
    KernelDriver(Maker),
    Device(DeviceId),
    Process(u32),
    Probe(ProbeId),
    Hello(ProbeId),
    Live(ProbeId),
    Error(ProbeId, u64),
    End(ProbeId),
    Job,
}

impl Kept {
    /// Returns as what an event is kept.
    fn of(event: &Event) -> Option<Self> {
        Some(match &event.fact {
            Fact::Driver(_) => Self::Driver,
            Fact::KernelDriver { maker, .. } => Self::KernelDriver(*maker),
            Fact::Device(it) => Self::Device(it.id.clone()),
            Fact::DeviceGone { device } => Self::Device(device.clone()),
            Fact::Process(it) => Self::Process(it.pid),
            Fact::ProcessGone { pid } => Self::Process(*pid),
            Fact::ProbeFound { probe, .. } => Self::Probe(*probe),
            Fact::ProbeGone { probe, .. } => Self::End(*probe),
            Fact::JobEnded { .. } => Self::Job,
            Fact::Probe { probe, line } => match &**line {
                Line::Hello(_) => Self::Hello(*probe),
                Line::Live(_) => Self::Live(*probe),
                Line::Bye(_) => Self::End(*probe),
                Line::Oom(_) | Line::OomMessage(_) => Self::Error(*probe, event.at.0),
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// What is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Missed {
    gap: Option<(Stamp, Gap)>,
    lines: BTreeMap<Kept, String>,
    bytes: usize,
}

impl Missed {
    /// Returns whether nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.gap.is_none()
    }

    /// Adds an event, and keeps it if later ones need it.
    pub(super) fn event(&mut self, event: &Event) {
        if matches!(event.fact, Fact::Second | Fact::Surroundings(_)) {
            return;
        }
        let step = event.sample().and_then(|it| it.1.step);
        let Some(kept) = Kept::of(event) else { return self.lose(event.at, step) };
        let mut line = String::new();
        encode(event, &mut line);
        if !self.keep(kept, line) {
            self.lose(event.at, step);
        }
        // It is not lost; but the time is.
        let until_us = event.at;
        self.add_gap(event.at, Gap { until_us, ..Gap::default() });
    }

    /// Adds a line that no reader needs.
    pub(super) fn line(&mut self, at: Stamp) {
        self.lose(at, None);
    }

    /// Adds what came later.
    pub(super) fn add(&mut self, later: Self) {
        if let Some((since, gap)) = later.gap {
            self.add_gap(since, gap);
        }
        for (kept, line) in later.lines {
            self.keep(kept, line);
        }
    }

    /// Returns how many events are lost.
    pub(super) fn lost(&self) -> u64 {
        self.gap.as_ref().map_or(0, |it| it.1.lost)
    }

    /// Returns the event that describes what is missing; `None` if every event is kept.
    pub(super) fn gap(&self, why: &str) -> Option<Event> {
        let (at, gap) = self.gap.clone().filter(|it| it.1.lost > 0)?;
        Some(Event { at, fact: Fact::Gap(Gap { why: Foreign::new(why), ..gap }) })
    }

    /// Returns the lines that are kept.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.values().map(String::as_str)
    }

    /// Counts the kept lines as lost, except for how the job ended.
    pub(super) fn forget_lines(&mut self) {
        let job = self.lines.remove(&Kept::Job);
        let (forgotten, at) = (mem::take(&mut self.lines).len(), self.gap.as_ref().map_or(Stamp(0), |it| it.0));
        self.bytes = 0;
        (0..forgotten).for_each(|_| self.lose(at, None));
        if let Some(job) = job {
            self.keep(Kept::Job, job);
        }
    }

    fn lose(&mut self, at: Stamp, step: Option<u64>) {
        let steps = step.map(|it| Steps { first: it, last: it });
        self.add_gap(at, Gap { until_us: at, lost: 1, steps, ..Gap::default() });
    }

    fn add_gap(&mut self, at: Stamp, gap: Gap) {
        self.gap = Some(match self.gap.take() {
            Some((since, it)) => (since.min(at), it.and(gap)),
            None => (at, gap),
        });
    }

    fn keep(&mut self, kept: Kept, line: String) -> bool {
        let before = self.lines.get(&kept).map_or(0, String::len);
        let bytes = self.bytes - before + line.len();
        let has_room = bytes <= KEPT_MAX;
        if has_room {
            self.bytes = bytes;
            self.lines.insert(kept, line);
        }
        has_room
    }
}
