//! What is known: the fold over all events. Same events, same session; bounded whatever the run's length.

/// One device.
pub mod device;

/// One probed process.
pub mod process;

/// Where a process is in its life.
mod life;

/// Allocations that failed for good.
pub mod oom;

mod carried;
mod peers;

/// Who has a device's memory, by the driver's figures and the probes'.
pub mod attribution;

/// What is free between two readings of the driver, and how a device was when its jobs ended.
pub mod room;

/// Which lines allocated what grew.
pub mod sites;

/// The latest of something, bounded.
pub mod history;

/// The run of one process on one device, level by level.
pub mod timeline;

/// Devices that a process touches and does not train on.
pub mod contexts;

/// What was not seen.
pub mod losses;

use crate::facts::{
    event::{
        DeviceId, DeviceInfo, DriverState, Event, Fact, Line, ProbeId, ProcessInfo, ProcessUse,
        wire::{self, Hello},
    },
    text::Foreign,
    units::Stamp,
};
use carried::Room;
use device::{Device, Reading};
use history::Latest;
use losses::Losses;
use peers::Peers;
use process::{Life, OnDevice, Placed, Process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Devices kept at most.
pub const DEVICES: usize = 1024;

/// Probed processes kept at most.
pub const PROBES: usize = 1024;

/// Processes whose names are kept at most.
pub const PROCESS_INFO: usize = 4096;

/// Notices kept.
pub const NOTICES: usize = 32;

/// Everything that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The time of the latest event.
    pub now: Stamp,
    /// How NVML is; `None` before it was asked.
    pub driver: Option<DriverState>,
    /// The devices, those of NVML first, by its index.
    pub devices: Vec<Device>,
    /// The probed processes: the living first, by rank, then as they were found.
    pub processes: Vec<Process>,
    /// Who the processes on the devices are, by pid.
    pub process_info: BTreeMap<u32, ProcessInfo>,
    /// What a user should know.
    pub notices: Latest<Reading<Foreign>, NOTICES>,
    /// How the command that `gpuwatch run` started has ended.
    pub job: Option<JobEnd>,
    /// What was not seen, or is not kept any more.
    pub losses: Losses,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// When.
    pub at: Stamp,
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal number, if it died by one.
    pub signal: Option<i32>,
}

impl Session {
    /// Takes one event.
    pub fn apply(&mut self, event: &Event) {
        self.now = self.now.max(event.at);
        let at = event.at;
        match &event.fact {
            Fact::Second => {}
            Fact::Driver(state) => self.driver = Some(state.clone()),
            Fact::Device(info) => self.device_seen(info),
            Fact::DeviceGone { device } => self.with_device(device, |it| it.gone = Some(at)),
            Fact::Memory { device, reading } => self.with_device(device, |it| {
                if let Ok(memory) = reading {
                    it.history.push(at.0, memory.used.0);
                    it.room = Some(Room::new(at, memory.free.0));
                }
                it.memory = Some(Reading { at, value: reading.clone() });
            }),
            Fact::Load { device, load } => {
                self.with_device(device, |it| it.load = Some(Reading { at, value: *load }));
            }
            Fact::Processes { device, reading } => {
                self.with_device(device, |it| it.processes = Some(Reading { at, value: reading.clone() }));
                self.attribute_list(device, at);
            }
            Fact::Process(info) => {
                if self.process_info.len() < PROCESS_INFO || self.process_info.contains_key(&info.pid) {
                    self.process_info.insert(info.pid, info.clone());
                }
            }
            Fact::ProcessGone { pid } => {
                self.process_info.remove(pid);
            }
            Fact::ProbeFound { probe, pid, socket } => self.probe_found(*probe, *pid, socket, at),
            Fact::Probe { probe, line } => self.line(*probe, line, at),
            Fact::ProbeGone { probe, why } => {
                self.ends(*probe, at);
                if let Some(it) = self.process_mut(*probe)
                    && it.is_alive()
                {
                    it.life = Life::Gone { at, why: why.clone() };
                }
                self.sort();
            }
            Fact::Notice(text) => self.notices.push(Reading { at, value: text.clone() }),
            Fact::JobEnded { code, signal } => self.job = Some(JobEnd { at, code: *code, signal: *signal }),
            Fact::Unread { what, count } => self.losses.unread(*what, *count),
        }
    }

    /// The device with this UUID.
    pub fn device(&self, id: &DeviceId) -> Option<&Device> {
        self.devices.iter().find(|it| it.id == *id)
    }

    /// The probed process with this number.
    pub fn process(&self, probe: ProbeId) -> Option<&Process> {
        self.processes.iter().find(|it| it.probe == probe)
    }

    /// The probed processes of one device.
    pub fn on_device(&self, id: &DeviceId) -> impl Iterator<Item = (&Process, &OnDevice)> + use<'_> {
        self.probed(Some(id)).into_iter()
    }

    /// The probed processes of one device, or of all of them, in the order of the tables: where they were
    /// heard of, and where they can be nowhere else.
    pub fn probed(&self, device: Option<&DeviceId>) -> Vec<(&Process, &OnDevice)> {
        let heard = |process: &Process, it: &OnDevice| it.first.is_some() || process.devices.len() == 1;
        self.processes
            .iter()
            .flat_map(|process| process.devices.iter().map(move |it| (process, it)))
            .filter(|(process, it)| device.is_none_or(|id| it.device == *id) && heard(process, it))
            .collect()
    }

    /// The processes of one device, or of all of them, that only the driver knows; the largest first.
    pub fn unprobed(&self, device: Option<&DeviceId>) -> Vec<(&Device, ProcessUse)> {
        let mut out = Vec::new();
        for it in self.devices.iter().filter(|it| device.is_none_or(|id| it.id == *id)) {
            let own = self.probed(Some(&it.id));
            let list = it.process_list().unwrap_or_default().iter();
            let strangers = list.filter(|used| own.iter().all(|(process, _)| process.pid != Some(used.pid)));
            out.extend(strangers.map(|used| (it, *used)));
        }
        out.sort_by_key(|(_, used)| (std::cmp::Reverse(used.used), used.pid));
        out
    }

    fn process_mut(&mut self, probe: ProbeId) -> Option<&mut Process> {
        self.processes.iter_mut().find(|it| it.probe == probe)
    }

    fn with_device(&mut self, id: &DeviceId, change: impl FnOnce(&mut Device)) {
        if let Some(device) = self.devices.iter_mut().find(|it| it.id == *id) {
            change(device);
            return;
        }
        if self.devices.len() >= DEVICES {
            self.losses.devices.insert(id);
            return;
        }
        let mut device = Device::new(id.clone());
        change(&mut device);
        self.devices.push(device);
        self.devices.sort_by_key(|it| it.index.unwrap_or(u32::MAX));
    }

    fn device_seen(&mut self, info: &DeviceInfo) {
        self.with_device(&info.id, |it| {
            it.index = Some(info.index);
            it.name = info.name.clone();
            it.parent.clone_from(&info.parent);
            it.gone = None;
        });
        self.devices.sort_by_key(|it| it.index.unwrap_or(u32::MAX));
    }

    fn probe_found(&mut self, probe: ProbeId, pid: Option<u32>, socket: &Foreign, at: Stamp) {
        if let Some(known) = self.process_mut(probe) {
            known.pid = pid;
            known.socket = socket.clone();
            known.life = Life::Found;
        } else if self.has_room() {
            self.processes.push(Process::new(probe, pid, socket.clone(), at));
        } else {
            self.losses.processes.insert(&probe);
        }
        self.sort();
    }

    /// Makes room for one more probe, if need be: the ended one that has been silent longest goes. While all of them
    /// live a new one is refused, as probes that took turns would never be watched long enough to be judged.
    fn has_room(&mut self) -> bool {
        if self.processes.len() < PROBES {
            return true;
        }
        let ended = self.processes.iter().enumerate().filter(|(_, it)| !it.is_alive());
        let Some((oldest, _)) = ended.min_by_key(|(_, it)| it.heard) else { return false };
        self.processes.remove(oldest);
        self.losses.ended += 1;
        true
    }

    /// The living first, by rank, then as they were found: the order of every table.
    fn sort(&mut self) {
        self.processes.sort_by_key(|it| (!it.is_alive(), it.rank().unwrap_or(u64::MAX), it.probe));
    }

    fn line(&mut self, probe: ProbeId, line: &Line, at: Stamp) {
        if self.process_mut(probe).is_none() {
            // A captured stream begins with the hello: nobody found its probe.
            self.probe_found(probe, None, &Foreign::default(), at);
        }
        let peers = if let Line::Sample(it) = line { self.peers(probe, it) } else { Peers::default() };
        let tenancy = if let Line::Oom(it) = line { self.tenancy(probe, it.device) } else { None };
        let Some(process) = self.process_mut(probe) else { return };
        process.heard = process.heard.max(at);
        if matches!(process.life, Life::Incompatible { .. }) && !matches!(line, Line::Hello(_)) {
            return;
        }
        match line {
            Line::Hello(hello) => self.hello(probe, hello),
            Line::Sample(sample) => {
                let unnamed = || unnamed(probe, sample.device);
                let before = process.held(sample.device);
                match process.sample(sample, peers, unnamed) {
                    Placed::Known => {}
                    Placed::New => self.with_device(&unnamed(), |_| {}),
                    Placed::Nowhere => self.losses.samples += 1,
                }
                self.took(probe, sample, before);
            }
            Line::Mark(mark) => process.mark(mark),
            Line::Oom(oom) => {
                process.oom(oom, tenancy);
                self.room_at(probe, oom);
            }
            Line::OomMessage(it) => process.oom_message(it),
            Line::Sites(sites) => process.sites(sites),
            Line::Lost(lost) => process.lose(lost),
            Line::History(history) => process.stride = process.stride.max(history.stride),
            Line::Live(_) => process.life = Life::Live,
            Line::Bye(bye) => {
                self.ends(probe, at);
                let Some(process) = self.process_mut(probe) else { return };
                process.life = Life::Ended { at, reason: Foreign::new(bye.reason.clone()) };
                self.sort();
            }
            Line::Refused(it) => process.refused = Some(Foreign::new(&*it.reason)),
            Line::Unknown => {}
        }
    }

    fn hello(&mut self, probe: ProbeId, hello: &Hello) {
        let Some(process) = self.process_mut(probe) else { return };
        let known = hello.protocol == wire::PROTOCOL;
        process.life = match process.life {
            _ if !known => Life::Incompatible { protocol: hello.protocol },
            // Said again, as a device was added: the stream goes on.
            Life::Live => Life::Live,
            _ => Life::CatchingUp,
        };
        process.hello = Some(Box::new(hello.clone()));
        let mut named = Vec::new();
        for device in hello.devices.iter().take(if known { process::DEVICES } else { 0 }) {
            let id = device.uuid.clone().map_or_else(|| unnamed(probe, device.ordinal), DeviceId);
            process.name_device(device.ordinal, &id);
            named.push((id, device.name.clone()));
        }
        for (id, name) in named {
            self.with_device(&id, |it| {
                if let Some(name) = name.filter(|_| it.name.is_empty()) {
                    it.name = Foreign::new(name);
                }
            });
        }
        // A made-up name that this hello replaced stands for nothing any more.
        let processes = &self.processes;
        let in_use = |id: &DeviceId| processes.iter().any(|it| it.devices.iter().any(|its| its.device == *id));
        self.devices.retain(|it| !it.id.0.starts_with(MADE_UP) || in_use(&it.id));
        self.sort();
    }
}

/// How made-up names of devices begin; the driver's begin with `GPU-` or `MIG-`.
const MADE_UP: &str = "probe-";

/// The name of a device that its probe could not name: no other source can mean the same one.
fn unnamed(probe: ProbeId, ordinal: u32) -> DeviceId {
    DeviceId(format!("{MADE_UP}{}-device-{ordinal}", probe.0))
}
