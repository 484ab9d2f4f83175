//! Staircases, each as an engineer would judge it by eye.

use super::*;
use crate::model::{analysis::episode::End, statistics::Random};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// One sample a step of live allocations: blocks of 4 KiB, and bytes beyond what those have.
fn fed(steps: u64, mut shape: impl FnMut(u64) -> (u64, u64)) -> Vec<Episode> {
    let seen = (1..=steps).map(|step| {
        let (blocks, bytes) = shape(step);
        Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            allocated: Some(GIB + blocks * 4096 + bytes),
            blocks: Some(100 + blocks),
            ..Observation::default()
        }
    });
    seen.fold(Growth::default(), |state, it| step(state, &it)).episodes().copied().collect()
}

fn one(all: &[Episode]) -> Episode {
    let [it] = all else { panic!("{all:?}") };
    *it
}

/// The blocks of a step, and its bytes beside them.
type Shape<'a> = &'a dyn Fn(u64) -> (u64, u64);

#[test]
fn a_staircase_is_found_at_its_third_stair_and_measured() {
    // Tensors after every 60 steps; a model with every fold, whose optimizer's state comes with its first step; logits
    // of an evaluation, whose batches are alive for some steps; a tensor of growing size beside.
    let folds = |step: u64| (step / 25 * 36 + u64::from(!step.is_multiple_of(25)) * 12, 0);
    let alive = |step: u64| u64::from(step % 90 < 7);
    let logits = |step: u64| (step / 90 * 17 + alive(step) * 60, alive(step) * MIB);
    let shapes: [(u64, u64, Shape); 3] = [(60, 10, &|step| (step / 60 * 10, 0)), (25, 36, &folds), (90, 17, &logits)];
    for (every, blocks, shape) in shapes {
        for stairs in [4, 7, 30] {
            let it = one(&fed(every * stairs, shape));
            assert!(it.first_alert_step <= 3 * every + 12 && it.since_step <= every + 1, "{every}: {it:?}");
            let found = it.stairs.unwrap();
            assert_eq!((found.every, found.blocks, it.resolved), (every, blocks, None), "{it:?}");
            let rate = blocks as f64 * 4096.0 / every as f64;
            assert!((it.bytes_per_step / rate - 1.0).abs() < 0.01, "{every}, {stairs}: {it:?}");
            assert!(found.bytes.abs_diff(blocks * 4096) <= 400, "{found:?}");
        }
    }
}

#[test]
fn a_leak_behind_a_buffer_that_fills_is_growth_of_its_own() {
    let (mut chance, mut noise) = (Random::new(3), 0);
    for (until, noisy) in [(300, false), (300, true), (1500, false)] {
        let all = fed(until + 400, |step| {
            if noisy {
                noise = chance.next() % (1 << 22) / 512 * 512;
            }
            (step + step.min(until), step.min(until) * 2 * MIB + noise)
        });
        let [buffer, leak] = all[..] else { panic!("{until}: {all:?}") };
        assert_eq!(buffer.resolved.map(|it| it.end), Some(End::Plateau), "{until}: {buffer:?}");
        assert!(buffer.resolved.unwrap().step <= until + 200, "{until}: {buffer:?}");
        assert!(
            leak.since_step >= until && leak.since_step <= until + 200 && leak.resolved.is_none(),
            "{until}: {leak:?}"
        );
        assert!(noisy || (leak.bytes_per_step / 4096.0 - 1.0).abs() < 0.01, "{until}: {leak:?}");
    }
    // Shorter inputs for a while end no leak, nor does a leak that varies.
    let by_plan = |step: u64| (step, 400 * MIB - step.abs_diff(400).min(400) * MIB);
    let varies = |step: u64| (step, step * MIB / 2 + step / 50 % 2 * (step % 50) * MIB / 4);
    let shapes: [Shape; 2] = [&by_plan, &varies];
    for (place, shape) in shapes.into_iter().enumerate() {
        let it = one(&fed(800, shape));
        assert_eq!(it.resolved, None, "{place}: {it:?}");
    }
}

#[test]
fn a_small_stair_is_found_under_lengths() {
    let mut chance = Random::new(5);
    let it = one(&fed(400, |step| (step / 40, chance.next() % (1 << 22) / 512 * 512)));
    assert_eq!(it.stairs.map(|it| (it.every, it.blocks)), Some((40, 1)), "{it:?}");
    assert!(it.first_alert_step <= 129 && it.blocks_per_step.is_some_and(|it| (it - 0.025).abs() < 0.003), "{it:?}");
}

#[test]
fn a_staircase_that_comes_to_rest_is_reported_once() {
    let it = one(&fed(3000, |step| (step.min(500) / 50, 0)));
    assert_eq!(it.resolved.map(|it| it.end), Some(End::Plateau));
    let it = one(&fed(3000, |step| (step % 400 / 50, 0)));
    assert_eq!(it.resolved.map(|it| it.end), Some(End::Released));
}

#[test]
fn samples_that_are_missing_end_no_staircase() {
    let seen = (1..=4000).filter(|it| !(600..2600).contains(it)).map(|step: u64| Observation {
        step: Some(step),
        at: Stamp(step * 10_000),
        allocated: Some(GIB + step / 20 * MIB),
        blocks: Some(100 + step / 20),
        ..Observation::default()
    });
    let growth = seen.fold(Growth::default(), |state, it| step(state, &it));
    let it = one(&growth.episodes().copied().collect::<Vec<_>>());
    assert_eq!((it.since_step, it.resolved), (20, None));
}

#[test]
fn levels_that_are_not_kept_and_few_of_them_are_no_staircase() {
    let mut chance = Random::new(7);
    let shapes: [&mut dyn FnMut(u64) -> (u64, u64); 5] = [
        // An average of the weights begins, a first evaluation, another phase.
        &mut |step| (u64::from(step > 300) * 40 + u64::from(step > 700) * 40, 0),
        // Each evaluation replaces the outputs of the one before.
        &mut |step| (step / 50 % 2 * 30, 0),
        // Outputs of two evaluations are given back with each epoch.
        &mut |step| (step % 150 / 50 * 9, 0),
        // Longer sequences by plan: the same blocks, larger.
        &mut |step| (0, step / 50 * MIB),
        // Another count every time.
        &mut |_| (chance.next() % 6, 0),
    ];
    for (place, shape) in shapes.into_iter().enumerate() {
        let found = fed(3000, shape);
        let stairs: Vec<_> = found.iter().filter(|it| it.stairs.is_some()).collect();
        assert!(stairs.is_empty(), "{place}: {stairs:?}");
        assert!(found.is_empty() || place == 3, "{place}: {found:?}");
    }
}

/// A job without steps, one sample a second: what is kept, and what is alive for a while beyond it.
fn by_second(seconds: u64, kept: impl Fn(u64) -> (u64, u64), freed: u64) -> Vec<Episode> {
    let seen = (1..=seconds).map(|second| {
        let (blocks, bytes) = kept(second);
        Observation {
            step: None,
            at: Stamp(second * 1_000_000),
            allocated: Some(GIB + bytes),
            requested: Some(GIB + bytes),
            blocks: Some(100 + blocks),
            peak: Some(GIB + bytes + freed),
            ..Observation::default()
        }
    });
    seen.fold(Growth::default(), |state, it| step(state, &it)).episodes().copied().collect()
}

#[test]
fn plain_growth_of_a_job_without_steps_is_found_within_half_a_minute() {
    // Two blocks of each of forty images a second, beside the activations of a network.
    let kept = |second: u64| (80 * second + second % 3, second * 50 * MIB + second % 3 * MIB);
    let it = one(&by_second(30, kept, 30 * MIB));
    assert_eq!((it.axis, it.resolved), (Axis::Seconds, None));
    assert!(it.first_alert_step <= 25 && it.since_step <= 4, "{it:?}");
    assert!((it.bytes_per_step / (50.0 * MIB as f64) - 1.0).abs() < 0.1, "{it:?}");
}

#[test]
fn a_model_that_is_being_loaded_is_not_plain_growth() {
    let layers = |second: u64| (12 * second, second * 400 * MIB);
    assert!(by_second(280, layers, 0).is_empty(), "nothing is freed meanwhile");
    let shards = |second: u64| ((second - second / 10) * 12, (second - second / 10) * 400 * MIB);
    assert!(by_second(280, shards, 900 * MIB).is_empty(), "it waits for each shard");
    let sizes = |second: u64| (12 * second, (0..second).map(|it| it * it * 7919 % 900 * MIB).sum());
    assert!(by_second(280, sizes, 900 * MIB).is_empty(), "tensors of all sizes");
    // After five minutes it is not loading, and it began when it began.
    let it = one(&by_second(400, layers, 0));
    assert!((300..=330).contains(&it.first_alert_step) && it.since_step <= 3, "{it:?}");
    assert!(it.gained >= it.last_step.saturating_sub(5) * 400 * MIB, "{it:?}");
}

#[test]
fn growth_found_after_a_warm_up_is_dated_back_to_its_beginning() {
    // Resident memory is read once in `every` steps.
    let read = |start: u64, every: u64| {
        let seen = (1..=600).map(|step| {
            let read = step - step % every;
            Observation {
                step: Some(step),
                at: Stamp(step * 10_000),
                host: Some(GIB + step.min(8) * 30 * MIB + read.saturating_sub(start) * 300_000),
                ..Observation::default()
            }
        });
        one(&seen.fold(Growth::default(), |state, it| step(state, &it)).episodes().copied().collect::<Vec<_>>())
    };
    let found = |from: u64, start: u64| {
        let seen = (from..=600).map(|step| Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            host: Some(GIB + step.min(8) * 30 * MIB + step.saturating_sub(start) * 300_000),
            ..Observation::default()
        });
        one(&seen.fold(Growth::default(), |state, it| step(state, &it)).episodes().copied().collect::<Vec<_>>())
    };
    for every in [10, 28, 45] {
        let it = read(0, every);
        assert!(it.since_step <= 8 + every, "{every}: {it:?}");
        let it = read(180, every);
        assert!(it.since_step.abs_diff(180) <= 2 * every, "{every}: {it:?}");
    }
    let it = found(1, 0);
    assert!(it.since_step <= 12, "libraries are loaded at the beginning: {it:?}");
    assert!(it.gained > 580 * 300_000, "{it:?}");
    let it = found(1, 60);
    assert!(it.since_step.abs_diff(61) <= 4, "{it:?}");
    let it = found(1, 250);
    assert!((245..=266).contains(&it.since_step), "{it:?}");
}

#[test]
fn private_pools_that_grow_beyond_live_memory_are_found_beside_it() {
    let found = |pool: u64| {
        let seen = (1..=300).map(|step: u64| Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            allocated: Some(GIB + step * 2 * MIB),
            blocks: Some(100 + step),
            reserved: Some(2 * GIB + step * (2 + pool) * MIB),
            pools: Some(step * pool * MIB),
            ..Observation::default()
        });
        let growth = seen.fold(Growth::default(), |state, it| step(state, &it));
        growth.episodes().map(|it| it.resource).collect::<Vec<_>>()
    };
    assert_eq!(found(36), [Resource::Allocated, Resource::Reserved]);
    assert_eq!(found(1), [Resource::Allocated]);
}

#[test]
fn state_of_parameters_that_join_late_is_no_growth() {
    // A layer every 30 steps: gradient and two states, in a job that may also keep a tensor.
    let found = |leaks: u64, behind: u64| {
        let seen = (1..=600).map(|step: u64| {
            let layers = |step: u64| (step / 30).min(10);
            let (joined, kept) = (layers(step), step / 5 * leaks);
            let known = layers(step.saturating_sub(behind));
            Observation {
                step: Some(step),
                at: Stamp(step * 10_000),
                allocated: Some(GIB + joined * 12 * MIB + kept * MIB),
                blocks: Some(100 + joined * 6 + kept),
                reserved: Some((2 * GIB + joined * 12 * MIB).next_multiple_of(20 * MIB)),
                bounded: (known > 0).then_some((known * 12 * MIB, known * 6)),
                ..Observation::default()
            }
        });
        seen.fold(Growth::default(), |state, it| step(state, &it)).episodes().copied().collect::<Vec<_>>()
    };
    for behind in [0, 7, 20] {
        assert!(found(0, behind).is_empty(), "{behind}: {:?}", found(0, behind));
    }
    let it = one(&found(1, 0));
    assert!((it.bytes_per_step / (MIB as f64 / 5.0) - 1.0).abs() < 0.01, "{it:?}");
}

/// Whole numbers, and all others.
fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![any::<u64>().prop_map(|it| it as f64), any::<f64>(), Just(-0.0), Just(0.0)]
}

proptest! {
    #[test]
    fn a_point_is_as_it_was(
        (at, unit, bytes) in (any::<u64>(), any::<u64>(), any_value()),
        (beside, blocks) in (prop::option::of(any_value()), prop::option::of(any_value())),
        (ends_tooth, begins_tooth) in (any::<bool>(), any::<bool>()),
    ) {
        let point = Point { at, bytes, beside, unit, blocks, ends_tooth, begins_tooth };
        let same = Point::of_numbers(&point.numbers());
        // Not by `==`, for which the two zeros are equal.
        prop_assert_eq!(format!("{same:?}"), format!("{point:?}"));
    }
}
