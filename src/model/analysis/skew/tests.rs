//! Made-up runs of several ranks: healthy ones of many kinds, and ones with a slow rank. Each has a seed.

use super::*;
use crate::{facts::units::whole, model::statistics::Random};

/// Seeds of each kind. With 80 of each, none of the healthy hours raised anything either.
const SEEDS: u64 = 16;

/// Half an hour, in µs.
const RUN_US: f64 = 1800e6;

/// What a seed determines of a run.
struct Run {
    noise: f64,
    one: f64,
}

/// The work of a rank in a step, in usual steps, and whether ranks wait for each other.
struct Kind {
    name: &'static str,
    waits: bool,
    /// Steps by which the host of a rank runs ahead of the slowest one.
    ahead: f64,
    work: fn(&Run, usize, u64, &mut Random) -> f64,
    /// Percent of time in which the device of a rank is busy.
    busy: fn(&Run, usize, &mut Random) -> f64,
}

fn all(_: &Run, _: usize, _: &mut Random) -> f64 {
    97.0
}

fn own(run: &Run, rank: usize, _: &mut Random) -> f64 {
    40.0 + (run.one * 1000.0 + rank as f64 * 17.0) % 45.0
}

fn noisy(run: &Run, chance: &mut Random) -> f64 {
    (1.0 + run.noise * chance.normal()).max(0.2)
}

const HEALTHY: [Kind; 8] = [
    Kind { name: "in step", waits: true, ahead: 0.0, work: |run, _, _, chance| noisy(run, chance), busy: all },
    Kind {
        name: "ahead of the device",
        waits: true,
        ahead: 1.0,
        work: |run, _, _, chance| noisy(run, chance),
        busy: all,
    },
    Kind { name: "each for itself", waits: false, ahead: 0.0, work: |run, _, _, chance| noisy(run, chance), busy: own },
    Kind {
        name: "rank 0 writes checkpoints",
        waits: true,
        ahead: 0.5,
        work: |run, rank, step, chance| {
            noisy(run, chance) + if rank == 0 && step % 50 == 0 { 30.0 * run.one } else { 0.0 }
        },
        busy: |run, rank, chance| if rank == 0 && chance.share() < 0.4 * run.one { 5.0 } else { 97.0 },
    },
    Kind {
        name: "rank 0 logs",
        waits: true,
        ahead: 0.5,
        work: |run, rank, _, chance| noisy(run, chance) * if rank == 0 { 1.0 + 0.08 * run.one } else { 1.0 },
        busy: |run, rank, _| if rank == 0 { 97.0 - 8.0 * run.one } else { 97.0 },
    },
    Kind {
        name: "rank 0 alone waits for its device",
        waits: true,
        ahead: 1.5,
        work: |run, rank, _, chance| noisy(run, chance) * if rank == 0 { 1.0 } else { 0.5 },
        busy: |_, rank, _| if rank == 0 { 93.0 } else { 98.0 },
    },
    Kind {
        name: "uneven lengths",
        waits: true,
        ahead: 0.5,
        work: |run, _, _, chance| noisy(run, chance) * chance.between(0.5, 1.0),
        busy: all,
    },
    Kind {
        name: "a bit uneven, each for itself",
        waits: false,
        ahead: 0.0,
        work: |run, rank, _, chance| noisy(run, chance) * (1.0 + 0.05 * run.one * rank as f64 / 8.0),
        busy: own,
    },
];

const SLOW: [Kind; 2] = [
    Kind {
        name: "longer steps",
        waits: false,
        ahead: 0.0,
        work: |run, rank, _, chance| noisy(run, chance) * if rank == 1 { 1.3 + run.one } else { 1.0 },
        busy: own,
    },
    Kind {
        name: "arrives last",
        waits: true,
        ahead: 1.0,
        work: |run, rank, _, chance| noisy(run, chance) * if rank == 1 { 1.4 + run.one } else { 1.0 },
        busy: |run, rank, _| if rank == 1 { 98.0 / (1.4 + run.one) } else { 98.0 },
    },
];

/// Plays a run: when each rank reaches each step. A rank that waits begins a step no earlier than the slowest rank has
/// ended the steps before, except for those that its queue holds.
fn played(kind: &Kind, seed: u64, noise: (f64, f64)) -> Vec<Skew> {
    let mut chance = Random::new(seed);
    let usual_us = 1000.0 * 10.0_f64.powf(chance.between(1.7, 4.0));
    let ranks = [2, 3, 4, 8][usize::try_from(seed % 4).unwrap()];
    let run = Run { noise: chance.between(noise.0, noise.1), one: chance.share() };
    let mut skews = vec![Skew::default(); ranks];
    let mut ends = vec![1e9; ranks];
    let mut second = 1000_u64;
    let steps = whole((RUN_US / usual_us).clamp(120.0, 6000.0));
    for step in 1..=steps {
        for (rank, end) in ends.iter_mut().enumerate() {
            *end += usual_us * (kind.work)(&run, rank, step, &mut chance);
        }
        if kind.waits {
            let slowest = ends.iter().copied().fold(0.0, f64::max);
            for end in &mut ends {
                *end = end.max(slowest - kind.ahead * usual_us);
            }
        }
        for (skew, end) in skews.iter_mut().zip(&ends) {
            skew.step(step, Stamp(whole(*end)));
        }
        let now = ends.iter().copied().fold(f64::MAX, f64::min);
        while (second as f64 + 10.0) * 1e6 < now {
            second += 10;
            for (rank, skew) in skews.iter_mut().enumerate() {
                for _ in 0..10 {
                    let percent = (kind.busy)(&run, rank, &mut chance) + 3.0 * chance.normal();
                    skew.busy(whole(percent.max(0.0)));
                }
            }
            let at = Stamp(second * 1_000_000);
            if skews.iter().all(|it| it.is_ready(at)) {
                let each = compare(&skews.iter().collect::<Vec<_>>(), true);
                for (skew, compared) in skews.iter_mut().zip(each) {
                    skew.observe(compared.unwrap(), at);
                }
            }
        }
    }
    skews
}

#[test]
fn healthy_runs_of_many_kinds_raise_nothing() {
    let mut alarms = Vec::new();
    for kind in &HEALTHY {
        for seed in 0..SEEDS {
            let ranks = played(kind, seed, (0.01, 0.15));
            let raised = ranks.iter().position(|it| !it.spells().is_empty());
            alarms.extend(
                raised.map(|rank| format!("{}, seed {seed}: rank {rank}, {:?}", kind.name, ranks[rank].latest())),
            );
        }
    }
    let runs = HEALTHY.len() as u64 * SEEDS;
    println!("{} false alarms in {} hours of {runs} healthy runs", alarms.len(), runs / 2);
    assert!(alarms.is_empty(), "{} of {runs}: {alarms:#?}", alarms.len());
}

#[test]
fn a_slow_rank_is_found_and_no_other_one() {
    for kind in &SLOW {
        let mut found = 0;
        for seed in 0..SEEDS {
            let ranks = played(kind, seed, (0.01, 0.05));
            let raised: Vec<usize> = (0..ranks.len()).filter(|it| !ranks[*it].spells().is_empty()).collect();
            assert!(raised.iter().all(|it| *it == 1), "{}, seed {seed}: {raised:?}", kind.name);
            found += u64::from(raised == [1]);
        }
        println!("{}: found in {found} of {SEEDS} runs", kind.name);
        assert!(found >= SEEDS * 95 / 100, "{}: {found} of {SEEDS}", kind.name);
    }
}

#[test]
fn it_is_over_when_the_rank_keeps_up_and_after_a_restart() {
    let mut ranks = [Skew::default(), Skew::default()];
    let mut ends = [0, 0];
    for step in 1..=800_u64 {
        ends[0] += 1_000_000;
        ends[1] += if (200..400).contains(&step) { 1_500_000 } else { 1_000_000 };
        for (rank, end) in ranks.iter_mut().zip(ends) {
            rank.step(step, Stamp(end));
        }
        let at = Stamp(ends[1]);
        if ranks.iter().all(|it| it.is_ready(at)) {
            let each = compare(&[&ranks[0], &ranks[1]], false);
            for (rank, compared) in ranks.iter_mut().zip(each) {
                rank.observe(compared.unwrap(), at);
            }
        }
    }
    let [spell] = ranks[1].spells() else { panic!("{:?}", ranks[1]) };
    assert!(spell.first_alert_step < 300 && spell.resolved.is_some_and(|it| (400..520).contains(&it.0)), "{spell:?}");
    assert!(ranks[0].spells().is_empty());
    ranks[1].step(1, Stamp(u64::MAX));
    assert_eq!(ranks[1].recent.len(), 1);
}
