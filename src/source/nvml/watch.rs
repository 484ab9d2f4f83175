//! The thread that asks: what is due when, and what is said of it.

use super::{
    Calls, Options,
    reading::{absence, compute, graphics, info, load, memory, merged},
};
use crate::{
    event::{DeviceId, DeviceInfo, DriverState, Fact, Load, ProcessUse},
    source::Teller,
    text::Foreign,
};
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use std::{
    collections::BTreeMap,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch::{Receiver, Sender};

const FASTEST: Duration = Duration::from_millis(100);
const SLOW_EVERY: Duration = Duration::from_secs(1);
const STAGGER: Duration = Duration::from_millis(60);
const LIST_EVERY: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(50);

/// Graphics lists are slow on some drivers (4.5 ms) and empty on servers: one reading in so many has them.
const GRAPHICS_EVERY: u64 = 10;

/// Asks until told to end or nobody listens; looks again where there was no driver.
pub(super) fn run(
    options: &Options,
    pace: &Receiver<Duration>,
    calls: &Calls,
    pids: &Sender<Vec<u32>>,
    teller: &Teller,
) {
    let mut told = None;
    while !calls.end.load(SeqCst) {
        let mut builder = Nvml::builder();
        if let Some(library) = &options.library {
            builder.lib_path(library);
        }
        let found = calls.call(|| builder.init());
        calls.stalled.store(false, SeqCst);
        match found {
            Ok(nvml) => {
                Watch { nvml: &nvml, pace, calls, pids, teller, version: None }.run();
                // Shutting the library down may block like any call, and nobody waits for it.
                std::mem::forget(nvml);
                return;
            }
            Err(error) => {
                let why = absence(&error);
                if told.as_ref() != Some(&why) {
                    teller.tell_blocking(Fact::Driver(DriverState::Absent { why: why.clone() }));
                    told = Some(why);
                }
            }
        }
        nap_until(Instant::now() + RETRY_EVERY, calls);
    }
}

struct Watch<'a> {
    nvml: &'a Nvml,
    pace: &'a Receiver<Duration>,
    calls: &'a Calls,
    pids: &'a Sender<Vec<u32>>,
    teller: &'a Teller,
    version: Option<Foreign>,
}

/// One device, and when its slow readings are due.
struct Watched<'a> {
    device: Device<'a>,
    info: DeviceInfo,
    slow_at: Instant,
    slow_readings: u64,
    graphics: Vec<ProcessUse>,
    pids: Vec<u32>,
}

impl<'a> Watch<'a> {
    fn run(&mut self) {
        self.version = self.call(|| self.nvml.sys_driver_version()).ok().map(Foreign::new);
        self.up();
        let mut devices: BTreeMap<DeviceId, Watched<'a>> = BTreeMap::new();
        let mut list_at = Instant::now();
        let mut read_at: Option<Instant> = None;
        while !self.calls.end.load(SeqCst) {
            let now = Instant::now();
            if now >= list_at {
                list_at = now + LIST_EVERY;
                self.list(&mut devices);
            }
            // Asked anew each time, so that another pace holds at once.
            let memory_due = read_at.is_none_or(|it| now >= it + self.interval());
            if memory_due {
                read_at = Some(now);
            }
            for watched in devices.values_mut() {
                if memory_due && !self.memory(watched) {
                    return;
                }
                if now >= watched.slow_at {
                    watched.slow_at = now + SLOW_EVERY;
                    self.slow(watched);
                }
            }
            let all: Vec<u32> = devices.values().flat_map(|it| it.pids.iter().copied()).collect();
            self.pids.send_if_modified(|it| {
                let changed = *it != all;
                *it = all;
                changed
            });
            let slow_at = devices.values().map(|it| it.slow_at).min();
            let memory_at = read_at.map_or(now, |it| it + self.interval());
            // Not past a second: the pace may become another one meanwhile.
            let next = slow_at.unwrap_or(list_at).min(memory_at).min(list_at).min(now + SLOW_EVERY);
            nap_until(next, self.calls);
        }
    }

    fn interval(&self) -> Duration {
        (*self.pace.borrow()).max(FASTEST)
    }

    /// Compares the driver's list of devices with ours.
    fn list(&self, devices: &mut BTreeMap<DeviceId, Watched<'a>>) {
        let count = match self.call(|| self.nvml.device_count()) {
            Ok(count) => count,
            Err(error) => {
                let why = absence(&error);
                self.teller.tell_blocking(Fact::Driver(DriverState::Absent { why }));
                return;
            }
        };
        let mut seen = Vec::new();
        for index in 0..count {
            let found = self.call(|| {
                let device = self.nvml.device_by_index(index)?;
                let info = info(&device, index, None)?;
                Ok::<_, NvmlError>((device, info))
            });
            // A lost device may keep its place and lose its name: the one we know stays, with its trouble.
            let Ok((device, info)) = found else {
                seen.extend(devices.values().filter(|it| it.info.index == index).map(|it| it.info.id.clone()));
                continue;
            };
            let parts = self.mig_parts(&device, &info);
            for (device, info) in [(device, info)].into_iter().chain(parts) {
                seen.push(info.id.clone());
                self.keep(devices, device, info);
            }
        }
        devices.retain(|id, _| {
            let stays = seen.contains(id);
            if !stays {
                self.teller.tell_blocking(Fact::DeviceGone { device: id.clone() });
            }
            stays
        });
    }

    /// The MIG devices of a device that is divided.
    fn mig_parts(&self, device: &Device<'a>, parent: &DeviceInfo) -> Vec<(Device<'a>, DeviceInfo)> {
        let divided = self.call(|| device.mig_mode()).is_ok_and(|it| it.current == 1);
        let slots = if divided { self.call(|| device.mig_device_count()).unwrap_or(0) } else { 0 };
        (0..slots)
            .filter_map(|slot| {
                let part = self.call(|| device.mig_device_by_index(slot)).ok()?;
                let info = self.call(|| info(&part, parent.index, Some(parent.id.clone()))).ok()?;
                Some((part, info))
            })
            .collect()
    }

    fn keep(&self, devices: &mut BTreeMap<DeviceId, Watched<'a>>, device: Device<'a>, info: DeviceInfo) {
        let count = u32::try_from(devices.len()).unwrap_or(0);
        if devices.get(&info.id).is_some_and(|it| it.info == info) {
            return;
        }
        self.teller.tell_blocking(Fact::Device(info.clone()));
        if let Some(known) = devices.get_mut(&info.id) {
            known.info = info;
            return;
        }
        let slow_at = Instant::now() + count * STAGGER;
        let id = info.id.clone();
        let watched = Watched { device, info, slow_at, slow_readings: 0, graphics: Vec::new(), pids: Vec::new() };
        devices.insert(id, watched);
    }

    /// False when nobody listens any more.
    fn memory(&self, watched: &Watched<'a>) -> bool {
        let reading = self.call(|| memory(&watched.device));
        self.teller.tell_blocking(Fact::Memory { device: watched.info.id.clone(), reading })
    }

    fn slow(&self, watched: &mut Watched<'a>) {
        let device = watched.info.id.clone();
        if watched.slow_readings.is_multiple_of(GRAPHICS_EVERY) {
            watched.graphics = self.call(|| graphics(&watched.device));
        }
        watched.slow_readings += 1;
        let reading = self.call(|| compute(&watched.device)).map(|it| merged([&it, &watched.graphics]));
        watched.pids = reading.iter().flatten().map(|it| it.pid).collect();
        self.teller.tell_blocking(Fact::Processes { device: device.clone(), reading });
        let load = self.call(|| load(&watched.device));
        if load != Load::default() {
            self.teller.tell_blocking(Fact::Load { device, load });
        }
    }

    /// Makes a call; the first that comes back after a stall says that the driver answers again.
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let answer = self.calls.call(call);
        if self.calls.stalled.swap(false, SeqCst) {
            self.up();
        }
        answer
    }

    fn up(&self) {
        self.teller.tell_blocking(Fact::Driver(DriverState::Up { version: self.version.clone() }));
    }
}

fn nap_until(until: Instant, calls: &Calls) {
    while !calls.end.load(SeqCst) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(NAP));
    }
}
