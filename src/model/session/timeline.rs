//! The run of one process on one device: every level of its ladder over time, whole and bounded.
//!
//! Two resolutions: the latest samples as they were, and the whole run in stretches of time that are merged two and two
//! when they run out. A level is a sum from the inside out, so that levels of one stretch never cross, whichever of its
//! samples each comes from: `wanted <= allocated <= … <= used`.

use super::history::Latest;
pub use crate::model::analysis::ladder::Level;
use crate::{
    facts::{
        event::wire::Counters,
        units::{Bytes, Stamp},
    },
    model::analysis::{
        buckets::{Buckets, Merge},
        ladder::{self, Gap, GapSet, OwnFigures},
    },
};
use serde::{Deserialize, Serialize};

/// Stretches kept of the whole run, at most.
pub const COLUMNS: usize = 512;

/// Samples kept as they were.
pub const LATEST: usize = 256;

/// How many levels there are.
pub const LEVELS: usize = Level::ALL.len();

/// The levels of one instant in bytes, each as far as known, by the gaps whose tops they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    bytes: [u64; LEVELS],
    gaps: GapSet,
}

impl Levels {
    /// A level's bytes; `None` where unknown.
    pub fn get(&self, level: Level) -> Option<u64> {
        self.gaps.at(level).and_then(|_| self.bytes.get(level as usize).copied())
    }

    /// The gaps from the inside out: what each is, where it begins and where it ends. Where allocations are not known,
    /// nothing is.
    pub fn gaps(&self) -> impl Iterator<Item = (Gap, u64, u64)> {
        let known = Some(self.gaps).filter(|_| self.get(Level::Allocated).is_some()).unwrap_or_default();
        let mut top = 0;
        known.iter().filter_map(move |gap| {
            let from = top;
            top = self.get(gap.row().level?)?.max(from);
            Some((gap, from, top))
        })
    }

    /// Sets the top of a gap that has a level; unknown changes nothing.
    fn set(&mut self, gap: Gap, top: Option<u64>) {
        let place = gap.row().level.and_then(|it| self.bytes.get_mut(it as usize));
        if let (Some(top), Some(place)) = (top, place) {
            *place = top;
            self.gaps.insert(gap);
        }
    }

    /// The higher of both, level by level.
    #[must_use]
    pub fn highest(&self, other: &Self) -> Self {
        self.with(other, u64::max)
    }

    /// Level by level what is chosen of both. What one of them does not know stays unknown: of some samples alone, a
    /// level could cross another. Gaps that only one of them knows apart are their whole.
    fn with(&self, other: &Self, choose: impl Fn(u64, u64) -> u64) -> Self {
        let mut both = Self::default();
        for level in Level::ALL {
            let gap = self.gaps.at(level).zip(other.gaps.at(level));
            if let Some((own, its)) = gap {
                let top = self.get(level).zip(other.get(level)).map(|(one, other)| choose(one, other));
                both.set(if own == its { own } else { own.whole() }, top);
            }
        }
        both
    }
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// When its last sample was taken.
    pub at: Stamp,
    /// Steps completed by then; `None` before the first.
    pub step: Option<u64>,
    /// The lowest of each level.
    pub low: Levels,
    /// The highest of each level.
    pub high: Levels,
    /// Each level in the last sample.
    pub last: Levels,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Point {
    at: Stamp,
    step: Option<u64>,
    levels: Levels,
}

/// A run, since the latest restart of its count of steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    columns: Buckets<Column, COLUMNS>,
    latest: Latest<Point, LATEST>,
    /// What the driver attributes to the process beyond its allocator, and what everybody else uses.
    beyond: Option<u64>,
    rest: Option<u64>,
    driven: bool,
}

impl Timeline {
    /// The driver says what is around the allocator from now on: what it attributes to the process beyond it, and what
    /// everybody else uses; without the first, the second holds it too.
    pub(super) fn attribute(&mut self, beyond: Option<u64>, rest: Option<u64>) {
        (self.beyond, self.rest, self.driven) = (beyond, rest, true);
    }

    /// CUDA says inside of the process what is used on the device beyond its allocator: a word for where the driver
    /// says none.
    pub(super) fn attribute_by_cuda(&mut self, rest: Option<u64>) {
        if !self.driven {
            self.rest = rest;
        }
    }

    /// Takes a sample. One from before the newest is not looked at; one whose step falls back begins the run anew.
    pub(super) fn push(&mut self, at: Stamp, step: Option<u64>, counters: &Counters, expandable: bool) {
        let newest = self.columns.all().last().map(|it| (it.at, it.step));
        if newest.is_some_and(|(then, _)| at < then) {
            return;
        }
        if newest.and_then(|it| it.1).zip(step).is_some_and(|(before, now)| now < before) {
            self.columns = Buckets::default();
            self.latest = Latest::default();
        }
        let step = step.or(newest.and_then(|it| it.1));
        let levels = self.levels(counters, expandable);
        self.latest.push(Point { at, step, levels });
        self.columns.push(Column { at, step, low: levels, high: levels, last: levels });
    }

    /// The run from its beginning to its end, the latest samples as they were. The oldest of these stands for the
    /// stretch that it is in, so that nothing is left out between the two.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        let raw = self.latest.iter().next().map_or(Stamp(u64::MAX), |it| it.at);
        let before = self.columns.all().partition_point(|it| it.at < raw);
        let between = self.columns.all().get(before).filter(|_| self.latest.gone() > 0);
        let old = self.columns.all().iter().take(before).copied();
        old.chain(self.latest.iter().enumerate().map(move |(place, it)| Column {
            at: it.at,
            step: it.step,
            low: between.filter(|_| place == 0).map_or(it.levels, |between| between.low),
            high: between.filter(|_| place == 0).map_or(it.levels, |between| between.high),
            last: it.levels,
        }))
    }

    /// When each of them ends, and after which step: all that is needed to find one.
    pub fn places(&self) -> impl Iterator<Item = (Stamp, Option<u64>)> {
        let raw = self.latest.iter().next().map_or(Stamp(u64::MAX), |it| it.at);
        let before = self.columns.all().partition_point(|it| it.at < raw);
        let old = self.columns.all().iter().take(before).map(|it| (it.at, it.step));
        old.chain(self.latest.iter().map(|it| (it.at, it.step)))
    }

    /// How much time a stretch of the whole run covers, µs.
    pub fn stride_us(&self) -> u64 {
        self.columns.stride()
    }

    fn levels(&self, it: &Counters, expandable: bool) -> Levels {
        let mut levels = Levels::default();
        if it.allocated.is_none() {
            return levels;
        }
        let used = it.reserved.zip(self.beyond).and_then(|(reserved, beyond)| reserved.checked_add(beyond)).map(Bytes);
        let figures = OwnFigures { driver_used: used, ..OwnFigures::counted(it, expandable, Stamp(0)) };
        let (mut top, mut is_blurred) = (0_u64, false);
        for part in ladder::parts(&figures) {
            match part.bytes {
                Some(bytes) => {
                    top = top.saturating_add(bytes);
                    // What has no level of its own ends with the next gap, and is not told from it.
                    let gap = if is_blurred { part.gap.whole() } else { part.gap };
                    is_blurred = gap.row().level.is_none() && (is_blurred || bytes > 0);
                    levels.set(gap, Some(top));
                }
                None if part.gap.row().whole.is_some() => {}
                None => return levels,
            }
        }
        let around = levels.get(Level::Process).map_or(Gap::Unattributed, |_| Gap::Others);
        levels.set(around, self.rest.and_then(|it| top.checked_add(it)));
        levels
    }
}

impl Merge for Column {
    fn place(&self) -> u64 {
        self.at.0
    }

    fn merge(&mut self, newer: &Self) {
        *self = Self { low: self.low.with(&newer.low, u64::min), high: self.high.highest(&newer.high), ..*newer };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    fn counters(allocated: u64) -> Counters {
        Counters {
            requested: Some(allocated),
            allocated: Some(allocated),
            active: Some(allocated + 2),
            inactive_split: Some(3),
            reserved: Some(allocated + 10),
            ..Counters::default()
        }
    }

    fn run(steps: u64, allocated: impl Fn(u64) -> u64) -> Timeline {
        let mut run = Timeline::default();
        run.attribute(Some(5), Some(7));
        for step in 1..=steps {
            run.push(Stamp(step * 100_000), Some(step), &counters(allocated(step)), false);
        }
        run
    }

    #[test]
    fn a_long_run_is_whole_and_small() {
        let run = run(300_000, |step| if step == 1234 { 9_000_000 } else { step });
        assert!(run.columns.all().len() <= COLUMNS && run.columns.all().len() > COLUMNS / 3);
        let highest = run.columns().filter_map(|it| it.high.get(Level::Allocated)).max();
        assert_eq!(highest, Some(9_000_000), "one step of many is seen");
        let latest: Vec<_> = run.columns().map(|it| it.step.unwrap()).collect();
        assert!(latest.windows(2).all(|it| it[0] < it[1]) && latest.ends_with(&[299_998, 299_999, 300_000]));
        assert_eq!(run.columns().next().unwrap().low.get(Level::Allocated), Some(1));
    }

    /// What a replay's copies of a session may take: eight ranks stay below a third of 4 MiB.
    #[test]
    fn its_size_is_known() {
        let one = size_of::<Column>() * COLUMNS + size_of::<Point>() * LATEST + size_of::<Timeline>();
        assert!(one <= 140 << 10, "{one}");
        assert!(8 * one <= (4 << 20) / 3, "{one}");
    }

    #[test]
    fn levels_never_cross_and_carry_what_is_around_them() {
        let run = run(10_000, |step| step * step % 977);
        for it in run.columns() {
            for of in [it.low, it.high, it.last] {
                let known: Vec<_> = Level::ALL.iter().filter_map(|it| of.get(*it)).collect();
                assert!(known.is_sorted() && known.len() >= LEVELS - 1, "{known:?}");
            }
        }
        let last = run.columns().last().unwrap().last;
        let reserved = last.get(Level::Reserved).unwrap();
        assert_eq!((last.get(Level::Process), last.get(Level::Used)), (Some(reserved + 5), Some(reserved + 12)));
    }

    #[test]
    fn each_column_knows_whether_there_were_private_pools_then() {
        let mut run = Timeline::default();
        for step in 1..=2000 {
            let pools = Some(u64::from(step > 1990) * 4096);
            run.push(Stamp(step * 100_000), Some(step), &Counters { private_pools: pools, ..counters(5) }, false);
        }
        let is_pooled = |it: &Column| it.last.gaps().any(|it| it.0 == Gap::Cached);
        let pooled: Vec<_> = run.columns().filter(is_pooled).map(|it| it.step.unwrap()).collect();
        assert_eq!(pooled, (1991..=2000).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_unknown_stays_unknown() {
        let mut run = Timeline::default();
        run.push(Stamp(1), None, &Counters { allocated: Some(5), ..Counters::default() }, false);
        run.push(Stamp(2), None, &Counters { requested: None, ..counters(5) }, true);
        let last = run.columns().last().unwrap();
        assert_eq!(last.step, None);
        for level in [Level::Wanted, Level::Split, Level::Process, Level::Used] {
            assert_eq!(last.last.get(level), None, "{level:?}");
        }
        assert_eq!(last.last.get(Level::Reserved), Some(15));
    }

    #[test]
    fn a_count_that_falls_back_begins_anew_and_the_past_is_not_rewritten() {
        let mut run = run(900, |step| step);
        run.push(Stamp(5), Some(5), &counters(1), false);
        let ends = |run: &Timeline| run.columns().last().map(|it| (it.at, it.step));
        assert_eq!(ends(&run), Some((Stamp(900 * 100_000), Some(900))), "the past is not rewritten");
        run.push(Stamp(900 * 100_000 + 1), Some(1), &counters(1), false);
        assert_eq!(run.columns().map(|it| it.step).collect::<Vec<_>>(), [Some(1)]);
    }

    #[test]
    fn a_far_jump_costs_no_memory_and_no_time() {
        let mut run = Timeline::default();
        for at in [0, 1, u64::MAX - 1, u64::MAX].into_iter().chain([u64::MAX; 2000]) {
            run.push(Stamp(at), Some(1), &counters(u64::MAX - 10), false);
        }
        assert!(run.columns().count() <= COLUMNS + LATEST);
    }
}
