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

/// `buffer.append((obs, act))`, clones of all weights, detached outputs of every layer: their counters equal a graph's.
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
