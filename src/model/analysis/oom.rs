//! What an out-of-memory message says, in every wording that PyTorch has had, and what follows from it.
//!
//! # How an error is explained
//!
//! The reason for an out-of-memory error is derived from the figures of that moment (`analysis::oom`): what was free, a
//! limit of the job's own, what the allocator held in pieces, and, from the driver's latest list, who else was on the
//! device. Growth of the job's own comes first (`findings::blame`), if the request would have fitted without it, or if
//! nothing else explains the error; then others, on the same condition. `findings::follow` finds what follows from
//! another finding and puts it behind: growth that led to an error, errors that come again before another step, and
//! growth of host memory that began with growth of live memory, takes less than 256 KiB for each block that is kept,
//! and rings by itself only after the device is full. An error is called fragmentation only if free memory in split
//! segments could have served the request and is 4 % of what the allocator held: before it fails, the allocator has
//! given whole free segments back, and private pools serve nothing else.

mod account;

use super::{
    cause::Cause,
    evidence::{Evidence, Unit},
};
pub use account::{Blocks, Tenant};
use serde::{Deserialize, Serialize};

/// The figures of one failed allocation, bytes; `None` is not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomFigures {
    /// What was asked for.
    pub tried: Option<u64>,
    /// The device's capacity.
    pub total: Option<u64>,
    /// Free on the device.
    pub free: Option<u64>,
    /// What the process may take at most, where it was limited.
    pub allowed: Option<u64>,
    /// What this process has on the device, contexts and libraries included.
    pub process: Option<u64>,
    /// What other processes have on it.
    pub others: Option<u64>,
    /// Live in the framework's allocator.
    pub allocated: Option<u64>,
    /// Held by the allocator from the driver, live or not.
    pub reserved: Option<u64>,
    /// In private pools (CUDA graphs): live, where a message says it, else held.
    pub private_pools: Option<u64>,
    /// Live in private pools, as messages say.
    pub pools_live: Option<u64>,
    /// Held by private pools, as probes say.
    pub pools_held: Option<u64>,
    /// The largest block that the allocator holds and does not use; messages do not say it, probes do.
    pub largest_free: Option<u64>,
    /// Free parts of split segments; `None` under expandable segments, where it cannot be measured.
    pub stuck: Option<u64>,
    /// Whether expandable segments were on.
    pub expandable: bool,
}

const MIB: u64 = 1 << 20;

/// A message rounds each of its figures to a hundredth of a GiB: what is left when two are taken from a third is not exact.
const ROUNDING: u64 = 32 * MIB;

/// Free memory inside the allocator matters from this share of what it held on: less is the usual loss to rounding, and
/// the next request would have failed for the lack of it.
const MATTERS: f64 = 0.04;

/// The figures in a message. Words that are not known are passed over; no message at all gives no figures.
pub fn parse(message: &str) -> OomFigures {
    let after = |label| size_after(message, label);
    let before = |label| size_before(message, label);
    let allocated = before(" already allocated")
        .or_else(|| after("Of the allocated memory "))
        .or_else(|| after_colon(message, "Currently allocated"));
    // `cached` is what the oldest releases call memory that is held and not live.
    let unallocated = before(" is reserved by PyTorch but unallocated").or_else(|| before(" cached)"));
    let reserved = before(" reserved in total by PyTorch").or_else(|| Some(allocated?.saturating_add(unallocated?)));
    let mut figures = OomFigures {
        tried: after("Tried to allocate ")
            .or_else(|| after("Requested size: "))
            .or_else(|| after_colon(message, "Requested"))
            .or_else(|| after("Failed to CUDA calloc "))
            .or_else(|| after("trying to allocate ")),
        total: before(" total capacity")
            .or_else(|| after("total capacity of "))
            // So it was spelt in PyTorch 2.1.
            .or_else(|| after("total capacty of "))
            .or_else(|| after_colon(message, "Device limit")),
        free: before(" is free")
            .or_else(|| before(" free;"))
            .or_else(|| after_colon(message, "Free (according to CUDA)")),
        allowed: before(" allowed;")
            .or_else(|| after_colon(message, "PyTorch limit (set by user-supplied memory fraction)")),
        process: after("this process has "),
        others: None,
        allocated,
        reserved,
        private_pools: before(" allocated in private pools"),
        pools_live: before(" allocated in private pools"),
        ..OomFigures::default()
    };
    // Where there is no limit, some wordings give the largest number there is.
    figures.allowed = figures.allowed.filter(|it| figures.total.is_none_or(|total| *it < total));
    (figures.process, figures.others) = processes(message, &figures);
    figures
}

/// What this process and what all others have. The list of processes may have our own in it without saying which: it
/// is one that has at least what our allocator holds.
fn processes(message: &str, known: &OomFigures) -> (Option<u64>, Option<u64>) {
    let listed: Vec<u64> = listed(message).into_iter().map(|it| it.1).collect();
    let sum = |sizes: &[u64]| sizes.iter().fold(0_u64, |sum, it| sum.saturating_add(*it));
    if let Some(own) = known.process {
        let others = known.total.zip(known.free).map(|(total, free)| total.saturating_sub(free).saturating_sub(own));
        let others = others.filter(|it| *it > ROUNDING);
        return (Some(own), if listed.is_empty() { others } else { Some(sum(&listed)) });
    }
    let own = known.reserved.and_then(|reserved| listed.iter().copied().filter(|it| *it >= reserved).min());
    match own {
        Some(own) => (Some(own), Some(sum(&listed).saturating_sub(own))),
        None if listed.is_empty() => (None, None),
        None => (None, known.reserved.map(|_| sum(&listed))),
    }
}

/// The processes in a message, by their numbers, and what they have.
fn listed(message: &str) -> Vec<(u32, u64)> {
    let entry = |it: &str| {
        let (pid, rest) = it.split_once(" has ")?;
        Some((pid.parse().ok()?, size(rest)?))
    };
    message.split("Process ").skip(1).filter_map(entry).collect()
}

/// The other processes in a message with these figures, by their numbers, and what they have; `own` is the number of the
/// process itself. In a container the driver's numbers are not those of the processes, so that a message may list its own
/// process among the others: then it is the one that the figures took for it.
pub fn strangers(message: &str, figures: &OomFigures, own: Option<u32>) -> Vec<(u32, u64)> {
    let mut all = listed(message);
    let is_named = size_after(message, "this process has ").is_some();
    let by_number = all.iter().position(|it| Some(it.0) == own);
    let by_size = || all.iter().position(|it| !is_named && Some(it.1) == figures.process);
    if let Some(place) = by_number.or_else(by_size) {
        all.remove(place);
    }
    all
}

impl OomFigures {
    /// Held by the allocator and not live.
    pub fn unallocated(&self) -> Option<u64> {
        self.reserved?.checked_sub(self.allocated?)
    }

    /// Why it did not fit: what would have made room for it, the largest first; else the request itself.
    pub fn cause(&self) -> Cause {
        // Where the device had room, nobody else was in the way.
        let others = self.others.filter(|it| *it > 0 && !self.is_limited() && self.would_fit_with(*it));
        match (self.fragmented(), others) {
            (Some(free), Some(others)) if others > free => Cause::OtherProcess,
            (Some(_), _) => Cause::Fragmentation,
            (None, Some(_)) => Cause::OtherProcess,
            (None, None) => Cause::Oom,
        }
    }

    /// Whether the request did not fit the device, and would have had so many bytes more been free.
    pub fn would_fit_with(&self, bytes: u64) -> bool {
        let free = self.free.unwrap_or(0);
        self.tried.map(segment).is_some_and(|size| free < size && bytes.saturating_add(free) >= size)
    }

    /// Whether the request would have fitted, had the job held so many bytes less.
    pub fn would_fit_without(&self, bytes: u64) -> bool {
        match (self.own_limit(), self.tried, self.reserved) {
            (Some(limit), Some(tried), Some(held)) => {
                held.saturating_sub(bytes).saturating_add(segment(tried)) <= limit
            }
            _ => self.would_fit_with(bytes),
        }
    }

    /// The job's own limit, where that and not the device is what the request did not fit.
    pub fn own_limit(&self) -> Option<u64> {
        self.allowed.filter(|_| self.is_limited())
    }

    /// Free memory inside the allocator that could have served the request, had it been in one piece.
    ///
    /// Before it fails, the allocator gives whole free segments back to the driver, and under expandable segments every
    /// free page: what it still holds then is in split segments, or belongs to private pools, which serve nothing else.
    fn fragmented(&self) -> Option<u64> {
        if self.expandable {
            return None;
        }
        let free = self.unallocated()?.saturating_sub(self.unused_in_pools());
        let free = self.stuck.map_or(free, |stuck| free.min(stuck));
        let matters = free as f64 >= MATTERS * self.reserved? as f64;
        (free >= self.tried? && matters).then_some(free)
    }

    /// What private pools held and did not use; an upper bound where it is unknown what was live in them.
    fn unused_in_pools(&self) -> u64 {
        self.pools_held.unwrap_or(0).saturating_sub(self.pools_live.unwrap_or(0))
    }

    /// The figures that are known.
    pub fn evidence(&self) -> Evidence {
        let mut out = Evidence::default();
        let figures = [
            ("tried", self.tried),
            ("free", self.free),
            ("total", self.total),
            ("allowed", self.allowed),
            ("process", self.process),
            ("others", self.others),
            ("allocated", self.allocated),
            ("reserved", self.reserved),
            ("reserved_unallocated", self.unallocated()),
            ("private_pools", self.private_pools),
            ("largest_free", self.largest_free),
        ];
        for (name, bytes) in figures {
            if let Some(bytes) = bytes {
                out.add(name, bytes as f64, Unit::Bytes);
            }
        }
        out
    }
}

/// What PyTorch's allocator asks of the driver for a request that none of its free blocks serves.
fn segment(tried: u64) -> u64 {
    match tried {
        it if it <= MIB => 2 * MIB,
        it if it < 10 * MIB => 20 * MIB,
        _ => tried.checked_next_multiple_of(2 * MIB).unwrap_or(tried),
    }
}

/// The size right after a label.
fn size_after(message: &str, label: &str) -> Option<u64> {
    size(message.split_once(label)?.1)
}

/// The size after a label, blanks and a colon.
fn after_colon(message: &str, label: &str) -> Option<u64> {
    let (_, rest) = message.split_once(label)?;
    size(rest.trim_start().strip_prefix(':')?.trim_start())
}

/// The size right before a label.
fn size_before(message: &str, label: &str) -> Option<u64> {
    let (rest, _) = message.split_once(label)?;
    let mut words = rest.rsplit([' ', '(', '\n']);
    let unit = words.next()?;
    size_of(words.next()?, unit)
}

/// `512 bytes`, `20.00 MiB`, whatever follows.
fn size(text: &str) -> Option<u64> {
    let mut words = text.split([' ', '\n']);
    size_of(words.next()?, words.next()?)
}

fn size_of(number: &str, unit: &str) -> Option<u64> {
    let unit = unit.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    let scale = match unit {
        "bytes" | "byte" | "B" => 1_u64,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    let number: f64 = number.parse().ok().filter(|it: &f64| it.is_finite() && *it >= 0.0)?;
    Some(crate::facts::units::whole(number * scale as f64))
}

#[cfg(test)]
mod tests;
