//! From a span of growth and the signature over it to a named cause, with the figures that a person can check.
//!
//! The rules follow what was measured on PyTorch's own allocator: what is kept shows in the count of live blocks, one
//! tensor that grows shows in bytes alone, a graph leaves several blocks of one forward pass at a time. What the figures
//! do not tell is [`Cause::Unknown`], not the likeliest.

use super::{
    cause::Cause,
    episode::{Axis, End, Episode, Resource},
    evidence::{Evidence, Unit},
    signature::{Rises, SMALLEST_BLOCK, Signature},
};

/// Fewer blocks than this gained in a whole span are none: a phase may leave one for good.
const A_BLOCK_OR_SO: f64 = 1.5;

/// Up to so many bytes a block, most blocks have the smallest size there is.
const SMALL: f64 = 1.5 * SMALLEST_BLOCK as f64;

/// The largest scalar, a complex number of double precision, in bytes.
const SCALAR: f64 = 16.0;

/// A share above which one counter's growth explains another's.
const MOST: f64 = 0.5;

/// The cause of an episode, and what it rests on.
pub fn diagnose(episode: &Episode, signature: &Signature) -> (Cause, Evidence) {
    let cause = match (episode.resolved.map(|it| it.end), episode.resource) {
        (Some(End::Plateau), _) => Cause::CacheFilling,
        (Some(End::Released), Resource::Allocated) => Cause::ReferenceCycle,
        (_, Resource::Allocated) => live(episode.bytes_per_step, episode, signature),
        (_, Resource::Reserved) => held(episode, signature),
        (_, Resource::Driver) => Cause::DriverGrowth,
        (_, Resource::Device) => Cause::OtherProcess,
        (_, Resource::Pinned) => Cause::PinnedGrowth,
        (_, Resource::Host) => Cause::HostGrowth,
    };
    (cause, evidence(episode, signature))
}

/// Blocks a step, as the detector measured them, else as the signature says.
fn blocks(episode: &Episode, signature: &Signature) -> Option<f64> {
    episode.blocks_per_step.or(signature.blocks)
}

/// Live bytes grow.
fn live(bytes_per_step: f64, episode: &Episode, signature: &Signature) -> Cause {
    let Some(blocks) = blocks(episode, signature) else {
        // Without a count of blocks only the very smallest can be told from the others.
        return if bytes_per_step <= SMALL { Cause::ScalarsRetained } else { Cause::TensorsRetained };
    };
    let gained = blocks * episode.last_step.saturating_sub(episode.since_step) as f64;
    if gained < -A_BLOCK_OR_SO {
        // Fewer and larger blocks are neither something kept nor one tensor that grows.
        return Cause::Unknown;
    }
    if gained <= A_BLOCK_OR_SO {
        return Cause::GrowingTensor;
    }
    let rises = signature.rises.filter(Rises::are_clear);
    if bytes_per_step / blocks <= SMALL {
        let is_scalar = rises.and_then(|it| it.requested_per_block()).is_none_or(|it| it <= SCALAR);
        return if is_scalar { Cause::ScalarsRetained } else { Cause::TensorsRetained };
    }
    match rises {
        // Between two seconds a job without steps makes any number of passes: what one of them left is not told.
        Some(_) if episode.axis == Axis::Seconds => Cause::TensorsRetained,
        // One pass leaves several blocks: its graph. Where there were several passes (an evaluation), each may have left
        // its one output, which has the size of the others.
        Some(it) if it.blocks >= 2 && (it.are_of_one_pass() || it.are_unequal() == Some(true)) => Cause::GraphRetained,
        _ => Cause::TensorsRetained,
    }
}

/// What the allocator holds grows.
fn held(episode: &Episode, signature: &Signature) -> Cause {
    let explains = |slope: Option<f64>| slope.is_some_and(|it| it > MOST * episode.bytes_per_step);
    if explains(signature.private_pools) {
        Cause::GraphPools
    } else if explains(signature.pending) {
        Cause::CrossStreamPending
    } else if explains(signature.allocated) {
        live(signature.allocated.unwrap_or(episode.bytes_per_step), episode, signature)
    } else if signature.private_pools.is_none() && !explains(signature.inactive_split) {
        // Pools of graphs that nobody counts grow just as whole segments do that are too small to be used again.
        Cause::Unknown
    } else if signature.allocated.is_some() && signature.cached.is_some() {
        Cause::Fragmentation
    } else {
        Cause::Unknown
    }
}

fn evidence(episode: &Episode, signature: &Signature) -> Evidence {
    let mut out = Evidence::default();
    let (rate, count) = match episode.axis {
        Axis::Steps => (Unit::BytesPerStep, Unit::PerStep),
        Axis::Seconds => (Unit::BytesPerSecond, Unit::PerSecond),
    };
    let (low, high) = episode.interval;
    out.add("interval_low", low, rate);
    out.add("interval_high", high, rate);
    out.add("gained", episode.gained as f64, Unit::Bytes);
    let is_torch = matches!(episode.resource, Resource::Allocated | Resource::Reserved);
    if !is_torch {
        return out;
    }
    if let Some(blocks) = blocks(episode, signature).filter(|it| *it > 0.0) {
        out.add("blocks_per_step", blocks, count);
        if episode.resource == Resource::Allocated {
            out.add("bytes_per_block", episode.bytes_per_step / blocks, Unit::Bytes);
        }
    }
    if let Some(rises) = signature.rises.filter(Rises::are_clear) {
        if let Some(requested) = rises.requested_per_block() {
            out.add("requested_per_block", requested, Unit::Bytes);
        }
        if rises.blocks > 1 {
            out.add("blocks_per_rise", rises.blocks as f64, Unit::Count);
            if let Some(time) = rises.time {
                out.add("time_of_a_step_with_a_rise", time, Unit::Times);
            }
        }
    }
    let slopes = [
        ("allocated_per_step", signature.allocated),
        ("reserved_per_step", signature.reserved),
        ("cached_per_step", signature.cached),
        ("stuck_per_step", signature.inactive_split),
        ("pending_per_step", signature.pending),
        ("private_pools_per_step", signature.private_pools),
    ];
    for (name, slope) in slopes {
        if let Some(slope) = slope.filter(|it| it.abs() >= 0.5) {
            out.add(name, slope, rate);
        }
    }
    out
}

#[cfg(test)]
mod tests;
