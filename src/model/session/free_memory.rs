//! Free memory on a device between two readings of the driver, and the device's state when its jobs ended.
//!
//! gpuwatch queries the driver at most once a second, and a job may take many GiB in that time. The latest reading of
//! any source gives the free memory: the driver, CUDA inside a process, or an out-of-memory error. What allocators took
//! since is subtracted, sample by sample.
//!
//! A process's total in the driver's list is carried forward in the same way, so that the ladder describes one instant.
//! When a device's last process ends, its state is kept (`Device::before`); at the end of a recording a replay shows
//! that (`Session::as_it_ended`).

use super::{
    Session,
    device::{Device, FreeMemory, StateBefore},
    process::Process,
    timeline::Counted,
};
use crate::facts::{
    event::{
        DeviceId, ProbeId,
        wire::{Oom, Sample},
    },
    units::Stamp,
};

/// A device is shown as it was when its jobs ended only for this long afterwards, in µs.
const LATELY_US: u64 = 60_000_000;

/// Samples further apart than this do not show when memory was taken, in µs.
const SPARSE_US: u64 = 250_000;

impl Session {
    /// Subtracts what a sample shows that the allocator took from the device's free memory. `before` is what the
    /// allocator held earlier, and when.
    pub(super) fn took(&mut self, probe: ProbeId, sample: &Sample, before: Option<(Stamp, u64)>) {
        let at = Stamp(sample.at_us);
        let Some(process) = self.processes.iter_mut().find(|it| it.probe == probe) else { return };
        let pid = process.pid;
        let Some(on) = process.devices.iter_mut().find(|it| it.ordinal == sample.device) else { return };
        let Some(device) = self.devices.iter_mut().find(|it| it.id == on.device) else { return };
        device.before = None;
        if let Some(now) = on.counters.reserved {
            let listed = device.process_list().and_then(|list| list.iter().find(|it| Some(it.pid) == pid)?.used);
            // The process may have taken the memory in its first sample before the driver's reading.
            let (then, before) = before.unwrap_or_else(|| (at, listed.map_or(now, |it| it.0.min(now))));
            // If samples are far apart, the memory was taken before the reading, unless the driver's figure is too
            // small for it.
            let is_sparse = at.since(then) > SPARSE_US && listed.is_none_or(|it| it.0 >= now);
            let timeline = &on.timeline;
            let taken_since = |reading: Stamp, counted: Option<Counted>| {
                let is_between = then <= reading;
                let at_reading = counted.filter(|_| is_between).and_then(|it| timeline.reserved_at(it, before, now));
                let since = at_reading.unwrap_or(if is_sparse && is_between { now } else { before });
                if at > reading { now.cast_signed().saturating_sub(since.cast_signed()) } else { 0 }
            };
            // For a process found after the list, its backlog arrives after the list too.
            let list_at = device.processes.as_ref().map_or(Stamp(0), |it| it.at).max(on.driver_use.listed_at());
            let of_process = taken_since(list_at, listed.map(|it| Counted::Listed(it.0)));
            let memory = device.memory.as_ref().and_then(|it| Some((it.at, it.value.as_ref().ok()?.used.0)));
            let of_device = device.room.map(|room| {
                let counted = memory.filter(|it| it.0 == room.at).map(|it| Counted::Used(it.1));
                taken_since(room.at, counted)
            });
            on.driver_use.take(of_process);
            if let (Some(room), Some(taken)) = (device.room.as_mut(), of_device) {
                room.taken = room.taken.saturating_add(taken);
            }
        }
        if let Some(free) = sample.counters.device_free {
            FreeMemory::note(&mut device.room, at, free);
        }
    }

    /// An error reports how much memory was free.
    pub(super) fn room_at(&mut self, probe: ProbeId, oom: &Oom) {
        let Some(free) = oom.device_free else { return };
        let Some(id) = self.device_of(probe, oom.device) else { return };
        self.with_device(&id, |it| FreeMemory::note(&mut it.room, Stamp(oom.at_us), free));
    }

    /// A process ends: keeps the state of its devices, unless another one ended since their last sample.
    pub(super) fn ends(&mut self, probe: ProbeId, at: Stamp) {
        let Some(process) = self.processes.iter().find(|it| it.probe == probe && it.is_alive()) else { return };
        for on in process.devices.iter().filter(|it| it.first.is_some()) {
            if let Some(device) = self.devices.iter_mut().find(|it| it.id == on.device && it.before.is_none()) {
                let Device { memory, processes, room, .. } = device.clone();
                device.before = Some(Box::new(StateBefore { at, memory, processes, room }));
            }
        }
    }

    /// Returns the session with its devices as they were when the last job on them ended, if that was recent, because
    /// the driver then frees a job's memory piece by piece. `None` if no job ended.
    pub fn as_it_ended(&self) -> Option<Self> {
        let is_on = |process: &Process, it: &Device| process.devices.iter().any(|on| on.device == it.id);
        let has_ended = |it: &Device| {
            let is_late = it.before.as_ref().is_some_and(|before| self.now.since(before.at) <= LATELY_US);
            let is_used = self.processes.iter().any(|process| self.continues(process) && is_on(process, it));
            is_late && !is_used && self.on_device(&it.id).all(|(process, _)| !process.is_alive())
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
    /// Returns the bytes that its allocator holds on a device, and when that was sampled.
    pub(super) fn held(&self, ordinal: u32) -> Option<(Stamp, u64)> {
        let on = self.devices.iter().find(|it| it.ordinal == ordinal)?;
        Some((on.at, on.counters.reserved?))
    }
}
