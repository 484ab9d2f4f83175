//! Settings to try, and for each the replays that it needs, and their results.

use super::{Device, Row, server::Outcome};
use crate::facts::event::replayed::WINDOW_SAVES_PERCENT;

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

/// Device sizes are multiples of this.
const GRANULE: u64 = 2 << 20;
/// The result is exact to this part of it, or to a granule.
const PART: u64 = 256;

/// A search between a size that is too small and one that is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    too_small: u64,
    enough: u64,
}

impl Search {
    /// Creates a search from the live memory at the peak to a size on which the run fits.
    pub(super) fn new(live: u64, enough: u64) -> Self {
        Self { too_small: live.saturating_sub(1), enough }
    }

    /// Returns the size to try next; `None` once it is found.
    pub(super) fn next(&self) -> Option<u64> {
        let gap = self.enough.saturating_sub(self.too_small);
        if gap <= GRANULE.max(self.enough / PART) {
            return None;
        }
        let middle = (self.too_small + gap / 2).next_multiple_of(GRANULE);
        Some(middle).filter(|it| *it > self.too_small && *it < self.enough)
    }

    /// Adds whether the run fits on a device of this size.
    pub(super) fn note(&mut self, size: u64, fits: bool) {
        if fits {
            self.enough = self.enough.min(size);
        } else {
            self.too_small = self.too_small.max(size);
        }
    }

    /// Returns the smallest size on which the run is known to fit.
    pub(super) fn smallest(&self) -> u64 {
        self.enough
    }
}

/// How much settings must save in the replay of a whole run to be better, in percent.
pub(super) const SAVES_PERCENT: u64 = 1;

/// A setting needs a larger device if it is larger by this part, and by some pages of expandable segments.
const NEEDS_MORE: u64 = 25;
const PAGES: u64 = 32 << 20;

impl Device {
    /// Returns the result under the recorded settings, if they were replayed.
    pub(super) fn own(&self) -> Option<&Row> {
        let recorded = self.settings.as_deref().unwrap_or_default();
        self.candidates.iter().find(|it| it.settings == recorded)
    }

    /// Returns the result under the best settings, if they are better than the recorded ones. The driver's own pool is
    /// simulated, so that no advice rests on it.
    pub(super) fn better(&self) -> Option<&Row> {
        let own = self.own()?;
        let is_better = |best: &Row| match (&own.fails_at, self.is_window()) {
            (Some(_), false) => true,
            // How far a window gets on a full device depends on where it begins.
            (Some(_), true) => {
                own.smallest.zip(best.smallest).is_some_and(|(own, best)| saves(own, best, WINDOW_SAVES_PERCENT))
            }
            (None, true) => saves(own.peak_reserved, best.peak_reserved, WINDOW_SAVES_PERCENT),
            (None, false) => saves(own.peak_reserved, best.peak_reserved, SAVES_PERCENT),
        };
        // What reserves less and runs out of memory earlier is no help: rounded sizes take more where it is tight.
        let needs_more = |best: &Row| {
            let least = own.smallest.zip(best.smallest);
            least.is_some_and(|(own, best)| best > own + (own / NEEDS_MORE).max(PAGES))
        };
        self.candidates
            .iter()
            .find(|it| it.fails_at.is_none() && !is_estimated(&it.settings) && !needs_more(it))
            .filter(|best| is_better(best))
    }
}

/// Whether at least this part of some bytes is saved.
fn saves(own: u64, best: u64, percent: u64) -> bool {
    own > 0 && u128::from(own.saturating_sub(best)) * 100 >= u128::from(own) * u128::from(percent)
}

/// Settings to try in addition to the recorded ones, unless the user names settings.
const TRIED: [&str; 8] = [
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:4",
    "roundup_power2_divisions:4",
    "max_split_size_mb:32",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    // The threshold is a share of the memory that the fraction allows.
    "garbage_collection_threshold:0.8,per_process_memory_fraction:1.0",
    "backend:cudaMallocAsync",
];

/// Returns the recorded settings and the default list.
pub(super) fn tried(recorded: &str) -> Vec<String> {
    let others = TRIED.into_iter().filter(|it| *it != recorded).map(str::to_owned);
    [recorded.to_owned()].into_iter().chain(others).collect()
}

/// Returns the allocator in the settings: PyTorch chooses it once per process, when it is loaded.
pub(super) fn backend(settings: &str) -> &str {
    let values = settings.split(',').filter_map(|it| it.split_once(':'));
    values.filter(|it| it.0.trim() == "backend").map(|it| it.1.trim()).next_back().unwrap_or("native")
}

/// Returns whether these settings use the driver's own pool: it is simulated, while PyTorch's allocator is real.
pub(super) fn is_estimated(settings: &str) -> bool {
    backend(settings) != "native"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::whatif::Failure;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn it_ends_near_the_smallest_that_is_enough(live in 0_u64..1 << 40, more in 0_u64..1 << 40, share in 0.0..1.0_f64) {
            let enough = live + more;
            let truth = live + crate::facts::units::whole(more as f64 * share);
            let mut search = Search::new(live, enough);
            let mut tries = 0;
            while let Some(size) = search.next() {
                search.note(size, size >= truth);
                tries += 1;
            }
            let found = search.smallest();
            prop_assert!(tries <= 40 && found >= truth, "{tries} tries, {found} for {truth}");
            prop_assert!(found - truth <= GRANULE.max(found / PART), "{found} for {truth}");
        }
    }

    fn device(best_mib: u64, is_late: bool) -> Device {
        let row = |settings: &str, mib: u64| Row {
            settings: settings.to_owned(),
            peak_reserved: mib << 20,
            smallest: Some(mib << 20),
            ..Row::default()
        };
        let candidates = vec![row("expandable_segments:True", best_mib), row("", 1000)];
        Device { is_late, candidates, ..Device::default() }
    }

    #[test]
    fn a_window_advises_only_settings_that_save_a_tenth() {
        for (mib, is_late, is_advised) in [
            (900, true, true),
            (901, true, false),
            (990, false, true),
            (991, false, false),
            (1000, false, false),
            (1001, true, false),
        ] {
            assert_eq!(device(mib, is_late).better().is_some(), is_advised, "{mib} {is_late}");
        }
    }

    #[test]
    fn settings_that_need_a_larger_device_are_not_advised() {
        for is_late in [false, true] {
            let mut it = device(300, is_late);
            it.candidates
                .insert(0, Row { settings: "expandable_segments:True,roundup".into(), ..it.candidates[0].clone() });
            it.candidates[0].smallest = Some(1100 << 20);
            it.candidates[1].smallest = Some(1020 << 20);
            assert_eq!(it.better().map(|it| it.settings.as_str()), Some("expandable_segments:True"));
            it.candidates.remove(1);
            assert_eq!(it.better(), None);
        }
    }

    #[test]
    fn settings_that_run_out_of_memory_in_a_window_need_a_tenth_more() {
        for (mib, is_late, is_advised) in [(900, true, true), (950, true, false), (950, false, true)] {
            let mut it = device(mib, is_late);
            it.candidates.last_mut().unwrap().fails_at = Some(Failure::default());
            assert_eq!(it.better().is_some(), is_advised, "{mib} {is_late}");
        }
    }

    #[test]
    fn the_recorded_settings_come_first_and_once() {
        let all = tried("expandable_segments:True");
        assert_eq!((all.len(), all[0].as_str()), (TRIED.len(), "expandable_segments:True"));
        assert_eq!(tried("")[0], "");
        assert_eq!(backend("max_split_size_mb:64, backend:cudaMallocAsync"), "cudaMallocAsync");
        assert_eq!(backend(""), "native");
    }
}
