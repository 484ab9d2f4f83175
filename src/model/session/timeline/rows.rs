//! A stretch of a run and one sample of it, and both as numbers.

use crate::{
    facts::units::Stamp,
    model::analysis::{
        buckets::Merge,
        ladder::{Gap, GapSet, Level},
        packed::{self, Numbers},
    },
};
use serde::{Deserialize, Serialize};

/// Number of levels.
const LEVELS: usize = Level::ALL.len();

/// The known levels of one instant in bytes, by the gap below each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    bytes: [u64; LEVELS],
    gaps: GapSet,
}

impl Levels {
    /// Returns a level's bytes; `None` if unknown.
    pub fn get(&self, level: Level) -> Option<u64> {
        self.gaps.at(level).and_then(|_| self.bytes.get(level as usize).copied())
    }

    /// Returns the gaps from the inside out with their lower and upper bounds; none if live allocations are unknown.
    pub fn gaps(&self) -> impl Iterator<Item = (Gap, u64, u64)> {
        let known = Some(self.gaps).filter(|_| self.get(Level::Allocated).is_some()).unwrap_or_default();
        let mut top = 0;
        known.iter().filter_map(move |gap| {
            let from = top;
            top = self.get(gap.row().level?)?.max(from);
            Some((gap, from, top))
        })
    }

    /// Sets the upper bound of a gap that has a level; ignores an unknown bound.
    pub(super) fn set(&mut self, gap: Gap, top: Option<u64>) {
        let place = gap.row().level.and_then(|it| self.bytes.get_mut(it as usize));
        if let (Some(top), Some(place)) = (top, place) {
            *place = top;
            self.gaps.insert(gap);
        }
    }

    /// Returns the higher value of each level.
    #[must_use]
    pub fn highest(&self, other: &Self) -> Self {
        self.with(other, u64::max)
    }

    /// Combines two instants level by level. A level that one of them lacks stays unknown, because from some samples
    /// alone it could cross another. Gaps that only one of them separates are merged.
    fn with(&self, other: &Self, choose: impl Fn(u64, u64) -> u64) -> Self {
        let mut both = Self::default();
        for level in Level::ALL {
            let gap = self.gaps.at(level).zip(other.gaps.at(level));
            if let Some((own, its)) = gap {
                let top = self.get(level).zip(other.get(level)).map(|(one, other)| choose(one, other));
                both.set(if own == its { own } else { own.whole() }, top);
            }
        }
        both
    }
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// When its last sample was taken.
    pub at: Stamp,
    /// Steps completed by then; `None` before the first step.
    pub step: Option<u64>,
    /// The minimum of each level.
    pub low: Levels,
    /// The maximum of each level.
    pub high: Levels,
    /// Each level in the last sample.
    pub last: Levels,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) at: Stamp,
    pub(super) step: Option<u64>,
    pub(super) levels: Levels,
}

impl Merge for Column {
    fn place(&self) -> u64 {
        self.at.0
    }

    fn merge(&mut self, newer: &Self) {
        *self = Self { low: self.low.with(&newer.low, u64::min), high: self.high.highest(&newer.high), ..*newer };
    }
}

/// Numbers of a packed column and of a packed point.
pub(super) const COLUMN: usize = 4 + 3 * LEVELS;
pub(super) const POINT: usize = 3 + LEVELS;

impl Numbers<COLUMN> for Column {
    fn numbers(&self) -> [u64; COLUMN] {
        let (step, knows_step) = packed_step(self.step);
        let of_lows = u64::from(self.low.gaps.bits()) << 1 | knows_step;
        let of_others = u64::from(self.high.gaps.bits()) << 32 | u64::from(self.last.gaps.bits());
        let low = sizes(&self.low.bytes);
        let high = sizes(&above(&self.high.bytes, &self.low.bytes));
        let last = sizes(&above(&self.high.bytes, &self.last.bytes));
        packed::numbers([self.at.0, step, of_lows, of_others].into_iter().chain(low).chain(high).chain(last))
    }

    fn of_numbers(&[at, step, of_lows, of_others, ref levels @ ..]: &[u64; COLUMN]) -> Self {
        let mut parts = levels.chunks_exact(LEVELS).map(tops);
        let mut part = || parts.next().unwrap_or_default();
        let (low, range, fall) = (part(), part(), part());
        let high = std::array::from_fn(|it| low[it].wrapping_add(range[it]));
        let last = above(&high, &fall);
        Self {
            at: Stamp(at),
            step: (of_lows & 1 == 1).then_some(step),
            low: Levels { bytes: low, gaps: gaps(of_lows >> 1) },
            high: Levels { bytes: high, gaps: gaps(of_others >> 32) },
            last: Levels { bytes: last, gaps: gaps(of_others) },
        }
    }
}

impl Numbers<POINT> for Point {
    fn numbers(&self) -> [u64; POINT] {
        let (step, knows_step) = packed_step(self.step);
        let flags = u64::from(self.levels.gaps.bits()) << 1 | knows_step;
        packed::numbers([self.at.0, step, flags].into_iter().chain(sizes(&self.levels.bytes)))
    }

    fn of_numbers(&[at, step, flags, ref levels @ ..]: &[u64; POINT]) -> Self {
        let levels = Levels { bytes: tops(levels), gaps: gaps(flags >> 1) };
        Self { at: Stamp(at), step: (flags & 1 == 1).then_some(step), levels }
    }
}

/// Returns the step, and 1 if it is known.
fn packed_step(step: Option<u64>) -> (u64, u64) {
    (step.unwrap_or(0), u64::from(step.is_some()))
}

/// Returns the set of gaps in the lower half of a number.
fn gaps(bits: u64) -> GapSet {
    GapSet::of_bits(u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0))
}

/// Returns how far each level is above another: most often all of them equally far.
fn above(levels: &[u64; LEVELS], others: &[u64; LEVELS]) -> [u64; LEVELS] {
    std::array::from_fn(|it| levels[it].wrapping_sub(others[it]))
}

/// Returns how far each level is above the one below it: what changes is most often one gap and not the others.
fn sizes(levels: &[u64; LEVELS]) -> [u64; LEVELS] {
    std::array::from_fn(|it| levels[it].wrapping_sub(it.checked_sub(1).map_or(0, |below| levels[below])))
}

/// Returns the levels of such sizes.
fn tops(sizes: &[u64]) -> [u64; LEVELS] {
    let mut top = 0_u64;
    std::array::from_fn(|it| {
        top = top.wrapping_add(sizes.get(it).copied().unwrap_or(0));
        top
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_levels() -> impl Strategy<Value = Levels> {
        (prop::array::uniform(prop_oneof![any::<u64>(), 0_u64..9]), any::<u32>())
            .prop_map(|(bytes, gaps)| Levels { bytes, gaps: GapSet::of_bits(gaps) })
    }

    proptest! {
        #[test]
        fn each_is_as_it_was(
            (at, step) in (any::<u64>().prop_map(Stamp), any::<Option<u64>>()),
            (low, high, last) in (any_levels(), any_levels(), any_levels()),
        ) {
            let column = Column { at, step, low, high, last };
            prop_assert_eq!(Column::of_numbers(&column.numbers()), column);
            let point = Point { at, step, levels: low };
            prop_assert_eq!(Point::of_numbers(&point.numbers()), point);
        }
    }
}
