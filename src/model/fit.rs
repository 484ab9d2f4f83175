//! Whether a job fits on a device: the devices that are known by name, what a job needs beside its allocator, what its
//! peak consists of, and the verdict.
//!
//! The allocator's part is measured: the job runs on a simulated GPU, through PyTorch's own allocator. The rest is a
//! table of what each thing takes at least and at most, with its source ([`outside`]). So a need is an interval, and
//! the verdict has three values.

/// A saved answer.
pub mod baseline;
/// Devices by name.
pub mod card;
/// An answer and its baseline.
pub mod comparison;
/// Lines of two versions of a program.
mod line_match;
/// What lies outside the allocator's figures.
pub mod overhead;
/// What a peak consists of.
pub mod peak_parts;
/// Lines of Python.
pub mod source;
/// Techniques that save memory.
pub mod technique;

pub use baseline::Baseline;
pub use card::Device;
pub use comparison::{Budget, Comparison};
pub use overhead::{Overhead, Table};
pub use technique::Technique;

use std::iter::successors;

/// Whether a job fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Fits {
    /// It does, even if all that is uncertain takes the most.
    Yes,
    /// It does not, even if all that is uncertain takes the least.
    No,
    /// It depends on what is uncertain.
    Unknown,
}

impl Fits {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Unknown => 2,
        }
    }

    /// Returns the verdict over several devices: one that does not fit decides.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            _ => Self::Yes,
        }
    }
}

/// What one device of a job needs, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The highest sum of live allocations.
    pub allocated: u64,
    /// The most that the allocator reserved.
    pub reserved: u64,
    /// What lies outside these figures.
    pub outside: Vec<Overhead>,
    /// The capacity of the device on which it was found; `None` of one with all the room that the job wants.
    pub capacity: Option<u64>,
}

impl Need {
    /// Returns the need if all that is uncertain takes the least.
    pub fn low(&self) -> u64 {
        self.with(|it| it.low)
    }

    /// Returns the likeliest need.
    pub fn usual(&self) -> u64 {
        self.with(|it| it.usual)
    }

    /// Returns the need if all that is uncertain takes the most.
    pub fn high(&self) -> u64 {
        self.with(|it| it.high)
    }

    fn with(&self, bytes: fn(&Overhead) -> u64) -> u64 {
        let all = self.reserved.saturating_add(self.outside.iter().map(bytes).sum());
        all.min(self.capacity.unwrap_or(u64::MAX))
    }

    /// Returns the need if all that is uncertain takes the most, without what the job can run without.
    pub fn must(&self) -> u64 {
        let must = self.outside.iter().filter(|it| !it.is_optional);
        self.reserved.saturating_add(must.map(|it| it.high).sum())
    }

    /// Returns the verdict for a device of that capacity, as far as figures alone decide; `Unknown` asks for a run on a
    /// device of that size, where the allocator gives cached memory back before it fails.
    pub fn fits(&self, capacity: u64) -> Fits {
        let least = self.low().saturating_sub(self.reserved).saturating_add(self.allocated);
        if self.must() <= capacity {
            Fits::Yes
        } else if least > capacity {
            Fits::No
        } else {
            Fits::Unknown
        }
    }
}

/// Returns the reference of the tables, as Markdown.
pub fn markdown() -> String {
    format!("# Devices and what lies outside the allocator\n\n{}\n{}", card::markdown(), overhead::markdown())
}

/// What is known of a job, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Processes with a context on the device.
    pub processes: u64,
    /// NCCL communicators on it.
    pub communicators: u64,
    /// Whether cuDNN ran convolutions or attention.
    pub uses_cudnn: bool,
    /// Whether cuDNN was asked to try its algorithms (`torch.backends.cudnn.benchmark`).
    pub is_benchmarking: bool,
    /// Bytes of the tensors of cuDNN's largest operation.
    pub convolution: u64,
    /// Whether kernels were compiled at run time (`torch.compile`, Triton).
    pub is_compiled: bool,
    /// Those of them whose ranks are on several machines.
    pub communicators_across: u64,
    /// Bytes that the allocator reserved.
    pub reserved: u64,
    /// Multiprocessors of the device, at least and at most.
    pub multiprocessors: (u64, u64),
    /// The first number of the device's compute capability; 0 where it is not known.
    pub capability: u64,
    /// How several devices are linked, at least and at best.
    pub links: (Link, Link),
}

impl Facts {
    /// Returns the facts for another device.
    #[must_use]
    pub fn on(self, device: &Device) -> Self {
        let capability = device.capability.split('.').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        Self { multiprocessors: device.multiprocessors, capability, links: device.links, ..self }
    }
}

/// Steps whose peaks show growth.
const STEPS: usize = 6;

/// The last rises that are compared; the first steps rise in every job, as gradients and optimizer state appear.
const RISES: usize = 4;

/// Growth that fills a device only after more steps than this is of no interest.
const MOST_STEPS: u64 = 1_000_000;

/// Returns the bytes that each step adds, from the highest allocated bytes so far after each step: these go up by about
/// the same amount in each of the last steps. Batches of varying sizes raise a peak by different amounts, and not in
/// each step.
pub fn growth(peaks: &[u64]) -> Option<u64> {
    let latest = peaks.get(peaks.len().checked_sub(RISES + 1)?..).filter(|_| peaks.len() >= STEPS)?;
    let mut rises: Vec<u64> = latest.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    rises.sort_unstable();
    let (least, most) = (*rises.first()?, *rises.last()?);
    (least > 0 && most <= least.saturating_add(least / 2)).then(|| super::statistics::middle(&rises))?
}

/// The last rises of levels that are compared.
const LEVEL_RISES: usize = 8;

/// Rises are about the same as long as they differ by one part in so many.
const SAME: u64 = 4;

/// The most steps in which memory rises once, and the rises that show it.
const RARE: (usize, usize) = (4, 3);

/// The fewest steps of a rise that is given back.
const LEAST_RISE: usize = 3;

/// What is left of a rise is growth where it is at least one part in so many of it.
const LEFT: u64 = 8;

/// Returns the bytes that each step adds, from the bytes at the end of each step: those that the allocator counts, and
/// those that it was asked for. It gives large blocks more, by chance.
pub fn level_growth(levels: &[u64], asked: &[u64]) -> Option<u64> {
    let rises = |it: &[u64]| each_step(it).or_else(|| (2..=RARE.0).find_map(|every| each_few_steps(it, every)));
    let rise = rises(levels).or_else(|| {
        rises(asked)?;
        mean_rise(levels, LEVEL_RISES).filter(|it| *it > 0)
    })?;
    left_of(levels, at_pace(levels, rise))
}

/// Returns the bytes by which each of the last steps rose on the average.
fn mean_rise(levels: &[u64], steps: usize) -> Option<u64> {
    let first = levels.get(levels.len().checked_sub(steps + 1)?)?;
    Some(levels.last()?.checked_sub(*first)? / steps as u64)
}

/// Returns the rise of the most steps that have about this one: a few may show a rare rise too often, or chance.
fn at_pace(levels: &[u64], rise: u64) -> u64 {
    let longer = successors(Some(2 * LEVEL_RISES), |it| it.checked_mul(2));
    let means = longer.map_while(|steps| mean_rise(levels, steps));
    means.take_while(|it| it.abs_diff(rise) <= rise / SAME).last().unwrap_or(rise)
}

/// Returns what is left in each step of a rise of so many bytes a step, where earlier steps rose in the same way and
/// then gave it back: what is cleared with each epoch, or when it has its most entries. `None` where that is nothing.
fn left_of(levels: &[u64], rise: u64) -> Option<u64> {
    let is_like = |bytes: u64, steps: usize| {
        let usual = rise.saturating_mul(steps as u64);
        (usual / 2..=usual.saturating_add(usual / 2)).contains(&bytes)
    };
    let (mut since, mut given_back) = (0, Vec::new());
    for at in 1..levels.len() {
        let before = at - 1;
        let fallen = levels[before].saturating_sub(levels[at]);
        if fallen <= rise {
            continue;
        }
        // The first steps rise by more, whatever they keep.
        let first = since.max(before.saturating_sub(LEVEL_RISES));
        let risen = levels[before].saturating_sub(levels[first]);
        let is_rise = before - since >= LEAST_RISE && is_like(risen, before - first);
        if is_rise && is_like(fallen, before - since) {
            given_back.push(at);
        }
        since = at;
    }
    let (Some(first), Some(last)) = (given_back.first(), given_back.last()) else { return Some(rise) };
    if first == last {
        // It may have more this time.
        return (levels.last() > levels[..*last].iter().max()).then_some(rise);
    }
    let left = levels[*last].saturating_sub(levels[*first]) / (last - first) as u64;
    (left > 0 && left >= rise / LEFT).then_some(left)
}

/// Memory that some steps raise, in the same rhythm and by about the same amount, and none lowers.
fn each_few_steps(levels: &[u64], every: usize) -> Option<u64> {
    let latest = levels.get(levels.len().checked_sub(every * RARE.1 + 1)?..)?;
    let rounds: Vec<u64> = latest.iter().step_by(every).copied().collect();
    let rises: Vec<u64> = rounds.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    let (least, most) = (*rises.iter().min()?, *rises.iter().max()?);
    let is_growth = least > 0 && most <= least.saturating_add(least / 2) && latest.is_sorted();
    is_growth.then(|| rises.iter().sum::<u64>() / (every * RARE.1) as u64)
}

/// Nearly all of the last steps add about the same amount, and no other one takes that away. The smaller last batch of
/// a round adds less, and hides in peaks that the next one adds anything. What a round gives back, or what varies with
/// the size of batches, goes down. What is full, as a list with a bound, adds nothing any more.
fn each_step(levels: &[u64]) -> Option<u64> {
    let latest = levels.get(levels.len().checked_sub(LEVEL_RISES + 1)?..)?;
    let mut rises: Vec<u64> = latest.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    if rises.ends_with(&[0, 0]) {
        return None;
    }
    rises.sort_unstable();
    let middle = super::statistics::middle(&rises).filter(|it| *it > 0)?;
    let is_like = |it: &&u64| (middle / 2..=middle.saturating_add(middle / 2)).contains(*it);
    let alike = rises.iter().filter(is_like).count();
    let added = latest.last()?.checked_sub(*latest.first()?)? / LEVEL_RISES as u64;
    (alike * 4 >= LEVEL_RISES * 3 && added >= middle / 4 * 3).then_some(added)
}

/// The rises of the reserved bytes that show how fast they go up, and how many times as fast as the allocated ones that
/// is at most: a segment has less free space than blocks.
const RESERVED_RISES: (usize, u64) = (4, 2);

/// Returns the bytes by which each step raises the reserved bytes, from these after each step, of a job that keeps so
/// many more bytes after each step.
pub fn reserved_growth(reserved: &[u64], growth: u64) -> u64 {
    let latest = reserved.get(reserved.len() / 2..).unwrap_or_default();
    let rises = latest.windows(2).filter(|it| it[1] > it[0]).count();
    let (Some(first), Some(last)) = (latest.first(), latest.last()) else { return growth };
    if rises < RESERVED_RISES.0 {
        return growth;
    }
    let each = last.saturating_sub(*first) / (latest.len() as u64 - 1);
    each.clamp(growth, growth.saturating_mul(RESERVED_RISES.1))
}

/// Returns the step in which such growth has used up `free` more bytes, after `steps` that ran; `None` if that is too
/// far away.
pub fn full_after(steps: u64, free: u64, growth: u64) -> Option<u64> {
    let after = free.checked_div(growth)?.saturating_add(steps);
    (after <= MOST_STEPS).then_some(after)
}

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// The steps in which NCCL allocates memory that it shares (`CUDA_IPC_MIN`).
const STEP: u64 = 2 * MIB;

/// A page of counters (`MEM_ALIGN`).
const COUNTERS: u64 = 4 * KIB;

/// Bytes of a buffer of each protocol: Simple (`NCCL_BUFFSIZE`), LL (8 lines of 16 bytes for 512 threads and 8 steps),
/// LL128 (120 elements of 8 bytes for 640 threads and 8 steps).
const PROTOCOLS: [u64; 3] = [4 * MIB, 8 * 16 * 512 * 8, 120 * 8 * 640 * 8];

/// How the devices of a machine are linked; one with more links comes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
pub enum Link {
    /// Through the host. Without peer access, the buffers are the host's.
    #[default]
    #[strum(serialize = "PCIe")]
    Pcie,
    /// Links between devices.
    #[strum(serialize = "NVLink")]
    Nvlink,
    /// Links with a switch that reduces (NVLink SHARP).
    #[strum(serialize = "NVLink SHARP")]
    Sharp,
}

/// Bytes of a connection, at its receiver and at its sender.
fn connection() -> u64 {
    let receiver = COUNTERS + PROTOCOLS.iter().sum::<u64>();
    receiver.next_multiple_of(STEP) + COUNTERS.next_multiple_of(STEP)
}

impl Link {
    /// Every link.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name in documents and texts.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Channels of a communicator: at least, in most cases, at most.
    pub fn channels(self) -> [u64; 3] {
        match self {
            Self::Pcie => [0, 2, 4],
            Self::Nvlink | Self::Sharp => [2, 24, 32],
        }
    }

    /// Bytes of a communicator on each device: rings only, as long as no tree is connected (NCCL connects an algorithm
    /// when it is first used), or at most rings, trees and a switch's buffers (1 MiB to send and to receive, for each
    /// channel and up to 8 devices: `nvls.cc`).
    pub fn bytes(self) -> [u64; 3] {
        let [least, usual, most] = self.channels();
        let switch = if self == Self::Sharp { most * 2 * MIB * 8 } else { 0 };
        [least * connection(), usual * connection(), most * 3 * connection() + switch]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncertain_memory_makes_the_verdict_unknown() {
        let part = Overhead {
            name: "context",
            low: 10,
            usual: 15,
            high: 30,
            is_optional: false,
            source: String::new(),
            is_measured: false,
        };
        let optional = Overhead {
            name: "workspace",
            low: 0,
            usual: 0,
            high: 50,
            is_optional: true,
            source: String::new(),
            is_measured: false,
        };
        let need = Need { allocated: 80, reserved: 100, outside: vec![part, optional], capacity: None };
        assert_eq!((need.low(), need.usual(), need.must(), need.high()), (110, 115, 130, 180));
        let fits = |capacity| need.fits(capacity);
        assert_eq!((fits(130), fits(129), fits(90), fits(89)), (Fits::Yes, Fits::Unknown, Fits::Unknown, Fits::No));
        let there = Need { capacity: Some(120), ..need };
        assert_eq!((there.low(), there.usual(), there.high()), (110, 115, 120));
    }

    #[test]
    fn one_device_that_is_too_small_decides() {
        let all = [Fits::Yes, Fits::Unknown, Fits::No];
        assert_eq!(all.into_iter().reduce(Fits::and), Some(Fits::No));
        assert_eq!(Fits::Yes.and(Fits::Unknown), Fits::Unknown);
        assert_eq!(all.map(Fits::code), [0, 2, 1]);
    }

    #[test]
    fn only_a_peak_that_rises_steadily_grows() {
        assert_eq!(growth(&[50, 80, 90, 100, 110, 120, 130]), Some(10));
        assert_eq!(growth(&[50, 80, 90, 101, 110, 122, 130]), Some(11));
        assert_eq!(growth(&[50, 80, 90, 100, 110]), None);
        assert_eq!(growth(&[50, 80, 90, 100, 110, 110, 120]), None);
        assert_eq!(growth(&[50, 80, 90, 95, 120, 121, 160]), None);
        assert_eq!(growth(&[]), None);
    }

    #[test]
    fn levels_that_rise_in_each_step_are_growth_and_others_are_not() {
        let levels = |rises: [u64; 9]| {
            let sums = rises.iter().scan(1000, |level, it| {
                *level += it;
                Some(*level)
            });
            level_growth(&sums.collect::<Vec<_>>(), &[])
        };
        assert_eq!(levels([900, 40, 40, 40, 40, 40, 40, 40, 40]), Some(40));
        // The last batch of a round is smaller, as that of every third step or of the only one.
        assert_eq!(levels([900, 40, 40, 30, 40, 40, 30, 40, 40]), Some(37));
        assert_eq!(levels([900, 40, 40, 40, 40, 40, 40, 40, 1]), Some(35));
        // Batches of different sizes, in the order of their sizes at most.
        assert_eq!(levels([900, 1, 300, 2, 90, 7, 500, 3, 40]), None);
        // The first batch of a round replaces the last one of the round before.
        assert_eq!(levels([900, 40, 40, 40, 0, 40, 40, 40, 40]), Some(35));
        assert_eq!(levels([900, 40, 40, 0, 0, 0, 40, 40, 40]), None);
        assert_eq!(levels([900, 40, 40, 0, 0, 40, 40, 40, 40]), Some(30));
        assert_eq!(levels([900, 40, 40, 40, 40, 40, 40, 0, 0]), None, "it is full");
        assert_eq!(level_growth(&[10, 50, 90, 130, 20, 50, 90, 130, 20, 50, 90], &[]), None, "a round gives it back");
        assert_eq!(level_growth(&[10, 20, 30], &[]), None);
        // Every fifth step; the last few might as well be every fourth.
        let every_fifth: Vec<u64> = (0..204).map(|step| 1000 + 300 * (step / 5)).collect();
        assert_eq!(level_growth(&every_fifth[3..16], &[]).map(|it| it / 10), Some(7));
        assert_eq!(level_growth(&every_fifth[..201], &[]).map(|it| it / 10), Some(6));
        // What the allocator adds to large blocks hides equal rises.
        let by_chance = [10, 20, 24, 44, 44, 54, 57, 67, 85];
        assert_eq!(level_growth(&by_chance, &[]), None);
        assert_eq!(level_growth(&by_chance, &[9, 18, 27, 36, 45, 54, 63, 72, 81]), Some(9));
        // Every second or third step keeps something.
        assert_eq!(level_growth(&[9, 50, 50, 90, 90, 130, 130, 170], &[]), Some(20));
        assert_eq!(level_growth(&[9, 9, 50, 50, 50, 80, 80, 80, 110, 110, 110, 140], &[]), Some(10));
        assert_eq!(level_growth(&[9, 50, 50, 90, 90, 130, 130, 40, 80, 80], &[]), None, "it falls once");
        assert_eq!(level_growth(&[9, 50, 50, 90, 90, 400, 400, 410], &[]), None, "not by the same amount");
    }

    /// The levels of a job that keeps a block of 10 in each step and does something with them at the end of a step.
    fn kept(steps: u64, mut at_end: impl FnMut(u64, &mut Vec<u64>)) -> Vec<u64> {
        let mut blocks = Vec::new();
        let level = |step: u64| {
            blocks.push(10);
            at_end(step, &mut blocks);
            let first = if step > 0 { 500 } else { 700 };
            first + blocks.iter().sum::<u64>()
        };
        (0..steps).map(level).collect()
    }

    #[test]
    fn what_earlier_steps_gave_back_is_no_growth() {
        let growth_of = |levels: &[u64]| level_growth(levels, &[]);
        let cleared = |most: usize| {
            move |_: u64, blocks: &mut Vec<u64>| {
                if blocks.len() > most {
                    blocks.clear();
                }
            }
        };
        for most in [8, 9, 10, 16, 100] {
            for steps in 2 * most as u64 - 1..=5 * most as u64 {
                assert_eq!(growth_of(&kept(steps, cleared(most))), None, "{most} entries, {steps} steps");
            }
            // Before it is full, nobody knows.
            assert_eq!(growth_of(&kept(most as u64, cleared(most))), Some(10), "{most} entries");
        }
        let halved = |_: u64, blocks: &mut Vec<u64>| {
            if blocks.len() == 20 {
                blocks.drain(..10);
            }
        };
        assert_eq!(growth_of(&kept(39, halved)), None);
        let every_third = |step: u64, blocks: &mut Vec<u64>| {
            if !step.is_multiple_of(3) {
                blocks.pop();
            } else if blocks.len() > 9 {
                blocks.clear();
            }
        };
        assert_eq!(growth_of(&kept(58, every_third)), None);
    }

    #[test]
    fn what_a_drop_leaves_is_growth() {
        // An epoch of 12 steps gives back all that it keeps but one block, or nothing of it.
        let leaves = |left: usize| {
            move |step: u64, blocks: &mut Vec<u64>| {
                if step % 12 == 11 {
                    let epochs = usize::try_from(step / 12).unwrap() + 1;
                    blocks.truncate(left * epochs);
                }
            }
        };
        assert_eq!(level_growth(&kept(70, leaves(0)), &[]), None);
        assert_eq!(level_growth(&kept(70, leaves(3)), &[]), Some(2));
        // What a first step, an evaluation or a cache gives back is another matter.
        assert_eq!(level_growth(&kept(30, |_, _| ()), &[]), Some(10));
        let mut evaluated = kept(30, |_, _| ());
        evaluated[12] += 400;
        assert_eq!(level_growth(&evaluated, &[]), Some(10));
        let mut smaller = kept(30, |_, _| ());
        smaller[15..].iter_mut().for_each(|it| *it -= 40);
        assert_eq!(level_growth(&smaller, &[]), Some(10));
    }

    #[test]
    fn segments_may_grow_faster_than_what_is_in_them() {
        // Of segments of 20, two blocks of 8; and what grows too little for a segment in each step.
        let rounded: Vec<u64> = (0..64).map(|step: u64| 40 + step.div_ceil(2) * 20).collect();
        assert_eq!(reserved_growth(&rounded, 8), 10);
        let rare: Vec<u64> = (0..64).map(|step| 40 + (step + 20) / 40 * 20).collect();
        assert_eq!(reserved_growth(&rare, 1), 1);
        // What begins to be used meanwhile is no growth of that kind.
        let other: Vec<u64> = (0..64).map(|step| 40 + step * 30).collect();
        assert_eq!(reserved_growth(&other, 8), 16);
        assert_eq!(reserved_growth(&[40; 64], 8), 8);
        assert_eq!((reserved_growth(&[], 8), reserved_growth(&[40], 8), reserved_growth(&[40, 60], 0)), (8, 8, 0));
    }

    #[test]
    fn growth_fills_a_device_after_some_steps() {
        assert_eq!(full_after(12, 1000, 10), Some(112));
        assert_eq!(full_after(12, 1 << 40, 512), None);
        assert_eq!(full_after(12, 5, 0), None);
    }

    #[test]
    fn a_connection_has_the_sizes_that_nccl_prints() {
        assert_eq!(connection(), 10_485_760 + 2_097_152);
        assert_eq!(
            [Link::Pcie, Link::Nvlink, Link::Sharp].map(|it| it.bytes().map(|bytes| bytes / MIB)),
            [[0, 24, 144], [24, 288, 1152], [24, 288, 1664]]
        );
    }
}
