//! A staircase: the count of live blocks rises by about the same, at about the same distance, and stays in between.
//!
//! What an epoch, a fold or an evaluation leaves behind rises too rarely for a run of new highs. Its regularity takes
//! the place of their number: chance hardly makes three equal rises at equal distances with a level count in between.

use super::new_highs::{Block, Fading, Run};
use crate::model::analysis::episode;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Treads remembered.
const TREADS: usize = 16;

/// Rises that make a staircase, and after one that came to rest.
const RISES: usize = 3;
const RISES_AGAIN: usize = 6;

/// The shortest distance between two rises; more frequent ones soon are a run of new highs.
const APART: u64 = 8;

/// The shortest staircase, from its first rise to its last.
const SPAN: u64 = 20;

/// How much two distances may differ: by one, and by one of this many parts.
const PARTS: u64 = 32;

/// Largest ratio between the blocks of two rises.
const EVEN: f64 = 1.1;

/// Samples of a level. A shorter one is a part of a rise: a model is built in one step, its optimizer's state in the
/// next.
const SETTLED: u64 = 3;

/// The part of a level's samples that have exactly its count; in the others something is alive for a while. Counts that
/// vary from step to step are not level.
const FLAT: u64 = 3;

/// The latest rise has lasted for one of this many parts of the distance, or for [`LASTS`]: an evaluation's last
/// tensors live for some steps.
const PART_LASTS: u64 = 4;
const LASTS: u64 = 8;

/// Samples of a level whose end is a release: each evaluation may replace what the one before it kept.
const LONG: u64 = 24;

/// A count that none of the later samples is below.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Tread {
    /// The first position after the sample before it.
    since: u64,
    /// Its first position.
    from: u64,
    samples: u64,
    /// The samples that have exactly this count.
    level: u64,
    blocks: f64,
    /// The lowest bytes.
    bytes: f64,
}

impl Tread {
    fn is_settled(&self) -> bool {
        self.samples >= SETTLED
    }

    fn is_flat(&self) -> bool {
        self.level * FLAT >= self.samples
    }
}

/// One rise: where it began, and the treads before and after it.
#[derive(Clone, Copy, Debug)]
struct Rise {
    since: u64,
    before: Tread,
    after: Tread,
}

impl Rise {
    fn blocks(&self) -> f64 {
        self.after.blocks - self.before.blocks
    }

    fn bytes(&self) -> f64 {
        self.after.bytes - self.before.bytes
    }
}

/// The staircase of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stairs {
    /// Each tread is higher than the one before it.
    treads: VecDeque<Tread>,
    last: Option<u64>,
    /// The highest tread of a staircase that was released.
    released: Fading,
}

impl Stairs {
    /// Adds a sample.
    pub(super) fn push(&mut self, at: u64, blocks: f64, bytes: f64) {
        let since = self.last.map_or(at, |it| it.saturating_add(1));
        self.last = Some(at);
        self.released.tick();
        let mut tread = Tread { since, from: at, samples: 1, level: 1, blocks, bytes };
        let (mut settled, mut highest, mut is_long) = (0, blocks, false);
        while let Some(top) = self.treads.pop_back() {
            if top.blocks < blocks {
                self.treads.push_back(top);
                break;
            }
            let is_same = top.blocks <= blocks;
            tread = Tread {
                since: top.since,
                from: top.from,
                samples: tread.samples + top.samples,
                level: tread.level + if is_same { top.level } else { 0 },
                blocks,
                bytes: tread.bytes.min(top.bytes),
            };
            settled += u32::from(!is_same && top.is_settled() && top.is_flat());
            is_long |= !is_same && top.is_flat() && top.samples > LONG;
            highest = highest.max(top.blocks);
        }
        // A single short one is something that is alive for a while.
        if settled > 1 || is_long {
            self.released.note(highest);
        }
        if self.treads.len() == TREADS {
            self.treads.pop_front();
        }
        self.treads.push_back(tread);
    }

    /// Returns the level that the series is on; `None` while it is above one, perhaps for a while only.
    pub(super) fn level(&self) -> Option<Block> {
        let at = self.last?;
        let tread = self.treads.back().filter(|it| it.is_settled())?;
        Some(Block { from: at, to: at, number: 0, low: tread.blocks })
    }

    /// Returns the staircase that the latest sample completed. All of its rises came after `origin`, and it lies above
    /// those that were released.
    pub(super) fn run(&self, origin: u64, came_to_rest: bool) -> Option<Run> {
        let rises = self.regular();
        let (last, first) = (rises.first()?, rises.last()?);
        let enough = if came_to_rest { RISES_AGAIN } else { RISES };
        let gaps = rises.windows(2).filter_map(|it| Some(it.first()?.after.from - it.last()?.after.from));
        let gap = gaps.max()?;
        let lasts = self.last? - last.after.from >= (gap / PART_LASTS).min(LASTS);
        let is_new = first.since > origin && self.released.highest().is_none_or(|it| last.after.blocks > it);
        let is_long = rises.len() >= enough && last.after.from - first.after.from >= SPAN;
        (is_long && lasts && is_new).then_some(Run {
            since: first.since,
            base: first.before.blocks,
            top: last.after.blocks,
            top_at: last.after.from,
            gap: gap as f64,
            rises: rises.len(),
        })
    }

    /// Returns the shape of the latest stairs, with 0 bytes if those vary; `None` where rises are too few, too close
    /// or not regular.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    pub(super) fn shape(&self) -> Option<episode::Stairs> {
        let rises = self.regular();
        let (last, first) = (rises.first()?, rises.last()?);
        if rises.len() < RISES {
            return None;
        }
        let (count, distances) = (rises.len() as f64, rises.len() as u64 - 1);
        let span = last.after.from - first.after.from;
        let every = (span + distances / 2) / distances;
        let due = |place: usize| last.after.from.saturating_sub(every * place as u64);
        let slack = rises.iter().enumerate().map(|(place, it)| due(place).abs_diff(it.after.from)).max()?;
        // The lengths of batches may hide a small rise.
        let (low, high) =
            rises.iter().map(Rise::bytes).fold((f64::MAX, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        let mean = (last.after.bytes - first.before.bytes) / count;
        Some(episode::Stairs {
            bytes: if low * EVEN >= high { mean as u64 } else { 0 },
            blocks: ((last.after.blocks - first.before.blocks) / count).round() as u64,
            every,
            last: last.after.from,
            slack,
        })
    }

    /// Returns the latest rises of about the same height at about the same distance, latest first.
    fn regular(&self) -> Vec<Rise> {
        let mut rises: Vec<Rise> = Vec::new();
        let mut all = self.rises();
        let Some(last) = all.next() else { return rises };
        rises.push(last);
        let mut first_gap = None;
        for it in all {
            let Some(later) = rises.last() else { break };
            let gap = later.after.from - it.after.from;
            let usual = *first_gap.get_or_insert(gap);
            let is_regular = gap >= APART && gap.abs_diff(usual) <= 1 + usual / PARTS;
            let (low, high) = (it.blocks().min(last.blocks()), it.blocks().max(last.blocks()));
            if !is_regular || high > EVEN * low {
                break;
            }
            rises.push(it);
        }
        rises
    }

    /// Every rise between two levels, latest first.
    fn rises(&self) -> impl Iterator<Item = Rise> {
        let mut treads = self.treads.iter().rev();
        let mut after = treads.find(|it| it.is_settled()).copied();
        std::iter::from_fn(move || {
            let end = after.filter(Tread::is_flat)?;
            let mut since = end.since;
            loop {
                let tread = *treads.next()?;
                if tread.is_settled() {
                    after = Some(tread);
                    return tread.is_flat().then_some(Rise { since, before: tread, after: end });
                }
                since = tread.since;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first sample at which there is a staircase, and its shape then.
    fn found(steps: u64, blocks: impl Fn(u64) -> u64) -> Option<(u64, episode::Stairs)> {
        let mut stairs = Stairs::default();
        (1..=steps).find_map(|step| {
            let count = blocks(step) as f64;
            stairs.push(step, count, count * 1000.0);
            stairs.run(0, false).zip(stairs.shape()).map(|it| (step, it.1))
        })
    }

    #[test]
    fn three_equal_rises_at_equal_distances_are_a_staircase() {
        let (step, shape) = found(200, |step| 100 + step / 60 * 2).unwrap();
        assert_eq!((step, shape.blocks, shape.bytes, shape.every, shape.last), (188, 2, 2000, 60, 180));
        // A rise that takes two steps, and one that comes a step late.
        let parts = |step: u64| 100 + step / 40 * 3 + u64::from(step % 40 == 39);
        assert_eq!(found(200, parts).map(|it| it.1.every), Some(40));
        let late = |step: u64| 100 + [40, 80, 121, 160].iter().filter(|it| step >= **it).count() as u64;
        assert_eq!(found(200, late).map(|it| (it.0, it.1.every, it.1.slack)), Some((129, 41, 1)));
    }

    #[test]
    fn memory_that_lives_for_a_while_hides_no_stair_and_is_none() {
        let evaluation = |step: u64| u64::from(step % 60 < 5) * 40 + step % 2 * 7;
        assert_eq!(found(300, |step| 100 + step / 60 + evaluation(step)).map(|it| it.1.blocks), Some(1));
        assert_eq!(found(6000, |step| 100 + evaluation(step)), None);
        assert_eq!(found(6000, |step| 100 + u64::from(step % 300 < 20) * 40), None);
    }

    #[test]
    fn irregular_rises_counts_that_vary_and_few_stairs_are_no_staircase() {
        assert_eq!(
            found(900, |step| 100 + [40, 90, 190, 260, 400].iter().filter(|it| step > **it).count() as u64),
            None
        );
        assert_eq!(found(900, |step| 100 + (0..step / 60).take(5).map(|stair| 1 << stair).sum::<u64>()), None);
        assert_eq!(found(900, |step| 100 + (step / 60).min(2)), None);
        let varies = |step: u64| step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        assert_eq!(found(20_000, |step| 100 + varies(step) % 9), None);
        assert_eq!(found(20_000, |step| 100 + varies(step)), None);
    }

    #[test]
    fn stairs_that_are_taken_down_again_are_found_once() {
        let mut stairs = Stairs::default();
        let raised = |stairs: &Stairs| stairs.run(0, false).is_some();
        let mut first = None;
        for step in 1..=2000 {
            stairs.push(step, (100 + step % 250 / 50) as f64, 0.0);
            if raised(&stairs) {
                assert!(step < 250, "{step}");
                first.get_or_insert(step);
            }
        }
        assert_eq!(first, Some(158));
    }
}
