//! Growth of a job without steps that is plain after twenty seconds.
//!
//! A model that is being loaded rises by the second too, for minutes. But it rarely rises by as many blocks in each
//! second, and it frees little meanwhile: the highest of live bytes is their latest.

use super::{Seen, climb::Run};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Seconds that are compared.
const SECONDS: usize = 20;

/// Blocks that come within them, at least: what a loop keeps comes in many equal parts.
const BLOCKS: f64 = 100.0;

/// The largest standard deviation of the blocks of a second, as a share of their mean.
const EVEN: f64 = 0.25;

/// How much of the variance of bytes the count of blocks explains, at least.
const STRAIGHT: f64 = 0.998;

/// One second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    at: u64,
    bytes: f64,
    blocks: f64,
    /// Bytes that were alive beyond those of now.
    freed: u64,
}

/// The latest seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plain {
    rows: VecDeque<Row>,
}

impl Plain {
    /// Adds a sample; without a count and a peak nothing is plain.
    pub(super) fn push(&mut self, at: u64, seen: &Seen) {
        let (Some(blocks), Some(peak)) = (seen.blocks, seen.peak) else { return self.rows.clear() };
        if self.rows.len() > SECONDS {
            self.rows.pop_front();
        }
        let bytes = seen.requested.unwrap_or(seen.bytes) as f64;
        self.rows.push_back(Row { at, bytes, blocks: blocks as f64, freed: peak.saturating_sub(seen.bytes) });
    }

    /// Returns the latest seconds if they are plain growth.
    pub(super) fn run(&self, origin: u64) -> Option<Run> {
        let (first, last) = (self.rows.front()?, self.rows.back()?);
        let is_whole = self.rows.len() > SECONDS && first.at >= origin;
        if !is_whole || last.blocks - first.blocks < BLOCKS || self.rows.iter().any(|it| it.freed == 0) {
            return None;
        }
        let pairs = || self.rows.iter().zip(self.rows.iter().skip(1));
        let paces: Vec<f64> = pairs().map(|(a, b)| (b.blocks - a.blocks) / (b.at - a.at).max(1) as f64).collect();
        let (mean, deviation) = spread(&paces);
        let is_even = paces.iter().all(|it| *it > 0.0) && deviation <= EVEN * mean;
        (is_even && self.straightness() >= STRAIGHT).then(|| Run {
            since: first.at.saturating_add(1),
            base: first.blocks,
            top: last.blocks,
            top_at: last.at,
            gap: pairs().map(|(a, b)| (b.at - a.at) as f64).fold(0.0, f64::max),
            rises: SECONDS,
        })
    }

    /// The square of the correlation of bytes and blocks; 0 if the bytes fall.
    fn straightness(&self) -> f64 {
        let count = self.rows.len() as f64;
        let mean = |of: fn(&Row) -> f64| self.rows.iter().map(of).sum::<f64>() / count;
        let (bytes, blocks) = (mean(|it| it.bytes), mean(|it| it.blocks));
        let sums = self.rows.iter().fold((0.0, 0.0, 0.0), |(xx, xy, yy), it| {
            let (x, y) = (it.blocks - blocks, it.bytes - bytes);
            (xx + x * x, xy + x * y, yy + y * y)
        });
        let (xx, xy, yy) = sums;
        if xy > 0.0 { xy * xy / (xx * yy) } else { 0.0 }
    }
}

/// The mean and the standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / count;
    (mean, square.sqrt())
}
