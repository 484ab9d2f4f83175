//! Which devices there are: what the driver counts, compared with what was reported before.

use super::{EVENTS, Watch};
use crate::{
    facts::{
        event::{DeviceId, DeviceInfo, Fact},
        maker::Maker,
        metrics::Changes,
        text::Foreign,
    },
    sources::nvml::{
        metrics::Meter,
        reading::{Uses, info, trouble},
        watch::{Refusals, Watched},
    },
};
use nvml_wrapper::{Device, EventSet, bitmasks::event::EventTypes, error::NvmlError};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The time between the slow readings of two devices.
const STAGGER: Duration = Duration::from_millis(60);

/// A device at one place of the driver's list.
struct Found<'a> {
    /// Its description, under the name of its place where the driver does not identify it.
    info: DeviceInfo,
    device: Result<Device<'a>, NvmlError>,
}

impl<'a> Watch<'a> {
    /// Compares the driver's list of devices with the known ones. Every device that the driver counts is reported, also
    /// one that it gives no handle for, or no UUID.
    pub(super) fn list(&mut self, count: u32, devices: &mut BTreeMap<DeviceId, Watched<'a>>) {
        let mut seen = BTreeMap::new();
        for index in 0..count {
            let whole = self.whole(index);
            let parts = whole.device.as_ref().map_or_else(|_| Vec::new(), |it| self.mig_parts(it, &whole.info));
            let is_divided = !parts.is_empty();
            for found in [whole].into_iter().chain(parts) {
                let is_divided = is_divided && found.info.parent.is_none();
                match found.device {
                    Ok(device) => {
                        seen.insert(found.info.id.clone(), found.info.clone());
                        self.keep(devices, device, found.info, is_divided);
                    }
                    Err(error) => seen.extend(self.unidentified(devices, found.info, &error)),
                }
            }
        }
        devices.retain(|id, _| seen.contains_key(id));
        for device in self.listed.keys().filter(|it| !seen.contains_key(*it)) {
            self.news.set(true);
            self.sender.send_blocking(Fact::DeviceGone { device: device.clone() });
        }
        *self.listed = seen;
    }

    fn whole(&self, index: u32) -> Found<'a> {
        let device = self.call(|| self.nvml.device_by_index(index));
        self.found(device, DeviceId::by_index(index), index, None)
    }

    /// Describes a device, by the name of its place if it has no handle or no UUID.
    fn found(
        &self,
        device: Result<Device<'a>, NvmlError>,
        place: DeviceId,
        index: u32,
        parent: Option<DeviceId>,
    ) -> Found<'a> {
        let (name, error) = match device {
            Ok(device) => match self.call(|| info(&device, index, parent.clone())) {
                Ok(info) => return Found { info, device: Ok(device) },
                Err(error) => (self.call(|| device.name()).unwrap_or_default(), error),
            },
            Err(error) => (String::new(), error),
        };
        Found {
            info: DeviceInfo { id: place, index, name: Foreign::new(name), parent, maker: Maker::Nvidia },
            device: Err(error),
        }
    }

    /// Reports why the driver does not identify a device. One that was identified before keeps its name: a device that
    /// is lost keeps its place and loses its UUID. Returns which devices are at that place.
    fn unidentified(
        &self,
        devices: &BTreeMap<DeviceId, Watched<'a>>,
        unnamed: DeviceInfo,
        error: &NvmlError,
    ) -> Vec<(DeviceId, DeviceInfo)> {
        // Which of several MIG devices has lost its name is unknown, so only a whole device keeps it.
        let is_there = |it: &&DeviceInfo| unnamed.parent.is_none() && it.index == unnamed.index && !it.id.is_by_index();
        let mut there: Vec<DeviceInfo> = self.listed.values().filter(is_there).cloned().collect();
        if there.is_empty() {
            if !self.listed.contains_key(&unnamed.id) {
                self.news.set(true);
                self.sender.send_blocking(Fact::Device(unnamed.clone()));
            }
            there.push(unnamed);
        }
        self.troubled.set(true);
        let trouble = trouble(error);
        // A device with a handle reports its trouble itself, at each reading.
        for device in there.iter().map(|it| &it.id).filter(|it| !devices.contains_key(*it)) {
            let device = device.clone();
            self.sender.send_blocking(Fact::Memory { device: device.clone(), reading: Err(trouble.clone()) });
            self.sender.send_blocking(Fact::Processes { device: device.clone(), reading: Err(trouble.clone()) });
            self.sender.send_blocking(Fact::Metrics { device, changes: Changes::default() });
        }
        there.into_iter().map(|it| (it.id.clone(), it)).collect()
    }

    /// Returns the MIG devices of a divided device.
    fn mig_parts(&self, device: &Device<'a>, parent: &DeviceInfo) -> Vec<Found<'a>> {
        let divided = self.call(|| device.mig_mode()).is_ok_and(|it| it.current == 1);
        let slots = if divided { self.call(|| device.mig_device_count()).unwrap_or(0) } else { 0 };
        (0..slots)
            .filter_map(|slot| {
                let part = self.call(|| device.mig_device_by_index(slot));
                // A device has more slots than MIG devices.
                if matches!(part, Err(NvmlError::NotFound | NvmlError::InvalidArg)) {
                    return None;
                }
                let place = DeviceId::mig_by_index(parent.index, slot);
                Some(self.found(part, place, parent.index, Some(parent.id.clone())))
            })
            .collect()
    }

    fn keep(
        &self,
        devices: &mut BTreeMap<DeviceId, Watched<'a>>,
        device: Device<'a>,
        info: DeviceInfo,
        is_divided: bool,
    ) {
        let count = u32::try_from(devices.len()).unwrap_or(0);
        let known = devices.get_mut(&info.id);
        if !self.listed.contains_key(&info.id) || known.as_ref().is_some_and(|it| it.info != info) {
            self.news.set(true);
            self.sender.send_blocking(Fact::Device(info.clone()));
        }
        if let Some(known) = known {
            (known.info, known.is_divided) = (info, is_divided);
            return;
        }
        let watched = Watched {
            events: self.events_of(&device).filter(|_| info.parent.is_none()),
            slow_at: Instant::now() + count * STAGGER,
            second: u64::from(count),
            is_first: true,
            graphics: Vec::new(),
            meter: Meter::default(),
            uses: Uses::default(),
            pids: Vec::new(),
            device,
            info,
            is_divided,
            refusals: Refusals::default(),
        };
        devices.insert(watched.info.id.clone(), watched);
    }

    fn events_of(&self, device: &Device<'a>) -> Option<EventSet<'a>> {
        let supported = self.call(|| device.supported_event_types()).unwrap_or(EventTypes::CRITICAL_XID_ERROR);
        let set = self.call(|| self.nvml.create_event_set()).ok()?;
        self.call(|| device.register_events(EVENTS & supported, set)).ok()
    }
}
