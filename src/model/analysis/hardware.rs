//! Hardware that slows a job down or needs service, from the driver's metrics of its device, one second at a time.
//!
//! Each condition is a latch whose waits are seconds. What is normal for a healthy device raises nothing: an idle
//! device lowers its clocks and the generation of its link, and a device at its power limit runs a little below its
//! highest clock.

use super::{
    cause::Cause,
    latch::{Band, Latch, LatchPeriod, Patience},
};
use crate::facts::{
    metrics::{Metric, Metrics, Throttle},
    units::Stamp,
};
use serde::{Deserialize, Serialize};

/// Waits for conditions that come and go.
const LASTING: Patience = Patience { on: 60, off: 120 };

/// Waits for conditions that the driver reports for good.
const AT_ONCE: Patience = Patience { on: 2, off: 2 };

/// Share of the highest clock that is lost at the power limit.
const CLOCK_LOST: (f64, f64) = (0.25, 0.15);

/// Percent from which on a device is so busy that its link runs at full speed.
const BUSY: u64 = 50;

/// The conditions of one device, as one process sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    thermal: Latch,
    power: Latch,
    brake: Latch,
    link: Latch,
    rows: Latch,
}

impl Hardware {
    /// Applies the metrics of one more second.
    pub fn second(&mut self, metrics: &Metrics, step: u64, at: Stamp) {
        let get = |metric| metrics.get(metric);
        if let Some(bits) = get(Metric::ThrottleReasons) {
            let is_hot = Throttle::Thermal.is_in(bits) || Throttle::HardwareThermal.is_in(bits);
            let is_braked = Throttle::PowerBrake.is_in(bits)
                || Throttle::Hardware.is_in(bits) && !Throttle::HardwareThermal.is_in(bits);
            let celsius = get(Metric::CelsiusNow).map_or(0.0, |it| it as f64);
            self.thermal.step(LASTING, (band(is_hot), celsius), step, at);
            self.brake.step(LASTING, (band(is_braked), 0.0), step, at);
            if let Some(lost) = lost(get(Metric::SmMhz), get(Metric::SmMaxMhz)) {
                let is_capped = Throttle::PowerCap.is_in(bits);
                let band = if is_capped { Band::of(lost, CLOCK_LOST.0, CLOCK_LOST.1) } else { Band::Low };
                self.power.step(LASTING, (band, if is_capped { lost } else { 0.0 }), step, at);
            }
        }
        if let Some((band, lost)) = link(metrics) {
            self.link.step(LASTING, (band, lost), step, at);
        }
        if let Some(pending) = get(Metric::RowsPending) {
            let is_due = pending != 0 || get(Metric::RowsFailed).is_some_and(|it| it != 0);
            let replaced = get(Metric::RowsUncorrected).map_or(0.0, |it| it as f64);
            self.rows.step(AT_ONCE, (band(is_due), replaced), step, at);
        }
    }

    /// Returns the problems: cause, time, and highest measure (degrees, a share that is lost, replaced rows; 0 if
    /// unknown).
    pub fn spells(&self) -> impl Iterator<Item = (Cause, &LatchPeriod)> {
        [
            (Cause::ThermalThrottling, &self.thermal),
            (Cause::PowerThrottling, &self.power),
            (Cause::PowerBrake, &self.brake),
            (Cause::DegradedLink, &self.link),
            (Cause::RowsPending, &self.rows),
        ]
        .into_iter()
        .flat_map(|(cause, latch)| latch.spells().iter().map(move |it| (cause, it)))
    }
}

fn band(is_high: bool) -> Band {
    if is_high { Band::High } else { Band::Low }
}

/// Returns the share of the most that is missing.
fn lost(now: Option<u64>, most: Option<u64>) -> Option<f64> {
    let most = most.filter(|it| *it > 0)?;
    Some(1.0 - (now?.min(most) as f64 / most as f64))
}

/// Returns whether the PCIe link is slower than it can be, and the share of its bandwidth that is missing. Each
/// generation doubles the bandwidth of a lane.
fn link(metrics: &Metrics) -> Option<(Band, f64)> {
    let get = |metric| metrics.get(metric);
    let narrow = lost(get(Metric::PcieWidth), get(Metric::PcieWidthMax))?;
    let generations = get(Metric::PcieGeneration).zip(get(Metric::PcieGenerationMax));
    let behind = generations.map_or(0, |(now, most)| most.saturating_sub(now)).min(8);
    let is_busy = get(Metric::GpuPercent).is_some_and(|it| it >= BUSY);
    let missing = 1.0 - (1.0 - narrow) / f64::from(1_u32 << behind);
    Some(match (narrow > 0.0, behind > 0) {
        (true, _) => (Band::High, if is_busy { missing } else { narrow }),
        (false, true) if is_busy => (Band::High, missing),
        // The device may have lowered it to save power.
        (false, true) => (Band::Between, 0.0),
        (false, false) => (Band::Low, 0.0),
    })
}
