//! Detects growth from step to step: every resource of one process on one device, one observation at a time.
//!
//! Each resource has a [`watch`](self::watch). It keeps the lowest values of stretches of 1, 2, 4, … samples
//! (`horizons`) and finds runs of new highs among them that chance does not explain (`climb`). It does the same with
//! the remainder after whole multiples of the lengths' unit (`grid`), and looks for regular rises that are rarer
//! (`stairs`). Once it finds such a run, it fits a line to the
//! samples (`line`) and to the count of blocks (`per_block`), and under a sawtooth compares each tooth with the one
//! before (`season`).
//!
//! # How growth is judged
//!
//! `analysis::growth` takes one observation at a time (`step(state, observation) -> state`) and watches six resources
//! of each process on each device. It reads the allocator's counters only at the end of a step, always in the same
//! phase. It reads the others (pinned and host memory, the driver's figure, the device) whenever they arrive, as of the
//! latest step. A job that counts no steps is watched by the second, and its episodes have seconds for steps. Its first
//! five minutes may be the loading of its model, so growth is found then only if it is plain (`plain`). Growth that is
//! found after a warm-up is dated back as far as it has the same slope.
//!
//! 1. **Floors.** For each series it forms the lowest values of stretches of 1, 2, 4, … samples. Memory that the job
//!    releases within a stretch (lengths, evaluation, alternating optimizers, a metric that is reset) is not in its
//!    lowest value, so every period vanishes at some horizon. The count of live blocks is a separate series: lengths do
//!    not affect it, so 512 bytes per step are a straight line there under any noise.
//! 2. **Runs of new highs.** At each horizon, a run is growth if it has at least 8 rises over at least 20 steps, spread
//!    over its time, none of them more than half of the gain (a jump of the level is not growth), the later half with
//!    its share (saturation is not growth), above what was lately reached, and with three times the gain that was
//!    lately released (a known sawtooth is not growth).
//! 3. **Teeth.** Under a sawtooth of any period, the lowest count after each fall is a separate series (`teeth`). Three
//!    consecutive rises of it are growth if the last two have about the same pace. A tooth has at least four rises; the
//!    outputs that an evaluation leaves until the next one are a level.
//!    Three lasting rises of the count are a staircase if they are about equal, about equally far apart and the count
//!    is level in between (`stairs`): what an epoch, a fold or an evaluation leaves behind. The episode then has the
//!    height and the distance of its stairs.
//! 4. **Units.** Memory that follows a batch's length has a fixed number of bytes per token. Once a few changes of the
//!    requested bytes have a common divisor (Euclid) larger than rounding, the remainder is a separate series. Lengths,
//!    curricula, evaluation leftovers and most teeth are whole multiples, so a tensor that grows as well shows at its
//!    first step (`grid`). If it grew before the unit was known, the common divisor divides its growth too; then the
//!    unit is the one that describes the changes, with one remainder, in the fewest bits, and if the remainder divides
//!    it, the peak shows which of the two is kept (`grown`). A remainder that recurs, one of a few whose negatives do
//!    not come, counts as a rise however large; other remainders above half of the unit count as falls, and half of it
//!    as neither. If one in eight falls, the unit is searched again. A run of fewer than 24 changes in whole units,
//!    with no growth of the remainder, comes from the lengths. Two lengths with different bytes per token have no unit.
//! 5. **Lines.** One growing tensor under batches without a unit shows in neither floors nor counts. At each horizon, a
//!    line is fitted to the latest 16 to 32 means (batch means) of the requested bytes, which lack the allocator's
//!    rounding of large requests. It is growth if its slope is 7.5 to 10 standard errors
//!    above 0 (widened for correlated residuals), if it rises in every quarter to a new highest mean, and if the series
//!    is noise and not a random walk: its second differences, which a trend does not affect, shrink as stretches get
//!    longer (`trend`, `moves`).
//! 6. **Random.** A series without growth makes new highs too, about `ln(t/s)` of them between `s` and `t`; the
//!    observed number has to be improbable. A random walk gets as far as the root of its steps; the run has to get four
//!    times further than the series' changes explain, at the horizon with the surest estimate.
//! 7. **Steps that grow.** Longer sentences or larger batches leave more behind if outputs are still alive. A step then
//!    holds three times as much at its peak (the old outputs, the new ones, their gradient), so the peak rises further
//!    than the rest; a kept tensor exists at most twice. Such growth is not raised (`working_set`). The allocator's
//!    rounding makes the peak rise in leaps, so a run in whole units is compared over all remembered rises as well. If
//!    an evaluation or the first steps needed more than the growing steps, the peak does not show it.
//! 8. **Figures.** If nothing ever fell, bytes per step are the gain from the first rise to the latest, divided by the
//!    steps between: random events have no better rate. Otherwise the surest of three lines since the start is used:
//!    through the samples, through the lowest of each stretch, through the lowest of each tooth, with jumps of the
//!    level removed. If lengths or teeth blur them, it is blocks per step times bytes per block. Those are the value
//!    that recurs between nearby steps or, under a sawtooth, between a sample and the one at its place in the tooth
//!    before (seasonal differences, `season`). The remainder of item 4 lacks the whole units of a rise; the surest line
//!    shows how many, if its error is less than a quarter of one. Kept blocks have at least the allocator's 512 bytes.
//! 9. **The end.** A plateau is the absence of rises for three times the longest gap so far, or a rise far behind the
//!    pace so far, if a line through the samples since then is surely less than half as steep (noise hides rises for a
//!    while; the remainder of item 4 has none). A release gives back more than half of the gain. A restart is a falling
//!    step count. If a longer horizon rises three times and released nothing, only a phase ended, and growth is
//!    followed there. After a plateau the next run needs more evidence, so a slow fill-up raises one alert.
//!
//! Layers that are unfrozen one after the other look like a leak, step by step or stair by stair. The probe counts the
//! gradients and the optimizer's state of parameters that joined an optimizer after its first step; they are left out.
//!
//! Reserved memory is not raised while allocated memory grows, which explains it, unless private pools grow several
//! times as much. Only host memory has floors in bytes
//! (4 MiB, a page per step): an interpreter's heap creeps by less. Work per step is constant on average and logarithmic
//! at most; memory is a few hundred rises per resource, whatever the run's length. `tests/it/analysis/corpus.rs` judges
//! all of this on 69 traces of real training loops (`tests/corpus`), on 66 others that nothing is fitted to
//! (`tests/traces`), on 41 variations of the hardest ones (`tests/traces/varied`), and on loops generated from seeds
//! (`corpus/loops.rs`, over a model of PyTorch's allocator), of which odd seeds are only for judging.

mod alert;
mod grid;
mod grown;
mod horizons;
mod new_highs;
mod sawtooth;
mod stairs;
mod trend;
mod watch;

use crate::{
    facts::units::{self, Stamp},
    model::{
        analysis::{
            curve::Curve,
            episode::{Axis, End, Episode, Resolved, Resource},
            packed::Numbers,
        },
        statistics,
    },
};
use alert::Figures;
use horizons::Horizons;
use new_highs::Run;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
pub use watch::FIRST;
use watch::{Change, Watch};

/// A resource at one position of the axis: bytes, and for live allocations the other counts.
#[derive(Clone, Copy, Debug, Default)]
struct GrowthInput {
    bytes: u64,
    /// Requested bytes.
    requested: Option<u64>,
    /// Live blocks.
    blocks: Option<u64>,
    /// The peak of `bytes` so far, within steps too.
    peak: Option<u64>,
}

/// Growth began where its slope is still within this ratio of that found; nearer samples show no slope.
const ALIKE: f64 = 1.4;
const NEAR: u64 = 16;

/// If private pools grow this many times as much as live memory, their growth is reported beside that of live memory.
const OF_POOLS: u64 = 2;

/// The memory of one process on one device at one instant, in bytes unless noted; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Steps completed, at the boundary of a step; `None` between steps.
    pub step: Option<u64>,
    /// When.
    pub at: Stamp,
    /// Bytes of live allocations.
    pub allocated: Option<u64>,
    /// Requested bytes of them, before rounding.
    pub requested: Option<u64>,
    /// Number of live allocations.
    pub blocks: Option<u64>,
    /// The peak of live allocations so far, within steps too.
    pub peak: Option<u64>,
    /// Bytes and blocks of live allocations that are bounded: gradients and optimizer's state of parameters that joined
    /// their optimizer late.
    pub bounded: Option<(u64, u64)>,
    /// Bytes that the allocator reserved from the driver.
    pub reserved: Option<u64>,
    /// The part of them in private pools of CUDA graphs.
    pub pools: Option<u64>,
    /// Bytes that the driver charges to the process beyond `reserved`.
    pub driver: Option<u64>,
    /// Used bytes of the device that belong to no probed process.
    pub device: Option<u64>,
    /// Page-locked host memory.
    pub pinned: Option<u64>,
    /// Resident host memory.
    pub host: Option<u64>,
}

/// The state of the detector and the growth it found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    axis: Option<Axis>,
    began: Stamp,
    now: Stamp,
    place: u64,
    curves: BTreeMap<Resource, Curve>,
    pools: Curve,
    watches: Vec<Watch>,
    episodes: Episodes,
}

/// Applies one more observation.
///
/// Between steps the allocator's counters are in another phase than at a step's end, so only the memory outside the
/// allocator is read then, as of the latest step. A job that has not counted a step yet is watched by the second. A
/// repeated observation changes nothing. A falling step count is a restart: episodes end and watching begins again.
#[must_use]
pub fn step(mut state: Growth, seen: &Observation) -> Growth {
    let Some(place) = state.place_of(seen) else { return state };
    state.place = place;
    state.now = state.now.max(seen.at);
    if let Some(pools) = seen.pools {
        state.pools.push(place, pools);
    }
    let inside = seen.step.is_some() || state.axis == Some(Axis::Seconds);
    for &resource in Resource::ALL {
        let value = match resource {
            Resource::Allocated => seen.allocated.filter(|_| inside),
            Resource::Reserved => seen.reserved.filter(|_| inside),
            Resource::Driver => seen.driver,
            Resource::Device => seen.device,
            Resource::Pinned => seen.pinned,
            Resource::Host => seen.host,
        };
        if let Some(value) = value {
            state.curves.entry(resource).or_default().push(place, value);
            let (bytes, blocks) = seen.bounded.unwrap_or_default();
            let beyond = |it: u64| it.saturating_sub(bytes);
            let seen_of = match resource {
                Resource::Allocated => GrowthInput {
                    bytes: beyond(value),
                    requested: seen.requested.map(beyond),
                    blocks: seen.blocks.map(|it| it.saturating_sub(blocks)),
                    peak: seen.peak,
                },
                Resource::Reserved => GrowthInput { bytes: beyond(value), ..GrowthInput::default() },
                _ => GrowthInput { bytes: value, ..GrowthInput::default() },
            };
            state.watch(resource, seen.at, seen_of);
        }
    }
    state
}

impl Growth {
    /// Returns every remembered episode, in the order they were raised.
    pub fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.episodes.iter()
    }

    /// Returns how many episodes were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.episodes.forgotten()
    }

    /// Returns the unit that growth is measured over; `None` before the first observation.
    pub fn axis(&self) -> Option<Axis> {
        self.axis
    }

    /// Returns a resource over the whole run since the latest restart, at a growing stride; `None` where it is unknown.
    pub fn curve(&self, resource: Resource) -> Option<&Curve> {
        self.curves.get(&resource)
    }

    /// Returns for how much of the axis live allocations were watched since the latest restart; 0 if they are unknown.
    pub fn watched(&self) -> u64 {
        self.watches.iter().find(|it| it.resource() == Resource::Allocated).map_or(0, Watch::span)
    }

    /// Formats how much of the needed data there is: `12 of 32 steps`, `7 of 300 s`.
    pub fn progress(&self) -> String {
        let unit = if self.axis == Some(Axis::Seconds) { "s" } else { "steps" };
        format!("{} of {} {unit}", self.watched(), self.enough())
    }

    /// Returns how much of the axis has to be watched before the absence of growth means something.
    pub fn enough(&self) -> u64 {
        match self.axis {
            Some(Axis::Seconds) => 300,
            _ => 32,
        }
    }

    /// Returns the position of an observation on the axis; `None` for a repeated one.
    fn place_of(&mut self, seen: &Observation) -> Option<u64> {
        const SECOND: u64 = 1_000_000;
        match (seen.step, self.axis) {
            (Some(step), Some(Axis::Steps)) => match step.cmp(&self.place) {
                std::cmp::Ordering::Greater => {}
                std::cmp::Ordering::Less if seen.at > self.now => self.restart(step, seen.at),
                _ => return None,
            },
            (Some(step), before) => {
                if before.is_some() {
                    self.restart(step, seen.at);
                }
                self.axis = Some(Axis::Steps);
            }
            (None, Some(Axis::Steps)) => return (seen.at >= self.now).then_some(self.place),
            (None, before) => {
                if before.is_none() {
                    self.axis = Some(Axis::Seconds);
                    self.began = seen.at;
                }
                return (before.is_none() || seen.at >= self.now).then(|| seen.at.since(self.began) / SECOND);
            }
        }
        seen.step
    }

    /// Whether private pools grow several times as much as live memory.
    fn is_of_pools(&self) -> bool {
        let gained = |it: &Curve, from: u64| {
            let before = it.buckets().iter().find(|bucket| bucket.x >= from)?.low;
            it.buckets().newest()?.last.checked_sub(before)
        };
        let live = self.curves.get(&Resource::Allocated);
        let gains = || {
            let (from, _) = self.pools.ends()?;
            gained(&self.pools, from).zip(gained(live?, from))
        };
        gains().is_some_and(|(pools, live)| pools > OF_POOLS * live)
    }

    fn restart(&mut self, place: u64, at: Stamp) {
        self.watches.clear();
        self.curves.clear();
        self.pools = Curve::default();
        self.episodes.restart(place, at);
    }

    fn watch(&mut self, resource: Resource, at: Stamp, seen: GrowthInput) {
        let (place, axis) = (self.place, self.axis.unwrap_or_default());
        // Live memory is reserved too: one cause, one alarm. What private pools take beyond it is another.
        let explained = resource == Resource::Reserved
            && self.watches.iter().any(|it| it.resource() == Resource::Allocated && it.is_active())
            && !self.is_of_pools();
        let index = self.watches.iter().position(|it| it.resource() == resource).unwrap_or_else(|| {
            self.watches.push(Watch::new(resource, axis));
            self.watches.len() - 1
        });
        let Some(it) = self.watches.get_mut(index) else { return };
        match it.push(place, seen, !explained) {
            None => {}
            Some(Change::Raised(mut found)) => {
                let curve = self.curves.get(&resource).filter(|_| it.has_warm_up());
                // Only resident memory is read less often than steps end.
                let rise = |curve| if resource == Resource::Host { usual_rise(curve) } else { 0.0 };
                let began = |curve| beginning(curve, found.since, found.per_step, rise(curve));
                if let Some((since, bytes)) = curve.and_then(began) {
                    found.since = since;
                    found.gained += it.begins_at(bytes as f64);
                }
                self.episodes.raise(found.episode(resource, axis, place, at));
            }
            Some(Change::Lasts(it)) => self.episodes.go_on(resource, place, &it),
            Some(Change::Ended(end)) => {
                self.episodes.resolve(resource, place, at, end);
                if resource == Resource::Allocated
                    && let Some(it) = self.watches.iter_mut().find(|it| it.resource() == Resource::Reserved)
                {
                    it.begin_again(place);
                }
            }
        }
    }
}

/// Returns where growth began that was found after a warm-up, if that was before `since`, and the bytes there: as long
/// ago as a line to there has about the same slope, give or take a rise.
fn beginning(curve: &Curve, since: u64, rate: f64, rise: f64) -> Option<(u64, u64)> {
    let points: Vec<(u64, u64)> = curve.buckets().iter().filter(|it| it.x <= since).map(|it| (it.x, it.last)).collect();
    let (at, bytes) = *points.last()?;
    let is_on_line = |&&(x, value): &&(u64, u64)| {
        let (gained, line) = (bytes as f64 - value as f64, rate * (at - x) as f64);
        at - x < NEAR || (line / ALIKE - rise..=line * ALIKE + rise).contains(&gained)
    };
    let count = points.iter().rev().skip(1).take_while(is_on_line).count();
    let line = points.get(points.len() - 1 - count..)?;
    // What is level at its beginning was before it.
    let level =
        line.windows(2).take_while(|two| two.first().map(|point| point.1) >= two.last().map(|point| point.1)).count();
    let (x, value) = *line.get(level)?;
    let began = if level == 0 && line.len() == points.len() { x } else { x.saturating_add(1) };
    (at - x >= NEAR && began < since).then_some((began, value))
}

/// Returns the median of a curve's rises. A figure that is read seldom, such as resident memory, rises by much at once:
/// a point is as far from the line as one of its rises.
fn usual_rise(curve: &Curve) -> f64 {
    let values: Vec<u64> = curve.buckets().iter().map(|it| it.last).collect();
    let rises = values.windows(2).filter_map(|two| two.get(1)?.checked_sub(*two.first()?).filter(|it| *it > 0));
    statistics::median(rises).unwrap_or(0) as f64
}

/// Most episodes remembered; the oldest resolved one goes first.
pub const EPISODES: usize = 64;

/// Bounded history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Episodes {
    kept: VecDeque<Episode>,
    forgotten: u64,
}

impl Episodes {
    fn iter(&self) -> impl Iterator<Item = &Episode> {
        self.kept.iter()
    }

    fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// At most one episode of a resource lasts, so there always is a resolved one to forget.
    fn raise(&mut self, episode: Episode) {
        if self.kept.len() == EPISODES {
            let oldest = self.kept.iter().position(|it| it.resolved.is_some()).unwrap_or(0);
            self.kept.remove(oldest);
            self.forgotten += 1;
        }
        self.kept.push_back(episode);
    }

    fn go_on(&mut self, resource: Resource, place: u64, figures: &Figures) {
        if let Some(it) = self.open(resource) {
            it.last_step = place;
            it.bytes_per_step = figures.per_step;
            it.interval = figures.interval;
            it.blocks_per_step = figures.blocks_per_step;
            it.gained = figures.gained;
            it.stairs = figures.stairs;
        }
    }

    fn resolve(&mut self, resource: Resource, step: u64, at: Stamp, end: End) {
        if let Some(it) = self.open(resource) {
            it.resolved = Some(Resolved { step, at, end });
        }
    }

    /// Ends every lasting episode.
    fn restart(&mut self, step: u64, at: Stamp) {
        for it in self.kept.iter_mut().filter(|it| it.resolved.is_none()) {
            it.resolved = Some(Resolved { step, at, end: End::Restarted });
        }
    }

    fn open(&mut self, resource: Resource) -> Option<&mut Episode> {
        self.kept.iter_mut().rev().find(|it| it.resource == resource && it.resolved.is_none())
    }
}

impl Figures {
    /// Creates an episode with these figures.
    fn episode(&self, resource: Resource, axis: Axis, place: u64, at: Stamp) -> Episode {
        Episode {
            resource,
            axis,
            since_step: self.since,
            first_alert_step: place,
            first_alert_at: at,
            last_step: place,
            resolved: None,
            bytes_per_step: self.per_step,
            interval: self.interval,
            blocks_per_step: self.blocks_per_step,
            gained: self.gained,
            stairs: self.stairs,
        }
    }
}

/// If the peak rises this many times as far as the rest, the steps grow.
const FURTHER: f64 = 2.25;

/// The peak must rise at least this often, and once in this many rises of the run, because lengths set a new peak now
/// and then.
const RISES: usize = 2;
const OFTEN: usize = 6;

/// The peak of live memory so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WorkingSet {
    peaks: Horizons,
    known: bool,
}

impl WorkingSet {
    /// Adds the peak so far; once known, every sample must have it.
    fn push(&mut self, at: u64, peak: Option<u64>) {
        self.known = peak.is_some();
        if let Some(peak) = peak {
            self.peaks.push(at, peak as f64);
        }
    }

    /// Returns whether the peak rose with a run of a series, and further. `by_all` compares all remembered rises as
    /// well: the allocator adds up to 1 MiB to a large request, so the peak rises in leaps that a short run may miss.
    fn explains(&self, level: usize, run: &Run, series: &Horizons, by_all: bool) -> bool {
        self.rose_further(level, run.since, series) || by_all && self.rose_further(level, 0, series)
    }

    fn rose_further(&self, level: usize, since: u64, series: &Horizons) -> bool {
        let from = since.max(self.peaks.remembered(level)).max(series.remembered(level));
        let ((left, gain), (rises, further)) = (series.gained_after(level, from), self.peaks.gained_after(level, from));
        self.known && rises >= RISES.max(left / OFTEN) && further >= FURTHER * gain
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    at: u64,
    bytes: f64,
    /// Bytes of the remainder after the lengths of batches.
    beside: Option<f64>,
    /// The lengths' unit, in bytes; 0 if there is none.
    unit: u64,
    blocks: Option<f64>,
    /// Whether the lowest count of a tooth was just passed.
    ends_tooth: bool,
    /// Whether a tooth begins with it.
    begins_tooth: bool,
}

/// Numbers of a packed point.
const NUMBERS: usize = 6;

impl Numbers<NUMBERS> for Point {
    fn numbers(&self) -> [u64; NUMBERS] {
        let values = [Some(self.bytes), self.beside, self.blocks];
        let [(bytes, of_bytes), (beside, of_beside), (blocks, of_blocks)] = values.map(packed);
        let flags = of_bytes | of_beside << 2 | of_blocks << 4;
        let flags = flags | u64::from(self.ends_tooth) << 6 | u64::from(self.begins_tooth) << 7;
        [self.at, flags, self.unit, bytes, beside, blocks]
    }

    fn of_numbers(&[at, flags, unit, bytes, beside, blocks]: &[u64; NUMBERS]) -> Self {
        Self {
            at,
            bytes: unpacked(bytes, flags).unwrap_or(0.0),
            beside: unpacked(beside, flags >> 2),
            unit,
            blocks: unpacked(blocks, flags >> 4),
            ends_tooth: flags & 1 << 6 != 0,
            begins_tooth: flags & 1 << 7 != 0,
        }
    }
}

/// Whether a value is known, and whether its number is itself and not its bits.
const KNOWN: u64 = 1;
const WHOLE: u64 = 2;

/// Returns a value's number, and flags. Bytes and blocks are whole numbers, whose differences are small; those of the
/// bits of two floats are not.
fn packed(value: Option<f64>) -> (u64, u64) {
    let Some(value) = value else { return (0, 0) };
    let whole = units::whole(value);
    let is_whole = (whole as f64).to_bits() == value.to_bits();
    if is_whole { (whole, KNOWN | WHOLE) } else { (value.to_bits(), KNOWN) }
}

fn unpacked(number: u64, flags: u64) -> Option<f64> {
    let value = if flags & WHOLE == 0 { f64::from_bits(number) } else { number as f64 };
    (flags & KNOWN != 0).then_some(value)
}

#[cfg(test)]
mod tests;
