//! Lasting growth, followed at the horizon that found it: its figures and its end.

use super::{
    Point,
    grid::{NEAR, PerBlock},
    horizons::Horizons,
    new_highs::{Block, Climb, Run},
    sawtooth::Season,
};
use crate::model::{
    analysis::episode::{End, Stairs},
    statistics::LineFit,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A plateau lasts this many times the longest gap between two rises.
const PATIENCE: f64 = 3.0;

/// The shortest plateau, on the axis.
const QUIET: f64 = 40.0;

/// The shortest plateau, in stretches of the horizon.
const STRETCHES: f64 = 6.0;

/// This many rises at a longer horizon show that growth continues there: since the last one at the alert's horizon, or
/// after a release since growth began.
const STILL: usize = 3;

/// Below this share of its former pace, growth has ended.
const SLOWER: f64 = 0.1;

/// The shortest stretch over which the pace of the bytes is compared with that so far, on the axis.
const PIECE: f64 = 40.0;

/// At an end, a line through the samples since the latest rise is surely below this share of the former pace.
const RESTS: f64 = 0.5;

/// A rise of this many times the pace, and of more than everything gained, is a jump of the level.
const JUMP: f64 = 16.0;

/// If the relative half width of a slope's interval exceeds this, the count of blocks is used as well.
const UNSURE: f64 = 0.01;

/// Half widths that a unit of the lengths must exceed for whole units to be counted.
const UNITS: f64 = 4.0;

/// Half widths by which the two may differ.
const DISAGREE: f64 = 4.0;

/// Allocators round every block up to at least this.
const LEAST_BLOCK: f64 = 512.0;

/// Stairs that a line measures better than their own heights and distances.
const MANY_STAIRS: u64 = 8;

/// The figures of lasting growth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) since: u64,
    pub(super) per_step: f64,
    pub(super) interval: (f64, f64),
    pub(super) blocks_per_step: Option<f64>,
    pub(super) gained: u64,
    pub(super) stairs: Option<Stairs>,
}

/// The series that showed the growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Found {
    /// Lowest counts of blocks.
    Blocks,
    /// Lowest counts of blocks, from one fall to the next.
    Teeth,
    /// Levels of the count of blocks.
    Stairs,
    /// Lowest bytes.
    Bytes,
    /// Lowest bytes of the remainder after the lengths of batches.
    Beside,
    /// Mean bytes.
    Means,
}

impl Found {
    fn is_count(self) -> bool {
        matches!(self, Self::Blocks | Self::Teeth | Self::Stairs)
    }
}

/// The latest jump of the level, and the highest value before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Jump {
    by: f64,
    top: f64,
    top_at: u64,
}

/// Lines through bytes and blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Lines {
    bytes: LineFit,
    blocks: LineFit,
}

impl Lines {
    fn push(&mut self, since: u64, point: Point) {
        let x = (point.at + 1).saturating_sub(since) as f64;
        self.bytes.push(x, point.bytes);
        if let Some(blocks) = point.blocks {
            self.blocks.push(x, blocks);
        }
    }
}

/// Lines through the lowest sample of each of many stretches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Lowest {
    lines: Lines,
    stretch: Option<Point>,
}

impl Lowest {
    /// Adds a sample, and whether it ends its stretch. With counted blocks, the lowest count decides.
    fn push(&mut self, since: u64, point: Point, counted: bool, ends: bool) {
        let value = |it: &Point| it.blocks.filter(|_| counted).unwrap_or(it.bytes);
        let lowest = self.stretch.filter(|it| value(it) <= value(&point)).unwrap_or(point);
        self.stretch = Some(lowest).filter(|_| !ends);
        if ends {
            self.lines.push(since, lowest);
        }
    }
}

/// A stretch of samples: where it begins, the bytes there, a line through them, and how many there have to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Piece {
    from: Option<(u64, f64)>,
    line: LineFit,
    least: f64,
}

impl Piece {
    fn push(&mut self, point: Point) {
        let (from, _) = *self.from.get_or_insert((point.at, point.bytes));
        self.line.push(point.at.saturating_sub(from) as f64, point.bytes);
    }
}

/// Lasting growth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Alert {
    pub(super) found: Found,
    pub(super) level: usize,
    pub(super) top_at: u64,
    since: u64,
    base: f64,
    base_bytes: f64,
    top: f64,
    gap: f64,
    /// Bytes that jumps of the level added to the series.
    lifted: f64,
    jump: Option<Jump>,
    /// Lines through every sample.
    all: Lines,
    /// A line through the remainder after the lengths of batches.
    beside: LineFit,
    /// The unit of the lengths, in bytes; 0 if it is unknown.
    unit: f64,
    /// Lines through the lowest sample of each stretch of the horizon, and of each tooth.
    by_stretch: Lowest,
    by_tooth: Lowest,
    taken: u64,
    /// A line through every sample since the latest rise.
    rest: LineFit,
    /// A line through the bytes of the latest stretch.
    piece: Piece,
    /// Whether the bytes came to rest while the count of blocks goes on.
    is_slowed: bool,
    per_block: PerBlock,
    near: VecDeque<Point>,
    season: Season,
}

impl Alert {
    pub(super) fn new(found: Found, level: usize, run: Run, recent: &[Point]) -> Self {
        let from = recent.partition_point(|it| it.at < run.since);
        let before = recent.get(from.saturating_sub(1));
        let mut alert = Self {
            found,
            level,
            since: run.since,
            base: run.base,
            base_bytes: before.map_or(run.base, |it| it.bytes),
            top: run.top,
            top_at: run.top_at,
            gap: run.gap,
            lifted: 0.0,
            jump: None,
            all: Lines::default(),
            beside: LineFit::default(),
            unit: 0.0,
            by_stretch: Lowest::default(),
            by_tooth: Lowest::default(),
            taken: 0,
            rest: LineFit::default(),
            piece: Piece::default(),
            is_slowed: false,
            per_block: PerBlock::default(),
            near: VecDeque::new(),
            season: Season::default(),
        };
        if let Some(it) = before {
            alert.all.push(run.since, Point { at: run.since, ..*it });
        }
        recent.iter().skip(from).for_each(|it| alert.take(*it));
        alert
    }

    /// Sets the bytes at which it began, and returns how much lower they are than those known.
    pub(super) fn begins_at(&mut self, bytes: f64) -> f64 {
        std::mem::replace(&mut self.base_bytes, bytes) - bytes
    }

    pub(super) fn take(&mut self, point: Point) {
        self.taken += 1;
        let counted = self.found.is_count();
        self.compare(point);
        self.unit = point.unit as f64;
        if let Some(beside) = point.beside {
            self.beside.push(point.at.saturating_sub(self.since) as f64, beside);
        }
        let lifted = if matches!(self.found, Found::Bytes | Found::Means) { self.lifted } else { 0.0 };
        let point = Point { bytes: point.bytes - lifted, ..point };
        let value = match self.found {
            Found::Blocks | Found::Teeth | Found::Stairs => point.blocks,
            Found::Beside => point.beside,
            Found::Bytes | Found::Means => None,
        };
        let value = value.unwrap_or(point.bytes);
        self.rest.push(point.at.saturating_sub(self.since) as f64, value);
        self.piece.push(point);
        let ends = self.taken.is_multiple_of(1 << self.level.min(63));
        self.all.push(self.since, point);
        self.by_stretch.push(self.since, point, counted, ends && self.found != Found::Teeth);
        self.by_tooth.push(self.since, point, counted, point.ends_tooth);
    }

    /// Compares a sample with earlier ones that differ from it by what was kept.
    fn compare(&mut self, point: Point) {
        let Some(blocks) = point.blocks else { return };
        let was_known = self.season.is_known();
        let other = self.season.push(point);
        if self.season.is_known() {
            if !was_known {
                // Steps of one tooth also differ by what is released at its end.
                self.per_block = PerBlock::default();
                self.near.clear();
            }
            if let Some(it) = other {
                self.per_block.push(point.bytes - it.bytes, blocks - it.blocks.unwrap_or(blocks));
            }
            return;
        }
        for it in &self.near {
            self.per_block.push(point.bytes - it.bytes, blocks - it.blocks.unwrap_or(blocks));
        }
        if self.near.len() == NEAR {
            self.near.pop_front();
        }
        self.near.push_back(point);
    }

    /// Whether the bytes surely grow at a small part of their pace so far, though the count of blocks goes on: a buffer
    /// is full, and small blocks are still kept. What grows from then on is growth of its own.
    fn is_slower(&mut self) -> bool {
        let Some((from, bytes)) = self.piece.from.filter(|_| self.found == Found::Blocks && self.level == 0) else {
            return false;
        };
        let length = PIECE.max(PATIENCE * self.gap);
        if self.piece.line.count() < length.max(self.piece.least) {
            return false;
        }
        let pace = (bytes - self.base_bytes) / (from.saturating_sub(self.since) as f64 + 1.0);
        let Some((slope, half)) = self.piece.line.slope() else { return false };
        // The first stretch has nothing before it to compare with.
        if from <= self.since || slope - half > SLOWER * pace {
            self.piece = Piece::default();
            return false;
        }
        // Bytes that fall are those of shorter inputs.
        let is_slower = slope.abs() + half < SLOWER * pace;
        if !is_slower {
            // The pace changed within it, or noise hides it.
            self.piece = Piece { least: 2.0 * length.max(self.piece.least), ..Piece::default() };
        }
        is_slower
    }

    /// Returns how growth ended, if it did. The wait for the next rise grows with the observed gaps, and a rise counts
    /// if it is not far behind the pace so far, so that a trickle does not keep ended growth active.
    pub(super) fn end(&mut self, block: Block) -> Option<End> {
        if let Some(it) = self.jump.take_if(|it| block.low < self.top - 0.5 * it.by) {
            (self.top, self.top_at) = (it.top, it.top_at);
            self.base -= it.by;
            self.lifted -= it.by;
        }
        let waited = (block.to - self.top_at) as f64;
        let pace = (self.top - self.base) / (self.top_at.saturating_sub(self.since) as f64 + 1.0);
        let rise = block.low - self.top;
        if self.is_slower() {
            // The next growth begins with this stretch.
            self.top_at = self.piece.from.map_or(self.top_at, |it| it.0);
            self.is_slowed = true;
            return Some(End::Plateau);
        }
        if rise > SLOWER * pace * waited {
            self.gap = self.gap.max(waited);
            if rise > (JUMP * pace * waited).max(self.top - self.base) {
                // The level changed for another reason, such as a first evaluation, so this rise does not count for the
                // pace.
                self.jump = Some(Jump { by: rise, top: self.top, top_at: self.top_at });
                self.base += rise;
                self.lifted += rise;
            }
            self.top = block.low;
            self.top_at = block.to;
            self.rest = LineFit::default();
            return None;
        }
        if block.low < f64::midpoint(self.top, self.base) {
            return Some(End::Released);
        }
        let width = (block.to - block.from) as f64 + 1.0;
        // Noise hides a rise for a while, so a line through the samples since the top must surely be slower.
        let rests = || self.rest.slope().is_none_or(|(slope, half)| slope + half < RESTS * pace);
        (waited > (PATIENCE * self.gap).max(QUIET).max(STRETCHES * width) && rests()).then_some(End::Plateau)
    }

    /// Whether growth continues at a longer horizon, which is followed from then on: an evaluation may raise a growing
    /// series for a while, and the release after it gives back only that.
    pub(super) fn goes_on(&mut self, end: End, series: &Horizons) -> bool {
        // At every horizon, what goes on is the count of blocks.
        if self.is_slowed {
            return false;
        }
        let knows_nothing = |(level, climb, low): (usize, &Climb, f64)| {
            let (top, top_at) = climb.top().filter(|it| it.1 > self.since)?;
            let after = if end == End::Released { self.since } else { self.top_at };
            let rises = climb.rises_after(after) >= STILL;
            (self.base < top && top < self.top && low >= top && rises).then_some((level, top, top_at))
        };
        let Some((level, top, top_at)) = series.longer(self.level).find_map(knows_nothing) else { return false };
        (self.level, self.top, self.top_at) = (level, top, top_at);
        true
    }

    /// Returns the slope from rise to rise if nothing ever fell, otherwise the surest one, and the half width of its
    /// interval.
    fn surest(&self, of: impl Fn(&Lines) -> &LineFit) -> Option<(f64, f64)> {
        let (sure, half) = self.fitted(&of)?;
        let climbed = [&self.all, &self.by_stretch.lines].into_iter().find_map(|it| of(it).climbed());
        Some(climbed.map_or((sure, half), |it| (it, half.max((it - sure).abs()))))
    }

    /// Returns the surest of the slopes and the half width of its interval. Lines through few points must be surer,
    /// about as much as Student's distribution is wider than the normal one.
    fn fitted(&self, of: impl Fn(&Lines) -> &LineFit) -> Option<(f64, f64)> {
        let few = |line: &LineFit| {
            let free = line.count() - 2.0;
            line.slope().map(|(slope, half)| (slope, half * (1.0 + 1.2 / free + 4.1 / (free * free))))
        };
        let found = [of(&self.all).slope(), few(of(&self.by_stretch.lines)), few(of(&self.by_tooth.lines))];
        found.into_iter().flatten().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Blocks per step, and the half width of the interval.
    fn blocks(&self) -> Option<(f64, f64)> {
        let (blocks, half) = self.surest(|it| &it.blocks)?;
        let paired = self.season.blocks().filter(|_| !matches!(self.found, Found::Bytes | Found::Means));
        Some(paired.map_or((blocks, half), |it| (it, half.max((it - blocks).abs()))))
    }

    /// Bytes per step if the remainder after the lengths showed the growth, near the slope of the bytes; `None` if no
    /// figure is near it.
    fn beside_slope(&self, slope: f64, half: f64) -> Option<f64> {
        let about = |it: &f64| *it > 0.0 && (it - slope).abs() <= DISAGREE * half;
        let beside = self.beside.climbed().or_else(|| self.beside.slope().map(|it| it.0))?;
        // The remainder lacks the whole units of a rise. The slope shows how many, if noise is less than one of them.
        let unit = self.unit * self.beside.pace();
        let units = if unit > UNITS * half { ((slope - beside) / unit).round().max(0.0) } else { 0.0 };
        let requested = beside + units * unit;
        let rounded = self.blocks().filter(|it| it.0 > 0.0 && it.1 < UNSURE * it.0).map(|(blocks, _)| {
            let typical = self.season.per_block().and_then(|it| self.per_block.typical(it));
            // Blocks of one size are rounded up; a little less is an error of the count.
            let least = LEAST_BLOCK * (requested / blocks / LEAST_BLOCK - UNSURE).ceil();
            blocks * typical.unwrap_or(least)
        });
        rounded.filter(about).or(Some(requested).filter(about))
    }

    /// Bytes per step, above 0, and the half width of the interval.
    fn slope(&self) -> (f64, f64) {
        let (slope, half) = self.surest(|it| &it.bytes).unwrap_or((0.0, 0.0));
        // Use the series that showed the growth; a line through all samples may fall while the lowest ones rise.
        let mean = (self.top - self.base) / (self.top_at.saturating_sub(self.since) as f64 + 1.0);
        if self.found == Found::Beside {
            let blocks = self.blocks().filter(|it| it.0 > it.1).map_or(0.0, |it| it.0);
            let found = self.beside_slope(slope, half).unwrap_or(slope).max(LEAST_BLOCK * blocks);
            return (if found > 0.0 { found } else { mean }, half);
        }
        if !self.found.is_count() {
            return if slope > 0.0 { (slope, half) } else { (mean, half) };
        }
        if slope > 0.0 && half <= UNSURE * slope {
            return (slope, half);
        }
        let (blocks, of_blocks) = self.blocks().unwrap_or((0.0, 0.0));
        let least = LEAST_BLOCK * if blocks > 0.0 { blocks } else { mean };
        let counted = self
            .per_block
            .typical(self.season.per_block().unwrap_or(slope / blocks))
            .map(|per| (per * blocks, per * of_blocks));
        let (slope, half) = counted.filter(|it| (it.0 - slope).abs() <= DISAGREE * half).unwrap_or((slope, half));
        (slope.max(least), half)
    }

    /// Returns the figures, with the shape of the latest stairs.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    pub(super) fn figures(&self, point: Point, shape: Option<Stairs>) -> Figures {
        let shape = shape.filter(|it| self.found.is_count() && it.last >= self.since);
        // A line through a few stairs depends on where the samples begin and end.
        let is_short = |it: &Stairs| point.at.saturating_sub(self.since) < MANY_STAIRS * it.every;
        let short = shape.filter(|it| self.found == Found::Stairs && is_short(it));
        let own = short.filter(|it| it.bytes > 0);
        let of_stairs = |it: Stairs| {
            let rate = it.bytes as f64 / it.every as f64;
            (rate, rate * it.slack as f64 / it.every as f64)
        };
        let (per_step, half) = own.map_or_else(|| self.slope(), of_stairs);
        Figures {
            since: self.since,
            per_step,
            interval: (per_step - half, per_step + half),
            blocks_per_step: short
                .map(|it| it.blocks as f64 / it.every as f64)
                .or_else(|| self.blocks().map(|it| it.0)),
            gained: (point.bytes - self.base_bytes).max(0.0) as u64,
            stairs: shape.map(|it| Stairs { bytes: (per_step * it.every as f64).round() as u64, ..it }),
        }
    }
}
