//! Shapes that memory takes, each judged as an engineer would by eye; and what the session feeds the detector with.

use super::properties::{feed, noise};
use crate::helpers::story::{GIB, MIB, Story, counters};
use gpuwatch::{
    facts::{event::wire::Counters, units::Stamp},
    model::analysis::{
        episode::{Axis, End, Episode, Resource},
        growth::{Growth, Observation},
    },
};

/// One sample a step of live allocations: blocks, and bytes beyond what those have.
fn allocated(steps: impl IntoIterator<Item = u64>, shape: impl Fn(u64) -> (u64, u64)) -> Growth {
    feed(steps.into_iter().map(|step| {
        let (blocks, bytes) = shape(step);
        Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            allocated: Some(GIB + blocks * 4096 + bytes),
            blocks: Some(100 + blocks),
            ..Observation::default()
        }
    }))
}

fn one(growth: &Growth) -> Episode {
    let all: Vec<_> = growth.episodes().copied().collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

#[test]
fn a_leak_is_found_within_twenty_steps_and_measured() {
    let it = one(&allocated(1..=400, |step| (step.saturating_sub(200), 0)));
    assert_eq!((it.since_step, it.first_alert_step, it.resolved), (201, 221, None));
    assert!((it.bytes_per_step - 4096.0).abs() < 1e-6 && it.gained == 200 * 4096, "{it:?}");
    assert!((it.blocks_per_step.unwrap() - 1.0).abs() < 1e-9);
}

#[test]
fn half_a_kibibyte_is_found_and_measured_under_a_hundred_megabytes_of_lengths() {
    let lengths = |step| noise(3, step, 40) * (5 << 19);
    let it = one(&allocated(1..=1500, |step| (step.saturating_sub(500), lengths(step))));
    assert_eq!((it.since_step, it.first_alert_step), (501, 521));
    assert!((it.bytes_per_step / 4096.0 - 1.0).abs() < 0.01, "{it:?}");
    assert!(it.interval.0 <= it.bytes_per_step && it.bytes_per_step <= it.interval.1);
}

#[test]
fn periodic_memory_use_is_not_growth() {
    let shapes: [fn(u64) -> (u64, u64); 8] = [
        |_| (0, 0),
        |step| (0, noise(1, step, 1 << 26)),
        // The first steps make what the run keeps; an average of the weights is begun at step 300.
        |step| (step.min(6) * 9 + u64::from(step >= 300) * 40, 0),
        // After every evaluation its last tensors are still alive for a step; the first time for good.
        |step| (u64::from(step >= 97) * 3 + u64::from(step.is_multiple_of(97)) * 5, 0),
        // Rarely something is not there.
        |step| (9 - u64::from(step.is_multiple_of(131)) * 9, 0),
        // Two optimizers in turn.
        |step| ((step % 2) * 30, (step % 2) * MIB),
        // Detections: another count every time.
        |step| (noise(2, step, 40), noise(4, step, 1 << 22)),
        // A metric's state, emptied every 12 steps.
        |step| (step % 12, 0),
    ];
    for (place, shape) in shapes.iter().enumerate() {
        let found = allocated(1..=6000, shape);
        assert_eq!(found.episodes().count(), 0, "shape {place}: {:?}", found.episodes().collect::<Vec<_>>());
    }
}

/// Now and then an evaluation's tensors are still alive for some steps: what is given back then is not the leak.
#[test]
fn a_leak_with_evaluations_is_reported_once() {
    for lasts in [1, 5, 20] {
        let evaluation = |step: u64| u64::from(step >= 300 && step % 300 < lasts) * 1000;
        let it = one(&allocated(1..=3000, |step| (step.saturating_sub(100) + evaluation(step), 0)));
        assert_eq!((it.since_step, it.resolved), (101, None), "{lasts}: {it:?}");
        assert!((it.bytes_per_step / 4096.0 - 1.0).abs() < 0.02, "{lasts}: {it:?}");
    }
}

#[test]
fn a_buffer_that_fills_up_is_reported_once_and_resolves() {
    let it = one(&allocated(1..=2000, |step| (step.saturating_sub(100).min(300), 0)));
    assert_eq!(it.resolved.map(|it| it.end), Some(End::Plateau));
    assert!(it.resolved.unwrap().step < 600, "{it:?}");
}

#[test]
fn a_sawtooth_is_reported_once() {
    let it = one(&allocated(1..=6000, |step| (step % 250, 0)));
    assert_eq!(it.resolved.map(|it| (it.step, it.end)), Some((250, End::Released)));
}

#[test]
fn a_leak_under_a_sawtooth_is_found() {
    let found = allocated(1..=3000, |step| (step / 2 + step % 60 * 3, 0));
    let last = found.episodes().last().copied().unwrap();
    assert_eq!(last.resolved, None);
    assert!((last.bytes_per_step / 2048.0 - 1.0).abs() < 0.05, "{last:?}");
}

#[test]
fn a_small_leak_under_a_sawtooth_is_found_at_the_third_fall_and_measured() {
    // Ten blocks a step, given back every 60 to 79 steps; from step 300 on, one in four steps keeps one more.
    let fallen = |step: u64| {
        let mut last = 0;
        while last + 60 + last % 20 <= step {
            last += 60 + last % 20;
        }
        last
    };
    let found = allocated(1..=1500, |step| (step.saturating_sub(300) / 4 + (step - fallen(step)) * 10, 0));
    let last = found.episodes().last().copied().unwrap();
    assert_eq!(last.resolved, None);
    assert!((300..=560).contains(&last.first_alert_step), "{last:?}");
    assert!((last.bytes_per_step / 1024.0 - 1.0).abs() < 0.02, "{last:?}");
    // The same sawtooth alone is one finding.
    assert_eq!(
        one(&allocated(1..=1500, |step| ((step - fallen(step)) * 10, 0))).resolved.map(|it| it.end),
        Some(End::Released)
    );
}

/// One sample a step: live bytes, and the highest within steps so far; the count of blocks stays.
fn with_peaks(shape: impl Fn(u64) -> (u64, u64)) -> Growth {
    feed((1..=900).map(|step| {
        let (bytes, peak) = shape(step);
        let (allocated, peak) = (Some(GIB + bytes), Some(GIB + peak));
        Observation {
            step: Some(step),
            at: Stamp(step * 10_000),
            allocated,
            blocks: Some(100),
            peak,
            ..Observation::default()
        }
    }))
}

#[test]
fn growing_steps_are_not_a_leak_and_a_growing_tensor_is() {
    // Outputs of longer and longer sentences: with them grow their gradient and what was computed on the way.
    let outputs = |step: u64| step.min(600) * MIB;
    assert_eq!(with_peaks(|step| (outputs(step), 3 * outputs(step))).episodes().count(), 0);
    // Rows are added to a tensor: old and new are there at a time, or something else needs more at a time.
    assert_eq!(one(&with_peaks(|step| (outputs(step), 2 * outputs(step)))).since_step, 4);
    assert_eq!(one(&with_peaks(|step| (outputs(step), GIB))).since_step, 4);
}

#[test]
fn one_tensor_that_grows_is_found_under_lengths_that_do_not() {
    let lengths = |step: u64| (0..4).map(|it| noise(it, step, 1 << 24)).sum::<u64>() / 512 * 512;
    let grows = |step: u64| step.saturating_sub(300) * 131_072;
    let it = one(&allocated(1..=1500, |step| (0, lengths(step) + grows(step))));
    assert!((300..=520).contains(&it.first_alert_step) && it.resolved.is_none(), "{it:?}");
    assert!((it.bytes_per_step / 131_072.0 - 1.0).abs() < 0.03, "{it:?}");
    for seed in 0..20 {
        let lengths = |step: u64| (0..4).map(|it| noise(100 * seed + it, step, 1 << 24)).sum::<u64>() / 512 * 512;
        assert_eq!(allocated(1..=3000, |step| (0, lengths(step))).episodes().count(), 0, "{seed}");
    }
}

#[test]
fn a_jump_of_the_level_neither_ends_growth_nor_is_part_of_its_pace() {
    let first_evaluation = |step: u64| if step >= 300 { 64 * MIB } else { 0 };
    let it = one(&allocated(1..=1200, |step| (0, step.saturating_sub(100) * 2048 + first_evaluation(step))));
    assert_eq!((it.since_step, it.resolved), (101, None));
    assert!((it.bytes_per_step / 2048.0 - 1.0).abs() < 0.01, "{it:?}");
}

#[test]
fn gaps_and_a_strided_history_change_no_verdict() {
    let leak = |step: u64| (step.saturating_sub(2_000), 0);
    let strided = one(&allocated((1..=40_000).step_by(64), leak));
    assert!((1_936..=2_065).contains(&strided.since_step), "{strided:?}");
    assert!((strided.bytes_per_step - 4096.0).abs() < 1.0);
    let gaps = one(&allocated((1..=9000).filter(|it| it % 1000 < 400), leak));
    assert!((gaps.bytes_per_step - 4096.0).abs() < 1.0, "{gaps:?}");
    assert_eq!(allocated((1..=40_000).step_by(64), |step| (noise(1, step, 9), 0)).episodes().count(), 0);
}

#[test]
fn a_restart_ends_open_episodes() {
    let row = |step: u64, at: u64| Observation {
        step: Some(step),
        at: Stamp(at),
        allocated: Some(GIB + step * MIB),
        blocks: Some(100 + step),
        ..Observation::default()
    };
    let found = feed((1..=100).map(|it| row(it, it)).chain((1..=100).map(|it| row(it, 100 + it))));
    let all: Vec<_> = found.episodes().copied().collect();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].resolved.map(|it| (it.step, it.end)), Some((1, End::Restarted)));
    assert_eq!((all[1].since_step, all[1].resolved), (all[0].since_step, None));
}

#[test]
fn a_job_without_steps_is_watched_by_the_second() {
    let seen = |it: u64| Observation {
        at: Stamp(it * 1_000_000),
        allocated: Some(GIB + it * MIB),
        blocks: Some(it),
        ..Observation::default()
    };
    let found = feed((0..900).map(seen));
    let it = one(&found);
    assert_eq!((found.axis(), it.axis), (Some(Axis::Seconds), Axis::Seconds));
    assert!((300..=340).contains(&it.first_alert_step), "{it:?}");
    // Loading a model is not judged, and the first step ends the count of seconds.
    assert_eq!(feed((0..280).map(seen)).episodes().count(), 0);
    let found = feed((0..900).map(seen).chain([Observation { step: Some(1), at: Stamp(1 << 40), ..seen(900) }]));
    assert_eq!(one(&found).resolved.map(|it| it.end), Some(End::Restarted));
    assert_eq!(found.axis(), Some(Axis::Steps));
}

/// Every episode of the first process.
fn episodes(story: &Story) -> Vec<Episode> {
    story.session().processes[0].devices[0].growth.episodes().copied().collect()
}

#[test]
fn driver_figures_are_attributed_to_their_process() {
    // Rank 0 grows outside of its allocator; a tenant that is not probed grows on the other device.
    let mut story = Story::default();
    for it in 0..2 {
        story.device(it, 20 * GIB, &[]).probe(it, 4000 + it, it, None);
    }
    for step in 1..=200 {
        for it in 0..2 {
            story.wait(500_000).sample(it, step, counters(8 * GIB, GIB));
        }
        let reserved = counters(8 * GIB, GIB).reserved.unwrap();
        story.device(0, 30 * GIB + step * MIB, &[(4000, reserved + GIB + step * MIB)]);
        story.device(1, 30 * GIB + step * MIB, &[(4001, reserved + GIB), (77, 9 * GIB + step * MIB)]);
    }
    let session = story.session();
    let episodes = |place: usize| -> Vec<_> {
        session.processes[place].devices[0].growth.episodes().map(|it| (it.resource, it.bytes_per_step)).collect()
    };
    assert_eq!(episodes(0), [(Resource::Driver, MIB as f64)]);
    assert_eq!(episodes(1), [(Resource::Device, MIB as f64)]);
}

#[test]
fn without_the_driver_a_device_has_one_figure() {
    let mut story = Story::default();
    for it in 0..2 {
        story.probe(it, 4000 + it, 0, None);
    }
    for step in 1..=200 {
        for it in 0..2 {
            let own = counters(8 * GIB, GIB);
            let free = 100 * GIB - step * MIB;
            let pinned = Some(GIB + u64::from(it) * step * MIB);
            story.wait(500_000).sample(
                it,
                step,
                Counters { device_free: Some(free), device_total: Some(140 * GIB), pinned_reserved: pinned, ..own },
            );
        }
    }
    assert_eq!(episodes(&story).iter().map(|it| it.resource).collect::<Vec<_>>(), [Resource::Device]);
    let session = story.session();
    let second: Vec<_> = session.processes[1].devices[0].growth.episodes().map(|it| it.resource).collect();
    assert_eq!(second, [Resource::Pinned]);
}
