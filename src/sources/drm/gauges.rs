//! A device's metrics: which are due, and what has changed since they were last sent.

use super::{
    card::{Amount, Card, KernelDriver, Read},
    link,
};
use crate::facts::metrics::{Changes, Every, Metric, Metrics};
use std::{collections::BTreeMap, time::Duration};

/// The longest time between two readings that make a rate.
const RATE_OVER: Duration = Duration::from_secs(10);

/// Seconds between two facts with all metrics.
const WHOLE_EVERY: u64 = 60;

/// Returns everything that is read of a driver's devices.
pub(super) fn reads(driver: &KernelDriver) -> impl Iterator<Item = &'static Read> {
    driver.reads.iter().chain(link::READS)
}

/// A device's metrics, as last read and as last sent.
#[derive(Default)]
pub(super) struct Gauges {
    now: Metrics,
    sent: Option<Metrics>,
    /// The latest totals of energy, in µJ, and when they were that.
    totals: BTreeMap<Metric, (u64, Duration)>,
}

impl Gauges {
    /// Reads what is due in the device's so many-eth second. `now` is the time since any fixed moment.
    pub(super) fn read(&mut self, card: &Card, second: u64, now: Duration) {
        for read in reads(card.driver) {
            let every = read.metric.row().every;
            // None of the files is so slow that it is read only for the screen.
            let seconds = if every == Every::Watched { Every::TwoSeconds.seconds() } else { every.seconds() };
            if self.sent.is_some() && !second.is_multiple_of(seconds) {
                continue;
            }
            let value = match (read.value)(card) {
                Some(Amount::Now(value)) => Some(value),
                Some(Amount::Microjoules(total)) => self.milliwatts(read.metric, total, now),
                None => None,
            };
            self.now.set(read.metric, value);
        }
    }

    /// Forgets all values: the device sleeps.
    pub(super) fn clear(&mut self) {
        self.now = Metrics::default();
        self.totals.clear();
    }

    /// Returns the power since the total before; `None` for the first one, after a long time, and if it fell.
    fn milliwatts(&mut self, metric: Metric, total: u64, now: Duration) -> Option<u64> {
        let (before, then) = self.totals.insert(metric, (total, now))?;
        let time = now.checked_sub(then).filter(|it| *it <= RATE_OVER)?.as_micros();
        let more = u128::from(total.checked_sub(before)?);
        u64::try_from((more * 1000).checked_div(time)?).ok()
    }

    /// Returns what to send: the changes, and once a minute everything. `None` if there is nothing to send.
    pub(super) fn news(&mut self, second: u64) -> Option<Changes> {
        let before = self.sent.replace(self.now.clone());
        let Some(before) = before else { return Some(self.now.clone().into()) };
        let is_whole = second.is_multiple_of(WHOLE_EVERY);
        let changes = if is_whole { self.now.whole(&before) } else { self.now.since(&before) };
        Some(changes).filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_energy_over_time() {
        let mut gauges = Gauges::default();
        let mut power = |seconds, total| gauges.milliwatts(Metric::PowerMw, total, Duration::from_secs(seconds));
        assert_eq!([power(1, 5_000_000), power(2, 50_000_000), power(4, 50_000_000)], [None, Some(45_000), Some(0)]);
        assert_eq!([power(4, 60_000_000), power(5, 1), power(60, 9_000_000)], [None, None, None]);
    }
}
