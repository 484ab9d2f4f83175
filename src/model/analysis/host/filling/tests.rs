//! Tests of when a limit is going to be reached.

use super::*;

const GIB: f64 = (1_u64 << 30) as f64;
const ROOM: f64 = 64.0 * GIB;
const MINUTE: u64 = 60;

/// A course of memory: what is used at a second, and what the process holds of that and may write.
type Course<'a> = &'a dyn Fn(f64) -> (f64, Option<(f64, f64)>);

/// Applies a course, a reading every so many seconds, until it ends or the limit is reached; returns the judge, and
/// when that was.
fn watch(seconds: u64, every: u64, has_steps: bool, course: Course) -> (Filling, Option<u64>) {
    let mut filling = Filling::default();
    for second in (0..seconds).step_by(usize::try_from(every).unwrap()) {
        let (used, asked) = course(second as f64);
        if used >= ROOM {
            return (filling, Some(second));
        }
        let whole = crate::facts::units::whole;
        let asked = asked.map(|(held, may)| (whole(held), whole(may)));
        let at = Stamp(second * 1_000_000);
        filling.reading(&LimitReading { at, room: whole(ROOM), used: whole(used), asked, has_steps });
    }
    (filling, None)
}

/// Returns a number between -1 and 1 that looks random.
fn noise(second: f64) -> f64 {
    let mixed = (second * 12.9898).sin() * 43_758.545_3;
    2.0 * (mixed - mixed.floor()) - 1.0
}

#[test]
fn a_leak_is_raised_with_a_forecast_within_ten_percent() {
    let leak = |second: f64| 8.0 + 56.0 * second / 3600.0;
    let courses: [(&str, u64, Course); 7] = [
        ("steady", 10, &|s| (leak(s) * GIB, None)),
        ("steady, read often", 2, &|s| (leak(s) * GIB, None)),
        ("noisy", 10, &|s| ((leak(s) + 0.5 * noise(s)) * GIB, None)),
        ("a batch's ups and downs", 10, &|s| ((leak(s) + 0.8 * (s / 7.0).sin()) * GIB, None)),
        ("stairs of a minute", 10, &|s| ((8.0 + 56.0 * (s / 60.0).floor() / 60.0) * GIB, None)),
        ("stairs of five minutes", 10, &|s| ((8.0 + 56.0 * (s / 300.0).floor() / 12.0) * GIB, None)),
        ("what it asks for rises too", 10, &|s| (leak(s) * GIB, Some((leak(s) * GIB, (leak(s) + 2.0) * GIB)))),
    ];
    for (name, every, course) in courses {
        let mut seen = Vec::new();
        let (_, end) = watch(3 * 3600, every, true, course);
        let end = end.unwrap();
        // Ask again at each reading, as a viewer does.
        for until in (0..end).step_by(60) {
            let (filling, _) = watch(until, every, true, course);
            if let Some(it) = filling.periods().last().filter(|it| it.resolved.is_none()) {
                seen.push((until, it.full_at.0 / 1_000_000));
            }
        }
        let (raised, _) = *seen.first().unwrap_or_else(|| panic!("{name}: not raised"));
        assert!(end - raised >= 8 * MINUTE, "{name}: raised {} s before {end}", end - raised);
        for (at, full_at) in seen {
            let error = full_at.abs_diff(end);
            // A stair is as exact as its width.
            let width = if name.contains("five") { 300 } else { 60 };
            let allowed = ((end - at) / 10).max(if name.contains("stairs") { width } else { 45 });
            assert!(error <= allowed, "{name}: at {at} s, {full_at} instead of {end} s");
        }
    }
}

#[test]
fn a_fast_leak_is_raised_before_it_ends() {
    for minutes in [1_u64, 2, 5] {
        let course = |second: f64| ((4.0 + second / minutes as f64) * GIB, None);
        let (filling, end) = watch(3600, 2, true, &course);
        let it = filling.periods().first().unwrap();
        let end = end.unwrap();
        assert!(it.first_alert_at.0 / 1_000_000 + minutes * 10 <= end, "{it:?}, {end}");
        assert!(it.full_at.0 / 1_000_000 <= end + 2 && it.full_at.0 / 1_000_000 + 2 >= end - end / 20, "{it:?}, {end}");
    }
}

#[test]
fn healthy_courses_raise_nothing() {
    let saturating = |to: f64, minutes: f64| move |s: f64| to * (1.0 - (-s / (60.0 * minutes)).exp());
    let courses: [(&str, bool, Course); 24] = [
        ("idle", true, &|_| (20.0 * GIB, None)),
        ("idle near the limit", true, &|_| (62.0 * GIB, None)),
        ("near the limit with noise", true, &|s| ((60.0 + 2.0 * noise(s)) * GIB, None)),
        ("a warm-up of a minute", true, &|s| ((s / 2.0).min(30.0) * GIB, None)),
        ("a warm-up of ten minutes", true, &|s| ((s / 15.0).min(40.0) * GIB, None)),
        ("a warm-up that saturates", true, &|s| (saturating(40.0, 5.0)(s) * GIB, None)),
        ("one that saturates near the limit", true, &|s| (saturating(55.0, 10.0)(s) * GIB, None)),
        ("one that saturates slowly", true, &|s| (saturating(58.0, 40.0)(s) * GIB, None)),
        ("a checkpoint that is loaded", false, &|s| ((s / 2.0).min(56.0) * GIB, None)),
        ("a large one", false, &|s| (s.min(57.0) * GIB, None)),
        ("a dataset that is read once", false, &|s| ((4.0 + s / 20.0).min(50.0) * GIB, None)),
        ("the same while training", true, &|s| ((4.0 + s / 60.0).min(46.0) * GIB, None)),
        ("a replay buffer of zeros", true, &|s| {
            let held = 2.0 + (s / 60.0).min(52.0);
            ((4.0 + held) * GIB, Some((held * GIB, 56.0 * GIB)))
        }),
        ("a replay buffer of objects", true, &|s| {
            let held = 2.0 + (s / 120.0).min(42.0);
            ((2.0 + held) * GIB, Some((held * GIB, (held + 1.0) * GIB)))
        }),
        ("an epoch's sawtooth", true, &|s| ((8.0 + (s % 600.0) / 15.0) * GIB, None)),
        ("a small sawtooth near the limit", true, &|s| ((57.0 + (s % 300.0) / 250.0) * GIB, None)),
        ("a checkpoint every ten minutes", true, &|s| (if s % 600.0 < 40.0 { 55.0 } else { 30.0 } * GIB, None)),
        ("evaluations", true, &|s| (if s % 900.0 < 200.0 { 50.0 + s % 900.0 / 100.0 } else { 40.0 } * GIB, None)),
        ("workers that start each epoch", true, &|s| ((30.0 + (s % 300.0).min(20.0)) * GIB, None)),
        ("a heap that the collector empties", true, &|s| ((35.0 + (s % 120.0) / 10.0) * GIB, None)),
        ("a slow drift far from the limit", true, &|s| ((10.0 + s / 3600.0) * GIB, None)),
        ("a slow drift near the limit", true, &|s| ((50.0 + s / 7200.0) * GIB, None)),
        ("memory that falls", true, &|s| ((60.0 - s / 600.0) * GIB, None)),
        ("a walk", true, &|s| ((48.0 + 3.0 * (s / 400.0).sin() + noise(s)) * GIB, None)),
    ];
    for (name, has_steps, course) in courses {
        for every in [2, 10] {
            let (filling, end) = watch(2 * 3600, every, has_steps, course);
            assert_eq!(end, None, "{name} fits");
            assert!(filling.periods().is_empty(), "{name}, every {every} s: {:?}", filling.periods());
        }
    }
}

#[test]
fn of_a_sawtooth_near_the_limit_only_the_first_tooth_can_be_raised() {
    for course in [|s: f64| 20.0 + (s % 600.0) / 15.0, |s: f64| 40.0 + (s % 300.0) / 15.0] {
        let (filling, end) = watch(2 * 3600, 2, true, &|s| (course(s) * GIB, None));
        assert!(end.is_none() && filling.periods().len() <= 1, "{:?}", filling.periods());
    }
}

#[test]
fn a_rise_that_ends_is_over_and_a_limit_that_changes_begins_anew() {
    let course = |s: f64| ((20.0 + s / 60.0).min(56.0) * GIB, None);
    let (mut filling, _) = watch(3 * 3600, 10, true, &course);
    let it = filling.periods().to_vec();
    assert!(matches!(it.as_slice(), [FillPeriod { resolved: Some(_), .. }]), "{it:?}");
    let at = Stamp(4 * 3600 * 1_000_000);
    filling.reading(&LimitReading { at, room: 1 << 40, used: 50 << 30, asked: None, has_steps: true });
    assert_eq!(filling.points.len(), 1);
    filling.end(at);
    assert_eq!(filling.points.len(), 0);
}

#[test]
fn its_size_is_bounded() {
    let (filling, _) = watch(24 * 3600, 2, true, &|s| ((10.0 + noise(s)) * GIB, None));
    assert!(filling.points.len() <= POINTS && filling.points.len() >= POINTS / 2, "{}", filling.points.len());
    let span = filling.points.last().unwrap().at.since(filling.points[0].at);
    assert!(span > 20 * 3600 * 1_000_000, "it keeps the whole run: {span}");
}
