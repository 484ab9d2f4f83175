//! From a span of growth and the signature over it to a named cause, with the figures that a person can check.
//!
//! The rules follow what was measured on PyTorch's own allocator: what is kept shows in the count of live blocks, one
//! tensor that grows shows in bytes alone. Counters do not tell a graph from tensors that are kept together: a look at the blocks does
//! ([`Culprit::cause`](super::culprit::Culprit)). What the figures do not tell is [`Cause::Unknown`], not the likeliest.
//!
//! # How a cause is named
//!
//! `analysis::signature` keeps the counters of the latest 256 steps and of the whole run at a growing stride, and says
//! of any span how each of them moved (the median of the slopes between stretches) and how the count of live blocks
//! rose, one lasting rise at a time. `analysis::diagnosis` goes from there to a cause:
//!
//! - Blocks that stay while bytes rise are one tensor that grows. Blocks of the smallest size are scalars when a few
//!   bytes were asked for each, short vectors otherwise.
//! - Several blocks of one step may be a graph, a pair of tensors or the outputs of every layer. Their counters are the
//!   same, so that `graph-retained` needs a capture of the blocks: a graph that grows with a held tensor, or blocks
//!   that autograd alone holds. Once a capture has found most of what grows, it names the cause, and the finding's
//!   advice is the culprit's (`Culprit::cause`, `Finding::remedy`).
//! - Where the number of blocks stays and the peak rises four times as fast as what stays, the inputs get larger. A
//!   tensor that grows by `torch.cat` lifts the peak by as much as itself.
//! - Where the count breathes (less than two thirds of what rose was kept), a rise of its floor is not a single event,
//!   and nothing is read from its size.
//! - Reserved memory is named after what grows in it: private pools, blocks that wait for a stream, live memory; what
//!   neither explains is fragmentation, unless steps need as much more at a time (`larger-inputs`). Without the
//!   counters for that, the cause is `unknown`. Where pools are not counted, fragmentation is what grows in split
//!   segments, or with requests that are larger than any before: the highest live bytes rise too, while another graph
//!   needs what the one before it needed.
//!
//! `tests/it/corpus/causes.rs` holds this to the labelled leaks.

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

/// The largest scalar, a number of double precision, in bytes.
const SCALAR: f64 = 8.0;

/// So many times as fast as what stays, the peak rises where inputs do.
const ACTIVATIONS: f64 = 4.0;

/// One tensor that grows is there twice, old and new; the rest is rounding.
const WITH_A_COPY: f64 = 2.25;

/// A share above which one counter's growth explains another's.
const MOST: f64 = 0.5;

/// The cause of an episode, and what it rests on.
pub fn diagnose(episode: &Episode, signature: &Signature) -> (Cause, Evidence) {
    let grows_with_inputs = episode.resource == Resource::Allocated && follows_inputs(episode, signature);
    let cause = match (episode.resolved.map(|it| it.end), episode.resource) {
        (_, Resource::Allocated) if grows_with_inputs => Cause::LargerInputs,
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

/// Whether steps need more and more, and what stays after each only follows: a tensor that is made anew and larger lifts
/// the peak by itself and its copy, larger inputs by every activation.
fn follows_inputs(episode: &Episode, signature: &Signature) -> bool {
    let gained = blocks(episode, signature).map(|it| it * episode.last_step.saturating_sub(episode.since_step) as f64);
    gained.is_some_and(|it| it.abs() <= A_BLOCK_OR_SO)
        && signature.peak.is_some_and(|it| it > ACTIVATIONS * episode.bytes_per_step)
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
    // Several blocks of one step may be a graph, a pair of tensors, or all outputs of a model: counters are the same for
    // each of them, so that only a look at the blocks tells a graph.
    Cause::TensorsRetained
}

/// What the allocator holds grows.
fn held(episode: &Episode, signature: &Signature) -> Cause {
    let explains = |slope: Option<f64>| slope.is_some_and(|it| it > MOST * episode.bytes_per_step);
    if explains(signature.private_pools) {
        Cause::GraphPools
    } else if explains(signature.pending) {
        Cause::CrossStreamPending
    } else if explains(signature.peak) && steps_grow(signature) {
        Cause::LargerInputs
    } else if explains(signature.allocated) {
        live(signature.allocated.unwrap_or(episode.bytes_per_step), episode, signature)
    } else if signature.private_pools.is_none() && !explains(signature.inactive_split) && !requests_grow(signature) {
        // Pools of graphs that nobody counts grow just as whole segments do that are too small to be used again.
        Cause::Unknown
    } else if signature.allocated.is_some() && signature.cached.is_some() {
        Cause::Fragmentation
    } else {
        Cause::Unknown
    }
}

/// Whether steps need more and more, whatever stays after them: more than a tensor that grows and its copy.
fn steps_grow(signature: &Signature) -> bool {
    let gained = signature.blocks.map(|it| it * signature.steps as f64);
    let left = signature.allocated.map_or(0.0, |it| it.max(0.0));
    gained.is_none_or(|it| it.abs() <= A_BLOCK_OR_SO) && signature.peak.is_some_and(|it| it > WITH_A_COPY * left)
}

/// Whether requests are larger than any before: the highest live bytes rise with what is held. A graph that is captured
/// once more needs no more than the one before it.
fn requests_grow(signature: &Signature) -> bool {
    signature.peak.is_some_and(|it| it > 0.0)
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
