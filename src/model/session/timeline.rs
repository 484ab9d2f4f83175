//! The run of one process on one device: every level of its ladder over the whole run, in bounded memory.
//!
//! It has two resolutions: the latest samples unchanged, and the whole run in stretches of time, which are merged in
//! pairs when they run out. A level is a sum from the inside out, so levels of one stretch never cross, whichever
//! samples they come from: `wanted <= allocated <= … <= used`.

pub use crate::model::analysis::ladder::Level;
use crate::{
    facts::units::{Bytes, Stamp},
    model::analysis::{
        buckets::{Buckets, Merge},
        ladder::{self, Gap, GapSet, OwnFigures},
        packed::{self, Numbers, Packed},
    },
};
use serde::{Deserialize, Serialize};
use std::mem;

/// Most stretches of the whole run.
pub const COLUMNS: usize = 512;

/// Latest samples kept unchanged.
pub const LATEST: usize = 256;

/// A run, since the latest restart of its count of steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    columns: Buckets<Packed<Column, COLUMN>, COLUMNS>,
    latest: Packed<Point, POINT>,
    /// Whether older samples were dropped from the latest ones.
    is_longer: bool,
    /// Memory that the driver attributes to the process beyond its allocator, and all other used memory.
    beyond: Option<u64>,
    rest: Option<u64>,
    driven: bool,
    /// The driver's latest reading, until the next sample shows how much the allocator may have taken by then.
    latest_reading: Option<DriverReading>,
    /// Whether a sample has followed a reading.
    settled: bool,
}

/// What the driver reported between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DriverReading {
    /// The process's bytes on the device; `None` if the driver does not tell them.
    pub listed: Option<u64>,
    /// All used bytes of the device.
    pub used: u64,
    /// What the allocator had reserved in the sample before.
    pub reserved: u64,
    /// Whether that is the process's only allocator on the device, so that the rest of `listed` is beyond all of them.
    pub is_only: bool,
}

/// Bytes that the driver counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// Those of the process.
    Listed(u64),
    /// All that are used on the device.
    Used(u64),
}

impl DriverReading {
    /// Returns what the driver attributes to the process beyond its allocator, and what all others use, if the
    /// allocator had reserved this much at the reading. Without the first, the second includes it.
    fn around(&self, reserved: u64) -> (Option<u64>, Option<u64>) {
        let beyond = self.listed.and_then(|it| it.checked_sub(reserved));
        let own = self.listed.filter(|_| beyond.is_some()).unwrap_or(reserved);
        (beyond, self.used.checked_sub(own))
    }
}

impl Timeline {
    /// Takes a reading of the driver, which sets the memory around the allocator from now on. At the reading, the
    /// allocator may have held anything between its figures of the samples before and after: the memory around it stays
    /// what it was where that lies within.
    pub(super) fn attribute(&mut self, reading: DriverReading) {
        let around = reading.around(reading.reserved);
        if !self.driven || self.beyond.is_some() != around.0.is_some() {
            (self.beyond, self.rest) = around;
            self.settled = false;
        }
        (self.driven, self.latest_reading) = (true, Some(reading));
    }

    /// Settles the driver's latest reading by the first sample after it.
    fn settle(&mut self, reserved: Option<u64>) {
        let Some((reading, after)) = self.latest_reading.zip(reserved) else { return };
        self.latest_reading = None;
        let most = reading.around(reading.reserved.min(after));
        let least = reading.around(reading.reserved.max(after));
        let settled = mem::replace(&mut self.settled, true);
        let within = |known: Option<u64>, least: Option<u64>, most: Option<u64>| {
            let most = most?;
            let least = least.unwrap_or(0).min(most);
            Some(known.filter(|_| settled).unwrap_or(least).clamp(least, most))
        };
        self.beyond = within(self.beyond, least.0, most.0);
        self.rest = match self.beyond {
            Some(_) => most.1,
            None => within(self.rest, least.1, most.1),
        };
    }

    /// Sets the used memory beyond the allocator, as CUDA reports it inside the process; used if the driver reports
    /// none.
    pub(super) fn attribute_by_cuda(&mut self, rest: Option<u64>) {
        if !self.driven {
            self.rest = rest;
        }
    }

    /// Continues the run that an earlier probe of the process has seen; nothing is known of the time from its end until
    /// `at`, or until the first own sample.
    pub(super) fn continue_from(&mut self, earlier: &Self, at: Stamp) {
        let own = mem::replace(self, earlier.clone());
        let first = own.places().next().map(|it| it.0);
        self.push(first.map_or(at, |it| it.min(at)), None, &OwnFigures::default());
        for it in own.columns() {
            self.add(it);
        }
        if first.is_some() {
            (self.beyond, self.rest, self.driven) = (own.beyond, own.rest, own.driven);
            (self.latest_reading, self.settled) = (own.latest_reading, own.settled);
        }
    }

    /// Adds a sample. Ignores one older than the newest; restarts the run if the step falls. Returns the bytes beyond
    /// all allocators of the process at the driver's latest reading, where this is the first sample after it.
    pub(super) fn push(&mut self, at: Stamp, step: Option<u64>, figures: &OwnFigures) -> Option<u64> {
        let reading = self.latest_reading.filter(|it| it.is_only && figures.reserved.is_some());
        self.settle(figures.reserved);
        let levels = self.levels(figures);
        self.add(Column { at, step, low: levels, high: levels, last: levels });
        self.beyond.filter(|_| reading.is_some())
    }

    /// Returns how much an allocator had reserved when the driver counted these bytes, its process's on the device or
    /// all that are used, between two samples with `before` and `now`; `None` where what is around it is unknown.
    pub(super) fn reserved_at(&self, counted: Counted, before: u64, now: u64) -> Option<u64> {
        let around = match counted {
            Counted::Listed(_) => self.beyond,
            Counted::Used(_) => self.rest.map(|it| it.saturating_add(self.beyond.unwrap_or(0))),
        };
        let (Counted::Listed(bytes) | Counted::Used(bytes)) = counted;
        let reserved = bytes.saturating_sub(around.filter(|_| self.driven)?);
        Some(reserved.clamp(before.min(now), before.max(now)))
    }

    /// Adds a stretch, as [`Self::push`] adds a sample.
    fn add(&mut self, Column { at, step, low, high, last }: Column) {
        let newest = self.columns.all().newest().map(|it| (it.at, it.step));
        if newest.is_some_and(|(then, _)| at < then) {
            return;
        }
        if newest.and_then(|it| it.1).zip(step).is_some_and(|(before, now)| now < before) {
            self.columns = Buckets::default();
            (self.latest, self.is_longer) = (Packed::default(), false);
        }
        let step = step.or(newest.and_then(|it| it.1));
        self.is_longer |= self.latest.push_within(LATEST, Point { at, step, levels: last });
        self.columns.push(Column { at, step, low, high, last });
    }

    /// Returns the run from its beginning, ending with the latest samples unchanged. The oldest of these replaces the
    /// stretch that it is in, so that there is no gap between the two.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        let raw = self.first_raw();
        let mut between = self.columns.all().iter().find(|it| it.at >= raw).filter(|_| self.is_longer);
        let old = self.columns.all().iter().take_while(move |it| it.at < raw);
        old.chain(self.latest.iter().map(move |it| {
            let (low, high) = between.take().map_or((it.levels, it.levels), |between| (between.low, between.high));
            Column { at: it.at, step: it.step, low, high, last: it.levels }
        }))
    }

    /// Returns the end and the last step of each column, which is enough to find one.
    pub fn places(&self) -> impl Iterator<Item = (Stamp, Option<u64>)> {
        let raw = self.first_raw();
        let old = self.columns.all().iter().take_while(move |it| it.at < raw).map(|it| (it.at, it.step));
        old.chain(self.latest.iter().map(|it| (it.at, it.step)))
    }

    /// Returns when the oldest of the latest samples was taken.
    fn first_raw(&self) -> Stamp {
        self.latest.oldest().map_or(Stamp(u64::MAX), |it| it.at)
    }

    /// Returns the µs that a stretch of the whole run covers.
    pub fn stride_us(&self) -> u64 {
        self.columns.stride()
    }

    fn levels(&self, it: &OwnFigures) -> Levels {
        let mut levels = Levels::default();
        if it.allocated.is_none() {
            return levels;
        }
        let used = it.reserved.zip(self.beyond).and_then(|(reserved, beyond)| reserved.checked_add(beyond)).map(Bytes);
        let figures = OwnFigures { driver_used: used, ..*it };
        let (mut top, mut is_blurred) = (0_u64, false);
        for part in ladder::parts(&figures) {
            match part.bytes {
                Some(bytes) => {
                    top = top.saturating_add(bytes);
                    // A gap without a level of its own is merged with the next one.
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

/// Number of levels.
const LEVELS: usize = Level::ALL.len();

/// The known levels of one instant in bytes, by the gap below each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    bytes: [u64; LEVELS],
    gaps: GapSet,
}

impl Levels {
    /// Returns a level's bytes; `None` if unknown.
    pub fn get(&self, level: Level) -> Option<u64> {
        self.gaps.at(level).and_then(|_| self.bytes.get(level as usize).copied())
    }

    /// Returns the gaps from the inside out with their lower and upper bounds; none if live allocations are unknown.
    pub fn gaps(&self) -> impl Iterator<Item = (Gap, u64, u64)> {
        let known = Some(self.gaps).filter(|_| self.get(Level::Allocated).is_some()).unwrap_or_default();
        let mut top = 0;
        known.iter().filter_map(move |gap| {
            let from = top;
            top = self.get(gap.row().level?)?.max(from);
            Some((gap, from, top))
        })
    }

    /// Sets the upper bound of a gap that has a level; ignores an unknown bound.
    fn set(&mut self, gap: Gap, top: Option<u64>) {
        let place = gap.row().level.and_then(|it| self.bytes.get_mut(it as usize));
        if let (Some(top), Some(place)) = (top, place) {
            *place = top;
            self.gaps.insert(gap);
        }
    }

    /// Returns the higher value of each level.
    #[must_use]
    pub fn highest(&self, other: &Self) -> Self {
        self.with(other, u64::max)
    }

    /// Combines two instants level by level. A level that one of them lacks stays unknown, because from some samples
    /// alone it could cross another. Gaps that only one of them separates are merged.
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
    /// Steps completed by then; `None` before the first step.
    pub step: Option<u64>,
    /// The minimum of each level.
    pub low: Levels,
    /// The maximum of each level.
    pub high: Levels,
    /// Each level in the last sample.
    pub last: Levels,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Point {
    at: Stamp,
    step: Option<u64>,
    levels: Levels,
}

impl Merge for Column {
    fn place(&self) -> u64 {
        self.at.0
    }

    fn merge(&mut self, newer: &Self) {
        *self = Self { low: self.low.with(&newer.low, u64::min), high: self.high.highest(&newer.high), ..*newer };
    }
}

/// Numbers of a packed column and of a packed point.
const COLUMN: usize = 4 + 3 * LEVELS;
const POINT: usize = 3 + LEVELS;

impl Numbers<COLUMN> for Column {
    fn numbers(&self) -> [u64; COLUMN] {
        let (step, knows_step) = packed_step(self.step);
        let of_lows = u64::from(self.low.gaps.bits()) << 1 | knows_step;
        let of_others = u64::from(self.high.gaps.bits()) << 32 | u64::from(self.last.gaps.bits());
        let low = sizes(&self.low.bytes);
        let high = sizes(&above(&self.high.bytes, &self.low.bytes));
        let last = sizes(&above(&self.high.bytes, &self.last.bytes));
        packed::numbers([self.at.0, step, of_lows, of_others].into_iter().chain(low).chain(high).chain(last))
    }

    fn of_numbers(&[at, step, of_lows, of_others, ref levels @ ..]: &[u64; COLUMN]) -> Self {
        let mut parts = levels.chunks_exact(LEVELS).map(tops);
        let mut part = || parts.next().unwrap_or_default();
        let (low, range, fall) = (part(), part(), part());
        let high = std::array::from_fn(|it| low[it].wrapping_add(range[it]));
        let last = above(&high, &fall);
        Self {
            at: Stamp(at),
            step: (of_lows & 1 == 1).then_some(step),
            low: Levels { bytes: low, gaps: gaps(of_lows >> 1) },
            high: Levels { bytes: high, gaps: gaps(of_others >> 32) },
            last: Levels { bytes: last, gaps: gaps(of_others) },
        }
    }
}

impl Numbers<POINT> for Point {
    fn numbers(&self) -> [u64; POINT] {
        let (step, knows_step) = packed_step(self.step);
        let flags = u64::from(self.levels.gaps.bits()) << 1 | knows_step;
        packed::numbers([self.at.0, step, flags].into_iter().chain(sizes(&self.levels.bytes)))
    }

    fn of_numbers(&[at, step, flags, ref levels @ ..]: &[u64; POINT]) -> Self {
        let levels = Levels { bytes: tops(levels), gaps: gaps(flags >> 1) };
        Self { at: Stamp(at), step: (flags & 1 == 1).then_some(step), levels }
    }
}

/// Returns the step, and 1 if it is known.
fn packed_step(step: Option<u64>) -> (u64, u64) {
    (step.unwrap_or(0), u64::from(step.is_some()))
}

/// Returns the set of gaps in the lower half of a number.
fn gaps(bits: u64) -> GapSet {
    GapSet::of_bits(u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0))
}

/// Returns how far each level is above another: most often all of them equally far.
fn above(levels: &[u64; LEVELS], others: &[u64; LEVELS]) -> [u64; LEVELS] {
    std::array::from_fn(|it| levels[it].wrapping_sub(others[it]))
}

/// Returns how far each level is above the one below it: what changes is most often one gap and not the others.
fn sizes(levels: &[u64; LEVELS]) -> [u64; LEVELS] {
    std::array::from_fn(|it| levels[it].wrapping_sub(it.checked_sub(1).map_or(0, |below| levels[below])))
}

/// Returns the levels of such sizes.
fn tops(sizes: &[u64]) -> [u64; LEVELS] {
    let mut top = 0_u64;
    std::array::from_fn(|it| {
        top = top.wrapping_add(sizes.get(it).copied().unwrap_or(0));
        top
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::Counters;
    use proptest::prelude::*;
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

    fn figures(counters: &Counters, expandable: bool) -> OwnFigures {
        OwnFigures::counted(counters, expandable, Stamp(0))
    }

    /// A reading with this much beyond the allocator, and this much of others.
    fn reading(reserved: u64, beyond: u64, others: u64) -> DriverReading {
        let listed = reserved + beyond;
        DriverReading { listed: Some(listed), used: listed + others, reserved, is_only: true }
    }

    fn run(steps: u64, allocated: impl Fn(u64) -> u64) -> Timeline {
        let mut run = Timeline::default();
        run.attribute(reading(allocated(1) + 10, 5, 7));
        for step in 1..=steps {
            run.push(Stamp(step * 100_000), Some(step), &figures(&counters(allocated(step)), false));
        }
        run
    }

    #[test]
    fn the_run_of_an_earlier_probe_comes_before_own_samples() {
        let earlier = run(40, |step| step);
        let mut own = Timeline::default();
        own.attribute(reading(1050, 1, 2));
        // The first is of a time that the earlier probe has seen.
        for step in [40, 51, 52] {
            own.push(Stamp(step * 100_000 - 1), Some(step), &figures(&counters(1000 + step), false));
        }
        own.continue_from(&earlier, Stamp(9_000_000));
        let seen: Vec<_> = own.columns().map(|it| (it.step, it.last.get(Level::Allocated))).collect();
        let known: Vec<_> = (1..=40).map(|it| (Some(it), Some(it))).collect();
        assert_eq!(seen[..40], known);
        assert_eq!(seen[40..], [(Some(51), Some(1051)), (Some(52), Some(1052))]);
        assert_eq!((own.beyond, own.rest), (Some(1), Some(2)), "as the driver reports them now");

        let mut late = Timeline::default();
        late.push(Stamp(8_000_000), Some(70), &figures(&counters(7), false));
        late.continue_from(&earlier, Stamp(9_000_000));
        let seen: Vec<_> = late.columns().skip(40).map(|it| (it.at, it.last.get(Level::Allocated))).collect();
        assert_eq!(seen, [(Stamp(8_000_000), None), (Stamp(8_000_000), Some(7))], "nothing is known in between");
    }

    #[test]
    fn what_is_around_a_growing_allocator_is_told_from_its_growth() {
        const MIB: u64 = 1 << 20;
        let (beyond, others) = (500 * MIB, 300 * MIB);
        for listed in [true, false] {
            let (mut run, mut held) = (Timeline::default(), 0);
            for step in 1..=40 {
                // It takes 700 MiB a step, and the driver is read anywhere within every third one.
                let before = held;
                held += 700 * MIB;
                if step % 3 == 0 {
                    let reserved = before + 700 * MIB * (step * 7 % 10) / 10;
                    let seen = reading(reserved, beyond, others);
                    run.attribute(DriverReading { reserved: before, listed: seen.listed.filter(|_| listed), ..seen });
                }
                let held = Counters { reserved: Some(held), ..counters(1) };
                run.push(Stamp(step * 100_000), Some(step), &figures(&held, false));
            }
            let last = run.columns().last().unwrap().last;
            let (used, reserved) = (last.get(Level::Used).unwrap(), last.get(Level::Reserved).unwrap());
            assert!((used - reserved).abs_diff(beyond + others) < 100 * MIB, "{listed}: {}", (used - reserved) / MIB);
            let process = last.get(Level::Process).map(|it| (it - reserved).abs_diff(beyond) < 100 * MIB);
            assert_eq!(process, listed.then_some(true));
        }
        // What it takes beyond, and gives back, is seen at once where the allocator rests.
        let mut run = Timeline::default();
        for (step, beyond) in (1..).zip([500, 900, 400]) {
            run.attribute(reading(11, beyond * MIB, others));
            run.push(Stamp(step * 100_000), Some(step), &figures(&counters(1), false));
            let last = run.columns().last().unwrap().last;
            assert_eq!(last.get(Level::Process), Some(11 + beyond * MIB));
            assert_eq!(last.get(Level::Used), Some(11 + beyond * MIB + others));
        }
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

    #[test]
    fn its_size_is_known() {
        let noisy = |step: u64| 5_000_000_000 + step * 1_000_000 + step * step * 7919 % 900_001 * 512;
        let run = run(3_000, noisy);
        let one = run.columns.all().heap() + run.latest.heap() + size_of::<Timeline>();
        let plain = size_of::<Column>() * COLUMNS + size_of::<Point>() * LATEST;
        assert!(one <= 24 << 10 && 4 * one < plain, "{one} of {plain}");
    }

    #[test]
    fn levels_never_cross_and_carry_what_is_around_them() {
        let run = run(10_000, |step| step * step % 977);
        for it in run.columns() {
            for of in [it.low, it.high, it.last] {
                let known: Vec<_> = Level::ALL.iter().filter_map(|it| of.get(*it)).collect();
                // Of the parts of allocated memory, nothing was counted.
                let parts = [Level::Weights, Level::Gradients, Level::Optimizer];
                let least = Level::ALL.len() - parts.len() - 1;
                assert!(known.is_sorted() && known.len() >= least, "{known:?}");
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
            run.push(
                Stamp(step * 100_000),
                Some(step),
                &figures(&Counters { private_pools: pools, ..counters(5) }, false),
            );
        }
        let is_pooled = |it: &Column| it.last.gaps().any(|(gap, ..)| gap == Gap::Cached);
        let pooled: Vec<_> = run.columns().filter(is_pooled).map(|it| it.step.unwrap()).collect();
        assert_eq!(pooled, (1991..=2000).collect::<Vec<_>>());
    }

    #[test]
    fn unknown_figures_stay_unknown() {
        let mut run = Timeline::default();
        run.push(Stamp(1), None, &figures(&Counters { allocated: Some(5), ..Counters::default() }, false));
        run.push(Stamp(2), None, &figures(&Counters { requested: None, ..counters(5) }, true));
        let last = run.columns().last().unwrap();
        assert_eq!(last.step, None);
        for level in [Level::Wanted, Level::Split, Level::Process, Level::Used] {
            assert_eq!(last.last.get(level), None, "{level:?}");
        }
        assert_eq!(last.last.get(Level::Reserved), Some(15));
    }

    #[test]
    fn a_count_that_falls_back_begins_again_and_the_past_is_not_rewritten() {
        let mut run = run(900, |step| step);
        run.push(Stamp(5), Some(5), &figures(&counters(1), false));
        let ends = |run: &Timeline| run.columns().last().map(|it| (it.at, it.step));
        assert_eq!(ends(&run), Some((Stamp(900 * 100_000), Some(900))), "the past is not rewritten");
        run.push(Stamp(900 * 100_000 + 1), Some(1), &figures(&counters(1), false));
        assert_eq!(run.columns().map(|it| it.step).collect::<Vec<_>>(), [Some(1)]);
    }

    #[test]
    fn a_far_jump_costs_no_memory_and_no_time() {
        let mut run = Timeline::default();
        for at in [0, 1, u64::MAX - 1, u64::MAX].into_iter().chain([u64::MAX; 2000]) {
            run.push(Stamp(at), Some(1), &figures(&counters(u64::MAX - 10), false));
        }
        assert!(run.columns().count() <= COLUMNS + LATEST);
    }

    fn any_levels() -> impl Strategy<Value = Levels> {
        (prop::array::uniform(prop_oneof![any::<u64>(), 0_u64..9]), any::<u32>())
            .prop_map(|(bytes, gaps)| Levels { bytes, gaps: GapSet::of_bits(gaps) })
    }

    proptest! {
        #[test]
        fn each_is_as_it_was(
            (at, step) in (any::<u64>().prop_map(Stamp), any::<Option<u64>>()),
            (low, high, last) in (any_levels(), any_levels(), any_levels()),
        ) {
            let column = Column { at, step, low, high, last };
            prop_assert_eq!(Column::of_numbers(&column.numbers()), column);
            let point = Point { at, step, levels: low };
            prop_assert_eq!(Point::of_numbers(&point.numbers()), point);
        }
    }
}
