//! Growth beside what breathes: under lengths, under sawteeth, and at random, found and measured as if it were alone.

use super::properties::{feed, noise};
use crate::helpers::story::GIB;
use gpuwatch::{
    facts::units::Stamp,
    model::analysis::{
        episode::{Episode, Resource},
        growth::{Growth, Observation},
    },
};

/// The bytes of a word's outputs.
const WORD: u64 = 48_000;

/// One sample a step: blocks, what they take beyond 512 bytes each, and whether the bytes asked for are counted.
fn job(steps: u64, counts: bool, shape: impl Fn(u64) -> (u64, u64)) -> Growth {
    feed((1..=steps).map(|step| {
        let (blocks, bytes) = shape(step);
        let requested = GIB + blocks * 512 + bytes;
        Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            allocated: Some(requested.next_multiple_of(512)),
            requested: counts.then_some(requested),
            blocks: Some(100 + blocks),
            ..Observation::default()
        }
    }))
}

fn last(growth: &Growth) -> Episode {
    *growth.episodes().filter(|it| it.resource == Resource::Allocated && it.resolved.is_none()).last().expect("growth")
}

fn lengths(step: u64) -> u64 {
    noise(5, step, 200) * WORD
}

#[test]
fn one_tensor_that_grows_under_any_lengths_is_found_at_once_and_measured() {
    // Every third step some rows of 2,000 bytes are added to it; an evaluation leaves others than the one before.
    let left = |step| noise(6, step / 90, 60) * WORD / 2;
    let it = job(900, true, |step| (0, lengths(step) + left(step) + step.saturating_sub(300) / 3 * 2000));
    let it = last(&it);
    assert!(it.first_alert_step <= 330, "{it:?}");
    assert!((it.bytes_per_step / (2000.0 / 3.0) - 1.0).abs() < 0.01, "{it:?}");
    // An addition may be most of a unit, or more than one.
    for each in [40_000, 70_000, 200_000] {
        let it = last(&job(900, true, |step| (0, lengths(step) + step.saturating_sub(300) * each)));
        assert!(it.first_alert_step <= 322, "{each}: {it:?}");
        // Also exactly: what exceeds whole units shows, and a line through the samples shows how many units.
        assert!((it.bytes_per_step / each as f64 - 1.0).abs() < 1e-6, "{each}: {it:?}");
    }
}

#[test]
fn kept_scalars_are_measured_as_the_allocator_rounds_them() {
    let growth = feed((1..=900).map(|step: u64| {
        let kept = step.saturating_sub(300) / 8;
        let lengths = GIB + lengths(step);
        Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            allocated: Some(lengths + kept * 512),
            requested: Some(lengths + kept * 4),
            // Beside them, blocks come and go, which makes the count unsure.
            blocks: Some(100 + kept + noise(9, step, 3)),
            ..Observation::default()
        }
    }));
    let it = last(&growth);
    // Every eighth step 4 bytes are kept, which take 512: the requested bytes grow by only half a byte per step.
    assert!((it.bytes_per_step / 64.0 - 1.0).abs() < 0.25, "{it:?}");
}

#[test]
fn lengths_that_grow_leave_nothing_beside_them() {
    // From step 100 on, one word more every few steps. The highest ever allocated, which would show it, is unknown.
    let words = |step: u64| if step < 100 { 20 + noise(5, step, 4) } else { 23 + (step - 100) / 5 };
    let growth = job(200, true, |step| (0, words(step) * WORD));
    assert_eq!(growth.episodes().count(), 0, "{:?}", growth.episodes().collect::<Vec<_>>());
    // The same without the requested bytes is growth: nothing rules growth out.
    assert!(job(200, false, |step| (0, words(step) * WORD)).episodes().count() > 0);
}

#[test]
fn lengths_of_two_kinds_have_no_unit_and_are_not_growth() {
    let growth = job(3000, true, |step| (0, lengths(step) + noise(8, step, 300) * 20));
    assert_eq!(growth.episodes().count(), 0, "{:?}", growth.episodes().collect::<Vec<_>>());
}

#[test]
fn a_leak_under_a_sawtooth_is_distinguished_from_the_teeth() {
    // Two large blocks a step until the end of each epoch, which is now and then longer; a small one every other step.
    for (shortest, counts) in [(50, false), (50, true), (30, false)] {
        let mut begins = vec![0];
        while begins.last().is_some_and(|it| *it < 900) {
            let length = 50 - noise(2, begins.len() as u64, 51 - shortest);
            begins.push(begins.last().unwrap() + length);
        }
        let teeth = |step: u64| step - begins[begins.partition_point(|it| *it <= step) - 1];
        let kept = |step: u64| step.saturating_sub(160) / 2;
        let it = job(900, counts, |step| {
            let filled = 2 * teeth(step);
            (filled + kept(step), filled * 65_024 + kept(step) * 3584 + (noise(5, step, 40) << 15))
        });
        let it = last(&it);
        assert!((it.bytes_per_step / 2048.0 - 1.0).abs() < 0.01, "{it:?}");
        assert!((it.blocks_per_step.unwrap() * 2.0 - 1.0).abs() < 0.01, "{it:?}");
        assert!(!counts || it.first_alert_step <= 190, "{it:?}");
    }
}

#[test]
fn memory_kept_at_random_is_counted() {
    for seed in 20..30 {
        let events: Vec<u64> = (150..=900).filter(|it| noise(seed, *it, 12) == 0).collect();
        let it = last(&job(900, false, |step| (events.partition_point(|it| *it <= step) as u64, 0)));
        let since = events.partition_point(|at| *at < it.since_step);
        let (first, count) = (events[since], events.len() - since);
        let pace = 512.0 * (count - 1) as f64 / (events.last().unwrap() - first) as f64;
        assert!((it.bytes_per_step / pace - 1.0).abs() < 1e-6, "{it:?} {pace}");
        assert!(it.interval.0 <= pace && pace <= it.interval.1);
    }
}
