//! Determines the cause of a span of growth from its signature, with figures that a user can check.
//!
//! The rules follow measurements on PyTorch's own allocator: kept tensors raise the count of live blocks, one growing
//! tensor raises bytes alone. Counters cannot distinguish a graph from tensors that are kept together; a capture of the
//! blocks can ([`Culprit::cause`](super::culprit::Culprit)). If the figures do not show the cause, it is
//! [`Cause::Unknown`], not the likeliest one.
//!
//! # How a cause is named
//!
//! `analysis::signature` keeps the counters of the latest 256 steps, and of the whole run at a growing stride. For any
//! span it returns the slope of each counter (the median of the slopes between stretches) and the lasting rises of the
//! count of live blocks. `analysis::diagnosis` derives the cause:
//!
//! - If bytes rise while blocks do not, one tensor grows. Blocks of the smallest size are scalars if a few bytes were
//!   requested for each, otherwise short vectors.
//! - Several blocks per step may be a graph, a pair of tensors or the outputs of every layer. Their counters are equal,
//!   so `graph-retained` needs a capture of the blocks: a graph that grows with a held tensor, or blocks that autograd
//!   alone holds. Once a capture has found most of what grows, it determines the cause, and the finding's advice is the
//!   culprit's (`Culprit::cause`, `Finding::remedy`).
//! - If the number of blocks stays and the peak rises four times as fast as live bytes, the inputs get larger. A tensor
//!   that grows by `torch.cat` raises the peak by its own growth only.
//! - If the count goes up and down (less than two thirds of each rise is kept), a rise of its floor is not a single
//!   event, and its size means nothing.
//! - Growth of reserved memory is named after the part that grows: private pools, blocks pending on a stream, live
//!   memory. Segments of one size that stay free and whole, while the peak stays, belong to streams that are made again
//!   (`stream-caches`): otherwise the next request would use them. The rest is fragmentation, unless steps need more
//!   and more at a time (`larger-inputs`). Without the
//!   counters for that, the cause is `unknown`. If pools are not counted, growth is fragmentation if split segments
//!   grow, or if requests are larger than any before, which raises the peak of live bytes too, while another graph
//!   needs no more than the one before it.
//!
//! `tests/it/analysis/corpus/causes.rs` tests the rules on the labelled leaks.

use super::{
    cause::Cause,
    episode::{Axis, End, Episode, Resource},
    evidence::{Evidence, Unit},
    signature::{Rises, SMALLEST_BLOCK, Signature},
};

/// A gain of fewer blocks over a whole span is ignored: a phase may leave one behind.
const A_BLOCK_OR_SO: f64 = 1.5;

/// Up to this many bytes per block, most blocks have the smallest size.
const SMALL: f64 = 1.5 * SMALLEST_BLOCK as f64;

/// The largest scalar, a double, in bytes.
const SCALAR: f64 = 8.0;

/// If the peak rises this many times as fast as live bytes, the inputs grow.
const ACTIVATIONS: f64 = 4.0;

/// A growing tensor exists twice for a moment, old and new; the rest is rounding.
const WITH_A_COPY: f64 = 2.25;

/// If steps need more and more, the peak has at least this share of the growth of reserved memory: the segments of
/// smaller inputs stay in the cache.
const OF_INPUTS: f64 = 0.3;

/// If reserved memory grows by segments that no process uses, they are at least this share of it.
const WHOLE: f64 = 0.8;

/// A smaller share of it is noise.
const STAYS: f64 = 0.01;

/// If one counter has more than this share of another's growth, it explains it.
const MOST: f64 = 0.5;

/// Returns the cause of an episode and its evidence.
pub fn diagnose(episode: &Episode, signature: &Signature) -> (Cause, Evidence) {
    let grows_with_inputs = episode.resource == Resource::Allocated && follows_inputs(episode, signature);
    let cause = match (episode.resolved.map(|it| it.end), episode.resource) {
        (_, Resource::Allocated) if grows_with_inputs => Cause::LargerInputs,
        (_, Resource::Reserved) if is_of_streams(episode, signature) => Cause::StreamCaches,
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

/// Blocks per step, from the detector if it measured them, otherwise from the signature.
fn blocks(episode: &Episode, signature: &Signature) -> Option<f64> {
    episode.blocks_per_step.or(signature.blocks)
}

/// Whether steps need more and more, and live memory only follows. A tensor that is reallocated larger raises the peak
/// by itself and its copy, larger inputs by every activation.
fn follows_inputs(episode: &Episode, signature: &Signature) -> bool {
    let gained = blocks(episode, signature).map(|it| it * episode.last_step.saturating_sub(episode.since_step) as f64);
    gained.is_some_and(|it| it.abs() <= A_BLOCK_OR_SO)
        && signature.peak.is_some_and(|it| it > ACTIVATIONS * episode.bytes_per_step)
}

/// The cause if live bytes grow.
fn live(bytes_per_step: f64, episode: &Episode, signature: &Signature) -> Cause {
    let Some(blocks) = blocks(episode, signature) else {
        // Without a count of blocks, only the very smallest can be recognised.
        return if bytes_per_step <= SMALL { Cause::ScalarsRetained } else { Cause::TensorsRetained };
    };
    let gained = blocks * episode.last_step.saturating_sub(episode.since_step) as f64;
    if gained < -A_BLOCK_OR_SO {
        // Fewer and larger blocks match neither kept tensors nor one growing tensor.
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
    // Several blocks per step may be a graph, a pair of tensors, or all outputs of a model. Their counters are equal,
    // so only a capture of the blocks shows a graph.
    Cause::TensorsRetained
}

/// The cause if reserved memory grows.
fn held(episode: &Episode, signature: &Signature) -> Cause {
    let explains = |slope: Option<f64>| slope.is_some_and(|it| it > MOST * episode.bytes_per_step);
    if explains(signature.private_pools) {
        Cause::GraphPools
    } else if explains(signature.pending) {
        Cause::CrossStreamPending
    } else if signature.peak.is_some_and(|it| it > OF_INPUTS * episode.bytes_per_step) && steps_grow(signature) {
        Cause::LargerInputs
    } else if explains(signature.allocated) {
        live(signature.allocated.unwrap_or(episode.bytes_per_step), episode, signature)
    } else if signature.private_pools.is_none() && !explains(signature.inactive_split) && !requests_grow(signature) {
        // Uncounted pools of graphs grow exactly like whole segments that are too small to be reused.
        Cause::Unknown
    } else if signature.allocated.is_some() && signature.cached.is_some() {
        Cause::Fragmentation
    } else {
        Cause::Unknown
    }
}

/// Whether segments of one size are added that stay free and whole: requests of that size would use them if they were
/// of the same stream. Pools of graphs that are not counted grow in the same way, so it needs their count.
fn is_of_streams(episode: &Episode, signature: &Signature) -> bool {
    let rate = signature.reserved.map_or(episode.bytes_per_step, |it| it.min(episode.bytes_per_step));
    let is_whole = rate > 0.0 && signature.releasable() >= WHOLE * rate;
    let is_released = signature.device_frees.is_some_and(|it| it > 0.0);
    let stays = |slope: Option<f64>| slope.is_some_and(|it| it <= STAYS * rate);
    let needs_no_more = stays(signature.peak) && stays(signature.allocated);
    signature.private_pools.is_some() && signature.reserved_rise.is_some() && is_whole && needs_no_more && !is_released
}

/// Whether steps need more and more, whatever stays after them: more than a growing tensor and its copy.
fn steps_grow(signature: &Signature) -> bool {
    let gained = signature.blocks.map(|it| it * signature.steps as f64);
    let left = signature.allocated.map_or(0.0, |it| it.max(0.0));
    gained.is_none_or(|it| it.abs() <= A_BLOCK_OR_SO) && signature.peak.is_some_and(|it| it > WITH_A_COPY * left)
}

/// Whether requests are larger than any before, so that the peak of live bytes rises with reserved memory. Another
/// captured graph needs no more than the one before it.
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
    if let Some(it) = episode.stairs {
        out.add("bytes_per_stair", it.bytes as f64, Unit::Bytes);
        out.add("blocks_per_stair", it.blocks as f64, Unit::PerStep);
        out.add("from_stair_to_stair", it.every as f64, Unit::Count);
    }
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
            if let Some(time) = rises.time.filter(|_| episode.axis == Axis::Steps) {
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
mod tests {
    //! Each cause from a synthetic signature, and which causes need which figures.

    use super::*;
    use crate::{facts::units::Stamp, model::analysis::episode::Resolved};

    const MIB: f64 = 1_048_576.0;

    fn episode(resource: Resource, bytes_per_step: f64, blocks_per_step: Option<f64>) -> Episode {
        Episode {
            resource,
            axis: Axis::Steps,
            since_step: 100,
            first_alert_step: 120,
            first_alert_at: Stamp(0),
            last_step: 300,
            resolved: None,
            bytes_per_step,
            interval: (bytes_per_step, bytes_per_step),
            blocks_per_step,
            gained: 0,
            stairs: None,
        }
    }

    fn allocated(bytes_per_step: f64, blocks_per_step: f64) -> Episode {
        episode(Resource::Allocated, bytes_per_step, Some(blocks_per_step))
    }

    /// The same number of blocks in every step, all kept.
    fn rises(blocks: u64, bytes: u64, requested: u64) -> Rises {
        Rises { count: 200, steps: 200, blocks, bytes: Some(bytes), requested: Some(requested), kept: 1.0, time: None }
    }

    fn cause(episode: &Episode, signature: &Signature) -> &'static str {
        diagnose(episode, signature).0.id()
    }

    fn of_rises(episode: &Episode, rises: Rises) -> &'static str {
        cause(episode, &Signature { steps: 200, rises: Some(rises), ..Signature::default() })
    }

    #[test]
    fn requested_bytes_distinguish_a_scalar_from_a_short_vector() {
        assert_eq!(of_rises(&allocated(512.0, 1.0), rises(1, 512, 4)), "scalars-retained");
        assert_eq!(of_rises(&allocated(512.0, 1.0), rises(1, 512, 400)), "tensors-retained");
        assert_eq!(of_rises(&allocated(512.0, 1.0), rises(1, 512, 16)), "tensors-retained", "four numbers");
        assert_eq!(of_rises(&allocated(1536.0, 3.0), rises(3, 1536, 12)), "scalars-retained");
        assert_eq!(cause(&allocated(512.0, 1.0), &Signature::default()), "scalars-retained");
    }

    /// `buffer.append((obs, act))`, clones of all weights, detached outputs of every layer: their counters equal a
    /// graph's.
    #[test]
    fn counters_alone_never_name_a_graph() {
        for blocks in [1, 2, 3, 12, 140] {
            for bytes in [blocks * (4 << 20), blocks * (4 << 20) + 512] {
                let now_and_then = Rises { count: 10, time: Some(1.1), ..rises(blocks, bytes, bytes) };
                for it in [rises(blocks, bytes, bytes), now_and_then, Rises { time: Some(2.3), ..now_and_then }] {
                    assert_eq!(of_rises(&allocated(bytes as f64, blocks as f64), it), "tensors-retained", "{it:?}");
                }
            }
        }
    }

    #[test]
    fn bytes_without_blocks_are_one_tensor() {
        assert_eq!(cause(&allocated(MIB, 0.0), &Signature::default()), "growing-tensor");
        assert_eq!(cause(&allocated(MIB, 0.005), &Signature::default()), "growing-tensor", "one block in 200 steps");
        assert_eq!(cause(&allocated(MIB, -0.5), &Signature::default()), "unknown", "a hundred blocks fewer");
    }

    /// A curriculum of lengths, with an output that is alive between steps, and a tensor that grows by torch.cat.
    #[test]
    fn a_peak_that_rises_much_faster_than_live_bytes_shows_larger_inputs() {
        let of = |blocks, peak| cause(&allocated(MIB, blocks), &Signature { peak: Some(peak), ..Signature::default() });
        assert_eq!((of(0.0, 9.0 * MIB), of(0.0, 2.0 * MIB)), ("larger-inputs", "growing-tensor"));
        assert_eq!(of(1.0, 9.0 * MIB), "tensors-retained", "a block more in each step is kept");
        let resolved = Some(Resolved { step: 300, at: Stamp(0), end: End::Plateau });
        let ended = Episode { resolved, ..allocated(MIB, 0.0) };
        let signature = Signature { peak: Some(9.0 * MIB), ..Signature::default() };
        assert_eq!(cause(&ended, &signature), "larger-inputs");
        assert_eq!(cause(&ended, &Signature::default()), "cache-filling");
    }

    #[test]
    fn without_a_count_of_blocks_only_scalars_are_recognised() {
        let of = |bytes| cause(&episode(Resource::Allocated, bytes, None), &Signature::default());
        assert_eq!((of(512.0), of(4.0 * MIB)), ("scalars-retained", "tensors-retained"));
    }

    #[test]
    fn reserved_memory_is_named_after_what_grows_in_it() {
        let signature = Signature {
            steps: 200,
            allocated: Some(0.0),
            blocks: Some(0.0),
            pending: Some(0.0),
            cached: Some(2.0 * MIB),
            reserved: Some(2.0 * MIB),
            private_pools: Some(0.0),
            ..Signature::default()
        };
        let of = |signature: &Signature| cause(&episode(Resource::Reserved, 2.0 * MIB, None), signature);
        let grows = Some(1.5 * MIB);
        assert_eq!(of(&signature), "fragmentation");
        assert_eq!(of(&Signature { pending: grows, cached: None, ..signature }), "cross-stream-pending");
        assert_eq!(of(&Signature { private_pools: grows, ..signature }), "graph-pools");
        let uncounted = Signature { private_pools: None, ..signature };
        assert_eq!(of(&uncounted), "unknown", "pools that nobody counts grow so as well");
        assert_eq!(of(&Signature { inactive_split: grows, ..uncounted }), "fragmentation");
        let peak = |bytes| Signature { peak: Some(bytes), ..uncounted };
        assert_eq!(of(&peak(0.0)), "unknown", "each graph needs what the one before it needed");
        assert_eq!(of(&peak(0.05 * MIB)), "fragmentation", "requests grow, and what was freed is too small for them");
        assert_eq!(of(&peak(1.5 * MIB)), "larger-inputs", "the steps need more at a time");
        assert_eq!(of(&Signature { allocated: grows, blocks: Some(1.0), ..signature }), "tensors-retained");
        assert_eq!(of(&Signature { allocated: grows, ..signature }), "growing-tensor");
        assert_eq!(of(&Signature { allocated: None, ..signature }), "unknown");
        assert_eq!(of(&Signature { cached: None, ..signature }), "unknown");
        assert_eq!(of(&Signature::default()), "unknown");
    }

    /// Buffers on a stream that is made again each time, and sequences that get longer by plan.
    #[test]
    fn whole_segments_of_one_size_belong_to_new_streams() {
        let rate = Some(51.2 * MIB);
        let signature = Signature {
            steps: 80,
            allocated: Some(0.0),
            peak: Some(0.0),
            blocks: Some(0.0),
            pending: Some(0.0),
            reserved: rate,
            cached: rate,
            inactive_split: Some(0.0),
            private_pools: Some(0.0),
            device_frees: Some(0.0),
            reserved_rise: Some(512 << 20),
            ..Signature::default()
        };
        let grows = episode(Resource::Reserved, 51.2 * MIB, None);
        let of = |signature: &Signature| cause(&grows, signature);
        assert_eq!((of(&signature), signature.releasable()), ("stream-caches", 51.2 * MIB));
        let rests = Episode { resolved: Some(Resolved { step: 300, at: Stamp(0), end: End::Plateau }), ..grows };
        assert_eq!(cause(&rests, &signature), "stream-caches", "PyTorch has 32 streams");
        assert_eq!(of(&Signature { reserved_rise: None, ..signature }), "fragmentation", "requests of all sizes");
        assert_eq!(of(&Signature { inactive_split: rate, ..signature }), "fragmentation", "pieces");
        assert_eq!(of(&Signature { private_pools: rate, ..signature }), "graph-pools");
        assert_eq!(of(&Signature { peak: Some(20.0 * MIB), ..signature }), "larger-inputs");
    }

    #[test]
    fn memory_outside_of_the_allocator_has_its_own_name() {
        let of = |resource| cause(&episode(resource, MIB, None), &Signature::default());
        assert_eq!(of(Resource::Driver), "driver-growth");
        assert_eq!(of(Resource::Device), "other-process");
        assert_eq!(of(Resource::Pinned), "pinned-growth");
        assert_eq!(of(Resource::Host), "host-growth");
    }

    #[test]
    fn the_end_of_growth_overrides_its_course() {
        let ended = |resource, end| {
            let resolved = Some(Resolved { step: 300, at: Stamp(0), end });
            cause(&Episode { resolved, ..episode(resource, MIB, Some(1.0)) }, &Signature::default())
        };
        assert_eq!(ended(Resource::Allocated, End::Plateau), "cache-filling");
        assert_eq!(ended(Resource::Host, End::Plateau), "cache-filling");
        assert_eq!(ended(Resource::Allocated, End::Released), "reference-cycle");
        assert_eq!(ended(Resource::Device, End::Released), "other-process", "somebody went");
        assert_eq!(ended(Resource::Allocated, End::Restarted), "tensors-retained");
    }

    #[test]
    fn the_evidence_has_what_a_person_can_check_and_only_numbers() {
        let signature =
            Signature { allocated: Some(f64::NAN), rises: Some(rises(3, 3 << 20, 3 << 20)), ..Signature::default() };
        let (_, evidence) = diagnose(&allocated(3.0 * MIB, 3.0), &signature);
        assert_eq!(evidence.get("blocks_per_rise"), Some(3.0));
        assert_eq!(evidence.get("bytes_per_block"), Some(MIB));
        assert_eq!(evidence.get("requested_per_block"), Some(MIB));
        assert_eq!(evidence.get("allocated_per_step"), None);
    }
}
