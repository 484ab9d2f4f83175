//! The peaks of each device, followed event by event.

use crate::{
    facts::{
        event::{
            DeviceId, Event, Fact, Line, ProbeId,
            wire::{Edge, Sample},
        },
        units::Bytes,
    },
    model::{
        analysis::fragmentation,
        session::{DEVICES, PROBES, Session, device::Device},
    },
};
use std::collections::BTreeMap;

/// Buckets of one percent each.
const HUNDREDTHS: usize = 101;

/// A share of stuck memory counts if at least one step in this many exceeds it.
const RARE: u64 = 10;

/// The peaks of every device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks {
    /// By device; at most as many as a session has.
    pub devices: BTreeMap<DeviceId, DevicePeaks>,
}

/// The peaks of one device; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DevicePeaks {
    /// The device's total.
    pub total: Option<Bytes>,
    /// Live allocations of all probed processes together.
    pub allocated: Option<Bytes>,
    /// Bytes that their allocators reserved.
    pub reserved: Option<Bytes>,
    /// Bytes in use by any process: from the driver's readings, and between them from the probes.
    pub used: Option<Bytes>,
    /// For each percentage of reserved bytes stuck in split segments, the number of steps.
    stuck: BTreeMap<ProbeId, Stucks>,
}

#[derive(Clone, Debug, PartialEq)]
struct Stucks {
    steps: u64,
    at: [u64; HUNDREDTHS],
    /// Reserved bytes where the counts began, and the most.
    begun: u64,
    most: u64,
}

impl Peaks {
    /// Applies an event that the session has already applied.
    pub fn apply(&mut self, event: &Event, session: &Session) {
        match &event.fact {
            Fact::Memory { device, reading: Ok(memory) } if session.device(device).is_some() => {
                self.devices.entry(device.clone()).or_default().total = Some(memory.total);
                self.used(device, session);
            }
            Fact::Probe { probe, line } => {
                if let Line::Sample(sample) = &**line {
                    self.sample(*probe, sample, session);
                }
                let Some(ordinal) = line.device() else { return };
                let of_probe =
                    session.process(*probe).and_then(|it| it.devices.iter().find(|device| device.ordinal == ordinal));
                if let Some(on) = of_probe {
                    self.used(&on.device, session);
                }
            }
            _ => {}
        }
    }

    /// Updates the bytes in use now, from the driver, probes and errors.
    fn used(&mut self, device: &DeviceId, session: &Session) {
        let used = session.device(device).and_then(Device::figures).map(|it| it.used);
        if let Some(it) = self.devices.get_mut(device) {
            // An allocator's own peak may lie between two readings.
            it.used = it.used.max(used.and(it.reserved)).max(used);
        }
    }

    fn sample(&mut self, probe: ProbeId, sample: &Sample, session: &Session) {
        let Some(process) = session.process(probe) else { return };
        let Some(on) = process.devices.iter().find(|it| it.ordinal == sample.device) else { return };
        let (mut allocated, mut reserved) = (0_u64, 0_u64);
        for (_, its) in session.on_device(&on.device).filter(|(it, _)| it.is_alive()) {
            allocated = allocated.saturating_add(its.counters.allocated.unwrap_or(0));
            reserved = reserved.saturating_add(its.counters.reserved.unwrap_or(0));
        }
        let counters = &sample.counters;
        if self.devices.len() >= DEVICES && !self.devices.contains_key(&on.device) {
            return;
        }
        let it = self.devices.entry(on.device.clone()).or_default();
        let hello = process.hello.as_ref();
        let in_hello = || hello?.devices.iter().find(|it| it.ordinal == sample.device)?.total;
        it.total = it.total.or_else(|| counters.device_total.or_else(in_hello).map(Bytes));
        // The allocator reports its own peaks between two samples; those of several allocators may be from different
        // instants.
        let highest = |old: Option<Bytes>, now: Option<u64>, together: u64, peak: Option<u64>| {
            let now = now.map(|_| Bytes(together));
            old.max(now).max(peak.map(Bytes))
        };
        it.allocated = highest(it.allocated, counters.allocated, allocated, counters.allocated_peak);
        it.reserved = highest(it.reserved, counters.reserved, reserved, counters.reserved_peak);
        let conf = hello.and_then(|it| it.allocator_conf.as_deref());
        let gauge = fragmentation::fragmentation(counters, fragmentation::is_expandable(conf));
        let has_room = it.stuck.len() < PROBES || it.stuck.contains_key(&probe);
        if let Some(share) = gauge.stuck_share().filter(|_| sample.edge != Edge::Tick && has_room) {
            it.stuck.entry(probe).or_default().add(share, counters.reserved.unwrap_or(0));
        }
    }
}

impl DevicePeaks {
    /// Returns the share of reserved bytes, from 0 to 1, that was stuck in at least a tenth of the steps, for the
    /// process with the most; `None` if it cannot be measured. Steps in which the allocator held little beside what it
    /// held later do not count.
    pub fn fragmentation(&self) -> Option<f64> {
        self.stuck.values().filter_map(Stucks::often).reduce(f64::max)
    }
}

impl Default for Stucks {
    fn default() -> Self {
        Self { steps: 0, at: [0; HUNDREDTHS], begun: 0, most: 0 }
    }
}

impl Stucks {
    fn add(&mut self, share: f64, reserved: u64) {
        self.most = self.most.max(reserved);
        // A large part of little is little.
        if self.most / 2 > self.begun {
            *self = Self { begun: self.most, most: self.most, ..Self::default() };
        }
        if reserved < self.most / 2 {
            return;
        }
        let place = usize::try_from(crate::facts::units::whole(share * 100.0)).unwrap_or(0).min(HUNDREDTHS - 1);
        if let Some(count) = self.at.get_mut(place) {
            *count += 1;
            self.steps += 1;
        }
    }

    /// The highest share that at least a tenth of the steps reach.
    fn often(&self) -> Option<f64> {
        let mut above = 0;
        let (hundredths, _) = self.at.iter().enumerate().rev().find(|(_, count)| {
            above += **count;
            above > 0 && above.saturating_mul(RARE) >= self.steps
        })?;
        Some(hundredths as f64 / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stuck_of_little_does_not_count() {
        let mut it = Stucks::default();
        (0..50).for_each(|_| it.add(0.4, 50 << 20));
        assert_eq!(it.often(), Some(0.4));
        (0..50).for_each(|step| it.add(0.01, (60 + step * 30) << 20));
        assert_eq!(it.often(), Some(0.01), "it held 1.5 GiB later");
        (0..20).for_each(|_| it.add(0.3, 200 << 20));
        assert_eq!(it.often(), Some(0.01), "it gave most of it back");
        (0..20).for_each(|_| it.add(0.2, 1500 << 20));
        assert_eq!(it.often(), Some(0.2));
    }
}
