//! The session: the fold over all events. The same events give the same session, in bounded memory.

/// The course of a device's metrics.
pub mod course;

/// One device.
pub mod device;

/// One probed process.
pub mod process;

/// Out-of-memory errors.
pub mod oom;

/// Attributes a device's memory to processes.
pub mod attribution;
mod seconds;

/// Free memory between two readings of the driver, and a device's state when its jobs ended.
pub mod free_memory;

mod replays;

/// The levels of one process on one device over its run.
pub mod timeline;

/// Processes that hold device memory and do nothing.
pub mod idle;

/// The host's memory.
pub mod host_state;

/// What gpuwatch did not see.
pub mod losses;

use crate::facts::{
    event::{
        DeviceId, DeviceInfo, DriverState, Event, Fact, Line, ProbeId, ProcessInfo, ProcessUse, Surroundings,
        wire::{self, Hello},
    },
    figures::{Changes, Figure, Figures, Of},
    maker::Maker,
    text::Foreign,
    units::Stamp,
};
use device::FreeMemory;
use device::{Device, Reading};
use host_state::Host;
use idle::Holders;
use losses::Losses;
use process::{OnDevice, Peers, Placed, ProbeState, Process};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Most devices kept.
pub const DEVICES: usize = 1024;

/// Most probed processes kept.
pub const PROBES: usize = 1024;

/// Most process descriptions kept.
pub const PROCESS_INFO: usize = 4096;

/// Two processes with the same pid start further apart than this, in µs. A clock that is adjusted moves a start less.
const START_US: u64 = 2_000_000;

/// The listed start of a process is rounded to this, in µs.
const ROUNDED_US: u64 = 1_000_000;

/// Notices kept.
pub const NOTICES: usize = 32;

/// Everything gpuwatch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The time of the latest event.
    pub now: Stamp,
    /// The state of NVML; `None` before the first reading. Screens show that of [`Session::driver_shown`].
    pub driver: Option<DriverState>,
    /// The states of the kernel's drivers, for the makers that have devices here and are read without NVML.
    pub kernel_drivers: BTreeMap<Maker, DriverState>,
    /// What is on this machine, where that matters.
    pub surroundings: Option<Box<Surroundings>>,
    /// The devices: those that drivers list first, by maker and index.
    pub devices: Vec<Device>,
    /// The probed processes: living ones first, by rank, then in the order they were found.
    pub processes: Vec<Process>,
    /// Descriptions of the processes on the devices, by pid.
    pub process_info: BTreeMap<u32, ProcessInfo>,
    /// Figures of processes, by pid; only of those that a screen, a report or a recording needs.
    pub figures: BTreeMap<u32, ProcessFigures>,
    /// Notices for the user.
    pub notices: Latest<Reading<Foreign>, NOTICES>,
    /// How the command started by `gpuwatch run` ended.
    pub job: Option<JobEnd>,
    /// What gpuwatch did not see or no longer keeps.
    pub losses: Losses,
    /// The processes in the driver's lists, and for how long they have done nothing.
    pub holders: Holders,
    /// The host's memory.
    pub host: Host,
    /// The seconds that have been judged.
    judged_s: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// When it ended.
    pub at: Stamp,
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal number, if it died by one.
    pub signal: Option<i32>,
}

impl Session {
    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        self.pass(event);
        self.now = self.now.max(event.at);
        let at = event.at;
        match &event.fact {
            Fact::Second => {}
            Fact::Driver(state) => self.driver = Some(state.clone()),
            Fact::KernelDriver { maker, state } => {
                self.kernel_drivers.insert(*maker, state.clone());
            }
            Fact::Surroundings(it) => self.surroundings = Some(it.clone()),
            Fact::Device(info) => self.device_seen(info),
            // Only its place was known, and another device may have that from now on.
            Fact::DeviceGone { device } if device.is_by_index() => self.devices.retain(|it| it.id != *device),
            Fact::DeviceGone { device } => self.with_device(device, |it| it.gone = Some(at)),
            Fact::Memory { device, reading } => self.with_device(device, |it| {
                if let Ok(memory) = reading {
                    it.history.push(at.0, memory.used.0);
                    it.room = Some(FreeMemory::new(at, memory.free.0));
                }
                it.memory = Some(Reading { at, value: reading.clone() });
            }),
            Fact::Metrics { device, changes } => self.with_device(device, |it| it.changed(at, changes)),
            Fact::Processes { device, reading } => {
                self.with_device(device, |it| it.processes = Some(Reading { at, value: reading.clone() }));
                self.attribute_list(device, at);
            }
            Fact::Figures { pid, device, changes } => self.figures(*pid, device.as_ref(), changes),
            Fact::HostMemory(it) => self.host_memory(it, at),
            Fact::Process(info) => self.described(info),
            Fact::ProcessGone { pid } => {
                let gone = self.process_info.remove(pid);
                for it in self.processes.iter_mut().filter(|it| it.pid == Some(*pid) && it.user.is_none()) {
                    it.user = gone.as_ref().map(|it| it.user.clone());
                }
                self.figures.remove(pid);
            }
            Fact::ProbeFound { probe, pid, socket } => self.probe_found(*probe, *pid, socket, at),
            Fact::Probe { probe, line } => self.line(*probe, line, at),
            Fact::ProbeGone { probe, why } => {
                self.ends(*probe, at);
                if let Some(it) = self.process_mut(*probe)
                    && it.is_alive()
                {
                    it.life = ProbeState::Gone { at, why: why.clone() };
                }
                self.succeed(*probe);
                self.sort();
            }
            Fact::Notice(text) => self.notices.push(Reading { at, value: text.clone() }),
            Fact::Replayed(it) => {
                if let Some(process) = self.process_mut(it.probe).filter(|process| !process.has_replay(it)) {
                    process.replays.push(it.clone());
                }
            }
            Fact::PeakMoment(it) => {
                // The end of a part of a step says less than a whole one.
                if let Some(process) = self.process_mut(it.probe)
                    && (it.anatomy.step.is_some() || process.peak.as_ref().is_none_or(|old| old.anatomy.step.is_none()))
                {
                    process.peak = Some(it.clone());
                }
            }
            Fact::Advised(it) => {
                if let Some(process) = self.process_mut(it.probe) {
                    process.advised = Some(it.clone());
                }
            }
            Fact::JobEnded { code, signal } => self.job = Some(JobEnd { at, code: *code, signal: *signal }),
            Fact::Unread { what, count } => self.losses.unread(*what, *count),
            Fact::Gap(gap) => self.losses.gap(at, gap),
        }
    }

    /// Returns the state of the driver that matters most: one that has stalled, then NVML's. A machine with devices of
    /// other makers need not have NVML, unless devices of NVIDIA's are known on its bus.
    pub fn driver_shown(&self) -> Option<(Maker, &DriverState)> {
        let nvml = self.driver.as_ref().map(|it| (Maker::Nvidia, it));
        let mut others = self.kernel_drivers.iter().map(|(maker, it)| (*maker, it));
        let is_stalled = |it: &(Maker, &DriverState)| matches!(it.1, DriverState::Stalled { .. });
        if let Some(it) = nvml.into_iter().chain(others.clone()).find(is_stalled) {
            return Some(it);
        }
        let has_nvidia = self.surroundings.as_deref().and_then(|it| it.gpus).is_some_and(|it| it > 0);
        let matters = match nvml {
            Some((_, DriverState::Absent { .. })) => has_nvidia,
            Some((_, DriverState::Off)) | None => false,
            Some(_) => true,
        };
        nvml.filter(|_| matters).or_else(|| others.next()).or(nvml)
    }

    /// Returns the state of a maker's driver; `None` before the first reading.
    pub fn driver_of(&self, maker: Maker) -> Option<&DriverState> {
        if maker == Maker::Nvidia { self.driver.as_ref() } else { self.kernel_drivers.get(&maker) }
    }

    /// Returns the device with this UUID.
    pub fn device(&self, id: &DeviceId) -> Option<&Device> {
        self.devices.iter().find(|it| it.id == *id)
    }

    /// Returns the probed process with this number.
    pub fn process(&self, probe: ProbeId) -> Option<&Process> {
        self.processes.iter().find(|it| it.probe == probe)
    }

    /// Returns the probed processes of one device.
    pub fn on_device(&self, id: &DeviceId) -> impl Iterator<Item = (&Process, &OnDevice)> + use<'_> {
        self.probed(Some(id)).into_iter()
    }

    /// Returns the probed processes of one device, or of all, in table order: those that reported a device, and those
    /// that can be on no other. A process is listed once, with its latest probe; one whose probe has ended before it is
    /// among the unprobed while the driver lists it.
    pub fn probed(&self, device: Option<&DeviceId>) -> Vec<(&Process, &OnDevice)> {
        let is_on = |process: &Process, it: &OnDevice| it.first.is_some() || process.devices.len() == 1;
        self.processes
            .iter()
            .flat_map(|process| process.devices.iter().map(move |it| (process, it)))
            .filter(|(process, it)| device.is_none_or(|id| it.device == *id) && is_on(process, it))
            .filter(|(process, _)| process.next.is_none() && !self.continues(process))
            .collect()
    }

    /// Returns the processes of one device, or of all, that only the driver reports; largest first.
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

    /// Returns the latest probe of a process that continues without one, if its pid is this.
    pub fn left(&self, pid: u32) -> Option<&Process> {
        self.processes.iter().find(|it| it.pid == Some(pid) && it.next.is_none() && self.continues(it))
    }

    /// Returns whether a process continues without its probe: the driver still lists it, not another one by its pid.
    pub fn continues(&self, process: &Process) -> bool {
        process.has_left() && self.is_listed(process)
    }

    /// Returns whether the driver lists a process on any device.
    pub fn is_listed(&self, process: &Process) -> bool {
        let own = process.hello.as_ref().and_then(|it| it.start_us);
        let listed = process.pid.and_then(|it| self.process_info.get(&it)).and_then(|it| it.started_us);
        let is_another = own.zip(listed).is_some_and(|(own, its)| own.abs_diff(its) > START_US + ROUNDED_US);
        !is_another && self.devices.iter().any(|it| attribution::is_listed(process, it))
    }

    /// Returns why nothing can be done with a process that has ended and is still listed.
    pub fn zombie(&self, pid: u32) -> Option<String> {
        let info = self.process_info.get(&pid).filter(|it| it.ended)?;
        let parent = info.parent.map_or_else(|| "its parent".to_owned(), |it| format!("its parent, pid {it},"));
        Some(format!("pid {pid} has ended: no signal and no probe reach it; it is listed until {parent} waits for it"))
    }

    /// Joins a probe and those of the same process that ended before it.
    fn succeed(&mut self, probe: ProbeId) {
        let Some(own) = self.process(probe) else { return };
        let others = self.processes.iter().filter(|it| it.probe != probe && it.is_of_the_same(own));
        let (living, ended): (Vec<&Process>, Vec<_>) = others.partition(|it| it.is_alive());
        let (next, before) = if own.is_alive() {
            (None, ended.iter().map(|it| it.probe).collect())
        } else {
            (living.iter().map(|it| it.probe).max(), Vec::new())
        };
        let is_first = own.next.is_none();
        for it in &mut self.processes {
            if it.probe == probe {
                it.next = next;
            } else if before.contains(&it.probe) {
                it.next = Some(probe);
            }
        }
        if let Some(latest) = before.iter().max() {
            self.continue_timelines(probe, *latest, |it| it.first.is_none());
        }
        // The new probe was seen before the end of this one, and may have sent samples.
        if let Some(next) = next.filter(|_| is_first) {
            self.continue_timelines(next, probe, |_| true);
        }
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
        self.sort_devices();
    }

    fn device_seen(&mut self, info: &DeviceInfo) {
        self.with_device(&info.id, |it| {
            it.index = Some(info.index);
            it.name = info.name.clone();
            it.parent.clone_from(&info.parent);
            it.maker = info.maker;
            it.gone = None;
        });
        self.sort_devices();
    }

    fn sort_devices(&mut self) {
        self.devices.sort_by_key(|it| (it.index.is_none(), it.maker, it.index));
    }

    /// Takes a process's description. Of one that has ended, little is left to describe, so the earlier words stay.
    fn described(&mut self, info: &ProcessInfo) {
        let known = self.process_info.get_mut(&info.pid);
        if let Some(known) = known.filter(|it| info.ended && it.start_ticks == info.start_ticks) {
            known.ended = true;
        } else if self.process_info.len() < PROCESS_INFO || self.process_info.contains_key(&info.pid) {
            self.process_info.insert(info.pid, info.clone());
        }
    }

    fn probe_found(&mut self, probe: ProbeId, pid: Option<u32>, socket: &Foreign, at: Stamp) {
        if let Some(known) = self.process_mut(probe) {
            known.pid = pid;
            known.socket = socket.clone();
            known.life = ProbeState::Found;
        } else if self.has_room() {
            self.processes.push(Process::new(probe, pid, socket.clone(), at));
        } else {
            self.losses.processes.insert(&probe);
        }
        self.sort();
    }

    /// Makes room for one more probe, if necessary, by dropping the ended one that has been silent longest. While all
    /// are alive it refuses the new one: probes that replace each other would never be watched long enough.
    fn has_room(&mut self) -> bool {
        if self.processes.len() < PROBES {
            return true;
        }
        let ended = self.processes.iter().enumerate().filter(|(_, it)| !it.is_alive());
        let Some((oldest, _)) = ended.min_by_key(|(_, it)| it.last_line_at) else { return false };
        self.processes.remove(oldest);
        self.losses.ended += 1;
        true
    }

    /// Sorts processes as tables show them: living ones first, by rank, then in the order they were found.
    fn sort(&mut self) {
        self.processes.sort_by_key(|it| (!it.is_alive(), it.rank().unwrap_or(u64::MAX), it.probe));
    }

    fn line(&mut self, probe: ProbeId, line: &Line, at: Stamp) {
        if self.process_mut(probe).is_none() {
            // A captured stream begins with the hello and has no discovery.
            self.probe_found(probe, None, &Foreign::default(), at);
        }
        let peers = if let Line::Sample(it) = line { self.peers(probe, it) } else { Peers::default() };
        let tenancy = if let Line::Oom(it) = line { self.tenancy(probe, it.device) } else { None };
        let Some(process) = self.process_mut(probe) else { return };
        process.last_line_at = process.last_line_at.max(at);
        if matches!(process.life, ProbeState::Incompatible { .. }) && !matches!(line, Line::Hello(_)) {
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
            Line::Live(_) => process.life = ProbeState::Live,
            Line::Bye(bye) => {
                self.ends(probe, at);
                let Some(process) = self.process_mut(probe) else { return };
                process.stall.finish(at);
                process.life = ProbeState::Ended { at, reason: Foreign::new(bye.reason.clone()) };
                self.succeed(probe);
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
            _ if !known => ProbeState::Incompatible { protocol: hello.protocol },
            // A repeated hello, because a device was added; the stream continues.
            ProbeState::Live => ProbeState::Live,
            _ => ProbeState::CatchingUp,
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
        self.succeed(probe);
        // Drop the generated names that this hello replaced.
        let processes = &self.processes;
        let in_use = |id: &DeviceId| processes.iter().any(|it| it.devices.iter().any(|its| its.device == *id));
        self.devices.retain(|it| !it.id.0.starts_with(MADE_UP) || in_use(&it.id));
        self.sort();
    }

    /// Applies changes of a process's figures, and forgets a process without any.
    fn figures(&mut self, pid: u32, device: Option<&DeviceId>, changes: &Changes) {
        if self.figures.len() >= PROCESS_INFO && !self.figures.contains_key(&pid) {
            return;
        }
        let known = self.figures.entry(pid).or_default();
        known.apply(device, changes);
        if *known == ProcessFigures::default() {
            self.figures.remove(&pid);
        }
    }
}

/// Prefix of generated device names; the driver's begin with `GPU-` or `MIG-`.
const MADE_UP: &str = "probe-";

/// The generated name of a device whose UUID its probe does not know; no other source can mean the same device.
fn unnamed(probe: ProbeId, ordinal: u32) -> DeviceId {
    DeviceId(format!("{MADE_UP}{}-device-{ordinal}", probe.0))
}

/// The known figures of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// Those of the host.
    pub host: Figures,
    /// Those of each device.
    pub devices: BTreeMap<DeviceId, Figures>,
}

impl ProcessFigures {
    /// Returns a figure; one that belongs to a device is that of this device.
    pub fn get(&self, figure: Figure, device: &DeviceId) -> Option<u64> {
        match figure.row().of {
            Of::Device => self.devices.get(device)?.get(figure),
            Of::Host | Of::Tree => self.host.get(figure),
        }
    }

    fn apply(&mut self, device: Option<&DeviceId>, changes: &Changes) {
        let Some(device) = device else { return self.host.apply(changes) };
        if self.devices.len() >= process::DEVICES && !self.devices.contains_key(device) {
            return;
        }
        let figures = self.devices.entry(device.clone()).or_default();
        figures.apply(changes);
        if *figures == Figures::default() {
            self.devices.remove(device);
        }
    }
}

/// The latest `N` items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latest<T, const N: usize> {
    kept: VecDeque<T>,
    gone: u64,
}

impl<T, const N: usize> Default for Latest<T, N> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), gone: 0 }
    }
}

impl<T, const N: usize> Latest<T, N> {
    /// Adds an item and drops the oldest if the list is full.
    pub fn push(&mut self, item: T) {
        if self.kept.len() >= N {
            self.kept.pop_front();
            self.gone += 1;
        }
        self.kept.push_back(item);
    }

    /// Returns the items, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.kept.iter()
    }

    /// Returns the newest item.
    pub fn last(&self) -> Option<&T> {
        self.kept.back()
    }

    /// Returns the newest item that matches, mutably.
    pub fn newest_mut(&mut self, is_of_it: impl Fn(&T) -> bool) -> Option<&mut T> {
        self.kept.iter_mut().rev().find(|it| is_of_it(it))
    }

    /// Returns how many items were dropped.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_by_process_and_device_until_they_are_gone() {
        let mut session = Session::default();
        let [one, other] = ["GPU-1", "GPU-2"].map(|it| DeviceId(it.to_owned()));
        let busy: Figures = [(Figure::SmPercent, 34)].into_iter().collect();
        let host: Figures = [(Figure::Rss, 9)].into_iter().collect();
        session.figures(7, Some(&one), &busy.clone().into());
        session.figures(7, None, &host.clone().into());
        let known = &session.figures[&7];
        let of = |figure, device| known.get(figure, device);
        assert_eq!((of(Figure::SmPercent, &one), of(Figure::SmPercent, &other)), (Some(34), None));
        assert_eq!((of(Figure::Rss, &other), of(Figure::Threads, &one)), (Some(9), None));
        session.figures(7, Some(&one), &Figures::default().since(&busy));
        assert_eq!(session.figures[&7].devices.len(), 0);
        session.figures(7, None, &Figures::default().since(&host));
        assert!(session.figures.is_empty(), "a process without figures takes no memory");
    }

    #[test]
    fn the_oldest_goes_and_is_counted() {
        let mut latest = Latest::<u32, 2>::default();
        for it in 0..5 {
            latest.push(it);
        }
        assert_eq!(latest.iter().copied().collect::<Vec<_>>(), [3, 4]);
        assert_eq!((latest.last(), latest.gone()), (Some(&4), 3));
    }
}
