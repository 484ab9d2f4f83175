//! The signature of a trail of counters.

use super::*;
use crate::model::analysis::growth::{self, Observation};
use std::collections::BTreeSet;

/// Counters with this many live blocks of 1 KiB each, for which 1,000 bytes were requested.
fn counters(blocks: u64) -> Counters {
    Counters {
        blocks: Some(blocks),
        allocated: Some(blocks * 1024),
        active: Some(blocks * 1024),
        requested: Some(blocks * 1000),
        reserved: Some(1 << 30),
        ..Counters::default()
    }
}

/// The signature of this many steps; `shape` gives the blocks at a step and its duration.
fn signature(steps: u64, shape: impl Fn(u64) -> (u64, u64)) -> Signature {
    let mut trail = CounterHistory::default();
    let mut at = 0;
    for step in 1..=steps {
        let (blocks, took) = shape(step);
        at += took;
        trail.push(step, Stamp(at), &counters(blocks));
    }
    trail.over(1, steps)
}

#[test]
fn a_clean_leak_rises_by_the_same_each_time() {
    let it = signature(200, |step| (100 + step / 10 * 3, 1000)).rises.unwrap();
    assert_eq!((it.count, it.steps, it.blocks, it.bytes, it.requested), (20, 199, 3, Some(3072), Some(3000)));
    assert!(it.are_clear() && (it.time.unwrap() - 1.0).abs() < 1e-9, "{it:?}");
}

#[test]
fn the_time_of_a_step_with_a_rise_is_set_against_the_others() {
    let it = signature(200, |step| (100 + step / 10 * 3, if step % 10 == 0 { 2500 } else { 1000 })).rises.unwrap();
    assert!((it.time.unwrap() - 2.5).abs() < 1e-9, "{it:?}");
    let too_few = signature(200, |step| (100 + step / 80 * 3, 1000)).rises.unwrap();
    assert_eq!(too_few.time, None, "{too_few:?}");
}

#[test]
fn a_lift_for_one_step_is_not_a_rise_and_a_breathing_series_is_not_clear() {
    assert_eq!(signature(205, |step| (100 + u64::from(step % 50 == 0) * 9, 1000)).rises, None);
    let sawtooth = signature(200, |step| (100 + step + step % 20, 1000)).rises.unwrap();
    assert!(!sawtooth.are_clear(), "{sawtooth:?}");
    assert_eq!(signature(0, |_| (0, 0)).rises, None);
}

#[test]
fn hostile_counts_neither_break_it_nor_give_nan() {
    let it = signature(300, |step| (if step % 2 == 0 { u64::MAX / 1024 } else { step }, step % 3));
    let rises = it.rises.unwrap();
    assert!(rises.kept.is_finite() && rises.time.is_none_or(f64::is_finite), "{rises:?}");
    assert!(it.allocated.is_some_and(f64::is_finite));
}

#[test]
fn a_lasting_episode_s_signature_is_hardly_behind_and_the_last_one_stays() {
    let (mut trail, mut growth) = (CounterHistory::default(), Growth::default());
    let mut see = |step: u64, at: u64, blocks: u64| {
        let counters = counters(blocks);
        let Counters { allocated, requested, blocks, .. } = counters;
        let seen =
            Observation { step: Some(step), at: Stamp(at), allocated, requested, blocks, ..Observation::default() };
        growth = growth::step(std::mem::take(&mut growth), &seen);
        trail.push(step, Stamp(at), &counters);
        trail.follow(&growth);
        let at = trail.taken.first().map(|taken| taken.last);
        growth.episodes().last().map(|it| (*it, trail.signature(it), at))
    };
    let mut taken = BTreeSet::new();
    let mut last = None;
    for step in 1..=2000 {
        last = see(step, step * 20_000, step * 3);
        if let Some((episode, signature, Some(at))) = last {
            let (span, behind) = (episode.last_step - episode.since_step, episode.last_step - at);
            assert!(behind <= 200 && behind * PARTS <= span + PARTS, "{behind} of {span}");
            assert!(signature.blocks.is_some_and(|it| (it / 3.0 - 1.0).abs() < 0.01), "{signature:?}");
            taken.insert(at);
        }
    }
    assert!((20..120).contains(&taken.len()), "{}", taken.len());
    let (_, before, _) = last.unwrap();
    let (episode, after, _) = see(1, 60_000_000, 3).unwrap();
    assert!(episode.resolved.is_some() && after == before, "a restart has no rows of it: {after:?}");
    // A leak that is raised at the same step of the next run has a signature of its own.
    let raised = (2..=400).find_map(|step| {
        let (it, signature, _) = see(step, 60_000_000 + step * 20_000, step * 5)?;
        it.resolved.is_none().then_some((it, signature))
    });
    let (again, signature) = raised.unwrap();
    assert_eq!((again.resource, again.first_alert_step), (episode.resource, episode.first_alert_step));
    assert!(signature.blocks.is_some_and(|it| (it / 5.0 - 1.0).abs() < 0.01), "{signature:?}");
}

#[test]
fn a_row_has_the_counters_of_its_step_and_lacks_unknown_ones() {
    let counters =
        Counters { requested: Some(1), reserved: Some(0), device_frees: Some(u64::MAX), ..Counters::default() };
    let row = CounterRow::new(7, Stamp(9), &counters);
    assert_eq!((row.step, row.at), (7, Stamp(9)));
    let all = [Counter::Requested, Counter::Reserved, Counter::DeviceFrees, Counter::Allocated].map(|it| row.get(it));
    assert_eq!(all, [Some(1), Some(0), Some(u64::MAX), None]);
}

fn spans(steps: impl IntoIterator<Item = u64>, width: u64) -> Vec<Span> {
    steps.into_iter().map(|it| (it - width, it)).collect()
}

#[test]
fn rises_at_regular_distances_have_a_period() {
    let every_25 = spans((1..=5).map(|it| 25 * it), 1);
    assert_eq!(cadence(&every_25), Some(event::Rises { every: 25, last: 125, slack: 0 }));
    // Some steps early or late.
    let shaken = spans([25, 51, 74, 101, 125], 1);
    assert_eq!(cadence(&shaken), Some(event::Rises { every: 25, last: 125, slack: 1 }));
    // Several rises of one evaluation.
    let twice = spans([24, 25, 49, 50, 74, 75], 1);
    assert_eq!(cadence(&twice), Some(event::Rises { every: 25, last: 75, slack: 1 }));
    // Rows that are far apart.
    assert_eq!(
        cadence(&spans([5008, 10_000, 15_008], 16)),
        Some(event::Rises { every: 5000, last: 15_008, slack: 23 })
    );
}

#[test]
fn irregular_or_too_rare_rises_have_no_cadence() {
    assert_eq!(cadence(&[]), None);
    assert_eq!(cadence(&spans([25, 50], 1)), None);
    assert_eq!(cadence(&spans([10, 40, 50, 110], 1)), None);
    assert_eq!(cadence(&spans(1..=9, 1)), Some(event::Rises { every: 1, last: 9, slack: 0 }));
}
