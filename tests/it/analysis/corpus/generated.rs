//! Judges growth on loops that are generated from seeds (`loops`): thresholds were tuned on even seeds, odd ones from
//! 481 on are only for judging.
//!
//! `cargo test --test it generated:: -- --nocapture` prints the score, `GPUWATCH_TESTS=full` of eleven times as many
//! loops, `GPUWATCH_BENCHMARK=full` of thirty times, with `GROWTH_SEEDS` of those that were tuned on.

use super::{
    causes::Named,
    judge::{Class, Label, Score},
    loops::{FAMILIES, Loop, made},
    properties::feed,
};
use crate::helpers::story::Story;
use gpuwatch::{
    facts::units::Stamp,
    model::{
        analysis::{episode::Episode, growth::Observation},
        findings::findings,
    },
};

#[test]
fn leaks_in_made_up_loops_are_found_and_hardly_anything_else() {
    let score = judged(3);
    assert!(score.recall() >= 0.95, "missed: {:?}", score.missed);
    assert!(score.false_alarms_per_100k() <= 6.0, "{:?}", score.false_alarms);
    assert!(score.gone_wrong.len() <= 2, "{:?}", score.gone_wrong);
    assert!(score.delay(0.5) <= 4.0 && score.delay(0.9) <= 300.0 && score.slope_error() <= 0.01, "{score}");
}

#[test]
fn a_thousand_made_up_loops_are_judged_as_well() {
    test_tiers::full!("a thousand made-up loops");
    are_judged_well(34);
}

#[test]
fn three_thousand_made_up_loops_are_judged_as_well() {
    test_tiers::benchmark!();
    are_judged_well(100);
}

/// So many variations of every family; at most 24 findings of each hundred variations go wrong.
fn are_judged_well(variations: u64) {
    let score = judged(variations);
    assert!(score.recall() >= 0.99, "missed: {:?}", score.missed);
    assert!(score.false_alarms_per_100k() <= 1.0, "{:?}", score.false_alarms);
    assert!(score.gone_wrong.len() as u64 * 100 <= variations * 24, "{:?}", score.gone_wrong);
    assert!(score.delay(0.5) <= 4.0 && score.slope_error() <= 0.005, "{score}");
}

/// Loops that only one rule judges right, for each rule.
#[test]
fn made_up_loops_that_once_were_judged_wrongly_stay_right() {
    let loops = [
        // The allocator's leaps hide that the steps themselves grow, also before the lengths' unit is known.
        ("lengths_grow", 14),
        ("lengths_grow", 94),
        // A unit that one tensor's rows share with the lengths.
        ("cat_now_and_then", 20),
        // The allocator hands out more than a large request needs, which looks like an end.
        ("cat_now_and_then", 98),
        ("cat_of_tokens", 262),
        // Lengths and evaluations together wander for a while.
        ("cat_in_lengths", 212),
        // An evaluation sets a level at once, which is not a tooth.
        ("evaluation_kept", 138),
        // A tensor that grows before the curriculum's unit is known.
        ("cat_in_curriculum", 142),
        ("cat_in_curriculum", 198),
        ("cat_in_curriculum", 272),
        // Its growth divides the curriculum's unit, or an evaluation follows neither.
        ("cat_in_curriculum", 386),
        ("cat_in_curriculum", 6),
        // One to four rows at a time, and an evaluation that keeps half of each token.
        ("cat_now_and_then", 446),
        ("cat_now_and_then", 600),
        // The release of a first tooth, which a longer horizon saw rise once.
        ("small_under_epochs", 458),
        // Lengths hide that it no longer grows; what is beside them does not.
        ("window_of_rows", 72),
        // The longest sentences are cut to a length that is not a whole multiple.
        ("window_of_rows", 254),
    ];
    let mut score = Score::default();
    for (family, seed) in loops {
        let class = FAMILIES.iter().find(|it| it.0 == family).unwrap().1;
        judge(&mut score, &made(family, class, seed));
    }
    assert!(score.missed.is_empty() && score.false_alarms.is_empty(), "{:?} {:?}", score.missed, score.false_alarms);
    assert!(score.gone_wrong.is_empty(), "{:?}", score.gone_wrong);
    assert_eq!(score.leaks, 12);
}

/// So many variations of every family.
#[expect(clippy::print_stdout, reason = "the score is for whoever asks for it")]
fn judged(variations: u64) -> Score {
    let first = if std::env::var("GROWTH_SEEDS").is_err() { 481 } else { 0 };
    let mut score = Score::default();
    for (family, class) in FAMILIES {
        let mut own = Score::default();
        for seed in (0..variations).map(|it| first + 2 * it) {
            let it = made(family, class, seed);
            let found = judge(&mut own, &it);
            score.add(&it.label, &found);
        }
        println!("{family:24} {own}");
    }
    println!("{:24} {score}", "all");
    score
}

/// The findings in a loop, and its part of the score.
fn judge(score: &mut Score, it: &Loop) -> Vec<Episode> {
    let growth = feed((1..).zip(&it.rows).map(|(step, row)| Observation {
        step: Some(step),
        at: Stamp(step * 10_000),
        allocated: row.allocated,
        requested: row.requested,
        blocks: row.blocks,
        peak: row.allocated_peak,
        reserved: row.reserved,
        ..Observation::default()
    }));
    let found: Vec<_> = growth.episodes().copied().collect();
    score.add(&it.label, &found);
    found
}

/// With and without a count of private pools, which a job without CUDA graphs does not have.
#[test]
fn reserved_memory_that_requests_of_growing_size_take_is_called_fragmentation() {
    for pools in [None, Some(0)] {
        let mut named = Named::default();
        for seed in 0..6 {
            let Loop { label, rows } = made("requests_grow", Class::Other, seed);
            let mut story = Story::default();
            story.probe(0, 4000, 0, None);
            for (step, mut row) in (1..).zip(rows) {
                row.private_pools = pools;
                story.wait(10_000).sample(0, step, row);
            }
            named.add(&label, &findings(&story.session()).all);
        }
        println!("{named}");
        assert!(named.judged == 6 && named.share() >= 0.8, "{named}");
    }
}

#[test]
fn a_seed_always_makes_the_same_loop() {
    let all = |seed| FAMILIES.map(|(family, class)| made(family, class, seed).rows.last().copied());
    assert_eq!(all(1), all(1));
    assert!(all(1).iter().zip(all(3)).all(|(one, other)| *one != other));
    let Label { start_step, bytes_per_step, .. } = made("cat_in_lengths", Class::Leak, 1).label;
    assert!(start_step.is_some() && bytes_per_step.is_some_and(|it| it > 0.0));
}
