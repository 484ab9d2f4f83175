//! Every analysis of one session, at its own now: one ladder per device, fragmentation and growth per process,
//! and what is wrong.

mod blame;
mod derive;
mod finding;
mod follow;
mod json;
mod words;

use crate::{
    facts::{
        event::{DeviceId, ProbeId},
        units::{Bytes, Stamp},
    },
    model::{
        analysis::{
            episode::Resource,
            fragmentation::{self, Fragmentation},
            ladder::{self, DeviceFigures, Ladder, OwnFigures},
        },
        session::{
            Session,
            device::Device,
            process::{OnDevice, Process},
        },
    },
};
pub use finding::{Finding, Identity, Kind, Standing};

/// What a session means.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Per device, in the session's order.
    pub devices: Vec<DeviceFindings>,
    /// What is wrong: the worst first, those that last before those that ended, then as they were raised.
    pub all: Vec<Finding>,
}

/// What is found for one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFindings {
    /// The device.
    pub device: DeviceId,
    /// Where its memory is.
    pub ladder: Ladder,
    /// Its probed processes, in the order of the ladder's owners.
    pub processes: Vec<ProcessFindings>,
    /// Processes that the driver lists and that no probe speaks for; `None` where there is no list.
    pub unprobed: Option<usize>,
    /// Whether the driver's process list speaks of another pid namespace than ours, so that its figures
    /// cannot be given to anyone.
    pub foreign_pids: bool,
}

/// What is found for one process on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessFindings {
    /// The probe.
    pub probe: ProbeId,
    /// The process's own number for the device.
    pub ordinal: u32,
    /// The driver's figure for it.
    pub driver_used: Option<Bytes>,
    /// How much of what it holds is not in use.
    pub fragmentation: Fragmentation,
    /// Whether samples are missing in what this rests on.
    pub approximate: bool,
    /// Whether it has ended, and its memory is still there.
    pub ended: bool,
}

/// Every analysis of one session.
pub fn findings(session: &Session) -> Findings {
    Findings { devices: session.devices.iter().map(|it| of_device(session, it)).collect(), all: derive::all(session) }
}

impl Findings {
    /// The findings of one device.
    pub fn device(&self, id: &DeviceId) -> Option<&DeviceFindings> {
        self.devices.iter().find(|it| it.device == *id)
    }

    /// Growth that lasts of what a process holds on a device: of its live allocations, else the fastest.
    pub fn growing(&self, probe: ProbeId, ordinal: u32) -> Option<&Finding> {
        let own = self.lasting_growth().filter(|it| it.probe == probe && it.ordinal == Some(ordinal));
        let own = own.filter(|it| it.resource != Some(Resource::Device));
        own.max_by(|one, other| {
            let is_live = |it: &Finding| it.resource == Some(Resource::Allocated);
            is_live(one).cmp(&is_live(other)).then(rate(one).total_cmp(&rate(other)))
        })
    }

    /// The fastest growth that lasts of what a process holds of the host's memory.
    pub fn growing_on_host(&self, probe: ProbeId) -> Option<&Finding> {
        let own = self.lasting_growth().filter(|it| it.probe == probe && it.ordinal.is_none());
        own.max_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    /// The fastest growth that lasts on a device: of a process that has not ended, or of nobody.
    pub fn growing_on(&self, device: &DeviceFindings) -> Option<&Finding> {
        let living = device.processes.iter().filter(|it| !it.ended);
        let own = living.filter_map(|it| self.growing(it.probe, it.ordinal));
        let is_nobodys =
            |it: &&Finding| it.resource == Some(Resource::Device) && it.device.as_ref() == Some(&device.device);
        own.chain(self.lasting_growth().filter(is_nobodys)).max_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    fn lasting_growth(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter().filter(|it| it.kind == Kind::Growth && it.is_active())
    }
}

fn rate(growth: &Finding) -> f64 {
    growth.bytes_per_step.unwrap_or(0.0)
}

/// Where the memory of one device is.
pub fn of_device(session: &Session, device: &Device) -> DeviceFindings {
    let list = device.process_list();
    // What ended leaves the ladder with what it held, and stays in the table. What has said nothing yet is to the ladder
    // what any other process is.
    let has_said = |it: &(&Process, &OnDevice)| it.1.first.is_some() && is_there(it.0, device);
    let own: Vec<_> = session.probed(Some(&device.id)).into_iter().filter(has_said).collect();
    let used_by = |pid: Option<u32>| list?.iter().find(|it| Some(it.pid) == pid);
    let strangers: Vec<_> = list
        .unwrap_or_default()
        .iter()
        .filter(|it| !own.iter().any(|(process, _)| process.pid == Some(it.pid)))
        .collect();
    let list_at = device.processes.as_ref().map_or(Stamp(0), |it| it.at);
    // A list older than the process's first sample cannot be expected to have it.
    let unmatched =
        own.iter().any(|(process, it)| it.first.is_some_and(|it| it < list_at) && used_by(process.pid).is_none());
    let foreign_pids = unmatched && !strangers.is_empty();
    let others = if foreign_pids || list.is_none() {
        None
    } else {
        strangers.iter().map(|it| it.used).try_fold(Bytes(0), |sum, used| Some(sum.plus(used?)))
    };
    let used_now = |process: &Process, on: &OnDevice| {
        let listed = used_by(process.pid).and_then(|it| it.used);
        let is_as_told = process.is_alive() || device.ended.is_some();
        if is_as_told { on.charge.now(listed) } else { listed }
    };
    let figures: Vec<_> = own
        .iter()
        .enumerate()
        .map(|(place, (process, it))| own_figures(process, it, charged(&own, place, used_now(process, it)), list_at))
        .collect();
    DeviceFindings {
        device: device.id.clone(),
        ladder: ladder::ladder(&device_figures(device, &own, others), &figures),
        processes: own.iter().map(|(process, it)| process_findings(process, it, used_now(process, it))).collect(),
        unprobed: list.map(|_| strangers.len()),
        foreign_pids,
    }
}

/// Whether a process has memory on a device: while it lives, while the driver still lists it, and where the device is shown
/// as it was when its jobs ended.
fn is_there(process: &Process, device: &Device) -> bool {
    let Some(end) = process.ended_at() else { return true };
    let is_listed = || device.process_list().is_some_and(|it| it.iter().any(|it| Some(it.pid) == process.pid));
    device.ended.is_some_and(|then| then <= end) || is_listed()
}

/// What the driver charges a process with is of all its allocators: the first of its probes on a device gets what the
/// others there do not hold, and these none of it, so that nothing counts twice.
fn charged(own: &[(&Process, &OnDevice)], place: usize, used: Option<Bytes>) -> Option<Bytes> {
    let pid = own.get(place)?.0.pid;
    let mut beside = own.iter().enumerate().filter(|(at, (it, _))| *at != place && it.pid == pid).peekable();
    if beside.peek().is_some_and(|(at, _)| *at < place) {
        return None;
    }
    // What another of its probes shows was taken since the driver's list, the list's figure does not have.
    let left =
        |left: u64, it: &OnDevice| left.saturating_add_signed(it.charge.taken()).checked_sub(it.counters.reserved?);
    beside.try_fold(used?.0, |sum, (_, (_, it))| left(sum, it)).map(Bytes)
}

/// The driver's figures; without them, what CUDA says inside a probed process.
fn device_figures(device: &Device, own: &[(&Process, &OnDevice)], others: Option<Bytes>) -> DeviceFigures {
    if let (Some(memory), Some(reading)) = (device.figures(), device.memory.as_ref()) {
        return DeviceFigures {
            at: reading.at,
            total: Some(memory.total),
            free: Some(memory.free),
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
        driver: None,
        others,
    }
}

fn own_figures(process: &Process, it: &OnDevice, driver_used: Option<Bytes>, driver_at: Stamp) -> OwnFigures {
    // The driver takes the memory of what ended piece by piece: of which rungs is not known.
    let held = it.counters.reserved;
    if !process.is_alive()
        && let Some(left) = driver_used.map(|it| it.0).filter(|left| held.is_some_and(|held| *left < held))
    {
        return OwnFigures { at: it.at, reserved: Some(left), driver_used, driver_at, ..OwnFigures::default() };
    }
    OwnFigures {
        at: it.at,
        requested: it.counters.requested,
        allocated: it.counters.allocated,
        active: it.counters.active,
        inactive_split: it.counters.inactive_split,
        reserved: it.counters.reserved,
        private_pools: it.counters.private_pools,
        expandable: is_expandable(process),
        driver_used,
        driver_at,
    }
}

fn process_findings(process: &Process, it: &OnDevice, driver_used: Option<Bytes>) -> ProcessFindings {
    let counters = &it.counters;
    ProcessFindings {
        probe: process.probe,
        ordinal: it.ordinal,
        driver_used,
        fragmentation: fragmentation::fragmentation(
            counters.reserved,
            counters.active,
            counters.inactive_split,
            is_expandable(process),
        )
        .beside_pools(counters.private_pools),
        approximate: process.stride > 1 || process.lost > 0,
        ended: !process.is_alive(),
    }
}

fn is_expandable(process: &Process) -> bool {
    fragmentation::is_expandable(process.hello.as_ref().and_then(|it| it.allocator_conf.as_deref()))
}
