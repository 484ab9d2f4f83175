//! What a tape holds: how long it is, what happened when, and sessions on the way for quick seeks.

use super::tape::{Bookmark, Cursor, Ending, Tape};
use crate::{
    event::{
        Event, Fact, Line,
        wire::{Edge, Sample},
    },
    session::{Session, history::Latest},
    text::Foreign,
    units::Stamp,
};

/// Sessions kept at most: what a seek costs is what lies between two of them.
pub const CHECKPOINTS: usize = 24;

/// Events between two sessions of a short tape.
const SPACING: u64 = 512;

/// Moments kept of each kind; the oldest go first.
pub const MOMENTS: usize = 1024;

/// Events between two words on how far it is.
const TELL_EVERY: u64 = 2048;

/// What is known after so many events.
#[derive(Clone, Debug, Default, PartialEq)]
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
            self.step = sample(event).and_then(|it| it.step);
            self.began = Some(self.place);
        }
        self.session.apply(event);
        self.place += 1;
        if ends_probe(event) {
            let living = self.session.processes.iter().filter(|it| it.is_alive());
            self.step = living.flat_map(|it| it.devices.iter().filter_map(|on| on.step)).max();
        }
    }

    /// Whether it is the first to tell of a step that no living process had done.
    pub fn begins_step(&self, event: &Event) -> bool {
        let stepped = sample(event).filter(|it| it.edge != Edge::Tick).and_then(|it| it.step);
        stepped.is_some_and(|step| self.step.is_none_or(|it| step > it))
    }
}

fn sample(event: &Event) -> Option<&Sample> {
    match &event.fact {
        Fact::Probe { line, .. } => match &**line {
            Line::Sample(it) => Some(it),
            _ => None,
        },
        _ => None,
    }
}

fn ends_probe(event: &Event) -> bool {
    match &event.fact {
        Fact::Probe { line, .. } => matches!(**line, Line::Bye(_)),
        fact => matches!(fact, Fact::ProbeGone { .. }),
    }
}

/// Something worth a jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Events up to it, itself among them.
    pub place: u64,
    /// When.
    pub at: Stamp,
    /// What, in words.
    pub text: Foreign,
}

/// What a tape holds.
#[derive(Debug)]
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
    /// How the files end, in the tape's order.
    pub endings: Vec<Ending>,
    checkpoints: Vec<Checkpoint>,
    spacing: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) folded: Folded,
    pub(super) bookmark: Bookmark,
}

impl Index {
    /// Reads the whole tape once. `tell` hears now and then how many bytes were read and what is known by then.
    /// Gives also the last state, and the tape read to its end.
    pub fn build(tape: &Tape, mut tell: impl FnMut(u64, &Session)) -> (Self, Folded, Cursor) {
        let mut cursor = tape.play();
        let mut folded = Folded::default();
        let mut index = Self {
            events: 0,
            from: Stamp(0),
            to: Stamp(0),
            marks: Latest::default(),
            troubles: Latest::default(),
            endings: Vec::new(),
            checkpoints: Vec::new(),
            spacing: SPACING,
        };
        loop {
            if folded.place.is_multiple_of(index.spacing) {
                index.keep(Checkpoint { folded: folded.clone(), bookmark: cursor.bookmark() });
            }
            let Some((at, event)) = cursor.next_by(Stamp(u64::MAX)) else { break };
            folded.apply(&event);
            index.note(&event, at, &folded);
            if folded.place.is_multiple_of(TELL_EVERY) {
                tell(cursor.read(), &folded.session);
            }
        }
        index.events = folded.place;
        index.endings = cursor.endings();
        (index, folded, cursor)
    }

    /// The last session kept at or before a place, or a time.
    pub(super) fn before(&self, is_before: impl Fn(&Folded) -> bool) -> Option<&Checkpoint> {
        let after = self.checkpoints.partition_point(|it| is_before(&it.folded));
        self.checkpoints.get(after.checked_sub(1)?)
    }

    /// Every second one goes when there are too many: they stay evenly spaced.
    fn keep(&mut self, checkpoint: Checkpoint) {
        self.checkpoints.push(checkpoint);
        if self.checkpoints.len() > CHECKPOINTS {
            self.spacing *= 2;
            let spacing = self.spacing;
            self.checkpoints.retain(|it| it.folded.place.is_multiple_of(spacing));
        }
    }

    fn note(&mut self, event: &Event, at: Stamp, folded: &Folded) {
        // A captured stream may begin with a line that carries no time.
        if self.from == Stamp(0) {
            self.from = at;
        }
        self.to = at;
        let moment = |text: String| Moment { place: folded.place, at, text: Foreign::new(text) };
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
            Fact::JobEnded { code: Some(code @ 1..), .. } => {
                self.troubles.push(moment(format!("the command ended with exit code {code}")));
            }
            Fact::JobEnded { signal: Some(signal), .. } => {
                self.troubles.push(moment(format!("the command was killed by signal {signal}")));
            }
            _ => {}
        }
    }
}
