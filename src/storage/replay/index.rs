//! The index of a set of recordings: how long it is, and what happened when.

use super::recording_set::{Cursor, Ending, RecordingSet};
use crate::{
    facts::{
        event::{Event, Fact, Line, failure, wire::Edge},
        text::Foreign,
        units::Stamp,
    },
    model::{
        analysis::{culprit, severity::Severity},
        findings::{Finding, findings},
        session::{Latest, Session, process::Process},
    },
};
use serde::{Deserialize, Serialize};

/// Approximate number of stored sessions: a seek folds the events between two of them.
const STOPS: u64 = 400;

/// Fewest events between two of them: reading a short recording is faster than storing a session.
const STOP_EVERY: u64 = 512;

/// Moments kept of each kind; the oldest are dropped first.
pub const MOMENTS: usize = 1024;

/// Events between two progress reports.
const REPORT_EVERY: u64 = 2048;

/// The state after this many events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Folded {
    /// The fold.
    pub session: Session,
    /// Events folded so far.
    pub place: u64,
    /// The highest step of the living processes.
    pub step: Option<u64>,
    /// The position before the event that began it.
    pub(super) began: Option<u64>,
}

impl Folded {
    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        if self.begins_step(event) {
            self.step = event.sample().map(|it| it.1).and_then(|it| it.step);
            self.began = Some(self.place);
        }
        self.session.apply(event);
        self.place += 1;
        if event.ends_probe() {
            let living = self.session.processes.iter().filter(|it| it.is_alive());
            self.step = living.flat_map(|it| it.devices.iter().filter_map(|on| on.step)).max();
        }
    }

    /// Returns whether the event is the first of a step that no living process had completed.
    pub fn begins_step(&self, event: &Event) -> bool {
        let stepped = event.sample().map(|it| it.1).filter(|it| it.edge != Edge::Tick).and_then(|it| it.step);
        stepped.is_some_and(|step| self.step.is_none_or(|it| step > it))
    }
}

/// A moment to jump to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Number of events up to it, including it.
    pub place: u64,
    /// When it was.
    pub at: Stamp,
    /// Its description.
    pub text: Foreign,
}

/// A raised alert, or a found line that allocates what grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// When it was.
    pub at: Stamp,
    /// Its description.
    pub text: Foreign,
}

/// The contents of the recordings.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Index {
    /// Number of events.
    pub events: u64,
    /// The time of the first.
    pub from: Stamp,
    /// The time of the last.
    pub to: Stamp,
    /// The jobs' marks.
    pub marks: Latest<Moment, MOMENTS>,
    /// Out-of-memory errors and losses of probes, devices and links.
    pub troubles: Latest<Moment, MOMENTS>,
    /// The alerts from warning on that are remembered at the end, and the captures that found a line, in order of time.
    pub alerts: Vec<Raised>,
    /// How the files end, in the recordings' order.
    pub endings: Vec<Ending>,
}

impl Index {
    /// Reads all recordings once. Calls `progress` now and then with the bytes read and the session so far, and `stop`
    /// at evenly spread positions, the end included, for seeks. Returns the index, the last state, and the cursor at
    /// the end.
    pub fn build(
        recordings: &RecordingSet,
        mut progress: impl FnMut(u64, &Session),
        mut stop: impl FnMut(&Folded, &Cursor),
    ) -> (Self, Folded, Cursor) {
        let mut cursor = recordings.play();
        let mut folded = Folded::default();
        let mut index = Self::default();
        let mut stopped = 0;
        loop {
            let is_due = || folded.place - stopped >= spacing(folded.place, cursor.read(), recordings.bytes());
            if folded.place.is_multiple_of(STOP_EVERY) && (folded.place == 0 || is_due()) {
                stop(&folded, &cursor);
                stopped = folded.place;
            }
            let Some((at, event)) = cursor.next_by(Stamp(u64::MAX)) else { break };
            folded.apply(&event);
            index.note(at, &event);
            if folded.place.is_multiple_of(REPORT_EVERY) {
                progress(cursor.read(), &folded.session);
            }
        }
        stop(&folded, &cursor);
        index.alerts = alerts(&folded.session);
        index.endings = cursor.endings();
        (index, folded, cursor)
    }

    /// Adds the next event, for callers that read the events for another reason as well. The parts known only at the
    /// end (`alerts`, `endings`) stay empty then.
    pub fn note(&mut self, at: Stamp, event: &Event) {
        self.events += 1;
        let place = self.events;
        // A captured stream may begin with a line without a time.
        if self.from == Stamp(0) {
            self.from = at;
        }
        self.to = at;
        let moment = |text: String| Moment { place, at, text: Foreign::new(text) };
        match &event.fact {
            Fact::Probe { line, .. } => match &**line {
                Line::Mark(it) => {
                    let text = it.value.map_or_else(|| it.name.clone(), |value| format!("{} {value}", it.name));
                    // Every rank has the same mark.
                    if self.marks.last().is_none_or(|it| it.text.raw() != text) {
                        self.marks.push(moment(text));
                    }
                }
                Line::Oom(_) => self.troubles.push(moment("out of memory".to_owned())),
                _ => {}
            },
            Fact::Gap(gap) => self.troubles.push(moment(gap.words(event.at))),
            Fact::ProbeGone { why, .. } => self.troubles.push(moment(why.raw().to_owned())),
            Fact::JobEnded { code, signal } => {
                if let Some(words) = failure(*code, *signal) {
                    self.troubles.push(moment(words));
                }
            }
            _ => {}
        }
    }
}

/// Events between two stops, from the number of events in `read` of `bytes`.
fn spacing(events: u64, read: u64, bytes: u64) -> u64 {
    let all = u128::from(events) * u128::from(bytes) / u128::from(read.max(1));
    u64::try_from(all).unwrap_or(u64::MAX).div_ceil(STOPS)
}

/// Returns when captures ran, and what they found.
fn captures(process: &Process) -> impl Iterator<Item = Raised> {
    let captures = process.sites.iter().filter(|it| it.steps > 0);
    captures.flat_map(|sites| {
        let answers = process.devices.iter().filter_map(|on| {
            let found = culprit::account(sites, on.ordinal).culprits.into_iter().next()?;
            Some(Raised { at: Stamp(sites.at_us), text: Foreign::new(found.sentence) })
        });
        answers.collect::<Vec<_>>()
    })
}

fn alerts(session: &Session) -> Vec<Raised> {
    let raised = findings(session).all.into_iter().filter(|it| it.severity >= Severity::Warning);
    let words = |it: &Finding| {
        if let Some(sentence) = &it.sentence {
            return format!("{}: {sentence}", it.severity.name());
        }
        let rank = it.rank.map(|rank| format!("rank {rank}"));
        let parts = [Some(it.kind.name().to_owned()), it.growth(), rank];
        format!("{}: {}", it.severity.name(), parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    };
    let mut alerts: Vec<Raised> =
        raised.map(|it| Raised { at: it.first_alert_at, text: Foreign::new(words(&it)) }).collect();
    alerts.extend(session.processes.iter().flat_map(captures));
    alerts.sort_by_key(|it| it.at);
    alerts
}
