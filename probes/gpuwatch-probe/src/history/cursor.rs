//! One viewer's position in the history: what it receives next.

use super::{
    History, Kept,
    raw::{Next, Position},
};
use crate::{
    reading::Reading,
    wire::{self, Line, encode},
};

pub(crate) struct Cursor {
    /// The lowest sequence number not sent yet.
    next: u64,
    /// The end of the backlog.
    until: u64,
    at_us: u64,
    live: bool,
    announced: bool,
    /// `None` while the thinned part is being sent.
    raw: Option<Position>,
    pending: Option<(u64, Reading)>,
    /// How many failures came before `next`.
    failures: u64,
    /// Samples below this sequence number are left out.
    samples_from: u64,
    /// Failures were forgotten before this viewer got them.
    missed: bool,
}

impl Cursor {
    /// Creates the cursor of a viewer that has everything up to `since`; 0, or a number never assigned, is nothing.
    pub(crate) fn new(since: u64, history: &History) -> Self {
        let until = history.seq();
        let next = if since > until { 1 } else { since + 1 };
        // What was forgotten before the line that the viewer names, it may have.
        let failures =
            if next == 1 { 0 } else { history.note_from(next).map_or(history.failures, Kept::failures_before) };
        Self {
            next,
            until,
            at_us: 0,
            live: false,
            announced: false,
            raw: None,
            pending: None,
            failures,
            samples_from: 0,
            missed: false,
        }
    }

    /// Leaves out the samples below a sequence number.
    pub(crate) fn skip_samples(&mut self, below: u64) {
        self.samples_from = self.samples_from.max(below);
        self.pending = self.pending.filter(|it| it.0 >= below);
    }

    /// Returns whether failures were forgotten before this viewer got them.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed
    }

    /// Writes the next line; false if there is none yet.
    pub(crate) fn write_next(&mut self, history: &History, out: &mut String) -> bool {
        if self.write_missed(history, out) {
            return true;
        }
        if self.raw.is_none() {
            if self.write_thinned(history, out) {
                return true;
            }
            self.raw = Some(history.raw.position(self.next));
            self.announced = false;
        }
        if !self.live && self.next > self.until {
            self.live = true;
            encode(&Line::Live(wire::Live { seq: self.until }), out);
            return true;
        }
        self.write_whole(history, out)
    }

    /// Writes how many failures were forgotten before the next line: above all that this viewer has, and below all that
    /// it gets, so that it can insert them here.
    fn write_missed(&mut self, history: &History, out: &mut String) -> bool {
        let next = history.note_from(self.next);
        let before = next.map_or(history.failures, Kept::failures_before);
        if before <= self.failures {
            return false;
        }
        let at_us = next.map_or(history.at_us, |it| it.note.at_us());
        encode(&Line::Lost(wire::Lost { seq: None, at_us, samples: 0, failures: Some(before - self.failures) }), out);
        self.failures = before;
        self.missed = true;
        true
    }

    /// Writes the thinned samples, from before the complete ones.
    fn write_thinned(&mut self, history: &History, out: &mut String) -> bool {
        let Some((below, to_us)) = history.raw.first() else { return false };
        let sample = history.strided.next(self.next.max(self.samples_from), below);
        let note = history.note_from(self.next).filter(|it| it.seq < below);
        if let Some((_, first)) = sample
            && !self.announced
        {
            self.announced = true;
            let stride = history.strided.stride();
            encode(&Line::History(wire::History { from_us: first.at_us, to_us, stride }), out);
            return true;
        }
        match (sample, note) {
            (Some((seq, reading)), note) if note.is_none_or(|it| it.seq > *seq) => {
                self.write_sample(*seq, reading, out);
            }
            (_, Some(note)) => self.write_note(note, out),
            _ => return false,
        }
        true
    }

    fn write_whole(&mut self, history: &History, out: &mut String) -> bool {
        while self.pending.is_none() {
            let Some(position) = &mut self.raw else { return false };
            match history.raw.next(position) {
                Next::Sample(seq, reading) => {
                    self.pending = Some((seq, reading)).filter(|it| it.0 >= self.next.max(self.samples_from));
                }
                Next::Lost(samples) => {
                    let at_us = self.at_us;
                    encode(&Line::Lost(wire::Lost { at_us, samples, ..wire::Lost::default() }), out);
                    return true;
                }
                Next::UpToDate => break,
            }
        }
        let note = history.note_from(self.next);
        let sample = self.pending.filter(|(seq, _)| note.is_none_or(|it| it.seq > *seq));
        if !self.live && !self.announced {
            let first_us = sample.map(|it| it.1.at_us).or_else(|| note.map(|it| it.note.at_us()));
            if let Some(from_us) = first_us {
                self.announced = true;
                encode(&Line::History(wire::History { from_us, to_us: history.at_us, stride: 1 }), out);
                return true;
            }
        }
        match (sample, note) {
            (Some((seq, reading)), _) => {
                self.pending = None;
                self.write_sample(seq, &reading, out);
            }
            (None, Some(note)) => self.write_note(note, out),
            (None, None) => return false,
        }
        true
    }

    fn write_sample(&mut self, seq: u64, reading: &Reading, out: &mut String) {
        self.next = seq + 1;
        self.at_us = reading.at_us;
        reading.encode(seq, out);
    }

    fn write_note(&mut self, it: &Kept, out: &mut String) {
        self.next = it.seq + 1;
        self.at_us = it.note.at_us();
        self.failures = it.failures_before + u64::from(it.note.is_failure());
        it.note.write(it.seq, out);
    }
}
