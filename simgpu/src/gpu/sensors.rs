//! The sensors of a device. They depend only on the time and on the device's index, so that all processes read the
//! same, and they vary as in a training job. Nothing here is measured.

use super::{model::Model, state::Card};
use std::time::{SystemTime, UNIX_EPOCH};

/// Between two figures of the utilisation: real drivers have a new one every sixth of a second to every second.
const UTILISATION_MS: u64 = 200;
/// The same of the power.
const POWER_MS: u64 = 100;

/// Minimum percent that a device is busy while a process has memory on it, and the range above it.
const BUSY: u64 = 85;
const BUSIER: u64 = 14;

/// The highest clocks, and the SMs' without work.
pub(super) const SM_MHZ: u32 = 1980;
pub(super) const MEMORY_MHZ: u32 = 3201;
const RESTING_MHZ: u32 = 345;

/// Clocks go in steps of this.
const CLOCK_STEP_MHZ: u64 = 15;

/// Permille of its highest power that a board takes without work, at full utilisation beyond that, and in its own time.
const RESTING: u64 = 107;
const WORKING: u64 = 715;
const WAVERING: u64 = 43;

/// `nvmlClocksThrottleReasonGpuIdle`
const IDLE: u64 = 1;

/// A device at a moment.
pub(super) struct Sensors {
    works: bool,
    /// The highest power of the board, in mW.
    limit_mw: u64,
    index: u64,
    at_ms: u64,
}

impl Sensors {
    /// Returns the current readings.
    pub(super) fn now(card: &Card, index: usize) -> Self {
        Self::at(!card.tenants().is_empty(), power_limit(card), index, now_ms())
    }

    fn at(works: bool, limit_mw: u32, index: usize, at_ms: u64) -> Self {
        Self { works, limit_mw: u64::from(limit_mw), index: index as u64, at_ms }
    }

    /// Percent of the time in which something ran.
    pub(super) fn utilisation(&self) -> u32 {
        if !self.works {
            return 0;
        }
        let at = self.at_ms / UTILISATION_MS * UTILISATION_MS;
        // Phases of some seconds, and in them one step shorter than the other.
        let walk = self.drift(0, at, 5000) * 3 + self.drift(1, at, UTILISATION_MS);
        figure(BUSY + walk * BUSIER / 4000)
    }

    /// Milliwatts, always below the board's limit.
    pub(super) fn power(&self) -> u32 {
        let at = self.at_ms / POWER_MS * POWER_MS;
        let jitter = self.drift(2, at, POWER_MS);
        let of_limit = |permille: u64| self.limit_mw * permille / 1000;
        let resting = of_limit(RESTING) + of_limit(jitter) / 1400;
        if !self.works {
            return figure(resting);
        }
        let wavering = of_limit(WAVERING) * self.drift(3, at, 1500) / 1000;
        figure(resting + of_limit(WORKING) * u64::from(self.utilisation()) / 100 + wavering)
    }

    /// MHz of the SMs: a few steps below the highest while something runs.
    pub(super) fn sm_mhz(&self) -> u32 {
        if !self.works {
            return RESTING_MHZ;
        }
        SM_MHZ - figure(self.drift(5, self.at_ms, 2000) / 250 * CLOCK_STEP_MHZ)
    }

    /// What holds the clocks down, as NVML's bits.
    pub(super) fn throttle_reasons(&self) -> u64 {
        if self.works { 0 } else { IDLE }
    }

    /// KiB/s that go over PCIe, to the host or from it.
    pub(super) fn pcie_kib(&self, is_sent: bool) -> u32 {
        if !self.works {
            return 0;
        }
        let (sensor, least) = if is_sent { (6, 40_000) } else { (7, 400_000) };
        least + figure(self.drift(sensor, self.at_ms, POWER_MS) * 100)
    }

    /// KiB/s that go over all links of NVLink, sent or received: what the ranks of a job exchange.
    pub(super) fn nvlink_kib(&self, is_sent: bool) -> u64 {
        if !self.works {
            return 0;
        }
        60_000_000 + self.drift(if is_sent { 8 } else { 9 }, self.at_ms, 1000) * 40_000
    }

    /// Degrees: they follow the work of half a minute.
    pub(super) fn celsius(&self) -> u32 {
        if self.works { 62 + figure(self.drift(4, self.at_ms, 30_000) * 5 / 1000) } else { 35 }
    }

    /// 0 to 1000: a line from one drawn number to the next, a new one each `every_ms`.
    fn drift(&self, sensor: u64, at_ms: u64, every_ms: u64) -> u64 {
        let place = at_ms / every_ms;
        let drawn = |place: u64| scattered(scattered(self.index * 8 + sensor) ^ place) % 1001;
        let after = at_ms % every_ms;
        (drawn(place) * (every_ms - after) + drawn(place + 1) * after) / every_ms
    }
}

/// The highest power of a board, in mW.
pub(super) fn power_limit(card: &Card) -> u32 {
    Model::of(card.name()).watts * 1000
}

fn now_ms() -> u64 {
    now_us() / 1000
}

/// µs since 1970.
pub(super) fn now_us() -> u64 {
    let at_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_micros());
    u64::try_from(at_us).unwrap_or(0)
}

/// The end of the last period of the utilisation, µs of Unix time.
pub(super) fn period_us() -> u64 {
    now_ms() / UTILISATION_MS * UTILISATION_MS * 1000
}

/// Neighbouring numbers come out far apart (the finaliser of `splitmix64`).
fn scattered(number: u64) -> u64 {
    let mut it = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

fn figure(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The highest power of an H200, in mW.
    const LIMIT_MW: u32 = 700_000;

    /// A minute of a device.
    fn minute(index: usize) -> Vec<Sensors> {
        minute_below(LIMIT_MW, index)
    }

    fn minute_below(limit_mw: u32, index: usize) -> Vec<Sensors> {
        (0..600).map(|it| Sensors::at(true, limit_mw, index, 1_800_000_000_000 + it * 100)).collect()
    }

    #[test]
    fn a_device_at_work_moves_within_what_boards_do() {
        for index in 0..8 {
            let minute = minute(index);
            let utilisation: BTreeSet<u32> = minute.iter().map(Sensors::utilisation).collect();
            let power: BTreeSet<u32> = minute.iter().map(Sensors::power).collect();
            let warmth: Vec<u32> = minute.iter().map(Sensors::celsius).collect();
            assert!(utilisation.len() > 5 && utilisation.iter().all(|it| (85..=99).contains(it)), "{utilisation:?}");
            assert!(power.len() > 300 && power.iter().all(|it| (500_000..=605_000).contains(it)), "{power:?}");
            assert!(warmth.windows(2).all(|it| it[0].abs_diff(it[1]) <= 1), "{warmth:?}");
            assert!(warmth.iter().all(|it| (62..=67).contains(it)), "{warmth:?}");
            let clocks: BTreeSet<u32> = minute.iter().map(Sensors::sm_mhz).collect();
            assert!(clocks.len() > 2 && clocks.iter().all(|it| (1920..=SM_MHZ).contains(it)), "{clocks:?}");
            let sent: BTreeSet<u32> = minute.iter().map(|it| it.pcie_kib(true)).collect();
            assert!(sent.len() > 300, "{sent:?}");
            let linked: BTreeSet<u64> = minute.iter().map(|it| it.nvlink_kib(true)).collect();
            assert!(
                linked.len() > 300 && linked.iter().all(|it| (60_000_000..=100_000_000).contains(it)),
                "{linked:?}"
            );
        }
    }

    #[test]
    fn no_board_takes_more_than_its_own_limit() {
        for (name, limit_mw) in [("NVIDIA GeForce RTX 3060", 170_000), ("NVIDIA L4", 72_000), ("unknown", LIMIT_MW)] {
            assert_eq!(Model::of(name).watts * 1000, limit_mw, "{name}");
            let powers: Vec<u32> = minute_below(limit_mw, 0).iter().map(Sensors::power).collect();
            let is_busy = |it: &u32| (limit_mw / 10 * 7..limit_mw).contains(it);
            assert!(powers.iter().all(is_busy), "{name}: {powers:?}");
        }
    }

    #[test]
    fn every_process_reads_the_same_and_each_device_has_its_own() {
        let readings = |index| minute(index).iter().map(|it| (it.utilisation(), it.power())).collect::<Vec<_>>();
        assert_eq!(readings(3), readings(3));
        assert_ne!(readings(3), readings(4));
    }

    #[test]
    fn an_unused_device_rests() {
        let idle: Vec<Sensors> = (0..100).map(|it| Sensors::at(false, LIMIT_MW, 0, it * 100)).collect();
        let rests = |it: &Sensors| it.utilisation() == 0 && it.celsius() == 35 && it.power().abs_diff(75_150) <= 250;
        assert!(idle.iter().all(rests));
        let is_still = |it: &Sensors| {
            (it.sm_mhz(), it.throttle_reasons(), it.pcie_kib(true)) == (RESTING_MHZ, IDLE, 0)
                && it.nvlink_kib(true) == 0
        };
        assert!(idle.iter().all(is_still));
    }
}
