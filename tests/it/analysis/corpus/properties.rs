//! What holds for every series: no shift and no scale changes a decision, nothing breaks the detector, and a
//! million steps cost a second and no memory.

use crate::benchmarks::recording::cpu_time;
use gpuwatch::{
    facts::units::Stamp,
    model::analysis::{
        episode::{Episode, Resource},
        growth::{self, EPISODES, Growth, Observation},
    },
};
use proptest::prelude::*;

/// A repeatable noise below `range`.
pub(super) fn noise(seed: u64, at: u64, range: u64) -> u64 {
    let mut it = (seed << 32 ^ at).wrapping_add(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (it ^ (it >> 31)) % range.max(1)
}

pub(super) fn feed(seen: impl IntoIterator<Item = Observation>) -> Growth {
    seen.into_iter().fold(Growth::default(), |state, it| growth::step(state, &it))
}

/// Returns the decisions, without the figures.
fn decisions(growth: &Growth) -> Vec<(Resource, u64, u64, Option<u64>)> {
    growth
        .episodes()
        .map(|it| (it.resource, it.since_step, it.first_alert_step, it.resolved.map(|resolved| resolved.step)))
        .collect()
}

prop_compose! {
    /// A job of 600 steps: lengths, a leak that starts somewhere, evaluations, a jump of the level.
    fn job()(
        seed in any::<u32>(),
        breath in 0..1_u64 << 20,
        start in 0..400_u64,
        period in 1..20_u64,
        size in 0..64_u64,
        evaluation in 20..200_u64,
        jump in (0..600_u64, 0..40_u64),
        counts in any::<bool>(),
    ) -> Vec<Observation> {
        (1..=600)
            .map(|step: u64| {
                let leaked = step.saturating_sub(start) / period * size.min(1);
                let blocks = 100 + leaked + u64::from(step.is_multiple_of(evaluation)) * 3 + u64::from(step > jump.0) * jump.1;
                let bytes = (1 << 30) + blocks * 512 * size.max(1) + noise(u64::from(seed), step, breath + 1) / 512 * 512;
                Observation {
                    step: Some(step),
                    at: Stamp(step * 1000),
                    allocated: Some(bytes),
                    requested: counts.then_some(bytes - 7),
                    blocks: counts.then_some(blocks),
                    peak: counts.then_some(bytes + (step << 9)),
                    bounded: None,
                    pools: counts.then_some(leaked << 21),
                    reserved: Some(bytes.next_multiple_of(2 << 20)),
                    driver: Some(noise(9, step, breath + 1)),
                    device: Some(leaked << 20),
                    pinned: Some(leaked << 12),
                    host: None,
                }
            })
            .collect()
    }
}

fn changed(seen: &[Observation], change: impl Fn(u64) -> u64) -> Vec<Observation> {
    let all = |it: &Observation| Observation {
        allocated: it.allocated.map(&change),
        requested: it.requested.map(&change),
        peak: it.peak.map(&change),
        reserved: it.reserved.map(&change),
        pools: it.pools.map(&change),
        driver: it.driver.map(&change),
        device: it.device.map(&change),
        pinned: it.pinned.map(&change),
        ..*it
    };
    seen.iter().map(all).collect()
}

fn any_bytes() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), Just(Some(0)), Just(Some(u64::MAX)), any::<u64>().prop_map(Some), (0..9_u64).prop_map(Some)]
}

prop_compose! {
    fn hostile()(
        step in prop_oneof![Just(None), any_bytes(), (0..99_u64).prop_map(Some)],
        at in prop_oneof![any::<u64>(), 0..99_u64, Just(u64::MAX)],
        values in prop::array::uniform9(any_bytes()),
        (bounded, pools) in (prop::option::of((any::<u64>(), any::<u64>())), any_bytes()),
    ) -> Observation {
        let [allocated, requested, blocks, peak, reserved, driver, device, pinned, host] = values;
        Observation { step, at: Stamp(at), allocated, requested, blocks, peak, bounded, reserved, pools, driver, device, pinned, host }
    }
}

fn assert_sound(growth: &Growth) -> Result<(), TestCaseError> {
    for it in growth.episodes() {
        let Episode { bytes_per_step, interval: (low, high), .. } = *it;
        prop_assert!(bytes_per_step.is_finite() && low.is_finite() && high.is_finite(), "{it:?}");
        prop_assert!(bytes_per_step > 0.0 && it.blocks_per_step.is_none_or(f64::is_finite), "{it:?}");
        prop_assert!(it.since_step <= it.first_alert_step && it.first_alert_step <= it.last_step, "{it:?}");
    }
    for &of in Resource::ALL {
        prop_assert!(growth.episodes().filter(|it| it.resource == of && it.resolved.is_none()).count() <= 1);
    }
    prop_assert!(growth.episodes().count() <= EPISODES);
    let _ = (growth.watched(), growth.enough());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn neither_shift_nor_scale_changes_a_decision(job in job(), shift in 0..1_u64 << 36, scale in 1..5_u32, later in 0..1_u64 << 40) {
        let plain = feed(job.iter().copied());
        assert_sound(&plain)?;
        let decided = decisions(&plain);
        prop_assert_eq!(&decisions(&feed(changed(&job, |it| it + (shift << 9)))), &decided);
        prop_assert_eq!(&decisions(&feed(changed(&job, |it| it << scale))), &decided);
        let later_steps = job.iter().map(|it| Observation { step: it.step.map(|step| step + later), ..*it });
        let moved: Vec<_> =
            decided.iter().map(|it| (it.0, it.1 + later, it.2 + later, it.3.map(|resolved| resolved + later))).collect();
        prop_assert_eq!(decisions(&feed(later_steps)), moved);
    }

    #[test]
    fn no_input_makes_the_growth_analysis_panic(seen in prop::collection::vec(hostile(), 0..300)) {
        assert_sound(&feed(seen))?;
    }

    /// Steps that rise while everything else is hostile reach far more of the detector.
    #[test]
    fn no_single_step_makes_the_growth_analysis_panic(seen in prop::collection::vec(hostile(), 0..300), stride in 1..1_u64 << 50) {
        let rising = (1..).zip(seen).map(|(place, it)| Observation { step: Some(place * stride), ..it });
        assert_sound(&feed(rising))?;
    }

    #[test]
    fn a_repeated_observation_changes_nothing(job in job(), from in 0..500_usize) {
        let mut state = feed(job[..from + 100].iter().copied());
        let before = state.clone();
        for it in &job[from..from + 100] {
            state = growth::step(state, it);
        }
        prop_assert_eq!(state, before);
    }
}

/// `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it a_long_run -- --nocapture` takes a million steps.
#[test]
fn a_long_run_costs_little_time_and_no_more_memory() {
    let is_full = test_tiers::is_benchmark();
    let steps: u64 = if is_full { 1_000_000 } else { 40_000 };
    let row = |step: u64| Observation {
        step: Some(step),
        at: Stamp(step * 1000),
        allocated: Some((1 << 30) + step / 50 * 512 + noise(1, step, 1 << 20) / 512 * 512),
        blocks: Some(100 + step / 50),
        reserved: Some((2 << 30) + step / 9999 * (2 << 20)),
        host: Some((1 << 28) + step / 14 * 4096),
        ..Observation::default()
    };
    let size = |growth: &Growth| format!("{growth:?}").len();
    let start = cpu_time();
    let half = feed((1..steps / 2).map(row));
    let at_half = size(&half);
    let whole = (steps / 2..=steps).map(row).fold(half, |state, it| growth::step(state, &it));
    let took = cpu_time().saturating_sub(start);
    println!("{steps} steps in {took:?} of one core, {} bytes when written out, {at_half} at half time", size(&whole));
    assert_eq!(whole.episodes().filter(|it| it.resource == Resource::Allocated).count(), 1);
    assert!(size(&whole) < at_half * 5 / 4, "{} after {at_half}", size(&whole));
    assert!(!is_full || took.as_secs_f64() < 1.0, "{took:?}");
}
