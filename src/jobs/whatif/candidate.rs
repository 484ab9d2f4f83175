//! One setting: the replays it needs, and their results.

use super::{search::Search, server::Outcome};

/// Memory of a context on a device, in addition to the allocator's.
pub(super) const CONTEXT: u64 = 512 << 20;

/// What a replay without a limit may reserve, at least.
const PLENTY: u64 = 512 << 30;

/// Replays of one device's trace under one setting.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) settings: String,
    /// What the allocator can reserve; `None` if the device's size is unknown.
    room: Option<u64>,
    plenty: u64,
    /// The result on the requested device.
    pub(super) main: Option<Outcome>,
    search: Option<Search>,
    /// Why there is no result, in PyTorch's words.
    pub(super) refused: Option<String>,
    /// Whether a replay runs.
    is_waiting: bool,
}

impl Candidate {
    /// Creates a candidate; the recorded run reserved at most `peak`.
    pub(super) fn new(settings: &str, room: Option<u64>, peak: u64) -> Self {
        Self {
            settings: settings.to_owned(),
            room,
            plenty: PLENTY.max(peak.saturating_mul(4)),
            main: None,
            search: None,
            refused: None,
            is_waiting: false,
        }
    }

    /// Returns the room of the next replay, and marks it as running.
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.is_waiting || self.refused.is_some() {
            return None;
        }
        let next = match (&self.main, &self.search) {
            (None, _) => Some(self.room.unwrap_or(self.plenty)),
            (Some(_), None) => Some(self.plenty),
            (_, Some(search)) => search.next(),
        };
        self.is_waiting = next.is_some();
        next
    }

    /// Adds a replay's result.
    pub(super) fn note(&mut self, room: u64, outcome: Outcome) {
        self.is_waiting = false;
        let fits = outcome.failed.is_none();
        match &mut self.search {
            Some(search) => search.note(room, fits),
            None if fits => {
                self.search = Some(Search::new(outcome.peak_allocated, room.min(outcome.peak_reserved)));
            }
            // It fails even on a device without a limit.
            None if self.main.is_some() => self.refused = Some("it runs out of memory on any device".to_owned()),
            None => {}
        }
        self.main.get_or_insert(outcome);
    }

    /// Marks it as rejected by PyTorch.
    pub(super) fn refuse(&mut self, why: String) {
        self.is_waiting = false;
        self.refused = Some(why);
    }

    /// Returns the smallest device on which the run fits, its context included.
    pub(super) fn smallest(&self) -> Option<u64> {
        self.search.map(|it| it.smallest().saturating_add(CONTEXT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(failed: Option<usize>) -> Outcome {
        Outcome { failed, peak_allocated: 60 << 20, peak_reserved: 90 << 20, ..Outcome::default() }
    }

    #[test]
    fn it_fits_on_the_device_and_then_on_smaller_ones() {
        let mut it = Candidate::new("", Some(100 << 20), 0);
        assert_eq!((it.next(), it.next()), (Some(100 << 20), None), "one replay at a time");
        it.note(100 << 20, outcome(None));
        while let Some(room) = it.next() {
            it.note(room, outcome(Some(7).filter(|_| room < 70 << 20)));
        }
        assert_eq!(it.smallest(), Some((70 << 20) + CONTEXT));
        assert_eq!(it.main, Some(outcome(None)));
    }

    #[test]
    fn a_candidate_that_does_not_fit_is_tried_without_a_limit() {
        let mut it = Candidate::new("", Some(80 << 20), 0);
        it.note(80 << 20, outcome(Some(3)));
        assert_eq!((it.next(), it.smallest()), (Some(PLENTY), None));
        it.note(PLENTY, outcome(None));
        assert!(it.next().is_some_and(|it| it < 90 << 20) && it.main == Some(outcome(Some(3))));
        it.refuse("no".to_owned());
        assert_eq!(it.next(), None);
    }
}
