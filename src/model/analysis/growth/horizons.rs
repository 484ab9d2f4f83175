//! One series at every horizon: the lowest values of stretches of 1, 2, 4, … samples, each watched for new highs.
//!
//! Memory that the job releases within a stretch is not in its lowest value, so evaluation, lengths and sawteeth vanish
//! at some horizon, whatever their period. Work per sample is two blocks on average.

use super::new_highs::{Bar, Block, Climb, Run};
use serde::{Deserialize, Serialize};

/// Number of horizons: the last one spans 2^20 samples.
const HORIZONS: usize = 21;

/// How many times further than chance a run has to get.
const FURTHER: f64 = 4.0;

/// The same factor for a line, which also has to be straight, and for recent releases.
const ROUGH: f64 = 1.3;
const GIVEN: f64 = 1.0;

/// How a stretch is reduced to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reduce {
    /// Its lowest value.
    #[default]
    Lowest,
    /// Its mean.
    Mean,
}

impl Reduce {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Lowest => a.min(b),
            Self::Mean => f64::midpoint(a, b),
        }
    }
}

/// A series at every horizon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Horizons {
    reduce: Reduce,
    levels: Vec<Level>,
    samples: u64,
    fresh: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Level {
    climb: Climb,
    /// Whether the latest block waits for the one that it is joined with at the next horizon.
    waits: bool,
}

impl Level {
    fn waiting(&self) -> Option<Block> {
        self.climb.last().filter(|_| self.waits)
    }
}

impl Horizons {
    /// Creates a series without samples.
    pub(super) fn new(reduce: Reduce) -> Self {
        Self { reduce, ..Self::default() }
    }

    /// Adds a sample.
    pub(super) fn push(&mut self, at: u64, value: f64) {
        self.samples += 1;
        self.fresh = 0;
        let mut block = Block { from: at, to: at, number: self.samples, low: value };
        for level in 0..HORIZONS {
            if self.levels.len() == level {
                // A session has thousands of these lists, and each becomes longer at every power of two only.
                self.levels.reserve_exact(1);
                self.levels.push(Level::default());
            }
            let Some(it) = self.levels.get_mut(level) else { return };
            let before = it.waiting();
            it.climb.push(block);
            it.waits = before.is_none();
            self.fresh = level + 1;
            let Some(before) = before else { return };
            block = Block { from: before.from, low: self.reduce.of(before.low, block.low), ..block };
        }
    }

    /// Returns whether it has a sample at a position.
    pub(super) fn is_fresh(&self, at: u64) -> bool {
        self.completed(0).is_some_and(|it| it.to == at)
    }

    /// Returns every block that the latest sample completed, shortest horizon first.
    pub(super) fn fresh(&self) -> impl Iterator<Item = (usize, Block)> {
        (0..self.fresh).filter_map(|level| Some((level, self.completed(level)?)))
    }

    /// Returns where the oldest remembered rise at one horizon began; 0 if none was forgotten.
    pub(super) fn remembered(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, |it| it.climb.remembered())
    }

    /// Returns how many rises at one horizon began at or after a position, and their gain without the largest.
    pub(super) fn gained_after(&self, level: usize, place: u64) -> (usize, f64) {
        self.levels.get(level).map_or((0, 0.0), |it| it.climb.gained_after(place))
    }

    /// Returns the block that the latest sample completed at one horizon.
    pub(super) fn completed(&self, level: usize) -> Option<Block> {
        self.levels.get(level).filter(|_| level < self.fresh)?.climb.last()
    }

    /// Returns every horizon longer than one: its level, its highs, and the lowest value of its latest, perhaps
    /// incomplete, stretch.
    pub(super) fn longer(&self, level: usize) -> impl Iterator<Item = (usize, &Climb, f64)> {
        let mut begun: Option<f64> = None;
        self.levels.iter().enumerate().filter_map(move |(at, horizon)| {
            let low = begun.or_else(|| horizon.climb.last().map(|block| block.low));
            begun = begun.into_iter().chain(horizon.waiting().map(|block| block.low)).reduce(f64::min);
            Some((at, &horizon.climb, low?)).filter(|_| at > level)
        })
    }

    /// Returns the run that the latest sample turned into growth, at the shortest horizon that has one.
    pub(super) fn run(&self, origin: u64, bar: &Bar) -> Option<(usize, Run)> {
        self.levels.iter().take(self.fresh).enumerate().filter(|(_, it)| it.climb.rose()).find_map(|(level, it)| {
            Some((level, it.climb.run(origin, bar, |samples| FURTHER * self.stray(level, samples))?))
        })
    }

    /// Returns how far the series gets in this many stretches without growth: as far as it came back at one horizon,
    /// and as its changes carry it. `None` if it wanders: noise changes less between longer stretches, a random walk
    /// changes more.
    pub(super) fn breath(&self, level: usize, stretches: usize) -> Option<f64> {
        let short = level.saturating_sub(1);
        let at = |level: usize| self.levels.get(level).map(|it| &it.climb);
        let rough = |level: usize| at(level)?.moves().roughness();
        let (shorter, longer) = (rough(short)?, rough(short + 1)?);
        // Compare over two doublings if there are enough samples, because chance has a smaller part in that.
        let longer = rough(short + 2).unwrap_or(longer);
        let walked = ROUGH * self.stray(level, stretches as f64 * 2.0_f64.powi(i32::try_from(level).unwrap_or(0)));
        (longer < shorter).then(|| walked.max(GIVEN * at(level).map_or(0.0, Climb::given)))
    }

    /// Forgets the changes so far, because they were growth.
    pub(super) fn forget_moves(&mut self) {
        self.levels.iter_mut().for_each(|it| it.climb.forget_moves());
    }

    /// How far a random walk typically gets in this many samples, estimated at the surest horizon up to `level`.
    /// Lengths and evaluation look like a walk at short horizons and vanish at longer ones; a true walk looks the same
    /// at all of them.
    fn stray(&self, level: usize, samples: f64) -> f64 {
        let mut blocks = samples;
        let mut least = f64::INFINITY;
        for it in self.levels.iter().take(level + 1) {
            least = it.climb.moves().stray(blocks).map_or(least, |it| it.min(least));
            blocks *= 0.5;
        }
        if least.is_finite() { least } else { 0.0 }
    }
}
