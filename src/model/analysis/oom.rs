//! Parses out-of-memory messages, in every wording that PyTorch has had, and derives the cause.
//!
//! # How an error is explained
//!
//! `analysis::oom` derives the reason for an out-of-memory error from the figures at that moment: free memory, a limit
//! of the job, what the allocator held in pieces, and, from the driver's latest list, the other processes on the
//! device. The job's own growth comes first (`findings::blame`), if the request would have fitted without it, or if
//! nothing else explains the error; then other processes, on the same condition. `findings::follow` lists under another
//! finding what follows from it: growth that led to an error, errors that recur before another step, and growth of host
//! memory that began with growth of live memory, takes less than 256 KiB per kept block, and runs out only after the
//! device is full. An error counts as fragmentation only if free memory in split segments could have served the request
//! and is at least 4 % of the allocator's memory: before it fails, the allocator releases entirely free segments, and
//! private pools serve no other requests.

pub mod rare_rises;
pub mod reason;

use super::{
    cause::Cause,
    evidence::{Evidence, Unit},
};
use crate::facts::{text::Foreign, units::Bytes};
use serde::{Deserialize, Serialize};

/// The figures of one failed allocation, in bytes; `None` if not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomFigures {
    /// The requested bytes.
    pub tried: Option<u64>,
    /// The device's capacity.
    pub total: Option<u64>,
    /// Free on the device.
    pub free: Option<u64>,
    /// The process's limit, if it has one.
    pub allowed: Option<u64>,
    /// This process's memory on the device, contexts and libraries included.
    pub process: Option<u64>,
    /// Other processes' memory on the device.
    pub others: Option<u64>,
    /// Live memory of the framework's allocator.
    pub allocated: Option<u64>,
    /// Memory that the allocator reserved from the driver.
    pub reserved: Option<u64>,
    /// Memory in private pools (CUDA graphs): live, if a message reports it, otherwise reserved.
    pub private_pools: Option<u64>,
    /// Live memory in private pools, from messages.
    pub pools_live: Option<u64>,
    /// Reserved memory of private pools, from probes.
    pub pools_held: Option<u64>,
    /// The allocator's largest free block, which only probes report.
    pub largest_free: Option<u64>,
    /// Free parts of split segments; `None` with expandable segments, where it cannot be measured.
    pub stuck: Option<u64>,
    /// Whether expandable segments were on.
    pub expandable: bool,
}

const MIB: u64 = 1 << 20;

/// A message rounds each figure to 0.01 GiB, so the difference of several is not exact.
const ROUNDING: u64 = 32 * MIB;

/// Free memory inside the allocator matters from this share of its memory on. Less is the usual loss to rounding, and
/// the next request would have failed without it.
const MATTERS: f64 = 0.04;

/// Other processes matter from this share of the device on.
const NEIGHBOUR: f64 = 0.08;

/// Parses the figures in a message and ignores unknown text. An empty message has no figures.
pub fn parse(message: &str) -> OomFigures {
    let after = |label| size_after(message, label);
    let before = |label| size_before(message, label);
    let allocated = before(" already allocated")
        .or_else(|| after("Of the allocated memory "))
        .or_else(|| after_colon(message, "Currently allocated"));
    // The oldest releases call memory `cached` that is reserved and not live.
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
            // PyTorch 2.1 has this typo.
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
    // Without a limit, some wordings print the largest possible number.
    figures.allowed = figures.allowed.filter(|it| figures.total.is_none_or(|total| *it < total));
    (figures.process, figures.others) = processes(message, &figures);
    figures
}

/// Returns the memory of this process and of all others. The list of processes may include our own without marking it:
/// it is one with at least our allocator's memory.
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

/// Returns the processes in a message: their pids and memory.
fn listed(message: &str) -> Vec<(u32, u64)> {
    let entry = |it: &str| {
        let (pid, rest) = it.split_once(" has ")?;
        Some((pid.parse().ok()?, size(rest)?))
    };
    message.split("Process ").skip(1).filter_map(entry).collect()
}

/// Returns the other processes in a message with these figures: their pids and memory; `own` is the process's own pid.
/// In a container the driver's pids differ, so a message may list its own process among the others: then it is the one
/// whose memory the figures use for it.
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
    /// Returns the bytes that the allocator reserved and that are not live.
    pub fn unallocated(&self) -> Option<u64> {
        self.reserved?.checked_sub(self.allocated?)
    }

    /// Returns why the request did not fit: what would have made the most room for it, or the request itself.
    pub fn cause(&self) -> Cause {
        // If the device had room, other processes were not in the way.
        let others = self.others.filter(|it| *it > 0 && !self.is_limited() && self.would_fit_with(*it));
        match (self.fragmented(), others) {
            (Some(free), Some(others)) if others > free => Cause::OtherProcess,
            (Some(_), _) => Cause::Fragmentation,
            (None, Some(_)) => Cause::OtherProcess,
            (None, None) => Cause::Oom,
        }
    }

    /// Whether other processes hold a large share of the device. A job that needs more than ever before runs out with
    /// or without a small neighbour.
    pub fn has_large_neighbours(&self) -> bool {
        let share = |total: u64| self.others.is_some_and(|it| it as f64 >= NEIGHBOUR * total as f64);
        self.total.is_none_or(share)
    }

    /// Whether the request failed, but would have fitted with this many more free bytes.
    pub fn would_fit_with(&self, bytes: u64) -> bool {
        let free = self.free.unwrap_or(0);
        self.tried.map(segment).is_some_and(|size| free < size && bytes.saturating_add(free) >= size)
    }

    /// Whether the request would have fitted if the job had held this many bytes less.
    pub fn would_fit_without(&self, bytes: u64) -> bool {
        match (self.own_limit(), self.tried, self.reserved) {
            (Some(limit), Some(tried), Some(held)) => {
                held.saturating_sub(bytes).saturating_add(segment(tried)) <= limit
            }
            _ => self.would_fit_with(bytes),
        }
    }

    /// Returns the job's own limit, if the request exceeded it and not the device.
    pub fn own_limit(&self) -> Option<u64> {
        self.allowed.filter(|_| self.is_limited())
    }

    /// Free memory inside the allocator that could have served the request in one piece.
    ///
    /// Before it fails, the allocator releases entirely free segments to the driver, and with expandable segments every
    /// free page. The free memory that is left is in split segments, or in private pools, which serve no other
    /// requests.
    fn fragmented(&self) -> Option<u64> {
        if self.expandable {
            return None;
        }
        let free = self.unallocated()?.saturating_sub(self.unused_in_pools());
        let free = self.stuck.map_or(free, |stuck| free.min(stuck));
        let matters = free as f64 >= MATTERS * self.reserved? as f64;
        (free >= self.tried? && matters).then_some(free)
    }

    /// Unused memory of private pools; an upper bound if their live memory is unknown.
    fn unused_in_pools(&self) -> u64 {
        self.pools_held.unwrap_or(0).saturating_sub(self.pools_live.unwrap_or(0))
    }

    /// Returns the known figures.
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

    /// Returns one line per reason, decisive ones first; empty if nothing is known.
    pub fn account(&self, blocks: Blocks, tenants: &[Tenant]) -> Vec<String> {
        let lines = [self.request(), self.limit(), self.holes(), self.pools(), self.tenancy(tenants), live(blocks)];
        lines.into_iter().flatten().collect()
    }

    /// Whether the device had room but the job's own limit (`set_per_process_memory_fraction`) did not.
    fn is_limited(&self) -> bool {
        self.allowance().is_some() && self.free.zip(self.tried).is_some_and(|(free, tried)| free >= tried)
    }

    /// A limit below the device's capacity. An allocator without a limit reports a number larger than any device.
    fn allowance(&self) -> Option<u64> {
        self.allowed.filter(|it| *it < self.total.unwrap_or(u64::MAX))
    }

    fn request(&self) -> Option<String> {
        let tried = Bytes(self.tried?);
        Some(match (self.free.map(Bytes), self.total.map(Bytes)) {
            (Some(free), Some(total)) => format!("{tried} was asked for, {free} of the device's {total} was free"),
            (Some(free), None) => format!("{tried} was asked for, {free} was free on the device"),
            (None, _) => format!("{tried} was asked for"),
        })
    }

    fn limit(&self) -> Option<String> {
        let allowed = Bytes(self.allowance()?);
        let held = self.reserved.map(Bytes).map(|it| format!(", and its allocator held {it}")).unwrap_or_default();
        let why = if self.is_limited() { "the device had room, but the job" } else { "the job" };
        Some(format!("{why} may take at most {allowed} (set_per_process_memory_fraction){held}"))
    }

    /// Describes memory that the allocator held and could not use for the request.
    fn holes(&self) -> Option<String> {
        let unused = self.unallocated().filter(|it| *it > 0).map(Bytes);
        let parts = [self.stuck.map(|it| format!("{} in split segments", Bytes(it))), self.largest_hole()];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match unused {
            Some(unused) if parts.is_empty() => Some(format!("the allocator held {unused} unused")),
            Some(unused) => Some(format!("the allocator held {unused} unused: {}", parts.join(", "))),
            None => self.unallocated().map(|_| "everything that the allocator held was in use".to_owned()),
        }
    }

    fn pools(&self) -> Option<String> {
        let pools = Bytes(self.private_pools.filter(|it| *it > 0)?);
        Some(format!("private pools (CUDA graphs) had {pools}, which served nothing else"))
    }

    fn largest_hole(&self) -> Option<String> {
        let largest = self.largest_free?;
        let fits = if self.tried? > largest {
            "too small"
        } else {
            // The block was free, and the request still failed.
            "large enough, but of another stream, pool or size class"
        };
        Some(format!("its largest free block had {}: {fits}", Bytes(largest)))
    }

    fn tenancy(&self, tenants: &[Tenant]) -> Option<String> {
        let others = self.others.filter(|it| *it > 0).map(Bytes);
        if others.is_none() && tenants.is_empty() {
            return self.others.map(|_| "no other process had memory on the device".to_owned());
        }
        let each = tenants.iter().take(LISTED).map(|it| {
            let name = if it.name.is_empty() { String::new() } else { format!(" ({})", it.name) };
            format!("pid {}{name} {}", it.pid, it.used.map_or_else(|| "–".to_owned(), |used| used.to_string()))
        });
        let mut each: Vec<_> = each.collect();
        if tenants.len() > LISTED {
            each.push(format!("{} more", tenants.len() - LISTED));
        }
        let each = if each.is_empty() { String::new() } else { format!(": {}", each.join(", ")) };
        let all = others.map_or_else(|| "–".to_owned(), |it| it.to_string());
        Some(format!("other processes had {all} of the device{each}"))
    }
}

/// The size that PyTorch's allocator requests from the driver if no free block serves a request.
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

/// Parses `512 bytes`, `20.00 MiB`, whatever follows.
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

/// Most sizes and processes listed individually.
const LISTED: usize = 4;

/// Another process on the device when the request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its pid.
    pub pid: u32,
    /// Its program; empty if unknown.
    pub name: Foreign,
    /// Its memory; `None` where the driver does not report it.
    pub used: Option<Bytes>,
}

/// Live blocks by size, largest total first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks<'a> {
    /// Size in bytes and number of blocks.
    pub groups: &'a [(u64, u64)],
    /// Number of blocks of other sizes; `None` if not counted.
    pub others: Option<u64>,
}

fn live(blocks: Blocks) -> Option<String> {
    let groups = blocks.groups.iter().take(LISTED).map(|(size, count)| format!("{count} × {}", Bytes(*size)));
    let groups: Vec<_> = groups.collect();
    let grouped: u64 = blocks.groups.iter().skip(LISTED).map(|it| it.1).fold(0, u64::saturating_add);
    let more = grouped.saturating_add(blocks.others.unwrap_or(0));
    let more = if more > 0 { format!(", {more} of other sizes") } else { String::new() };
    (!groups.is_empty()).then(|| format!("live blocks, by size: {}{more}", groups.join(", ")))
}

#[cfg(test)]
mod tests;
