//! Attributes a device's memory to processes: joins the driver's figures with the probes'.
//!
//! The driver counts by device and by pid; a probe counts what one allocator holds. This module joins the two: for the
//! ladder ([`Session::attribution`]), for growth and the timeline (whenever the driver lists processes), and for
//! errors.

use super::{
    Session,
    device::{Device, DriverUse, ROUNDING},
    oom::Tenancy,
    process::{OnDevice, Process},
    timeline::DriverReading,
};
use crate::{
    facts::{
        event::{DeviceId, ProbeId, ProcessUse, wire::Sample},
        text::Foreign,
        units::{Bytes, Stamp},
    },
    model::analysis::{
        growth::Observation,
        ladder::{DeviceFigures, OwnFigures},
        oom::{self, Tenant},
        strain,
    },
};
use std::collections::BTreeMap;

/// A device's memory by process.
#[derive(Debug)]
pub struct Attribution<'s> {
    /// The device's own figures.
    pub device: DeviceFigures,
    /// Its probed processes, in the order of the tables.
    pub own: Vec<Own<'s>>,
    /// Number of processes that the driver lists without a probe; `None` if there is no list.
    pub unprobed: Option<usize>,
    /// Whether the driver's list has pids of another namespace, so that its figures cannot be attributed.
    pub foreign_pids: bool,
}

/// A probed process's memory on a device.
#[derive(Debug)]
pub struct Own<'s> {
    /// The process, as the session has it.
    pub process: &'s Process,
    /// Its state on the device.
    pub on: &'s OnDevice,
    /// The bytes that the driver reports for it, carried forward to now.
    pub driver_used: Option<Bytes>,
    /// The ladder's input.
    pub figures: OwnFigures,
}

impl Session {
    /// Attributes a device's used memory to its processes.
    pub fn attribution<'s>(&'s self, device: &'s Device) -> Attribution<'s> {
        let list = device.process_list();
        // The ladder drops the memory of an ended process, while the table keeps the process. Until a process's first
        // sample, the ladder counts it among the others.
        let has_sample = |it: &(&Process, &OnDevice)| it.1.first.is_some() && is_there(it.0, device);
        let own: Vec<_> = self.probed(Some(&device.id)).into_iter().filter(has_sample).collect();
        let used_by = |pid: Option<u32>| list?.iter().find(|it| Some(it.pid) == pid);
        let is_probed = |it: &ProcessUse| own.iter().any(|(process, _)| process.pid == Some(it.pid));
        let strangers: Vec<_> = list.unwrap_or_default().iter().filter(|it| !is_probed(it)).collect();
        let list_at = device.processes.as_ref().map_or(Stamp(0), |it| it.at);
        // A list older than the process's first sample cannot contain it.
        let unmatched = own
            .iter()
            .any(|(process, on)| on.first.is_some_and(|first| first < list_at) && used_by(process.pid).is_none());
        let foreign_pids = unmatched && !strangers.is_empty();
        let others = if foreign_pids || list.is_none() {
            None
        } else {
            strangers.iter().map(|it| it.used).try_fold(Bytes(0), |sum, used| Some(sum.plus(used?)))
        };
        let figures = device_figures(device, &own, others);
        let used_now = |process: &Process, on: &OnDevice| {
            let listed = used_by(process.pid).and_then(|it| it.used);
            let is_current = process.is_alive() || device.ended.is_some();
            let used = if is_current { on.driver_use.now(listed) } else { listed };
            used.map(|used| unrounded(used, &figures))
        };
        let attributed = own.iter().enumerate().map(|(place, (process, on))| {
            let driver_used = used_now(process, on);
            let figures = own_figures(process, on, attributed_to(&own, place, driver_used), list_at);
            Own { process, on, driver_used, figures }
        });
        Attribution {
            own: attributed.collect(),
            unprobed: list.map(|_| strangers.len()),
            foreign_pids,
            device: figures,
        }
    }

    /// Applies a new list of a device's processes from the driver.
    pub(super) fn attribute_list(&mut self, id: &DeviceId, at: Stamp) {
        for process in self.processes.iter_mut().filter(|it| it.is_alive()) {
            for it in process.devices.iter_mut().filter(|it| it.device == *id) {
                it.driver_use = DriverUse { at, ..DriverUse::default() };
            }
        }
        self.attribute_growth(id, at);
        self.attribute_timeline(id);
    }

    /// Attributes the driver's figures to the listed processes: what each has beyond its allocator, and, to the first
    /// of them, the growth of unprobed memory on the device.
    fn attribute_growth(&mut self, id: &DeviceId, at: Stamp) {
        let Some(device) = self.devices.iter().find(|it| it.id == *id) else { return };
        let Some(list) = device.process_list() else { return };
        let used = device.figures().map(|it| it.used.0);
        let (mut attributed, mut beyond) = (0_u64, BTreeMap::<u32, Option<u64>>::new());
        for (pid, used) in list.iter().filter_map(|it| Some((it.pid, it.used?.0))) {
            let own = self.processes.iter().filter(|it| it.is_alive() && it.pid == Some(pid));
            let here: Vec<_> = own.flat_map(|it| &it.devices).filter(|it| it.device == *id).collect();
            if !here.is_empty() {
                attributed = attributed.saturating_add(used);
            }
            // The figure covers all allocators of the process, so only the first of its probes watches it. Of a single
            // one, the next sample shows how much it had at the reading.
            let held: Vec<_> = here.iter().filter(|it| it.first.is_some()).map(|it| it.counters.reserved).collect();
            let left = || held.iter().try_fold(used, |left, held| left.checked_sub((*held)?));
            beyond.insert(pid, if held.len() > 1 { left() } else { None });
        }
        let mut outside = used.and_then(|it| it.checked_sub(attributed));
        let here = self.processes.iter().filter(|it| it.is_alive());
        let here = here.flat_map(|it| it.devices.iter().map(move |on| (it.probe, on))).filter(|it| it.1.device == *id);
        let wants: Vec<(ProbeId, u64)> = here.map(|(probe, on)| (probe, wanted(on))).collect();
        for process in self.processes.iter_mut().filter(|it| it.is_alive()) {
            if let Some((step, is_foreign)) = is_foreign(process, id, &self.devices, &wants) {
                let entry = list.iter().find(|it| Some(it.pid) == process.pid);
                process.contexts.listed(id, entry, is_foreign, step, at);
            }
        }
        for process in self.processes.iter_mut().filter(|it| it.is_alive()) {
            let Some(beyond) = process.pid.and_then(|it| beyond.get_mut(&it)) else { continue };
            for it in process.devices.iter_mut().filter(|it| it.device == *id && it.first.is_some()) {
                let driver = beyond.take();
                it.observe(&Observation { at, driver, device: outside.take(), ..Observation::default() });
            }
        }
    }

    /// Continues the timelines of a process's earlier probe on those devices of the new one that `which` accepts.
    pub(super) fn continue_timelines(&mut self, probe: ProbeId, before: ProbeId, which: fn(&OnDevice) -> bool) {
        let Some(earlier) = self.process(before) else { return };
        let Some(start) = self.process(probe).and_then(attached_at).or_else(|| earlier.ended_at()) else { return };
        let runs: Vec<_> = earlier.devices.iter().map(|it| (it.device.clone(), it.timeline.clone())).collect();
        let Some(own) = self.process_mut(probe) else { return };
        for it in own.devices.iter_mut().filter(|it| which(it)) {
            if let Some((_, run)) = runs.iter().find(|(device, _)| *device == it.device) {
                it.timeline.continue_from(run, start);
            }
        }
    }

    /// Gives each timeline on a device the memory that the driver reports around the allocator.
    fn attribute_timeline(&mut self, id: &DeviceId) {
        let Some(device) = self.devices.iter().find(|it| it.id == *id) else { return };
        let Some(used) = device.figures().map(|it| it.used.0) else { return };
        let list = device.process_list().unwrap_or_default();
        let living = self.processes.iter().filter(|it| it.is_alive());
        let allocates = |process: &&Process| process.devices.iter().any(|it| it.device == *id && it.first.is_some());
        let allocators: Vec<_> = living.filter(allocates).map(|it| it.pid).collect();
        for process in self.processes.iter_mut().filter(|it| it.is_alive()) {
            let is_only = allocators.iter().filter(|it| **it == process.pid).count() <= 1;
            let listed = list.iter().find(|it| Some(it.pid) == process.pid).and_then(|it| it.used).map(|it| it.0);
            for it in process.devices.iter_mut().filter(|it| it.device == *id && it.first.is_some()) {
                let Some(reserved) = it.counters.reserved else { continue };
                it.timeline.attribute(DriverReading { listed, used, reserved, is_only });
            }
        }
    }

    /// Returns the driver's figure for a process on one of its devices, and the other processes there, largest first;
    /// `None` without a list or with pids of another namespace.
    pub(super) fn tenancy(&self, probe: ProbeId, ordinal: u32) -> Option<Tenancy> {
        let process = self.process(probe)?;
        let device = &process.devices.iter().find(|it| it.ordinal == ordinal)?.device;
        let list = self.device(device)?.process_list()?;
        let own = list.iter().find(|it| Some(it.pid) == process.pid)?;
        let others = list.iter().filter(|it| it.pid != own.pid);
        let tenant = |it: &ProcessUse| {
            let program = self.process_info.get(&it.pid).and_then(|info| info.argv.first());
            let name = program.and_then(|path| path.raw().rsplit('/').next()).unwrap_or_default();
            Tenant { pid: it.pid, name: Foreign::new(name), used: it.used }
        };
        let mut tenants: Vec<_> = others.map(tenant).collect();
        tenants.sort_by_key(|it| (std::cmp::Reverse(it.used), it.pid));
        Some(Tenancy { own: own.used, others: tenants })
    }

    /// Returns what the other probed processes reserved on a sample's device, if this process watches the device: the
    /// first process does, and only while the driver's list is missing.
    pub(super) fn reserved_by_others(&self, probe: ProbeId, sample: &Sample) -> Option<u64> {
        sample.counters.device_free?;
        let own = self.process(probe)?;
        let device = &own.devices.iter().find(|it| it.ordinal == sample.device)?.device;
        if self.device(device).is_some_and(|it| is_listed(own, it)) {
            return None;
        }
        let others = self.processes.iter().filter(|it| it.probe != probe && it.is_alive());
        let mut sum = 0_u64;
        for (other, it) in others.flat_map(|it| it.devices.iter().map(move |its| (it, its))) {
            if it.device == *device && it.first.is_some() {
                if other.probe < probe {
                    return None;
                }
                sum = sum.saturating_add(it.counters.reserved?);
            }
        }
        Some(sum)
    }
}

impl Process {
    /// Takes a process's total on the device from the text of its error.
    pub(super) fn attribute_error(&mut self, ordinal: u32) {
        let Some(oom) = self.ooms.iter().rev().find(|it| it.reported.device == ordinal) else { return };
        let at = Stamp(oom.reported.at_us);
        let in_error = oom.reported.message.as_deref().and_then(|it| oom::parse(it).process);
        let on = self.devices.iter_mut().find(|it| it.ordinal == ordinal && it.driver_use.at <= at);
        if let Some((it, in_error)) = on.map(|it| &mut it.driver_use).zip(in_error) {
            it.in_error = Some((Bytes(in_error), it.taken));
        }
    }
}

/// Whether a process has memory on a device: while it is alive, while the driver still lists it, or if the device is
/// shown as it was when its jobs ended.
fn is_there(process: &Process, device: &Device) -> bool {
    let Some(end) = process.ended_at() else { return true };
    device.ended.is_some_and(|then| then <= end) || is_listed(process, device)
}

/// Whether the driver lists a process on a device.
pub(super) fn is_listed(process: &Process, device: &Device) -> bool {
    device.process_list().is_some_and(|list| list.iter().any(|it| Some(it.pid) == process.pid))
}

/// Splits the driver's figure for a process among its probes: the first one on a device gets what the others do not
/// hold, and the others get nothing, so that nothing counts twice.
fn attributed_to(own: &[(&Process, &OnDevice)], place: usize, used: Option<Bytes>) -> Option<Bytes> {
    let pid = own.get(place)?.0.pid;
    let mut companions = own.iter().enumerate().filter(|(at, (it, _))| *at != place && it.pid == pid).peekable();
    if companions.peek().is_some_and(|(at, _)| *at < place) {
        return None;
    }
    // The list's figure lacks what the process's other probes took since the list.
    let left =
        |left: u64, it: &OnDevice| left.saturating_add_signed(it.driver_use.taken()).checked_sub(it.counters.reserved?);
    companions.try_fold(used?.0, |sum, (_, (_, it))| left(sum, it)).map(Bytes)
}

/// Returns the driver's figures, or without them what CUDA reports inside a probed process.
fn device_figures(device: &Device, own: &[(&Process, &OnDevice)], others: Option<Bytes>) -> DeviceFigures {
    if let (Some(memory), Some(reading)) = (device.figures(), device.memory.as_ref()) {
        return DeviceFigures {
            at: reading.at,
            total: Some(memory.total),
            free: Some(memory.free),
            cache: memory.unified.map(|it| it.cache),
            driver: memory.reserved,
            others,
        };
    }
    let latest = own
        .iter()
        .filter(|(_, it)| it.counters.device_total.is_some())
        .max_by_key(|(_, it)| it.device_at)
        .map(|(_, it)| *it);
    DeviceFigures {
        at: latest.map_or(Stamp(0), |it| it.device_at),
        total: latest.and_then(|it| it.counters.device_total).map(Bytes),
        free: device.room.filter(|_| latest.is_some()).map(|it| Bytes(it.free())),
        cache: None,
        driver: None,
        others,
    }
}

/// Returns a process's total as at most what the device has in use, if it exceeds that by no more than the rounding of
/// a framework's message.
fn unrounded(used: Bytes, device: &DeviceFigures) -> Bytes {
    let free = device.free.map(|it| it.plus(device.driver.unwrap_or_default()));
    let most = device.total.zip(free).and_then(|(total, free)| total.checked_sub(free));
    most.filter(|it| *it < used && used.0 - it.0 <= ROUNDING).unwrap_or(used)
}

fn own_figures(process: &Process, it: &OnDevice, driver_used: Option<Bytes>, driver_at: Stamp) -> OwnFigures {
    // The driver frees the memory of an ended process piece by piece; how much of each rung remains is unknown.
    let held = it.counters.reserved;
    if !process.is_alive()
        && let Some(left) = driver_used.map(|it| it.0).filter(|left| held.is_some_and(|held| *left < held))
    {
        return OwnFigures { at: it.at, reserved: Some(left), driver_used, driver_at, ..OwnFigures::default() };
    }
    OwnFigures { driver_used, driver_at, ..it.figures(&it.counters, process.is_expandable(), it.at) }
}

/// A process does not train on a device where it wants less than its largest device's share of this many parts, and
/// another process wants that much more.
const STRAY: u64 = 64;

/// Returns the most that a process wanted of a device; 0 if it is unknown.
fn wanted(on: &OnDevice) -> u64 {
    strain::wanted(&on.counters).unwrap_or(0)
}

/// Returns a training process's steps, and whether a device is one that it does not train on, where processes want as
/// much as `wants` has. `None` before its first step, and if one of its own devices has no UUID, because that may be
/// this device.
fn is_foreign(process: &Process, id: &DeviceId, devices: &[Device], wants: &[(ProbeId, u64)]) -> Option<(u64, bool)> {
    let step = process.devices.iter().filter_map(|it| it.step).max()?;
    let most = process.devices.iter().map(wanted).max().unwrap_or(0);
    // A tensor made before the job chose its device leaves counters there as well.
    let is_stray = |it: &OnDevice| {
        let much = wanted(it).saturating_mul(STRAY);
        let others = wants.iter().filter(|other| other.0 != process.probe);
        it.device == *id && much < most && others.map(|other| other.1).any(|other| much < other)
    };
    let mut trains = false;
    for it in process.devices.iter().filter(|it| it.first.is_some()) {
        let named = devices.iter().find(|its| its.id == it.device && its.index.is_some())?;
        trains |= it.device == *id && !is_stray(it) || named.parent.as_ref() == Some(id);
    }
    Some((step, !trains))
}

/// Returns when a process's probe was started, if that was in a running job.
fn attached_at(process: &Process) -> Option<Stamp> {
    let hello = process.hello.as_ref()?;
    let ago = hello.unix_us.checked_sub(hello.attached_us?)?;
    hello.monotonic_us.checked_sub(ago).map(Stamp)
}
