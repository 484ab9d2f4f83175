//! What the recordings hold: how long it is, and what happened when.

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
        session::{Session, history::Latest, process::Process},
    },
};
use serde::{Deserialize, Serialize};

/// Sessions on the way, about so many: what a seek costs is what lies between two of them.
const STOPS: u64 = 400;

/// Events between two of them at least: a short recording is read faster than a session is set down.
const STOP_EVERY: u64 = 512;

/// Moments kept of each kind; the oldest go first.
pub const MOMENTS: usize = 1024;

/// Events between two words on how far it is.
const TELL_EVERY: u64 = 2048;

/// What is known after so many events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Folded {
    /// The fold.
    pub session: Session,
    /// Events folded.
    pub place: u64,
    /// The highest step of the living.
    pub step: Option<u64>,
    /// The place before the event that began it.
    pub(super) began: Option<u64>,
}

impl Folded {
    /// Takes the next event.
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

    /// Whether it is the first to tell of a step that no living process had done.
    pub fn begins_step(&self, event: &Event) -> bool {
        let stepped = event.sample().map(|it| it.1).filter(|it| it.edge != Edge::Tick).and_then(|it| it.step);
        stepped.is_some_and(|step| self.step.is_none_or(|it| step > it))
    }
}

/// Something worth a jump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Events up to it, itself among them.
    pub place: u64,
    /// When.
    pub at: Stamp,
    /// What, in words.
    pub text: Foreign,
}

/// An alert, as it was raised, or the line that it comes from, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// When.
    pub at: Stamp,
    /// What, in words.
    pub text: Foreign,
}

/// What the recordings hold.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Index {
    /// How many events.
    pub events: u64,
    /// The time of the first.
    pub from: Stamp,
    /// The time of the last.
    pub to: Stamp,
    /// What the jobs named.
    pub marks: Latest<Moment, MOMENTS>,
    /// What went wrong.
    pub troubles: Latest<Moment, MOMENTS>,
    /// The alerts from warning on that are remembered at the end, and the looks that found the line which allocates what
    /// grows, in the order of their time.
    pub alerts: Vec<Raised>,
    /// How the files end, in the recordings' order.
    pub endings: Vec<Ending>,
}

impl Index {
    /// Reads all recordings once. `tell` hears now and then how many bytes were read and what is known by then,
    /// `stop` what a seek may begin at: evenly spread places, the end among them. Gives also the last state, and the
    /// recordings read to its end.
    pub fn build(
        recordings: &RecordingSet,
        mut tell: impl FnMut(u64, &Session),
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
            if folded.place.is_multiple_of(TELL_EVERY) {
                tell(cursor.read(), &folded.session);
            }
        }
        stop(&folded, &cursor);
        index.alerts = alerts(&folded.session);
        index.endings = cursor.endings();
        (index, folded, cursor)
    }

    /// Takes the next event, for whoever reads them for another reason as well: what is known only at the end
    /// (`alerts`, `endings`) stays empty then.
    pub fn note(&mut self, at: Stamp, event: &Event) {
        self.events += 1;
        let place = self.events;
        // A captured stream may begin with a line that carries no time.
        if self.from == Stamp(0) {
            self.from = at;
        }
        self.to = at;
        let moment = |text: String| Moment { place, at, text: Foreign::new(text) };
        match &event.fact {
            Fact::Probe { line, .. } => match &**line {
                Line::Mark(it) => {
                    let text = it.value.map_or_else(|| it.name.clone(), |value| format!("{} {value}", it.name));
                    // Every rank says the same.
                    if self.marks.last().is_none_or(|it| it.text.raw() != text) {
                        self.marks.push(moment(text));
                    }
                }
                Line::Oom(_) => self.troubles.push(moment("out of memory".to_owned())),
                _ => {}
            },
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

/// Events from stop to stop, where so many stood in `read` of `bytes`.
fn spacing(events: u64, read: u64, bytes: u64) -> u64 {
    let all = u128::from(events) * u128::from(bytes) / u128::from(read.max(1));
    u64::try_from(all).unwrap_or(u64::MAX).div_ceil(STOPS)
}

/// When it was looked for the line that allocates what grows, and what was found.
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
    let told = findings(session).all.into_iter().filter(|it| it.severity >= Severity::Warning);
    let words = |it: &Finding| {
        if let Some(sentence) = &it.sentence {
            return format!("{}: {sentence}", it.severity.name());
        }
        let rank = it.rank.map(|rank| format!("rank {rank}"));
        let parts = [Some(it.kind.name().to_owned()), it.growth(), rank];
        format!("{}: {}", it.severity.name(), parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    };
    let mut alerts: Vec<Raised> =
        told.map(|it| Raised { at: it.first_alert_at, text: Foreign::new(words(&it)) }).collect();
    alerts.extend(session.processes.iter().flat_map(captures));
    alerts.sort_by_key(|it| it.at);
    alerts
}
