//! The course of a device's important metrics, second by second, in bounded memory: the latest seconds unchanged, and
//! everything before them in stretches of equal time, which are merged in pairs when they run out.

use crate::{
    facts::{
        metrics::{Metric, Metrics},
        units::Stamp,
    },
    model::analysis::{
        buckets::{Buckets, Merge},
        packed::{self, Numbers, Packed},
    },
};
use serde::{Deserialize, Serialize};

/// Most stretches of the whole course.
pub const STRETCHES: usize = 256;

/// Latest seconds kept unchanged.
pub const LATEST: usize = 128;

/// µs of a stretch at first: the driver's thread reads the fastest metrics once a second.
const SECOND_US: u64 = 1_000_000;

/// A second without a reading belongs to the next stretch, up to this distance in µs.
const SILENCE_US: u64 = 5_000_000;

/// One metric of the course.
#[derive(Clone, Copy, Debug)]
pub struct CourseRow {
    /// The metric.
    pub metric: Metric,
    /// Its label beside its bars.
    pub label: &'static str,
    /// The value of a full bar.
    pub full: Full,
    /// Which value of a stretch its bar shows.
    pub shows: Pick,
    /// Kept values are this many times smaller.
    divisor: u64,
}

/// The value of a full bar.
#[derive(Clone, Copy, Debug)]
pub enum Full {
    /// A fixed one.
    Value(u64),
    /// Another metric of the device.
    Metric(Metric),
}

/// A value of a stretch.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// The lowest.
    Lowest,
    /// The mean.
    Mean,
    /// The highest.
    Highest,
}

/// Every metric of the course, the most useful first. Throttle reasons are kept beside them.
pub const TABLE: [CourseRow; 4] = [
    CourseRow {
        metric: Metric::SmMhz,
        label: "SM clock",
        full: Full::Metric(Metric::SmMaxMhz),
        shows: Pick::Lowest,
        divisor: 1,
    },
    CourseRow {
        metric: Metric::GpuPercent,
        label: "utilisation",
        full: Full::Value(100),
        shows: Pick::Mean,
        divisor: 1,
    },
    CourseRow {
        metric: Metric::PowerMw,
        label: "power",
        full: Full::Metric(Metric::PowerLimitMw),
        shows: Pick::Mean,
        divisor: 1000,
    },
    CourseRow {
        metric: Metric::CelsiusNow,
        label: "temperature",
        full: Full::Metric(Metric::SlowdownCelsius),
        shows: Pick::Highest,
        divisor: 1,
    },
];

/// The values of one metric in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Values {
    low: u16,
    high: u16,
    sum: u32,
    count: u32,
}

impl Values {
    fn of(value: u16) -> Self {
        Self { low: value, high: value, sum: value.into(), count: 1 }
    }

    fn with(self, newer: Self) -> Self {
        match (self.count, newer.count) {
            (0, _) => newer,
            (_, 0) => self,
            _ => Self {
                low: self.low.min(newer.low),
                high: self.high.max(newer.high),
                sum: self.sum.saturating_add(newer.sum),
                count: self.count.saturating_add(newer.count),
            },
        }
    }

    fn pick(self, pick: Pick) -> Option<u64> {
        let mean = self.sum.checked_div(self.count)?;
        Some(match pick {
            Pick::Lowest => self.low.into(),
            Pick::Mean => mean.into(),
            Pick::Highest => self.high.into(),
        })
    }
}

/// A stretch of the course.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// When its last second ended.
    pub at: Stamp,
    values: [Values; TABLE.len()],
    reasons: u16,
}

impl Stretch {
    /// Returns a value of a metric in the metric's unit; `None` if it is unknown.
    pub fn get(&self, row: &CourseRow, pick: Pick) -> Option<u64> {
        let place = TABLE.iter().position(|it| it.metric == row.metric)?;
        self.values.get(place)?.pick(pick)?.checked_mul(row.divisor)
    }

    /// Returns every throttle reason of the stretch, as bits.
    pub fn reasons(&self) -> u64 {
        self.reasons.into()
    }
}

impl Merge for Stretch {
    fn place(&self) -> u64 {
        self.at.0
    }

    fn merge(&mut self, newer: &Self) {
        let mut values = self.values;
        for (value, newer) in values.iter_mut().zip(newer.values) {
            *value = value.with(newer);
        }
        *self = Self { at: newer.at, values, reasons: self.reasons | newer.reasons };
    }
}

/// Numbers of a packed stretch.
const NUMBERS: usize = 2 + OF_METRIC * TABLE.len();
const OF_METRIC: usize = 4;

impl Numbers<NUMBERS> for Stretch {
    fn numbers(&self) -> [u64; NUMBERS] {
        let each = self.values.into_iter().flat_map(|Values { low, high, sum, count }| {
            [u64::from(low), u64::from(high.wrapping_sub(low)), sum.into(), count.into()]
        });
        packed::numbers([self.at.0, self.reasons.into()].into_iter().chain(each))
    }

    fn of_numbers(&[at, reasons, ref each @ ..]: &[u64; NUMBERS]) -> Self {
        let mut values = [Values::default(); TABLE.len()];
        for (place, it) in values.iter_mut().zip(each.as_chunks::<OF_METRIC>().0) {
            let [low, range] = [it[0], it[1]].map(|it| u16::try_from(it).unwrap_or(0));
            let [sum, count] = [it[2], it[3]].map(|it| u32::try_from(it).unwrap_or(0));
            *place = Values { low, high: low.wrapping_add(range), sum, count };
        }
        Self { at: Stamp(at), values, reasons: u16::try_from(reasons).unwrap_or(0) }
    }
}

/// The course of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course {
    stretches: Buckets<Packed<Stretch, NUMBERS>, STRETCHES>,
    latest: Packed<Stretch, NUMBERS>,
    slowed: bool,
}

impl Default for Course {
    fn default() -> Self {
        Self { stretches: Buckets::with_stride(SECOND_US), latest: Packed::default(), slowed: false }
    }
}

impl Course {
    /// Adds a second. Ignores one without any of the metrics, and one before the newest.
    pub(super) fn second(&mut self, at: Stamp, metrics: &Metrics) {
        let values = TABLE.map(|row| {
            let value = metrics.get(row.metric).map(|it| it / row.divisor).and_then(|it| u16::try_from(it).ok());
            value.map_or_else(Values::default, Values::of)
        });
        let is_old = self.stretches.all().newest().is_some_and(|it| at < it.at);
        if is_old || values.iter().all(|it| it.count == 0) {
            return;
        }
        let reasons = metrics.get(Metric::ThrottleReasons).and_then(|it| u16::try_from(it).ok()).unwrap_or(0);
        self.slowed |= crate::facts::metrics::Reason::of(reasons.into()).any(|it| it.is_slowdown);
        let stretch = Stretch { at, values, reasons };
        self.latest.push_within(LATEST, stretch);
        self.stretches.push(stretch);
    }

    /// Returns whether heat or lack of power slowed the device down at any time.
    pub fn is_slowed(&self) -> bool {
        self.slowed
    }

    /// Returns the course from its beginning, ending with the latest seconds unchanged: each stretch with the time at
    /// which it begins.
    pub fn stretches(&self) -> impl Iterator<Item = (Stamp, Stretch)> {
        let raw = self.latest.oldest().map_or(Stamp(u64::MAX), |it| it.at);
        let stride = self.stretches.stride().saturating_add(SECOND_US).max(SILENCE_US);
        let all = self.stretches.all().iter().take_while(move |it| it.at < raw).chain(self.latest.iter());
        let mut then = None;
        all.map(move |it| {
            let is_raw = it.at >= raw;
            let first = if is_raw { it.at.0 } else { 0 };
            let from = then.map_or(first, |then: Stamp| then.0.saturating_add(1));
            let reach = if is_raw { SILENCE_US } else { stride };
            then = Some(it.at);
            (Stamp(from.max(it.at.0.saturating_sub(reach)).min(it.at.0)), it)
        })
    }

    /// Returns the stretch that a time is in; up to a few seconds after the latest, that one.
    pub fn at(&self, time: Stamp) -> Option<Stretch> {
        let found = self.stretches().find(|(_, it)| it.at >= time);
        let latest = || self.latest.newest().filter(|it| time.since(it.at) <= SILENCE_US).copied();
        found.map_or_else(latest, |(from, it)| Some(it).filter(|_| from.0.saturating_sub(SECOND_US) <= time.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Stamp {
        Stamp(second * SECOND_US)
    }

    fn metrics(mhz: u64, reasons: u64) -> Metrics {
        [(Metric::SmMhz, mhz), (Metric::PowerMw, 612_345), (Metric::ThrottleReasons, reasons)].into_iter().collect()
    }

    fn run(seconds: u64, mhz: impl Fn(u64) -> u64) -> Course {
        let mut course = Course::default();
        for second in 1..=seconds {
            course.second(at(second), &metrics(mhz(second), u64::from(mhz(second) < 1500) * 4));
        }
        course
    }

    #[test]
    fn a_long_course_is_whole_and_small() {
        let course = run(200_000, |second| if second == 777 { 1410 } else { 1980 });
        let all: Vec<_> = course.stretches().collect();
        assert!(all.len() <= STRETCHES + LATEST && all.len() > STRETCHES / 3, "{}", all.len());
        assert!(all.windows(2).all(|it| it[0].1.at < it[1].0), "no stretch covers another");
        let [clock, utilisation, power, _] = &TABLE;
        let low = all.iter().find(|(_, it)| it.get(clock, Pick::Lowest) == Some(1410)).unwrap();
        assert!(low.0 <= at(777) && at(777) <= low.1.at, "one second of many is visible");
        assert_eq!((low.1.get(clock, Pick::Highest), low.1.reasons()), (Some(1980), 4));
        assert!(low.1.get(clock, Pick::Mean).is_some_and(|it| (1970..1980).contains(&it)));
        assert_eq!((low.1.get(power, Pick::Mean), low.1.get(utilisation, Pick::Mean)), (Some(612_000), None));
        assert!(course.is_slowed() && !run(9, |_| 1980).is_slowed());
        let heap = course.stretches.all().heap() + course.latest.heap();
        assert!(heap <= 8 << 10, "{heap}");
    }

    #[test]
    fn a_stretch_is_as_it_was() {
        let values = [
            Values::default(),
            Values { low: 0, high: u16::MAX, sum: u32::MAX, count: 1 },
            Values { low: 9, high: 9, sum: 18, count: 2 },
            Values { low: u16::MAX, high: 3, sum: 0, count: u32::MAX },
        ];
        let stretch = Stretch { at: Stamp(u64::MAX), values, reasons: u16::MAX };
        assert_eq!(Stretch::of_numbers(&stretch.numbers()), stretch);
    }

    #[test]
    fn a_time_finds_its_stretch() {
        let course = run(1000, |second| 1000 + second);
        let clock = |second| course.at(at(second)).and_then(|it| it.get(&TABLE[0], Pick::Highest));
        assert_eq!((clock(1000), clock(995), clock(1003), clock(1010)), (Some(2000), Some(1995), Some(2000), None));
        assert!(clock(100).is_some_and(|it| (1100..1110).contains(&it)), "{:?}", clock(100));
        assert_eq!(Course::default().at(at(3)), None);
    }

    #[test]
    fn unknown_and_old_metrics_add_nothing() {
        let mut course = Course::default();
        course.second(at(1), &Metrics::default());
        assert_eq!(course, Course::default());
        course.second(at(9), &metrics(1980, 0));
        course.second(at(8), &metrics(1, 0));
        assert_eq!(course.stretches().count(), 1);
        for far in [u64::MAX - 1, u64::MAX].into_iter().chain([u64::MAX; 900]) {
            course.second(Stamp(far), &metrics(1, 0));
        }
        assert!(course.stretches().count() <= STRETCHES + LATEST);
    }
}
