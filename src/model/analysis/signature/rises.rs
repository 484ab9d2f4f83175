//! Lasting rises of the count of live blocks: what each one leaves behind, and in what kind of step.

use super::{Counter, CounterRow};
use crate::model::statistics::median_f64;
use serde::{Deserialize, Serialize};

/// Share of all gains that must last for one rise to be one event. Otherwise the count goes up and down, and a rise of
/// its floor combines several events by chance.
const CLEAR: f64 = 2.0 / 3.0;

/// Steps of either kind whose times are compared.
const ENOUGH: usize = 3;

/// Lasting rises of the count of live blocks, between consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rises {
    /// Number of rises.
    pub count: u64,
    /// Number of steps examined.
    pub steps: u64,
    /// Blocks gained by a typical rise.
    pub blocks: u64,
    /// Bytes gained by a typical rise; `None` if they vary.
    pub bytes: Option<u64>,
    /// Requested bytes of a typical rise, before rounding; `None` if they vary.
    pub requested: Option<u64>,
    /// Share of all blocks gained that were kept, from 0 to 1.
    pub kept: f64,
    /// The duration of a step with a rise relative to one without; `None` if there are too few of either.
    pub time: Option<f64>,
}

impl Rises {
    /// Returns whether one rise is one event, because the job kept what it gained.
    pub fn are_clear(&self) -> bool {
        self.kept >= CLEAR
    }

    /// Returns the requested bytes per block; `None` if they vary between rises.
    pub fn requested_per_block(&self) -> Option<f64> {
        Some(self.requested? as f64 / self.blocks.max(1) as f64)
    }
}

/// One rise.
struct Gain {
    blocks: u64,
    bytes: Option<u64>,
    requested: Option<u64>,
}

/// Finds rises of the count's floor, which is the lowest of all later counts, so that a temporary phase (an evaluation)
/// does not count. `None` without any.
pub(super) fn rises(rows: &[CounterRow]) -> Option<Rises> {
    let (mut gains, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kept, mut gained) = (0_u64, 0_u64);
    let mut floor = u64::MAX;
    for pair in rows.windows(2).rev() {
        let [old, new] = pair else { continue };
        let (Some(before), Some(after)) = (old.get(Counter::Blocks), new.get(Counter::Blocks)) else { continue };
        let high = floor.min(after);
        floor = high.min(before);
        if new.step - old.step != 1 {
            continue;
        }
        gained = gained.saturating_add(after.saturating_sub(before));
        let took = new.at.since(old.at) as f64;
        if floor == high {
            without.push(took);
            continue;
        }
        with.push(took);
        kept = kept.saturating_add(high - floor);
        let seen_whole = after == high;
        let rise = |new: Option<u64>, old: Option<u64>| new?.checked_sub(old?).filter(|_| seen_whole);
        gains.push(Gain {
            blocks: high - floor,
            bytes: rise(new.get(Counter::Allocated), old.get(Counter::Allocated)),
            requested: rise(new.get(Counter::Requested), old.get(Counter::Requested)),
        });
    }
    let (count, steps) = (gains.len() as u64, (with.len() + without.len()) as u64);
    let blocks = most_frequent(gains.iter().map(|it| it.blocks).collect())?.0;
    gains.retain(|it| it.blocks == blocks);
    Some(Rises {
        count,
        steps,
        blocks,
        bytes: usual(gains.iter().filter_map(|it| it.bytes).collect()),
        requested: usual(gains.iter().filter_map(|it| it.requested).collect()),
        kept: kept as f64 / gained.max(1) as f64,
        time: time(&with, &without),
    })
}

/// Rises of reserved memory that are compared at least.
const FEW: usize = 4;

/// Returns the bytes by which reserved memory usually rises from row to row; `None` if they vary or are few.
pub(super) fn of_reserved(rows: &[CounterRow]) -> Option<u64> {
    let reserved = |it: &CounterRow| it.get(Counter::Reserved);
    let rises = rows.windows(2).filter_map(|it| reserved(it.last()?)?.checked_sub(reserved(it.first()?)?));
    let rises: Vec<u64> = rises.filter(|it| *it > 0).collect();
    if rises.len() < FEW { None } else { usual(rises) }
}

/// Returns the value that more than half of them have, and more than one.
fn usual(values: Vec<u64>) -> Option<u64> {
    let of = values.len();
    let (value, times) = most_frequent(values)?;
    (times > 1 && times * 2 > of).then_some(value)
}

/// Returns the most frequent value and how often it occurs; the largest of several.
fn most_frequent(mut values: Vec<u64>) -> Option<(u64, usize)> {
    values.sort_unstable();
    let most = values.chunk_by(|a, b| a == b).max_by_key(|it| it.len())?;
    most.first().map(|it| (*it, most.len()))
}

fn time(with: &[f64], without: &[f64]) -> Option<f64> {
    let enough = with.len() >= ENOUGH && without.len() >= ENOUGH;
    let (with, without) = (median_f64(with.iter().copied())?, median_f64(without.iter().copied())?);
    (enough && without > 0.0).then(|| with / without)
}
