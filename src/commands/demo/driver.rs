//! The simulated driver of the demo's devices, and the memory of their host; all figures are derived from the probes'.

use crate::facts::{
    event::{
        Ancestor, DeviceId, DeviceInfo, DeviceMemory, DriverState, Event, Fact, Line, ProbeId, ProcessInfo, ProcessUse,
        wire::Hello,
    },
    figures::Figure,
    host_memory::{HostMemory, JobMemory, MachineMemory, Pages, Room, TreeMemory},
    maker::Maker,
    metrics::{Metric, Throttle},
    text::Foreign,
    units::{Bytes, Stamp},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Bytes of one simulated device.
pub(super) const TOTAL: u64 = 150_754_820_096;

const MIB: u64 = 1 << 20;
/// A context and the libraries' own memory, per process and device.
const CONTEXT: u64 = 560 * MIB;
/// Host memory of the processes that a rank has started.
const LOADER: u64 = 4 * 1024 * MIB;
/// How many these are, and what of their memory is batches on the way to the rank.
const WORKERS: u64 = 4;
const BATCHES: u64 = 512 * MIB;
/// Memory of a rank that files back: its libraries.
const LIBRARIES: u64 = 900 * MIB;
/// The host's memory, what the kernel holds of it, what other programs do, and the files that it has cached.
const HOST_TOTAL: u64 = 512 * 1024 * MIB;
const HOST_KERNEL: u64 = 6 * 1024 * MIB;
const HOST_OTHERS: u64 = 9 * 1024 * MIB;
const HOST_CACHE: u64 = 140 * 1024 * MIB;
/// The driver's own reserve.
const RESERVE: u64 = 627 * MIB;
/// Another tenant, on one device: a pid that no process can have.
const TENANT_PID: u32 = 4_194_305;
const TENANT_BYTES: u64 = 9_216 * MIB;
const TENANT_DEVICE: usize = 1;
/// The parent of the ranks: no process has this pid either.
const LAUNCHER_PID: u32 = TENANT_PID + 1;

/// A device that runs into its power cap from time to time, for so many seconds of so many. It is short enough to slow
/// nothing down.
const CAPPED_DEVICE: usize = 2;
const CAPPED_EVERY_S: u64 = 45;
const CAPPED_S: u64 = 12;

/// Metrics that never change. A device of this kind has no fan.
const STEADY: [(Metric, u64); 29] = [
    (Metric::EncoderPercent, 0),
    (Metric::DecoderPercent, 0),
    (Metric::SmMaxMhz, 1980),
    (Metric::MemoryMhz, 3201),
    (Metric::MemoryMaxMhz, 3201),
    (Metric::PerformanceState, 0),
    (Metric::PowerLimitMw, 700_000),
    (Metric::SlowdownCelsius, 87),
    (Metric::ShutdownCelsius, 92),
    (Metric::MemoryCelsius, 66),
    (Metric::PcieGeneration, 5),
    (Metric::PcieGenerationMax, 5),
    (Metric::PcieWidth, 16),
    (Metric::PcieWidthMax, 16),
    (Metric::PcieReplays, 0),
    (Metric::NvlinksActive, 18),
    (Metric::Nvlinks, 18),
    (Metric::NvlinkErrors, 0),
    (Metric::EccErrors, 0),
    (Metric::EccErrorsEver, 0),
    (Metric::EccCorrected, 0),
    (Metric::RowsCorrected, 0),
    (Metric::RowsUncorrected, 0),
    (Metric::RowsPending, 0),
    (Metric::RowsFailed, 0),
    (Metric::Bar1Used, 4 * MIB),
    (Metric::Persistence, 1),
    (Metric::ComputeMode, 0),
    (Metric::Mig, 0),
];

const MEMORY_EVERY_US: u64 = 250_000;

/// Returns the most bytes that the first job on a device can reserve there.
pub(super) fn room(index: u32) -> u64 {
    let others = if index as usize == TENANT_DEVICE { TENANT_BYTES } else { 0 };
    TOTAL - RESERVE - CONTEXT - others
}

/// The rate at which figures follow changes at once.
pub(super) const FASTEST: Duration = Duration::from_millis(100);

/// The simulated driver.
#[derive(Default)]
pub(super) struct Driver {
    started: bool,
    pids: BTreeMap<ProbeId, u32>,
    /// Per device and process, the bytes that its allocator holds.
    devices: BTreeMap<DeviceId, BTreeMap<u32, u64>>,
    /// Device of each probe's ordinal.
    ordinals: BTreeMap<(ProbeId, u32), DeviceId>,
    /// Per process, its resident host memory, as its probe reports it.
    resident: BTreeMap<u32, u64>,
    /// The processes that are described.
    described: BTreeSet<u32>,
    read_at: Stamp,
    /// The least time between two readings, in µs.
    pause: u64,
    /// Whether memory has changed since the last reading.
    stale: bool,
}

impl Driver {
    /// Sets the refresh rate.
    pub(super) fn read_every(&mut self, pace: Duration) {
        let pace = if pace > FASTEST { pace } else { Duration::ZERO };
        self.pause = u64::try_from(pace.as_micros()).unwrap_or(u64::MAX);
    }

    /// Returns the driver's events that follow an event.
    pub(super) fn after(&mut self, event: &Event) -> Vec<Event> {
        let mut facts = Vec::new();
        if !self.started {
            self.started = true;
            facts.push(Fact::Driver(DriverState::Up { version: Some("demo".into()) }));
            facts.push(Fact::Notice("demo: the jobs and all figures are simulated".into()));
        }
        match &event.fact {
            Fact::ProbeFound { probe, pid: Some(pid), .. } => {
                self.pids.insert(*probe, *pid);
            }
            Fact::ProbeGone { probe, .. } => self.end(*probe),
            Fact::Probe { probe, line } => self.line(*probe, line, &mut facts),
            Fact::Second => self.second(event.at, &mut facts),
            _ => {}
        }
        // A job here takes half a GiB per second: older figures would contradict it in every frame.
        let passed = event.at.since(self.read_at);
        let is_due = self.stale && event.at >= self.read_at && passed >= self.pause;
        if is_due || passed >= MEMORY_EVERY_US.max(self.pause) {
            (self.stale, self.read_at) = (false, event.at);
            self.devices.iter().enumerate().for_each(|(place, it)| figures(place, it, &mut facts));
        }
        facts.into_iter().map(|fact| Event { at: event.at, fact }).collect()
    }

    fn line(&mut self, probe: ProbeId, line: &Line, facts: &mut Vec<Fact>) {
        match line {
            Line::Hello(hello) => {
                let pid = self.pids.get(&probe).copied();
                facts.extend(pid.filter(|it| self.described.insert(*it)).map(|it| Fact::Process(rank(it, hello))));
                for device in &hello.devices {
                    let Some(id) = device.uuid.clone().map(DeviceId) else { continue };
                    self.ordinals.insert((probe, device.ordinal), id.clone());
                    if !self.devices.contains_key(&id) {
                        let index = id.0.rsplit('-').next().and_then(|it| it.parse().ok()).unwrap_or(0);
                        let name = Foreign::new(device.name.clone().unwrap_or_default());
                        facts.push(Fact::Device(DeviceInfo {
                            id: id.clone(),
                            index,
                            name,
                            parent: None,
                            maker: Maker::Nvidia,
                        }));
                        if index as usize == TENANT_DEVICE {
                            facts.push(Fact::Process(tenant()));
                        }
                    }
                    self.devices.entry(id).or_default();
                }
            }
            Line::Sample(sample) => {
                self.resident.extend(self.pids.get(&probe).copied().zip(sample.counters.rss));
                let id = self.ordinals.get(&(probe, sample.device));
                let held = id.and_then(|id| self.devices.get_mut(id)).zip(self.pids.get(&probe));
                let Some(((device, pid), reserved)) = held.zip(sample.counters.reserved) else { return };
                self.stale |= device.insert(*pid, reserved) != Some(reserved);
            }
            Line::Bye(_) => self.end(probe),
            _ => {}
        }
    }

    fn end(&mut self, probe: ProbeId) {
        if let Some(pid) = self.pids.remove(&probe) {
            self.described.remove(&pid);
            self.resident.remove(&pid);
            self.devices.values_mut().for_each(|it| {
                it.remove(&pid);
            });
        }
    }

    /// Returns the host's memory, which is what its ranks hold and what is around them.
    fn host(&self) -> HostMemory {
        let pages = |resident: u64, files: u64, shared: u64| Pages {
            resident: Bytes(resident),
            private: Bytes(resident - files - shared),
            anonymous: Bytes(resident - files - shared),
            shared: Bytes(shared),
            swap: Bytes(0),
        };
        let job = |(pid, resident): (&u32, &u64)| {
            let own = pages(*resident, LIBRARIES.min(*resident), 0);
            let of_workers = pages(LOADER, 0, BATCHES);
            let tree = TreeMemory { own, workers: WORKERS, of_workers, each: Vec::new() };
            JobMemory { pid: *pid, anonymous: Some(own.anonymous), tree: Some(tree), ..JobMemory::default() }
        };
        let ranks = self.resident.len() as u64;
        let held = self.resident.values().map(|it| it + LOADER).sum::<u64>();
        let free = HOST_TOTAL - (held + HOST_KERNEL + HOST_OTHERS + HOST_CACHE).min(HOST_TOTAL);
        let shared = Bytes(ranks * BATCHES);
        HostMemory {
            machine: MachineMemory {
                total: Bytes(HOST_TOTAL),
                free: Bytes(free),
                available: Bytes(free + HOST_CACHE),
                shared,
                kernel: Bytes(HOST_KERNEL),
                ..MachineMemory::default()
            },
            shm: Some(Room { size: Bytes(HOST_TOTAL / 2), used: shared }),
            groups: Vec::new(),
            processes: self.resident.iter().map(job).collect(),
        }
    }

    fn second(&self, at: Stamp, facts: &mut Vec<Fact>) {
        facts.push(Fact::HostMemory(Box::new(self.host())));
        for (place, (id, processes)) in self.devices.iter().enumerate() {
            let busy = !processes.is_empty() || place == TENANT_DEVICE;
            // Another value each second: a function of the moment alone.
            let draw = (at.0 / 1_000_000 + 1).wrapping_mul(place as u64 + 7).wrapping_mul(2_654_435_761) >> 16;
            let drawn = |range: u64| draw % range;
            let capped = busy && place == CAPPED_DEVICE && at.0 / 1_000_000 % CAPPED_EVERY_S < CAPPED_S;
            let throttle = if capped { Some(Throttle::PowerCap) } else { (!busy).then_some(Throttle::Idle) };
            let changes = [
                (Metric::GpuPercent, if busy { 94 + drawn(6) } else { 0 }),
                (
                    Metric::SmMhz,
                    if capped {
                        1755
                    } else if busy {
                        1980
                    } else {
                        345
                    },
                ),
                (Metric::ThrottleReasons, throttle.map_or(0, Throttle::bit)),
                (
                    Metric::PowerMw,
                    if capped {
                        697_000
                    } else if busy {
                        600_000 + drawn(24_000)
                    } else {
                        76_000
                    },
                ),
                (Metric::CelsiusNow, if busy { 61 } else { 34 }),
            ];
            let changes = changes
                .into_iter()
                .chain(STEADY)
                .chain([(Metric::MemoryPercent, if busy { 41 + drawn(9) } else { 0 })]);
            facts.push(Fact::Metrics { device: id.clone(), changes: changes.collect() });
            for pid in processes.keys() {
                // The second device of a rank has little to do.
                let is_main = processes.len() == 1 || processes.keys().next() == Some(pid);
                let busy = [(Figure::SmPercent, if is_main { 88 + drawn(9) } else { 3 + drawn(3) })];
                let memory = [(Figure::MemoryPercent, if is_main { 41 + drawn(9) } else { drawn(2) })];
                let changes = busy.into_iter().chain(memory).collect();
                facts.push(Fact::Figures { pid: *pid, device: Some(id.clone()), changes });
                let host = [
                    (Figure::CpuPercent, 96 + drawn(40)),
                    (Figure::IoWaitPercent, drawn(3)),
                    (Figure::Threads, 87),
                    (Figure::Asleep, 0),
                ];
                // One source: the kernel counts the memory that the probe read. The children are a data loader's.
                let resident = self.resident.get(pid).copied();
                let memory = resident.map(|it| [(Figure::Rss, it), (Figure::TreePss, it + LOADER)]);
                let changes = host.into_iter().chain(memory.into_iter().flatten()).collect();
                facts.push(Fact::Figures { pid: *pid, device: None, changes });
            }
        }
    }
}

/// Returns the used memory of a device, and its processes.
fn figures(place: usize, (id, processes): (&DeviceId, &BTreeMap<u32, u64>), facts: &mut Vec<Fact>) {
    let jobs = processes.iter().map(|(pid, held)| (*pid, held + CONTEXT));
    let tenant = (place == TENANT_DEVICE).then_some((TENANT_PID, TENANT_BYTES));
    let list: Vec<_> = jobs.chain(tenant).map(|(pid, used)| ProcessUse { pid, used: Some(Bytes(used)) }).collect();
    let used = list.iter().filter_map(|it| it.used).fold(Bytes(0), Bytes::plus).0.min(TOTAL - RESERVE);
    let memory = DeviceMemory {
        total: Bytes(TOTAL),
        used: Bytes(used),
        free: Bytes(TOTAL - RESERVE - used),
        reserved: Some(Bytes(RESERVE)),
        unified: None,
    };
    facts.push(Fact::Memory { device: id.clone(), reading: Ok(memory) });
    facts.push(Fact::Processes { device: id.clone(), reading: Ok(list) });
}

fn tenant() -> ProcessInfo {
    ProcessInfo {
        pid: TENANT_PID,
        start_ticks: 1,
        argv: vec!["another-tenant".into(), "(demo)".into()],
        user: "somebody".into(),
        ancestors: vec![Ancestor { pid: LAUNCHER_PID + 1, name: "bash".into() }],
        ..ProcessInfo::default()
    }
}

/// Describes a rank as a child of a launcher.
fn rank(pid: u32, hello: &Hello) -> ProcessInfo {
    ProcessInfo {
        pid,
        start_ticks: 1,
        argv: hello.argv.iter().map(Foreign::new).collect(),
        user: "you".into(),
        parent: Some(LAUNCHER_PID),
        ancestors: vec![Ancestor { pid: LAUNCHER_PID, name: "torchrun".into() }],
        ..ProcessInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::{Counters, Device, Sample};

    fn probe(at: u64, line: Line) -> Event {
        Event { at: Stamp(at), fact: Fact::Probe { probe: ProbeId(0), line: Box::new(line) } }
    }

    /// Counts the driver's readings in four seconds in which figures change forty times.
    fn readings(pace: Duration) -> usize {
        let mut driver = Driver::default();
        driver.read_every(pace);
        let devices = vec![Device { ordinal: 0, uuid: Some("GPU-demo-0".to_owned()), ..Device::default() }];
        let found = Fact::ProbeFound { probe: ProbeId(0), pid: Some(7), socket: "x".into() };
        let mut facts = driver.after(&Event { at: Stamp(0), fact: found });
        facts.extend(driver.after(&probe(0, Line::Hello(Hello { devices, ..Hello::default() }))));
        for step in 1..=40 {
            let counters = Counters { reserved: Some(step * MIB), ..Counters::default() };
            facts.extend(driver.after(&probe(step * 100_000, Line::Sample(Sample { counters, ..Sample::default() }))));
        }
        facts.iter().filter(|it| matches!(it.fact, Fact::Memory { .. })).count()
    }

    #[test]
    fn figures_come_as_they_change_or_at_the_pace_that_was_asked_for() {
        assert!(readings(FASTEST) >= 40);
        let [fast, slow] = [1, 2].map(|it| readings(Duration::from_secs(it)));
        assert!((4..=5).contains(&fast) && (2..=3).contains(&slow), "{fast} {slow}");
    }
}
