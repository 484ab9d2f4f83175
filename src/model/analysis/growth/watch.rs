//! One resource of one process: raised once, updated, resolved.

use super::{
    GrowthInput, Point, WorkingSet,
    alert::{Alert, Figures, Found},
    grid::Grid,
    horizons::{Horizons, Reduce},
    new_highs::{Bar, Run},
    sawtooth::Teeth,
    stairs::Stairs,
    trend::{Plain, Trends},
};
use crate::model::analysis::{
    episode::{Axis, End, Resource},
    growth,
    packed::Packed,
};
use serde::{Deserialize, Serialize};

/// Samples ignored at the start: the first steps allocate what the whole run keeps.
pub const FIRST: u64 = 2;

/// Samples kept for the first fit.
const RECENT: usize = 256;

/// More rises or changes by whole units of the lengths than this are growth.
const MANY: usize = 24;

/// The result of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Change {
    Raised(Figures),
    Lasts(Figures),
    Ended(End),
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Watch {
    resource: Resource,
    axis: Axis,
    seen: u64,
    first: Option<u64>,
    last: Option<u64>,
    /// Rises up to here are reported already, or belong to the warm-up.
    origin: Option<u64>,
    /// Whether growth ended by itself before; saturating memory may continue for a while.
    came_to_rest: bool,
    bytes: Horizons,
    blocks: Horizons,
    means: Horizons,
    mean_blocks: Horizons,
    trends: Trends,
    teeth: Teeth,
    stairs: Stairs,
    plain: Plain,
    grid: Grid,
    beside: Horizons,
    working_set: WorkingSet,
    recent: Packed<Point, { growth::NUMBERS }>,
    alert: Option<Alert>,
}

impl Watch {
    pub(super) fn new(resource: Resource, axis: Axis) -> Self {
        Self {
            resource,
            axis,
            seen: 0,
            first: None,
            last: None,
            origin: None,
            came_to_rest: false,
            bytes: Horizons::default(),
            blocks: Horizons::default(),
            means: Horizons::new(Reduce::Mean),
            mean_blocks: Horizons::new(Reduce::Mean),
            trends: Trends::default(),
            teeth: Teeth::default(),
            stairs: Stairs::default(),
            plain: Plain::default(),
            grid: Grid::default(),
            beside: Horizons::default(),
            working_set: WorkingSet::default(),
            recent: Packed::default(),
            alert: None,
        }
    }

    pub(super) fn resource(&self) -> Resource {
        self.resource
    }

    /// Returns how much of the axis was seen.
    pub(super) fn span(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| (last - first).saturating_add(1))
    }

    /// Returns whether growth lasts.
    pub(super) fn is_active(&self) -> bool {
        self.alert.is_some()
    }

    /// Returns whether growth may have begun before it was watched.
    pub(super) fn has_warm_up(&self) -> bool {
        self.warm_up() > 0
    }

    /// Sets the bytes at which lasting growth began, and returns how much more it has gained by that.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    pub(super) fn begins_at(&mut self, bytes: f64) -> u64 {
        self.alert.as_mut().map_or(0, |it| it.begins_at(bytes).max(0.0) as u64)
    }

    /// Forgets rises up to here, because their cause is gone.
    pub(super) fn begin_again(&mut self, at: u64) {
        self.origin = Some(self.origin.map_or(at, |it| it.max(at)));
    }

    /// Adds the next sample; ignores one for an earlier position. Once a job has reported blocks, every sample must
    /// have them.
    pub(super) fn push(&mut self, at: u64, seen: GrowthInput, may_raise: bool) -> Option<Change> {
        if self.last.is_some_and(|it| at <= it) {
            return None;
        }
        self.first.get_or_insert(at);
        self.last = Some(at);
        self.seen += 1;
        if self.seen <= FIRST {
            return None;
        }
        let origin = *self.origin.get_or_insert(at.saturating_add(self.warm_up()));
        let point = self.keep(at, seen);
        if self.alert.is_some() {
            return self.go_on(point);
        }
        if !may_raise {
            return None;
        }
        let of_plain = || self.plain.run(origin.saturating_sub(self.warm_up())).map(|it| (Found::Blocks, 0, it));
        let found = if at > origin { self.found(at, origin, point.blocks.is_some()) } else { None };
        let (found, level, run) = found.or_else(of_plain)?;
        let alert = self.alert.insert(Alert::new(found, level, run, &self.recent.iter().collect::<Vec<_>>()));
        Some(Change::Raised(alert.figures(point, self.stairs.shape())))
    }

    /// Adds a sample to every series.
    fn keep(&mut self, at: u64, seen: GrowthInput) -> Point {
        let (bytes, blocks) = (seen.bytes as f64, seen.blocks.map(|it| it as f64));
        self.bytes.push(at, bytes);
        if let Some(blocks) = blocks {
            self.blocks.push(at, blocks);
            self.teeth.push(at, blocks);
            self.stairs.push(at, blocks, bytes);
        }
        if self.resource == Resource::Allocated {
            if self.axis == Axis::Seconds {
                self.plain.push(at, &seen);
            }
            // The bytes that the allocator adds to a large request come and go, which is noise.
            self.means.push(at, seen.requested.map_or(bytes, |it| it as f64));
            self.mean_blocks.push(at, blocks.unwrap_or(0.0));
            self.trends.push(self.means.fresh().zip(self.mean_blocks.fresh()));
            self.working_set.push(at, seen.peak);
        }
        let beside = seen.requested.and_then(|it| self.grid.push(at, it, seen.blocks, seen.peak));
        if let Some(beside) = beside {
            self.beside.push(at, beside);
        }
        let point = Point {
            at,
            bytes,
            beside,
            unit: self.grid.unit(),
            blocks,
            ends_tooth: self.teeth.completed().is_some(),
            begins_tooth: self.teeth.begins(),
        };
        self.recent.push_within(RECENT, point);
        point
    }

    /// Returns the run that the latest sample turned into growth, and its series.
    fn found(&self, at: u64, origin: u64, counted: bool) -> Option<(Found, usize, Run)> {
        let bar = self.bar();
        // The count of blocks does not follow the lengths of batches, so it needs no test against chance.
        let of_blocks = || self.blocks.run(origin, &Bar { chance: 1.0, ..bar }).map(|it| (Found::Blocks, it.0, it.1));
        let of_teeth = || {
            self.teeth.completed()?;
            Some((Found::Teeth, 0, self.teeth.climb().steady(origin)?))
        };
        let of_bytes = || self.bytes.run(origin, &bar).map(|it| (Found::Bytes, it.0, it.1));
        // After a plateau, memory may vary: a window over batches of any length wanders.
        let is_far = |level, run: &Run, stretches| {
            let breath = self.means.breath(level, stretches).filter(|_| !self.came_to_rest);
            breath.is_some_and(|it| run.top - run.base >= it)
        };
        let of_means = || {
            self.means.fresh().find_map(|(level, _)| {
                let (run, stretches) = self.trends.run(level, origin)?;
                is_far(level, &run, stretches).then_some((Found::Means, level, run))
            })
        };
        let of_stairs = || self.stairs.run(origin, self.came_to_rest).map(|it| (Found::Stairs, 0, it));
        let by_count = || counted.then(|| of_blocks().or_else(of_teeth).or_else(of_stairs)).flatten();
        let by_bytes = || {
            let bytes = of_bytes()
                .filter(|it| !self.is_of_lengths(&it.2))
                .filter(|it| !self.is_of_steps(it.1, &it.2, &self.bytes));
            bytes.or_else(|| {
                of_means()
                    .filter(|it| !self.is_of_lengths(&it.2))
                    .filter(|it| !self.is_of_steps(it.1, &it.2, &self.means))
            })
        };
        let beside =
            || self.beside.run(origin, &bar).filter(|_| self.beside.is_fresh(at)).map(|it| (Found::Beside, it.0, it.1));
        by_count().or_else(beside).or_else(by_bytes)
    }

    /// Whether a short run rose by whole units of the batch lengths while the remainder stayed.
    fn is_of_lengths(&self, run: &Run) -> bool {
        let rises = self.bytes.gained_after(0, 0).0;
        let later = || self.recent.iter().skip_while(|it| it.at < run.since).map(|it| it.bytes);
        // If lengths go up and down, few highs take many changes.
        let moves = later().zip(later().skip(1)).filter(|(before, after)| before.total_cmp(after).is_ne()).count();
        self.grid.is_known(run.since) && rises.max(moves) < MANY && self.is_in_units(run)
    }

    /// Whether the lengths have a unit and the remainder stayed.
    fn is_in_units(&self, run: &Run) -> bool {
        self.grid.has_unit() && self.beside.gained_after(0, run.since).0 == 0
    }

    /// Whether the steps themselves grew.
    fn is_of_steps(&self, level: usize, run: &Run, series: &Horizons) -> bool {
        self.working_set.explains(level, run, series, self.is_in_units(run))
    }

    fn go_on(&mut self, point: Point) -> Option<Change> {
        let alert = self.alert.as_mut()?;
        let series = match alert.found {
            Found::Blocks | Found::Teeth | Found::Stairs => &self.blocks,
            Found::Bytes => &self.bytes,
            Found::Beside => &self.beside,
            Found::Means => &self.means,
        };
        let is_tooth = alert.found == Found::Teeth;
        let block = match alert.found {
            Found::Teeth => self.teeth.completed(),
            Found::Stairs if alert.level == 0 => self.stairs.level(),
            _ => series.completed(alert.level),
        };
        let end = block.filter(|it| it.to == point.at).and_then(|it| alert.end(it));
        alert.take(point);
        let Some(end) = end.filter(|it| is_tooth || !alert.goes_on(*it, series)) else {
            return Some(Change::Lasts(alert.figures(point, self.stairs.shape())));
        };
        if end == End::Plateau {
            let top_at = alert.top_at;
            self.came_to_rest = true;
            self.begin_again(top_at);
        }
        self.alert = None;
        self.bytes.forget_moves();
        self.blocks.forget_moves();
        Some(Change::Ended(end))
    }

    /// Returns how much of the axis is warm-up: the allocator's caches fill with the first batches, libraries load, and
    /// a job without steps may be loading its model.
    fn warm_up(&self) -> u64 {
        match (self.axis, self.resource) {
            (Axis::Seconds, _) => 300,
            (Axis::Steps, Resource::Reserved) => 48,
            (Axis::Steps, Resource::Host) => 98,
            (Axis::Steps, _) => 0,
        }
    }

    fn bar(&self) -> Bar {
        let usual = Bar { rises: 8, chance: 1e-3, later: 0.25, gain: 0.0, pace: 0.0 };
        let bar = match self.resource {
            // An interpreter's heap creeps by less than a page per step (logs, counters), and settles late.
            Resource::Host => Bar { later: 0.45, gain: 4.0 * 1_048_576.0, pace: 4096.0, ..usual },
            // Reserved memory is rarely released: it is a series of highs whose falls are unknown.
            Resource::Reserved => Bar { chance: 1e-5, later: 0.35, ..usual },
            _ => usual,
        };
        if self.came_to_rest { Bar { rises: 16, later: bar.later.max(0.4), ..bar } } else { bar }
    }
}
