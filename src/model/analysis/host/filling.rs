//! When a limit is reached, if memory continues to rise as it does.
//!
//! A rise counts if it is steady over a window of time: memory is higher in each quarter of it than in the one before,
//! and a line through it describes it. The longest such window gives the rate. It is raised near the limit only,
//! because a warm-up, a dataset that is loaded and a buffer that fills rise in the same way until they end.
//!
//! A rise has an end, and is not raised, if it slows down such that it ends below the limit (what it still gains is a
//! geometric sum), or if it fills memory that the process has asked for before: then resident memory rises, and what
//! the process may write does not. Nor is a rise raised that has not passed the crest of an earlier one that fell.

use crate::facts::units::Stamp;
use serde::{Deserialize, Serialize};

/// Most points kept; when they run out, every second one goes.
const POINTS: usize = 96;

/// Fewest points of a window, and its least length in µs: workers that start fill their memory within seconds.
const POINTS_MIN: usize = 6;
const SPAN_MIN: f64 = 30.0 * 1e6;

/// A rise is raised from this use of a limit on, in a job that makes steps; in others, which may still load, later.
const HIGH: f64 = 0.75;
const HIGH_WITHOUT_STEPS: f64 = 0.90;

/// It is over below this use.
const LOW: f64 = 0.65;

/// A limit that is reached later is not worth an alert, in µs.
const HORIZON_US: f64 = 3600.0 * 1e6;

/// A forecast reaches so many times as far as the rise has been seen.
const REACH: f64 = 3.0;

/// A window must gain this share of the limit.
const GAIN: f64 = 0.01;

/// A fall by this share of the limit ends a rise.
const FALL: f64 = 0.02;

/// It must gain this many times what its points scatter by, and this many times the gain's standard error.
const SCATTER: f64 = 4.0;
const ERROR: f64 = 8.0;

/// The last quarter's gain in terms of the first's: less is a rise that slows down, more one that speeds up.
const SLOWS: f64 = 0.95;
const SPEEDS_UP: f64 = 1.5;

/// Readings in a row that must agree before it is raised, and before it is over.
const RAISE: u32 = 3;
const END: u32 = 12;

/// A share of the gain: a smaller growth of the memory that a process may write is none.
const TRIFLE: f64 = 0.25;

/// Most periods remembered.
const PERIODS: usize = 4;

/// One reading of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitReading {
    /// When.
    pub at: Stamp,
    /// What can be used in all.
    pub room: u64,
    /// What is used and cannot be dropped.
    pub used: u64,
    /// What the watched processes there hold, and may write without asking for more; `None` if unknown.
    pub asked: Option<(u64, u64)>,
    /// Whether a watched process makes steps.
    pub has_steps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    at: Stamp,
    used: u64,
    asked: Option<(u64, u64)>,
}

/// A time during which a limit was going to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FillPeriod {
    /// When the rise was first seen.
    pub since: Stamp,
    /// When it was raised; it never changes.
    pub first_alert_at: Stamp,
    /// When it was over; `None` while it lasts.
    pub resolved: Option<Stamp>,
    /// How fast memory rises, in bytes a second.
    pub rate: f64,
    /// When the limit is reached.
    pub full_at: Stamp,
    /// The latest use.
    pub used: u64,
    /// What can be used in all.
    pub room: u64,
}

/// The course of one limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filling {
    points: Vec<Point>,
    spacing_us: u64,
    room: u64,
    /// The highest use since the last fall, and the highest before it.
    crest: u64,
    before: u64,
    held: u32,
    calm: u32,
    periods: Vec<FillPeriod>,
}

/// A rise and its end.
struct Rise {
    since: Stamp,
    rate_us: f64,
    full_at: Stamp,
}

impl Filling {
    /// Returns the latest periods, oldest first.
    pub fn periods(&self) -> &[FillPeriod] {
        &self.periods
    }

    /// Applies a reading.
    pub fn reading(&mut self, it: &LimitReading) {
        if it.room != self.room {
            self.points.clear();
            (self.room, self.spacing_us) = (it.room, 0);
            (self.crest, self.before) = (0, 0);
        }
        if (it.used as f64) < self.crest as f64 - FALL * it.room as f64 {
            (self.before, self.crest) = (self.before.max(self.crest), 0);
        }
        self.crest = self.crest.max(it.used);
        self.push(Point { at: it.at, used: it.used, asked: it.asked });
        let share = it.used as f64 / (it.room as f64).max(1.0);
        let rise = self.rise(it.at);
        let is_high = share >= if it.has_steps { HIGH } else { HIGH_WITHOUT_STEPS };
        if let Some(active) = self.periods.last_mut().filter(|it| it.resolved.is_none()) {
            active.used = it.used;
            active.room = it.room;
            self.calm = if rise.is_some() && share >= LOW { 0 } else { self.calm + 1 };
            if let Some(rise) = rise {
                (active.rate, active.full_at) = (rise.rate_us * 1e6, rise.full_at);
            }
            if self.calm >= END || share < LOW {
                active.resolved = Some(it.at);
                self.held = 0;
            }
            return;
        }
        let Some(rise) = rise.filter(|_| is_high && it.used > self.before) else {
            self.held = 0;
            return;
        };
        self.held += 1;
        if self.held >= RAISE {
            self.calm = 0;
            if self.periods.len() == PERIODS {
                self.periods.remove(0);
            }
            self.periods.push(FillPeriod {
                since: rise.since,
                first_alert_at: it.at,
                resolved: None,
                rate: rise.rate_us * 1e6,
                full_at: rise.full_at,
                used: it.used,
                room: it.room,
            });
        }
    }

    /// Ends what lasts, because the limit or its processes are gone.
    pub fn end(&mut self, at: Stamp) {
        if let Some(it) = self.periods.last_mut().filter(|it| it.resolved.is_none()) {
            it.resolved = Some(at);
        }
        self.points.clear();
        self.held = 0;
    }

    fn push(&mut self, point: Point) {
        let before = self.points.len().checked_sub(2).and_then(|it| self.points.get(it));
        if before.is_some_and(|it| point.at.since(it.at) < self.spacing_us) {
            self.points.pop();
        }
        self.points.push(point);
        if self.points.len() > POINTS {
            let last = self.points.len() - 1;
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                (place - 1) % 2 == 0 || place - 1 == last
            });
            let span = point.at.since(self.points.first().map_or(point.at, |it| it.at));
            self.spacing_us = span / (self.points.len() as u64).max(1);
        }
    }

    /// Returns the rise of the longest steady window that ends now.
    fn rise(&self, now: Stamp) -> Option<Rise> {
        let mut from = 0;
        loop {
            let window = self.points.get(from..).filter(|it| it.len() >= POINTS_MIN)?;
            match self.judge(window, now) {
                Judgement::Rises(it) => return Some(it),
                Judgement::Ends => return None,
                Judgement::Unsteady => {}
            }
            let first = window.first()?.at;
            let middle = Stamp(first.0 + now.since(first) / 2);
            from += window.iter().position(|it| it.at >= middle)?.max(1);
        }
    }

    fn judge(&self, window: &[Point], now: Stamp) -> Judgement {
        let Some(first) = window.first().map(|it| it.at) else { return Judgement::Unsteady };
        let span = now.since(first) as f64;
        let mut quarters = [(0.0, 0_u32); 4];
        for it in window {
            let quarter = it.at.since(first) as f64 / span.max(1.0) * 4.0;
            let quarter = &mut quarters[if quarter < 1.0 {
                0
            } else if quarter < 2.0 {
                1
            } else if quarter < 3.0 {
                2
            } else {
                3
            }];
            (quarter.0, quarter.1) = (quarter.0 + it.used as f64, quarter.1 + 1);
        }
        if span < SPAN_MIN || quarters.iter().any(|it| it.1 == 0) {
            return Judgement::Unsteady;
        }
        let [a, b, c, d] = quarters.map(|(sum, count)| sum / f64::from(count));
        let Some(Line { slope, level, scatter }) = line(window, first, now) else { return Judgement::Unsteady };
        let gained = slope * span;
        let (early, late) = (b - a, d - c);
        let error = scatter * (12.0 / window.len() as f64).sqrt();
        let least = (GAIN * self.room as f64).max(SCATTER * scatter).max(ERROR * error);
        if !(b > a && c > b && d > c) || gained < least {
            return Judgement::Unsteady;
        }
        let left = window.last().map_or(0.0, |it| self.room.saturating_sub(it.used) as f64);
        let ratio = late / early;
        if ratio < SLOWS {
            // A quarter gains `quarter` times what the one before gained.
            let quarter = ratio.sqrt();
            let more = late * quarter / (1.0 - quarter);
            if more < left {
                return Judgement::Ends;
            }
        }
        if fills_what_was_asked(window, gained, left) {
            return Judgement::Ends;
        }
        if ratio > SPEEDS_UP && window.len() >= 2 * POINTS_MIN {
            // Its later part says more about what comes.
            return Judgement::Unsteady;
        }
        let time = (self.room as f64 - level).max(0.0) / slope;
        if time > HORIZON_US || time > span * REACH {
            return Judgement::Unsteady;
        }
        let full_at = Stamp(now.0.saturating_add(crate::facts::units::whole(time)));
        Judgement::Rises(Rise { since: first, rate_us: slope, full_at })
    }
}

/// Whether the processes fill memory that they asked for before, and all of it fits.
fn fills_what_was_asked(window: &[Point], gained: f64, left: f64) -> bool {
    let ends = window.first().and_then(|it| it.asked).zip(window.last().and_then(|it| it.asked));
    let Some(((held, may), (held_now, may_now))) = ends else { return false };
    let (own, asked) = (held_now.saturating_sub(held) as f64, may_now.saturating_sub(may) as f64);
    let is_own = own >= (1.0 - TRIFLE) * gained;
    is_own && asked < TRIFLE * own && (may_now.saturating_sub(held_now) as f64) < left
}

enum Judgement {
    Rises(Rise),
    /// It has an end below the limit.
    Ends,
    Unsteady,
}

/// A line through points.
struct Line {
    /// In bytes a µs; above 0.
    slope: f64,
    /// Its level now, with the highest point above it.
    level: f64,
    /// How far points lie from it.
    scatter: f64,
}

/// Returns the line through points by least squares; `None` if it does not rise.
fn line(window: &[Point], first: Stamp, now: Stamp) -> Option<Line> {
    let count = window.len() as f64;
    let times = || window.iter().map(|it| it.at.since(first) as f64);
    let (mean_time, mean) = (times().sum::<f64>() / count, window.iter().map(|it| it.used as f64).sum::<f64>() / count);
    let squares: f64 = times().map(|it| (it - mean_time).powi(2)).sum();
    let products: f64 = times().zip(window).map(|(time, it)| (time - mean_time) * (it.used as f64 - mean)).sum();
    let slope = (squares > 0.0).then(|| products / squares).filter(|it| *it > 0.0)?;
    // The limit is reached at a crest, where memory goes up and down.
    let rests = || times().zip(window).map(|(time, it)| it.used as f64 - mean - slope * (time - mean_time));
    let level = mean + rests().fold(0.0, f64::max) + slope * (now.since(first) as f64 - mean_time);
    let scatter = (rests().map(|it| it.powi(2)).sum::<f64>() / count).sqrt();
    Some(Line { slope, level, scatter })
}

#[cfg(test)]
mod tests {
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
            assert!(
                it.full_at.0 / 1_000_000 <= end + 2 && it.full_at.0 / 1_000_000 + 2 >= end - end / 20,
                "{it:?}, {end}"
            );
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
}
