//! Finds rare rises of live memory, by about as much each time, that are never given back.
//!
//! An out-of-memory error is explained by two of them. Of a running job, `growth::stairs` reports staircases from the
//! third rise on, by the count of blocks.
//!
//! A job that keeps something once in an epoch, a fold or an evaluation is flat between two rises. The floor of the
//! course (at each position the least value from there on) rises exactly where memory rises for good: what a step or
//! an evaluation takes and gives back leaves no trace in it. Rises of neighbouring rows are one, because a new model
//! and its optimizer's state arrive one after the other; so a steady leak is a single long rise, and not a staircase.

use crate::model::statistics::median;
use serde::{Deserialize, Serialize};

/// Rises closer than this many rows are one.
const NEAR: usize = 3;

/// A rise of more than this many times the usual one, or less than this part of it, is of another kind.
const UNLIKE: u64 = 2;

/// The part of the whole gain that rises of one kind have to explain.
const MOST: f64 = 0.75;

/// Rare rises in the course of live memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RareRises {
    /// Number of rises.
    pub count: u64,
    /// The usual rise in bytes: the median.
    pub rise: u64,
    /// The usual distance between two rises, in steps (or seconds): the median.
    pub every: u64,
    /// The step of the first rise.
    pub since: u64,
    /// The step of the latest rise.
    pub latest: u64,
    /// The bytes of all of them.
    pub gained: u64,
}

/// Finds rare rises in `(step, bytes)`, in the order of steps; `None` if there are fewer than `at_least` rises (two
/// at the least) of at least `smallest` bytes, or if they do not explain most of the gain.
pub fn find(points: &[(u64, u64)], at_least: u64, smallest: u64) -> Option<RareRises> {
    let rises = rises(points);
    let all: u64 = rises.iter().map(|it| it.bytes).sum();
    let usual = median(rises.iter().map(|it| it.bytes).filter(|it| *it >= smallest.max(1)))?;
    let is_usual = |it: &&Rise| {
        it.bytes >= smallest && it.bytes.saturating_mul(UNLIKE) >= usual && it.bytes <= usual.saturating_mul(UNLIKE)
    };
    let steps: Vec<&Rise> = rises.iter().filter(is_usual).collect();
    let (first, last) = (steps.first()?, steps.last()?);
    let gained: u64 = steps.iter().map(|it| it.bytes).sum();
    let distances: Vec<u64> = steps.windows(2).filter_map(|it| Some(it.last()?.step - it.first()?.step)).collect();
    let every = median(distances.iter().copied())?;
    let count = steps.len() as u64;
    let is_regular = distances.iter().all(|it| it.saturating_mul(UNLIKE + 1) >= every);
    (count >= at_least.max(2) && is_regular && gained as f64 >= MOST * all as f64).then_some(RareRises {
        count,
        rise: usual,
        every,
        since: first.step,
        latest: last.step,
        gained,
    })
}

/// A rise of the floor, at the step at which it began.
#[derive(Clone, Copy, Debug)]
struct Rise {
    step: u64,
    bytes: u64,
}

fn rises(points: &[(u64, u64)]) -> Vec<Rise> {
    let mut floor: Vec<u64> = points.iter().map(|it| it.1).collect();
    for place in (1..floor.len()).rev() {
        if let (Some(here), Some(after)) = (floor.get(place - 1).copied(), floor.get(place).copied())
            && let Some(it) = floor.get_mut(place - 1)
        {
            *it = here.min(after);
        }
    }
    let mut out: Vec<Rise> = Vec::new();
    let mut latest = None;
    for (place, pair) in floor.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let (true, Some((step, _))) = (after > before, points.get(place + 1)) else { continue };
        match out.last_mut().filter(|_| latest.is_some_and(|it| place - it < NEAR)) {
            Some(rise) => rise.bytes += after - before,
            None => out.push(Rise { step: *step, bytes: after - before }),
        }
        latest = Some(place);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A job that keeps so many bytes at each multiple of a number of steps, with some noise of its batches.
    fn course(steps: u64, every: u64, rise: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let kept = |step: u64| (1..=step / every).map(&rise).sum::<u64>();
        (1..=steps).map(|step| (step, 300 * MIB + kept(step) + step * 7919 % 5 * 64 * 1024)).collect()
    }

    #[test]
    fn equal_rises_far_apart_are_a_staircase() {
        let found = find(&course(400, 60, |_| 40 * MIB), 3, MIB).unwrap();
        assert_eq!((found.count, found.every, found.since, found.latest), (6, 60, 60, 360));
        assert!(found.rise.abs_diff(40 * MIB) < MIB && found.gained.abs_diff(240 * MIB) < 3 * MIB, "{found:?}");
        let uneven = find(&course(400, 60, |at| (30 + at * 3) * MIB), 3, MIB).unwrap();
        assert_eq!(uneven.count, 6, "later models are larger");
    }

    #[test]
    fn a_steady_leak_a_flat_job_and_a_job_that_gives_back_are_none() {
        assert_eq!(find(&course(400, 1, |_| MIB), 2, MIB), None);
        assert_eq!(find(&course(400, 500, |_| MIB), 2, MIB), None);
        let given_back: Vec<_> = (1..=400).map(|step| (step, 300 * MIB + step % 60 * MIB)).collect();
        assert_eq!(find(&given_back, 2, MIB), None, "each rise is given back");
        let warm = |step: u64| if step < 3 { 100 * MIB } else { 300 * MIB };
        assert_eq!(find(&(1..=400).map(|step| (step, warm(step))).collect::<Vec<_>>(), 2, MIB), None);
        assert_eq!((find(&[], 2, 1), find(&[(1, 5)], 2, 1)), (None, None));
    }

    #[test]
    fn evaluations_that_return_what_they_take_do_not_hide_what_they_keep() {
        let busy = |(step, bytes): &(u64, u64)| (*step, bytes + if step % 60 < 5 { 900 * MIB } else { 0 });
        let found = find(&course(400, 60, |_| 40 * MIB).iter().map(busy).collect::<Vec<_>>(), 3, MIB).unwrap();
        assert_eq!((found.count, found.every), (6, 60));
        let few = course(130, 60, |_| 40 * MIB);
        assert_eq!(find(&few, 3, MIB), None);
        assert_eq!(find(&few, 2, MIB).map(|it| it.count), Some(2));
    }
}
