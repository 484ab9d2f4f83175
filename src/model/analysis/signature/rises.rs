//! Lasting rises of the count of live blocks, one at a time: what each leaves behind, and in what kind of step.

use super::{Row, median};
use serde::{Deserialize, Serialize};

/// Share of all gains that has to last for one rise to be one event: elsewhere the count breathes, and a rise of its
/// floor is what chance made of several.
const CLEAR: f64 = 2.0 / 3.0;

/// Steps of either kind whose times are compared.
const ENOUGH: usize = 3;

/// Lasting rises of the count of live blocks, between rows that follow each other step by step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rises {
    /// How many.
    pub count: u64,
    /// Steps looked at.
    pub steps: u64,
    /// Blocks gained by the usual one.
    pub blocks: u64,
    /// Bytes gained by the usual one; `None` where they differ from one to the next.
    pub bytes: Option<u64>,
    /// Bytes that the program asked for with the usual one, before rounding; `None` where they differ.
    pub requested: Option<u64>,
    /// Share of all blocks gained that were kept, from 0 to 1.
    pub kept: f64,
    /// The time of a step with a rise against that of a step without; `None` where there are too few of either.
    pub time: Option<f64>,
}

impl Rises {
    /// Whether one rise is one event: what was gained at a time was kept.
    pub fn are_clear(&self) -> bool {
        self.kept >= CLEAR
    }

    /// Bytes that the program asked for with each block; `None` where they differ from one rise to the next.
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

/// Rises of the floor of the count, which is the least of all later counts, so that what a phase lifts for a while
/// (an evaluation) is none. `None` without any.
pub(super) fn rises(rows: &[Row]) -> Option<Rises> {
    let (mut gains, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kept, mut gained) = (0_u64, 0_u64);
    let mut floor = u64::MAX;
    for pair in rows.windows(2).rev() {
        let [old, new] = pair else { continue };
        let (Some(before), Some(after)) = (old.counters.blocks, new.counters.blocks) else { continue };
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
            bytes: rise(new.counters.allocated, old.counters.allocated),
            requested: rise(new.counters.requested, old.counters.requested),
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
        time: time(&mut with, &mut without),
    })
}

/// What more than half of them are, and more than one.
fn usual(values: Vec<u64>) -> Option<u64> {
    let of = values.len();
    let (value, times) = most_frequent(values)?;
    (times > 1 && times * 2 > of).then_some(value)
}

/// The most frequent value and how often it is there; the largest of several.
fn most_frequent(mut values: Vec<u64>) -> Option<(u64, usize)> {
    values.sort_unstable();
    let most = values.chunk_by(|a, b| a == b).max_by_key(|it| it.len())?;
    most.first().map(|it| (*it, most.len()))
}

fn time(with: &mut [f64], without: &mut [f64]) -> Option<f64> {
    let enough = with.len() >= ENOUGH && without.len() >= ENOUGH;
    let (with, without) = (median(with)?, median(without)?);
    (enough && without > 0.0).then(|| with / without)
}
