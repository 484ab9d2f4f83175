//! One resource of one process: raised once, kept up to date, resolved.

use super::{
    climb::{Bar, Block, Climb, Run},
    horizons::Horizons,
    line::Line,
    per_block::{NEAR, PerBlock},
};
use crate::analysis::episode::{Axis, End, Resource};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Samples before any is looked at: the first steps make what the whole run keeps.
const FIRST: u64 = 2;

/// Samples kept for the first fit.
const RECENT: usize = 256;

/// A plateau lasts so many times the longest gap between two rises.
const PATIENCE: f64 = 3.0;

/// No plateau is shorter than this, on the axis.
const QUIET: f64 = 40.0;

/// No plateau is shorter than so many stretches of the horizon.
const STRETCHES: f64 = 6.0;

/// Rises at a longer horizon, since the last one at the alert's, that show that growth goes on there.
const STILL: usize = 3;

/// Share of its former pace at which growth is taken to have ended.
const SLOWER: f64 = 0.1;

/// Half width of a slope's interval, relative to it, from which on the count of blocks is asked as well.
const UNSURE: f64 = 0.01;

/// Half widths that the two may lie apart.
const DISAGREE: f64 = 4.0;

/// Allocators round every block up to this at least.
const LEAST_BLOCK: f64 = 512.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    at: u64,
    bytes: f64,
    blocks: Option<f64>,
}

/// What a watch has to say after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Verdict {
    Raised(Figures),
    Lasts(Figures),
    Ended(End),
}

/// The figures of growth that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) since: u64,
    pub(super) per_step: f64,
    pub(super) interval: (f64, f64),
    pub(super) blocks_per_step: Option<f64>,
    pub(super) gained: u64,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Watch {
    resource: Resource,
    axis: Axis,
    seen: u64,
    first: Option<u64>,
    last: Option<u64>,
    /// Rises up to here are told, or are the warm-up's.
    origin: Option<u64>,
    /// Whether growth once ended by itself: what saturates may go on for a while.
    came_to_rest: bool,
    bytes: Horizons,
    blocks: Horizons,
    recent: VecDeque<Point>,
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
            recent: VecDeque::new(),
            alert: None,
        }
    }

    pub(super) fn resource(&self) -> Resource {
        self.resource
    }

    /// How much of the axis was seen.
    pub(super) fn span(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| (last - first).saturating_add(1))
    }

    /// Whether growth lasts.
    pub(super) fn is_active(&self) -> bool {
        self.alert.is_some()
    }

    /// Forgets rises up to here: what made them is over.
    pub(super) fn begin_anew(&mut self, at: u64) {
        self.origin = Some(self.origin.map_or(at, |it| it.max(at)));
    }

    /// Takes the next sample; one for a place that was there before is not looked at. The blocks of a job
    /// that has once told them are expected with every sample.
    pub(super) fn push(&mut self, at: u64, bytes: u64, blocks: Option<u64>, may_raise: bool) -> Option<Verdict> {
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
        let point = Point { at, bytes: bytes as f64, blocks: blocks.map(|it| it as f64) };
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(point);
        self.bytes.push(at, point.bytes);
        if let Some(blocks) = point.blocks {
            self.blocks.push(at, blocks);
        }
        if self.alert.is_some() {
            return self.go_on(point);
        }
        if !may_raise || at <= origin {
            return None;
        }
        let bar = self.bar();
        // The count of blocks does not breathe with the lengths of batches: it needs no test against chance.
        let of_blocks = || self.blocks.run(origin, &Bar { chance: 1.0, ..bar }).filter(|_| point.blocks.is_some());
        let of_bytes = || self.bytes.run(origin, &bar);
        let (by_blocks, (level, run)) = match of_blocks() {
            Some(found) => (true, found),
            None => (false, of_bytes()?),
        };
        let alert = self.alert.insert(Alert::new(by_blocks, level, run, &self.recent));
        Some(Verdict::Raised(alert.figures(point)))
    }

    fn go_on(&mut self, point: Point) -> Option<Verdict> {
        let alert = self.alert.as_mut()?;
        alert.take(point);
        let series = if alert.by_blocks { &self.blocks } else { &self.bytes };
        let end = series.completed(alert.level).filter(|it| it.to == point.at).and_then(|it| alert.end(it));
        let Some(end) = end.filter(|it| !alert.goes_on(*it, series)) else {
            return Some(Verdict::Lasts(alert.figures(point)));
        };
        if end == End::Plateau {
            let top_at = alert.top_at;
            self.came_to_rest = true;
            self.begin_anew(top_at);
        }
        self.alert = None;
        self.bytes.forget_moves();
        self.blocks.forget_moves();
        Some(Verdict::Ended(end))
    }

    /// How much of the axis is the job's settling in: caches of the allocator fill as it meets its first
    /// batches, libraries load, and a job without steps may be loading its model.
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
            // An interpreter's heap creeps by less than a page a step (logs, counters), and settles late.
            Resource::Host => Bar { later: 0.45, gain: 4.0 * 1_048_576.0, pace: 4096.0, ..usual },
            // What is reserved is never given back by itself: it is a series of records, its falls are unknown.
            Resource::Reserved => Bar { chance: 1e-5, later: 0.35, ..usual },
            _ => usual,
        };
        if self.came_to_rest { Bar { rises: 16, later: bar.later.max(0.4), ..bar } } else { bar }
    }
}

/// Growth that lasts, followed at the horizon at which it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Alert {
    by_blocks: bool,
    level: usize,
    since: u64,
    base: f64,
    base_bytes: f64,
    top: f64,
    top_at: u64,
    gap: f64,
    bytes_line: Line,
    blocks_line: Line,
    per_block: PerBlock,
    near: VecDeque<Point>,
}

impl Alert {
    fn new(by_blocks: bool, level: usize, run: Run, recent: &VecDeque<Point>) -> Self {
        let from = recent.partition_point(|it| it.at < run.since);
        let before = recent.get(from.saturating_sub(1));
        let mut alert = Self {
            by_blocks,
            level,
            since: run.since,
            base: run.base,
            base_bytes: before.map_or(run.base, |it| it.bytes),
            top: run.top,
            top_at: run.top_at,
            gap: run.gap,
            bytes_line: Line::default(),
            blocks_line: Line::default(),
            per_block: PerBlock::default(),
            near: VecDeque::new(),
        };
        recent.range(from..).for_each(|it| alert.take(*it));
        alert
    }

    fn take(&mut self, point: Point) {
        let x = point.at.saturating_sub(self.since) as f64;
        self.bytes_line.push(x, point.bytes);
        let Some(blocks) = point.blocks else { return };
        self.blocks_line.push(x, blocks);
        for it in &self.near {
            self.per_block.push(point.bytes - it.bytes, blocks - it.blocks.unwrap_or(blocks));
        }
        if self.near.len() == NEAR {
            self.near.pop_front();
        }
        self.near.push_back(point);
    }

    /// How growth ended, if it did. The wait for the next rise grows with the gaps seen, and a rise counts when
    /// it is not far behind the pace so far, so that a trickle does not keep alive what came to rest.
    fn end(&mut self, block: Block) -> Option<End> {
        let waited = (block.to - self.top_at) as f64;
        let pace = (self.top - self.base) / (self.top_at.saturating_sub(self.since) as f64 + 1.0);
        if block.low - self.top > SLOWER * pace * waited {
            self.gap = self.gap.max(waited);
            self.top = block.low;
            self.top_at = block.to;
            return None;
        }
        if block.low < f64::midpoint(self.top, self.base) {
            return Some(End::Released);
        }
        let width = (block.to - block.from) as f64 + 1.0;
        (waited > (PATIENCE * self.gap).max(QUIET).max(STRETCHES * width)).then_some(End::Plateau)
    }

    /// Whether a longer horizon knows nothing of an end, which is followed from then on: an evaluation may lift a series
    /// that grows for a while, and what is given back after it is no more than that.
    fn goes_on(&mut self, end: End, series: &Horizons) -> bool {
        let knows_nothing = |(level, climb, low): (usize, &Climb, f64)| {
            let (top, top_at) = climb.top().filter(|it| it.1 > self.since)?;
            let rises = end == End::Released || climb.rises_after(self.top_at) >= STILL;
            (top < self.top && low >= top && rises).then_some((level, top, top_at))
        };
        let Some((level, top, top_at)) = series.longer(self.level).find_map(knows_nothing) else { return false };
        (self.level, self.top, self.top_at) = (level, top, top_at);
        true
    }

    /// Bytes a step, above 0, and the half width of the interval around it.
    fn slope(&self) -> (f64, f64) {
        let (slope, half) = self.bytes_line.slope().unwrap_or((0.0, 0.0));
        if !self.by_blocks {
            let mean = (self.top - self.base) / (self.top_at.saturating_sub(self.since) as f64 + 1.0);
            return if slope > 0.0 { (slope, half) } else { (mean, half) };
        }
        if half <= UNSURE * slope {
            return (slope, half);
        }
        let (blocks, of_blocks) = self.blocks_line.slope().unwrap_or((0.0, 0.0));
        let counted = self.per_block.typical(slope / blocks).map(|per| (per * blocks, per * of_blocks));
        let (slope, half) = counted.filter(|it| (it.0 - slope).abs() <= DISAGREE * half).unwrap_or((slope, half));
        (slope.max(LEAST_BLOCK * blocks), half)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    fn figures(&self, point: Point) -> Figures {
        let (per_step, half) = self.slope();
        Figures {
            since: self.since,
            per_step,
            interval: (per_step - half, per_step + half),
            blocks_per_step: self.blocks_line.slope().map(|it| it.0),
            gained: (point.bytes - self.base_bytes).max(0.0) as u64,
        }
    }
}
