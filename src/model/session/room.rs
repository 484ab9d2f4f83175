//! What is free on a device between two readings of the driver, and what was known of it when its jobs ended.
//!
//! The driver is asked once a second at most, and a job may take many GiB in that time. Whoever spoke last says what was
//! free: the driver, CUDA inside of a process, or an out-of-memory error. What allocators took since is subtracted.
//!
//! `session::room` keeps what is free on a device: the latest word of the driver, of CUDA inside of a process or of an
//! error, less what allocators took since, sample by sample. A process's total in the driver's list is carried forward
//! in the same way, so that the ladder is of one instant. When a device's last process ends, what was known of it then
//! is kept (`Device::before`); at the end of a recording a replay shows that (`Session::as_it_ended`).

use super::{
    Session,
    carried::Room,
    device::{Before, Device},
    process::Process,
};
use crate::facts::{
    event::{
        DeviceId, ProbeId,
        wire::{Oom, Sample},
    },
    units::Stamp,
};

/// After the end of its jobs a device is shown as it was before for so long, µs: what comes later is another story.
const LATELY_US: u64 = 60_000_000;

/// Samples further apart than this do not say when something was taken, µs.
const SPARSE_US: u64 = 250_000;

impl Session {
    /// Takes from a device's room what a sample shows that the allocator took; `before` is what it held before, and when.
    pub(super) fn took(&mut self, probe: ProbeId, sample: &Sample, before: Option<(Stamp, u64)>) {
        let at = Stamp(sample.at_us);
        let Some(process) = self.processes.iter_mut().find(|it| it.probe == probe) else { return };
        let pid = process.pid;
        let Some(on) = process.devices.iter_mut().find(|it| it.ordinal == sample.device) else { return };
        let Some(device) = self.devices.iter_mut().find(|it| it.id == on.device) else { return };
        device.before = None;
        if let Some(now) = on.counters.reserved {
            let listed = device.process_list().and_then(|it| it.iter().find(|it| Some(it.pid) == pid)?.used);
            // What its first sample shows, it may have had before the driver was asked.
            let (then, before) = before.unwrap_or_else(|| (at, listed.map_or(now, |it| it.0.min(now))));
            // Between samples that lie far apart it was taken before the driver was asked, unless the driver's figure has no
            // room for it.
            let is_sparse = at.since(then) > SPARSE_US && listed.is_none_or(|it| it.0 >= now);
            let is_after = |reading: Stamp| at > reading && !(is_sparse && then <= reading);
            let taken = now.cast_signed().saturating_sub(before.cast_signed());
            // Of a process that was found after the list, the past comes after it too.
            if is_after(on.driver_use.listed_at()) && device.processes.as_ref().is_none_or(|list| is_after(list.at)) {
                on.driver_use.take(taken);
            }
            if let Some(room) = device.room.as_mut().filter(|it| is_after(it.at)) {
                room.taken = room.taken.saturating_add(taken);
            }
        }
        if let Some(free) = sample.counters.device_free {
            Room::hear(&mut device.room, at, free);
        }
    }

    /// An error says what was free when it came.
    pub(super) fn room_at(&mut self, probe: ProbeId, oom: &Oom) {
        let Some(free) = oom.device_free else { return };
        let Some(id) = self.device_of(probe, oom.device) else { return };
        self.with_device(&id, |it| Room::hear(&mut it.room, Stamp(oom.at_us), free));
    }

    /// A process ends: what was known of its devices is kept, unless another one ended since their last sample.
    pub(super) fn ends(&mut self, probe: ProbeId, at: Stamp) {
        let Some(process) = self.processes.iter().find(|it| it.probe == probe && it.is_alive()) else { return };
        for on in process.devices.iter().filter(|it| it.first.is_some()) {
            if let Some(device) = self.devices.iter_mut().find(|it| it.id == on.device && it.before.is_none()) {
                let Device { memory, processes, room, .. } = device.clone();
                device.before = Some(Box::new(Before { at, memory, processes, room }));
            }
        }
    }

    /// The session with the devices as they were when the last job on them ended, where that was lately: afterwards the
    /// driver takes a job's memory apart piece by piece. `None` where no job ended.
    pub fn as_it_ended(&self) -> Option<Self> {
        let has_ended = |it: &Device| {
            let is_late = it.before.as_ref().is_some_and(|before| self.now.since(before.at) <= LATELY_US);
            is_late && self.on_device(&it.id).all(|(process, _)| !process.is_alive())
        };
        let ended: Vec<_> = self.devices.iter().filter(|it| has_ended(it)).map(|it| it.id.clone()).collect();
        if ended.is_empty() {
            return None;
        }
        let mut out = self.clone();
        for device in out.devices.iter_mut().filter(|it| ended.contains(&it.id)) {
            let Some(before) = device.before.take() else { continue };
            (device.memory, device.processes, device.room) = (before.memory, before.processes, before.room);
            device.ended = Some(before.at);
        }
        Some(out)
    }

    fn device_of(&self, probe: ProbeId, ordinal: u32) -> Option<DeviceId> {
        let on = self.process(probe)?.devices.iter().find(|it| it.ordinal == ordinal)?;
        Some(on.device.clone())
    }
}

impl Process {
    /// What its allocator holds on a device, and since when that is known.
    pub(super) fn held(&self, ordinal: u32) -> Option<(Stamp, u64)> {
        let on = self.devices.iter().find(|it| it.ordinal == ordinal)?;
        Some((on.at, on.counters.reserved?))
    }
}
