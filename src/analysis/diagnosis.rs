//! From a span of growth and the signature over it to a named cause, with the figures that a person can check.
//!
//! The rules follow what was measured on PyTorch's own allocator: what is kept shows in the count of live blocks, one
//! tensor that grows shows in bytes alone, a graph leaves several blocks of different sizes at a time.

use super::{
    cause::Cause,
    episode::{End, Episode, Resource},
    evidence::{Evidence, Unit},
    signature::{SMALLEST_BLOCK, Signature},
};

/// Fewer blocks than this gained in a whole span are none: a phase may leave one for good.
const A_BLOCK_OR_SO: f64 = 1.5;

/// A share above which one counter's growth explains another's.
const MOST: f64 = 0.5;

/// The cause of an episode, and what it rests on.
pub fn diagnose(episode: &Episode, signature: &Signature) -> (Cause, Evidence) {
    let cause = match episode.resolved.map(|it| it.end) {
        Some(End::Plateau) => Cause::CacheFilling,
        Some(End::Released) => Cause::ReferenceCycle,
        _ => match episode.resource {
            Resource::Allocated => live(episode.bytes_per_step, blocks(episode, signature), signature),
            Resource::Reserved => held(episode, signature),
            Resource::Driver => Cause::DriverGrowth,
            Resource::Device => Cause::OtherProcess,
            Resource::Pinned => Cause::PinnedGrowth,
            Resource::Host => Cause::HostGrowth,
        },
    };
    (cause, evidence(episode, signature))
}

/// Blocks a step, as the detector measured them, else as the signature says.
fn blocks(episode: &Episode, signature: &Signature) -> Option<f64> {
    episode.blocks_per_step.or(signature.blocks)
}

/// Live bytes grow.
fn live(bytes_per_step: f64, blocks: Option<f64>, signature: &Signature) -> Cause {
    let Some(blocks) = blocks else {
        // Without a count of blocks only the very smallest can be told from the others.
        return if bytes_per_step <= 1.5 * SMALLEST_BLOCK { Cause::ScalarsRetained } else { Cause::TensorsRetained };
    };
    if blocks * signature.steps as f64 <= A_BLOCK_OR_SO {
        return Cause::GrowingTensor;
    }
    if bytes_per_step / blocks <= 1.5 * SMALLEST_BLOCK {
        return Cause::ScalarsRetained;
    }
    match signature.rises {
        Some(it) if it.blocks >= 2 && it.are_unequal() != Some(false) => Cause::GraphRetained,
        // Equal sizes in every step may be a graph of equal layers; now and then they are an evaluation's outputs.
        Some(it) if it.blocks >= 2 && it.count * 10 >= it.steps * 9 => Cause::GraphRetained,
        _ => Cause::TensorsRetained,
    }
}

/// What the allocator holds grows.
fn held(episode: &Episode, signature: &Signature) -> Cause {
    let reserved = episode.bytes_per_step;
    let explains = |slope: Option<f64>| slope.is_some_and(|it| it > MOST * reserved);
    if explains(signature.private_pools) {
        Cause::GraphPools
    } else if explains(signature.pending) {
        Cause::CrossStreamPending
    } else if explains(signature.allocated) {
        live(signature.allocated.unwrap_or(reserved), signature.blocks, signature)
    } else {
        Cause::Fragmentation
    }
}

fn evidence(episode: &Episode, signature: &Signature) -> Evidence {
    let mut out = Evidence::default();
    let (low, high) = episode.interval;
    out.add("interval_low", low, Unit::BytesPerStep);
    out.add("interval_high", high, Unit::BytesPerStep);
    out.add("gained", episode.gained as f64, Unit::Bytes);
    let is_torch = matches!(episode.resource, Resource::Allocated | Resource::Reserved);
    if !is_torch {
        return out;
    }
    if let Some(blocks) = blocks(episode, signature).filter(|it| *it > 0.0) {
        out.add("blocks_per_step", blocks, Unit::PerStep);
        if episode.resource == Resource::Allocated {
            out.add("bytes_per_block", episode.bytes_per_step / blocks, Unit::Bytes);
        }
    }
    if let Some(rises) = signature.rises.filter(|it| it.blocks > 1) {
        out.add("blocks_per_rise", rises.blocks as f64, Unit::Count);
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
            out.add(name, slope, Unit::BytesPerStep);
        }
    }
    out
}
