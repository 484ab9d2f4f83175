//! Where a device's memory is, rung by rung: every gap has a name, and the sum is always the device's total.

/// The table of gaps.
mod gaps;

use crate::facts::{
    event::wire::{Counters, Parts},
    units::{Bytes, Stamp},
};
pub use gaps::{Gap, GapRow, Level, Place};
use serde::{Deserialize, Serialize};

/// A device's own figures, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// When they were read.
    pub at: Stamp,
    /// The device's total memory.
    pub total: Option<Bytes>,
    /// Free.
    pub free: Option<Bytes>,
    /// The part of what is free that is page cache, on a device that shares the system's memory.
    pub cache: Option<Bytes>,
    /// The driver's own reserve.
    pub driver: Option<Bytes>,
    /// Memory of all processes except the own ones; `None` if unknown.
    pub others: Option<Bytes>,
}

/// An own (probed) process's figures on the device, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnFigures {
    /// When the allocator's counters were read.
    pub at: Stamp,
    /// Requested bytes, before rounding.
    pub requested: Option<u64>,
    /// Live allocations.
    pub allocated: Option<u64>,
    /// Allocated bytes, and freed ones that a stream still uses.
    pub active: Option<u64>,
    /// Free parts of split segments.
    pub inactive_split: Option<u64>,
    /// Bytes reserved from the driver.
    pub reserved: Option<u64>,
    /// Reserved by private pools.
    pub private_pools: Option<u64>,
    /// Whether expandable segments are on, in which case `inactive_split` means nothing.
    pub expandable: bool,
    /// What the allocated bytes consisted of at the latest end of a step at which they were counted.
    pub parts: Option<Parts>,
    /// Whether the counters were read between the ends of two steps.
    pub is_between_steps: bool,
    /// How the unused part of what is reserved is split, where that is known to the byte.
    pub unused: Option<Unused>,
    /// The driver's figure for the process.
    pub driver_used: Option<Bytes>,
    /// When the driver's figure was read.
    pub driver_at: Stamp,
}

/// Parts of the reserved memory that is not in use. What is in none of them may be given back or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Free parts of split segments.
    pub stuck: u64,
    /// Free in pools of CUDA graphs.
    pub graph_pools: u64,
    /// Free in other private pools.
    pub mem_pools: u64,
    /// Entirely free segments.
    pub releasable: u64,
}

impl OwnFigures {
    /// Returns the figures of an allocator's counters; the driver's stay unknown.
    pub fn counted(it: &Counters, expandable: bool, at: Stamp) -> Self {
        Self {
            at,
            requested: it.requested,
            allocated: it.allocated,
            active: it.active,
            inactive_split: it.inactive_split,
            reserved: it.reserved,
            private_pools: it.private_pools,
            expandable,
            ..Self::default()
        }
    }
}

/// A gap and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The gap whose size it is.
    pub gap: Gap,
    /// The own process that it belongs to, by index in the input; `None` for the device's own gaps.
    pub owner: Option<usize>,
    /// Its size; `None` if unknown or if the figures contradict each other.
    pub bytes: Option<Bytes>,
    /// The stamps of the two readings that contradict each other.
    pub inconsistent: Option<(Stamp, Stamp)>,
}

/// A device's ladder, from the inside out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// The device's total. Where neither driver nor probe reports it, it is `None`, and the rungs sum to the known
    /// figures.
    pub total: Option<Bytes>,
    /// From the inside out; their sizes sum to the device's total.
    pub rungs: Vec<Rung>,
}

impl Ladder {
    /// Returns the sum of all known rungs.
    pub fn sum(&self) -> Bytes {
        self.rungs.iter().filter_map(|it| it.bytes).fold(Bytes(0), Bytes::plus)
    }

    /// Returns one rung per gap, all owners together, from the inside out.
    pub fn by_gap(&self) -> Vec<Rung> {
        let mut out: Vec<Rung> = Vec::new();
        for rung in &self.rungs {
            match out.iter_mut().find(|it| it.gap == rung.gap) {
                Some(sum) => {
                    sum.owner = None;
                    sum.bytes = match (sum.bytes, rung.bytes) {
                        (Some(a), Some(b)) => Some(a.plus(b)),
                        (a, b) => a.or(b),
                    };
                    sum.inconsistent = sum.inconsistent.or(rung.inconsistent);
                }
                None => out.push(*rung),
            }
        }
        out.sort_by_key(|it| it.gap);
        out
    }
}

/// Builds the ladder of one device with its own processes.
pub fn ladder(device: &DeviceFigures, own: &[OwnFigures]) -> Ladder {
    let mut stack = Stack::new(device);
    for (owner, figures) in own.iter().enumerate() {
        stack.own_process(owner, figures);
    }
    stack.close(device)
}

/// A part of a process's memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The gap it belongs to.
    pub gap: Gap,
    /// Its size; `None` where unknown.
    pub bytes: Option<u64>,
    /// Whether it is unknown because the figures contradict each other.
    pub clash: bool,
}

/// Splits a process's memory on a device into gaps, from the inside out. A part of unknown size with a [`Gap::whole`]
/// is within a known part.
pub fn parts(it: &OwnFigures) -> Vec<Part> {
    let mut parts = Vec::with_capacity(8);
    let mut push = |gap, bytes, clash| parts.push(Part { gap, bytes, clash });
    let inside = inside(it, &mut push);
    let outside = it.driver_used.zip(inside).map(|(used, inside)| used.0.checked_sub(inside));
    push(Gap::NonTorch, outside.flatten(), outside == Some(None));
    parts
}

/// Returns the bytes of one gap of a process; `None` where they are unknown or where it has no such part.
pub fn part(it: &OwnFigures, gap: Gap) -> Option<u64> {
    parts(it).into_iter().find(|part| part.gap == gap)?.bytes
}

/// The parts of what the allocator holds, and their sum.
fn inside(it: &OwnFigures, push: &mut impl FnMut(Gap, Option<u64>, bool)) -> Option<u64> {
    let Some(allocated) = it.allocated else {
        push(Gap::Reserved, it.reserved.or(it.active), false);
        return it.reserved;
    };
    let parts = it.parts.and_then(|of| consists(&of, allocated, it.is_between_steps));
    match it.active.zip(it.requested).map(|(active, requested)| active.checked_sub(requested)) {
        _ if let Some(parts) = parts => parts.into_iter().for_each(|(gap, bytes)| push(gap, bytes, false)),
        Some(Some(rounding)) if rounding <= allocated => {
            push(Gap::Wanted, Some(allocated - rounding), false);
            push(Gap::Rounding, Some(rounding), false);
        }
        rounding => {
            push(Gap::Allocated, Some(allocated), false);
            push(Gap::Rounding, None, rounding.is_some());
        }
    }
    let pending = it.active.map(|active| active.checked_sub(allocated));
    push(Gap::Pending, pending.flatten(), pending == Some(None));
    let used = allocated.max(it.active.unwrap_or(0));
    match it.reserved.map(|reserved| reserved.checked_sub(used)) {
        Some(Some(unused)) => cached(it, unused, push),
        clash => push(Gap::Cached, None, clash.is_some()),
    }
    it.reserved.map(|reserved| reserved.max(used))
}

/// Splits allocated bytes by what they consisted of at the end of a step; `None` where the parts are more than that.
///
/// Between two steps, gradients come and go: they are a part of what the running step allocated. What was retained at
/// the end of the step is so until the next one ends.
fn consists(of: &Parts, allocated: u64, is_between: bool) -> Option<[(Gap, Option<u64>); 5]> {
    // What is allocated to the byte as at the end of the step has not changed.
    let is_between = is_between && of.sum() != Some(allocated);
    let gradients = if is_between { 0 } else { of.gradients };
    let rest = Parts::of(allocated, [of.weights, gradients, of.optimizer])?.retained;
    let retained = if is_between { rest.min(of.retained) } else { rest };
    Some([
        (Gap::Weights, Some(of.weights)),
        (Gap::Gradients, (!is_between).then_some(gradients)),
        (Gap::Optimizer, Some(of.optimizer)),
        (Gap::Retained, Some(retained)),
        (Gap::Transient, Some(rest - retained)),
    ])
}

/// Splits cached memory into the part that cannot be released, the part that CUDA graphs may keep, and the rest.
fn cached(it: &OwnFigures, cached: u64, push: &mut impl FnMut(Gap, Option<u64>, bool)) {
    if let Some(exact) = &it.unused {
        return split(exact, cached, push);
    }
    // Without `active` the difference includes pending blocks, so splitting it would be a guess.
    let split = it.inactive_split.filter(|_| !it.expandable && it.active.is_some());
    let Some(rest) = split.and_then(|split| cached.checked_sub(split)) else {
        push(Gap::Stuck, None, split.is_some());
        push(Gap::Cached, Some(cached), false);
        return;
    };
    push(Gap::Stuck, split, false);
    // No counter reports how much of the pools is in use, so only the rest is certainly releasable.
    let pools = it.private_pools.map(|it| it.min(rest));
    if pools != Some(0) {
        push(Gap::Pools, pools, false);
    }
    push(Gap::Releasable, Some(rest - pools.unwrap_or(0)), false);
}

/// Splits cached memory by what is known to the byte; the rest stays cached.
fn split(it: &Unused, cached: u64, push: &mut impl FnMut(Gap, Option<u64>, bool)) {
    let mut rest = cached;
    let mut take = |bytes: u64| {
        let taken = bytes.min(rest);
        rest -= taken;
        Some(taken)
    };
    push(Gap::Stuck, take(it.stuck), false);
    for (gap, bytes) in [(Gap::Pools, it.graph_pools), (Gap::MemPools, it.mem_pools)] {
        if bytes > 0 {
            push(gap, take(bytes), false);
        }
    }
    push(Gap::Releasable, take(it.releasable), false);
    if rest > 0 {
        push(Gap::Cached, Some(rest), false);
    }
}

/// Rungs stacked up to a limit: what exceeds it is cut and marked, so that the sum never exceeds the total.
struct Stack {
    rungs: Vec<Rung>,
    room: Option<u64>,
    free: Rung,
    cache: Option<Rung>,
    driver: Rung,
}

impl Stack {
    fn new(device: &DeviceFigures) -> Self {
        let mut room = device.total.map(|it| it.0);
        let mut outer = |gap, bytes: Option<Bytes>| {
            let rung = Rung { gap, owner: None, bytes, inconsistent: None };
            let Some(bytes) = bytes else { return rung };
            match room.map(|left| left.checked_sub(bytes.0)) {
                None => rung,
                Some(Some(left)) => {
                    room = Some(left);
                    rung
                }
                Some(None) => Rung { bytes: None, inconsistent: Some((device.at, device.at)), ..rung },
            }
        };
        let cache = device.cache.map(|it| it.min(device.free.unwrap_or(it)));
        let unused = device.free.map(|free| Bytes(free.0 - cache.map_or(0, |it| it.0)));
        let free = outer(Gap::Free, unused);
        let cache = cache.map(|it| outer(Gap::PageCache, Some(it)));
        let driver = outer(Gap::Driver, device.driver);
        Self { rungs: Vec::new(), room, free, cache, driver }
    }

    fn push(&mut self, gap: Gap, owner: Option<usize>, bytes: Option<u64>, stamps: (Stamp, Stamp), clash: bool) {
        let mut rung = Rung { gap, owner, bytes: bytes.map(Bytes), inconsistent: clash.then_some(stamps) };
        if let (Some(bytes), Some(room)) = (bytes, self.room) {
            if bytes > room {
                rung.inconsistent = Some(stamps);
            }
            let taken = bytes.min(room);
            rung.bytes = Some(Bytes(taken));
            self.room = Some(room - taken);
        }
        self.rungs.push(rung);
    }

    fn own_process(&mut self, owner: usize, it: &OwnFigures) {
        for part in parts(it) {
            // The memory outside the allocator follows from two readings.
            let later = if part.gap.row().place == Place::Process { it.driver_at } else { it.at };
            self.push(part.gap, Some(owner), part.bytes, (it.at, later), part.clash);
        }
    }

    fn close(mut self, device: &DeviceFigures) -> Ladder {
        let at = (device.at, device.at);
        self.push(Gap::Others, None, device.others.map(|it| it.0), at, false);
        if let Some(room) = self.room {
            self.push(Gap::Unattributed, None, Some(room), at, false);
        }
        self.rungs.push(self.driver);
        self.rungs.extend(self.cache);
        self.rungs.push(self.free);
        Ladder { total: device.total, rungs: self.rungs }
    }
}

/// A value for each gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByGap<T>([T; Gap::ALL.len()]);

impl<T: Copy> ByGap<T> {
    /// Returns a gap's value.
    pub fn get(&self, gap: Gap) -> T {
        self.0[gap as usize]
    }

    /// Sets a gap's value.
    pub fn set(&mut self, gap: Gap, value: T) {
        self.0[gap as usize] = value;
    }
}

/// A set of gaps, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapSet(u32);

impl GapSet {
    /// Returns it as a number.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set of a number that [`Self::bits`] returned.
    pub fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Adds a gap.
    pub fn insert(&mut self, gap: Gap) {
        self.0 |= 1 << gap as u32;
    }

    /// Returns whether it contains a gap.
    pub fn contains(self, gap: Gap) -> bool {
        self.0 & 1 << gap as u32 != 0
    }

    /// Adds all gaps of another set.
    pub fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns its gaps, from the inside out.
    pub fn iter(self) -> impl Iterator<Item = Gap> {
        Gap::ALL.into_iter().filter(move |it| self.contains(*it))
    }

    /// Returns the gap that has this level as its upper bound.
    pub fn at(self, level: Level) -> Option<Gap> {
        let first = (self.0 & OF_LEVEL[level as usize]).trailing_zeros();
        Gap::ALL.get(first as usize).copied()
    }
}

/// The gaps of each level, a bit each.
const OF_LEVEL: [u32; Level::ALL.len()] = {
    let (mut of, mut at) = ([0; Level::ALL.len()], 0);
    while at < Gap::ALL.len() {
        if let Some(level) = Gap::ALL[at].row().level {
            of[level as usize] |= 1 << at;
        }
        at += 1;
    }
    of
};

#[cfg(test)]
mod tests;
