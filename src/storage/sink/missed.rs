//! What a recording lacks: how many events, since when, which steps. It keeps those without which later lines mean
//! little, and which are rare: devices, processes, probes, errors, ends.

use crate::{
    facts::{
        event::{DeviceId, Event, Fact, Gap, Line, ProbeId, Steps},
        text::Foreign,
        units::Stamp,
    },
    storage::recording::encode,
};
use std::{collections::BTreeMap, mem};

/// Most bytes of the lines that are kept.
const KEPT_MAX: usize = 4 << 20;

/// What is kept once, in the order in which it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Driver,
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
