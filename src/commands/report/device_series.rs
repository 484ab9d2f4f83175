//! Memory of a device over a whole run in a bounded number of points; each keeps its highest figures.

use crate::{
    facts::{
        event::{DeviceId, Event, Fact, Line, ProbeId},
        units::{Bytes, Stamp},
    },
    model::{
        analysis::{
            buckets::{Buckets, Merge},
            ladder::ByGap,
        },
        findings::of_device,
        session::{Session, device::Device},
    },
};
use std::collections::BTreeMap;

/// A long series has between half of this and this many points.
const POINTS: usize = 2000;

/// Most devices.
const DEVICES: usize = 64;

/// Memory at one instant, in bytes; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeriesPoint {
    /// The end of its interval.
    pub(super) at: Stamp,
    /// The number of the last reading that it stands for, from 0.
    reading: u64,
    /// The highest step by then.
    pub(super) step: Option<u64>,
    /// Live allocations of all probed processes together: the highest of the interval, like the other figures.
    pub(super) allocated: Option<u64>,
    /// Bytes that their allocators reserved.
    pub(super) reserved: Option<u64>,
    /// Free parts of split segments.
    pub(super) stuck: Option<u64>,
    /// Used memory of the device: the driver's figure, and what allocators took since.
    pub(super) used: Option<u64>,
    /// When the driver reported the figures that no probe has: other processes, and memory outside the allocators.
    pub(super) driver_at: Option<Stamp>,
    /// Whether memory ran out.
    pub(super) ran_out: bool,
    /// The ladder's gaps at the instant of the interval with the most allocated memory.
    pub(super) gaps: Gaps,
}

/// The size of each gap of the ladder; `None` if it is unknown or absent.
pub(super) type Gaps = ByGap<Option<u64>>;

impl SeriesPoint {
    /// Decides which ladder represents the interval.
    fn weight(&self) -> (bool, Option<u64>, Option<u64>) {
        (self.ran_out, self.allocated, self.used)
    }
}

impl Merge for SeriesPoint {
    fn place(&self) -> u64 {
        self.reading
    }

    fn merge(&mut self, later: &Self) {
        if later.weight() > self.weight() {
            (self.gaps, self.driver_at, self.ran_out) = (later.gaps, later.driver_at, later.ran_out);
        }
        self.at = later.at;
        self.reading = later.reading;
        self.step = self.step.max(later.step);
        self.allocated = self.allocated.max(later.allocated);
        self.reserved = self.reserved.max(later.reserved);
        self.stuck = self.stuck.max(later.stuck);
        self.used = self.used.max(later.used);
    }
}

/// The points of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct FigureSeries {
    /// In the order of time; one stands for as many readings as the stride.
    pub(super) points: Buckets<Vec<SeriesPoint>, POINTS>,
    readings: u64,
}

impl FigureSeries {
    /// Takes a reading; computes its ladder only where it is kept.
    fn push(&mut self, mut point: SeriesPoint, gaps: impl FnOnce() -> Gaps) {
        point.reading = self.readings;
        self.readings += 1;
        let newest = self.points.newest_at(point.reading);
        if newest.is_none_or(|newest| point.weight() > newest.weight()) {
            point.gaps = gaps();
        }
        self.points.push(point);
    }
}

/// The series of every device.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceSeries {
    /// By device.
    pub(super) devices: BTreeMap<DeviceId, FigureSeries>,
}

impl DeviceSeries {
    /// Applies an event that the session has already applied.
    pub(super) fn apply(&mut self, event: &Event, session: &Session) {
        let on = |probe: ProbeId, ordinal: u32| {
            let on = session.process(probe)?.devices.iter().find(|on| on.ordinal == ordinal);
            on.map(|on| &on.device)
        };
        // An error's own figures are from that very moment.
        let ran_out = event.line().is_some_and(|(_, line)| matches!(line, Line::Oom(_)));
        let device = match &event.fact {
            Fact::Memory { device, .. } => Some(device),
            Fact::Probe { probe, line } => line.device().and_then(|it| on(*probe, it)),
            _ => None,
        };
        let Some(device) = device else { return };
        if self.devices.len() < DEVICES || self.devices.contains_key(device) {
            let point = SeriesPoint { ran_out, ..now(session, device, event.at) };
            self.devices.entry(device.clone()).or_default().push(point, || gaps(session, device));
        }
    }
}

fn now(session: &Session, device: &DeviceId, at: Stamp) -> SeriesPoint {
    let mut point = SeriesPoint { at, ..SeriesPoint::default() };
    for (_, on) in session.on_device(device).filter(|(process, _)| process.is_alive()) {
        let add = |sum: &mut Option<u64>, value: Option<u64>| {
            *sum = value.map_or(*sum, |it| Some(sum.unwrap_or(0).saturating_add(it)));
        };
        add(&mut point.allocated, on.counters.allocated);
        add(&mut point.reserved, on.counters.reserved);
        add(&mut point.stuck, on.counters.inactive_split);
        point.step = point.step.max(on.step);
    }
    let device = session.device(device);
    point.used = device.and_then(Device::figures).map(|it| it.used).map(|Bytes(it)| it);
    point.driver_at = device.and_then(|it| it.processes.as_ref()).map(|it| it.at);
    point
}

fn gaps(session: &Session, device: &DeviceId) -> Gaps {
    let mut gaps = Gaps::default();
    let Some(known) = session.device(device) else { return gaps };
    for rung in of_device(session, known).ladder.by_gap() {
        gaps.set(rung.gap, rung.bytes.map(|Bytes(it)| it));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::analysis::ladder::Gap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_comes_points_are_bounded_in_order_and_keep_the_highest(values in prop::collection::vec(0_u64..1000, 1..20_000)) {
            let mut series = FigureSeries::default();
            for (at, value) in values.iter().enumerate() {
                let at = Stamp(at as u64);
                let point = SeriesPoint { at, allocated: Some(*value), step: Some(at.0), ..SeriesPoint::default() };
                let mut gaps = Gaps::default();
                gaps.set(Gap::Wanted, Some(*value));
                series.push(point, || gaps);
            }
            prop_assert!(series.points.all().len() <= POINTS);
            prop_assert!(series.points.all().windows(2).all(|it| it[0].at < it[1].at));
            let highest = series.points.all().iter().filter_map(|it| it.allocated).max();
            prop_assert_eq!(highest, values.iter().copied().max());
            prop_assert!(series.points.all().iter().all(|it| it.gaps.get(Gap::Wanted) == it.allocated), "the ladder of the highest");
            let last = series.points.all().last().unwrap();
            prop_assert_eq!(last.at.0, values.len() as u64 - 1);
            // All points cover the same number of readings, except the last.
            let mut at = 0;
            for point in &series.points.all()[..series.points.all().len() - 1] {
                prop_assert_eq!(point.at.0 + 1 - at, series.points.stride());
                at = point.at.0 + 1;
            }
        }
    }
}
