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
mod tests;
