//! Each problem is raised once it has lasted, resolved once it is gone, and not raised if it is brief.

use super::*;

const GIB: u64 = 1 << 30;

/// A healthy job: 30 of 80 GiB live, 34 reserved, one GiB of that stuck.
fn well() -> Counters {
    Counters {
        allocated: Some(30 * GIB),
        allocated_peak: Some(50 * GIB),
        active: Some(30 * GIB),
        reserved: Some(34 * GIB),
        inactive_split: Some(GIB),
        retries: Some(0),
        device_frees: Some(0),
        device_total: Some(80 * GIB),
        ..Counters::default()
    }
}

/// The problems raised in this many steps.
fn raised_in(steps: u64, at: impl Fn(u64) -> StrainReading) -> Vec<(&'static str, LatchPeriod)> {
    let seen = (1..=steps).map(|it| StrainReading { step: it, at: Stamp(it * 1000), ..at(it) });
    let state = seen.fold(Strain::default(), |state, it| step(state, &it));
    state.spells().map(|(cause, it)| (cause.id(), *it)).collect()
}

fn with(change: impl Fn(u64, &mut Counters)) -> impl Fn(u64) -> StrainReading {
    move |step| {
        let mut counters = well();
        change(step, &mut counters);
        StrainReading { counters, others: Some(50 * GIB), ..StrainReading::default() }
    }
}

/// The only one: its cause, where it was raised, and where it ended.
fn one(raised_in: &[(&'static str, LatchPeriod)]) -> (&'static str, u64, Option<u64>) {
    let [(cause, it)] = raised_in else { panic!("{raised_in:?}") };
    (cause, it.first_alert_step, it.resolved.map(|it| it.0))
}

#[test]
fn a_healthy_or_silent_job_has_no_problems() {
    assert_eq!(raised_in(5000, with(|_, _| {})), []);
    assert_eq!(raised_in(5000, |_| StrainReading::default()), []);
}

#[test]
fn stuck_memory_is_raised_while_it_lasts_and_matters() {
    let stuck = |step: u64, it: &mut Counters| {
        let is_stuck = (101..400).contains(&step);
        it.reserved = Some(if is_stuck { 60 * GIB } else { 34 * GIB });
        it.allocated_peak = Some(32 * GIB);
        it.inactive_split = Some(if is_stuck { 25 * GIB } else { GIB });
    };
    assert_eq!(one(&raised_in(5000, with(stuck))), ("fragmentation", 150, Some(499)));
    let now_and_then = |step: u64, it: &mut Counters| stuck(if step % 7 < 4 { 200 } else { 1 }, it);
    assert_eq!(raised_in(5000, with(now_and_then)), []);
    // What a step uses at its peak is not stuck, even if it lies in split segments between steps.
    let full = |step: u64, it: &mut Counters| {
        stuck(step, it);
        it.allocated_peak = Some(59 * GIB);
    };
    assert_eq!(raised_in(5000, with(full)), []);
    // A peak from before segments were given back shows nothing.
    let old = |step: u64, it: &mut Counters| {
        stuck(step, it);
        it.allocated_peak = Some(61 * GIB);
    };
    assert_eq!(one(&raised_in(5000, with(old))).0, "fragmentation");
    // Half of a small cache hurts no job, and expandable segments cannot be measured.
    let small = |_, it: &mut Counters| (it.active, it.inactive_split) = (Some(GIB), Some(2 * GIB));
    assert_eq!(raised_in(5000, with(small)), []);
    assert_eq!(raised_in(5000, |step| StrainReading { expandable: true, ..with(stuck)(step) }), []);
}

#[test]
fn a_device_that_is_full_and_does_not_fill_is_under_pressure() {
    let full = |_, it: &mut Counters| it.allocated_peak = Some(78 * GIB);
    let others = |seen: StrainReading| StrainReading { others: None, ..seen };
    assert_eq!(one(&raised_in(5000, |it| others(with(full)(it)))), ("pressure", 50, None));
    assert_eq!(raised_in(5000, |it| StrainReading { grows: true, ..others(with(full)(it)) }), [], "growth explains it");
    // A neighbour leaves less.
    let with_neighbour = |_, it: &mut Counters| it.device_free = Some(17 * GIB);
    assert_eq!(one(&raised_in(5000, with(with_neighbour))), ("pressure", 50, None));
    // Around the threshold it is raised once.
    let around = |step, it: &mut Counters| it.allocated_peak = Some((75 + step % 3) * GIB);
    assert_eq!(raised_in(50_000, |it| others(with(around)(it))).len(), 1);
}

#[test]
fn retries_are_raised_when_they_recur_and_end_when_they_stop() {
    let early = |step: u64, it: &mut Counters| it.retries = Some(step.min(2));
    assert_eq!(raised_in(5000, with(early)), [], "two retries of the first steps");
    let often = |step: u64, it: &mut Counters| it.retries = Some(step.min(1000) / 20);
    assert_eq!(one(&raised_in(5000, with(often))), ("thrashing", 60, Some(1300)));
    let rare = |step: u64, it: &mut Counters| it.retries = Some(step / 150);
    assert_eq!(raised_in(5000, with(rare)), []);
    // A thinned stream has one sample of eight steps, and 100 of its samples are 800 steps.
    let thinned = (1..2000).map(|it| StrainReading { step: it * 8, at: Stamp(it), ..with(|_, _| ())(it) });
    let retried =
        |it: StrainReading| StrainReading { counters: Counters { retries: Some(it.step / 200), ..it.counters }, ..it };
    let state = thinned.map(retried).fold(Strain::default(), |state, it| step(state, &it));
    assert_eq!(state.spells().count(), 0);
}

#[test]
fn a_cache_that_is_emptied_in_every_step_is_churn() {
    let emptied = |step: u64, it: &mut Counters| it.device_frees = Some(step * 9);
    let (cause, raised, resolved) = one(&raised_in(5000, with(emptied)));
    assert!(cause == "churn" && raised < 60 && resolved.is_none(), "{raised}");
    let evaluations = |step: u64, it: &mut Counters| it.device_frees = Some(step / 50 * 900);
    // PyTorch empties the cache before it captures a graph, whose pool grows then.
    let captures = |step: u64, it: &mut Counters| {
        emptied(step, it);
        it.private_pools = Some(step << 20);
    };
    assert_eq!(raised_in(5000, with(captures)), []);
    assert_eq!(raised_in(5000, with(evaluations)), []);
    // A history of one sample in 64 has the same information about each step.
    let strided = (1..200).map(|it| StrainReading {
        step: it * 64,
        at: Stamp(it),
        ..with(|_, counters| counters.device_frees = None)(it)
    });
    let freed = |it: StrainReading| StrainReading {
        counters: Counters { device_frees: Some(it.step / 64 * 9), ..it.counters },
        ..it
    };
    let state = strided.map(freed).fold(Strain::default(), |state, it| step(state, &it));
    assert_eq!(state.spells().count(), 0);
}

#[test]
fn retries_that_give_the_cache_back_are_not_churn() {
    let flushed = |step: u64, it: &mut Counters| (it.retries, it.device_frees) = (Some(step), Some(step * 9));
    assert_eq!(one(&raised_in(5000, with(flushed))).0, "thrashing");
}

#[test]
fn a_rank_that_wants_much_more_than_the_others_is_raised() {
    let fuller = |_, it: &mut Counters| it.allocated_peak = Some(70 * GIB);
    let found = raised_in(5000, with(fuller));
    assert_eq!(one(&found), ("rank-imbalance", 50, None));
    assert!((found[0].1.worst - 1.4).abs() < 1e-9);
    let tiny = |step| {
        let counters = Counters { allocated_peak: Some(2 * GIB), allocated: Some(GIB), ..well() };
        StrainReading { counters, others: Some(GIB), ..with(|_, _| {})(step) }
    };
    assert_eq!(raised_in(5000, tiny), [], "twice of little");
}

#[test]
fn a_restart_resolves_everything_and_a_repeated_step_changes_nothing() {
    let seen = |step: u64, at: u64| StrainReading {
        step,
        at: Stamp(at),
        ..with(|step, it| it.device_frees = Some(step * 9))(step)
    };
    let mut state = (1..=100).map(|it| seen(it, it)).fold(Strain::default(), |state, it| step(state, &it));
    assert_eq!(step(state.clone(), &seen(100, 500)), state);
    state = step(state, &seen(1, 200));
    let spell = *state.spells().next().unwrap().1;
    assert_eq!(spell.resolved, Some((1, Stamp(200))));
}

#[test]
fn hostile_counters_break_nothing() {
    let values = [None, Some(0), Some(1), Some(u64::MAX), Some(GIB)];
    let mut state = Strain::default();
    for it in 0..4000_usize {
        let pick = |salt: usize| values[(it * 31 + salt * 17 + it / 7) % values.len()];
        let all: Vec<_> = (0..Counters::NAMES.len()).map(pick).collect();
        let steps = [it as u64, u64::MAX, 0];
        let seen = StrainReading {
            step: steps[it % 5 % 3],
            at: Stamp(it as u64),
            counters: Counters::from_values(&all.try_into().unwrap()),
            others: pick(99),
            total: pick(98),
            ..StrainReading::default()
        };
        state = step(state, &seen);
    }
    assert!(state.spells().all(|(_, it)| it.worst.is_finite() && it.since_step <= it.first_alert_step));
}
