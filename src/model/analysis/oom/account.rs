//! Explains why a request did not fit, from the figures at that moment.

use super::OomFigures;
use crate::facts::{text::Foreign, units::Bytes};
use serde::{Deserialize, Serialize};

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

impl OomFigures {
    /// Returns one line per reason, decisive ones first; empty if nothing is known.
    pub fn account(&self, blocks: Blocks, tenants: &[Tenant]) -> Vec<String> {
        let lines = [self.request(), self.limit(), self.holes(), self.pools(), self.tenancy(tenants), live(blocks)];
        lines.into_iter().flatten().collect()
    }

    /// Whether the device had room but the job's own limit (`set_per_process_memory_fraction`) did not.
    pub(super) fn is_limited(&self) -> bool {
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

fn live(blocks: Blocks) -> Option<String> {
    let groups = blocks.groups.iter().take(LISTED).map(|(size, count)| format!("{count} × {}", Bytes(*size)));
    let groups: Vec<_> = groups.collect();
    let grouped: u64 = blocks.groups.iter().skip(LISTED).map(|it| it.1).fold(0, u64::saturating_add);
    let more = grouped.saturating_add(blocks.others.unwrap_or(0));
    let more = if more > 0 { format!(", {more} of other sizes") } else { String::new() };
    (!groups.is_empty()).then(|| format!("live blocks, by size: {}{more}", groups.join(", ")))
}
