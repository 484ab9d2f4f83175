//! The thread that queries the driver: what is due when, and which facts it sends.

/// Which devices there are.
mod list;

use super::{
    Options, Wanted,
    metrics::{Asked, Meter, READS},
    reading::{Uses, absence, compute, direct, graphics, memory, merged, uses},
};
use crate::{
    facts::{
        event::{DeviceId, DeviceInfo, DriverState, Fact, ProcessUse, ReadError},
        figures::RECORDED_EVERY,
        text::Foreign,
    },
    sources::{
        EventSender, beat,
        calls::{Calls, FASTEST},
        host_memory::machine,
        listed::{Listed, Lister},
        surroundings, unix_us,
    },
};
use gpuwatch_nvml::Direct;
use nvml_wrapper::{Device, EventSet, Nvml, bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError};
use std::{
    cell::Cell,
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

const SLOW_EVERY: Duration = Duration::from_secs(1);
const LIST_EVERY: Duration = Duration::from_secs(1);
const RETRY_EVERY: Duration = Duration::from_secs(3);

/// Devices are listed at least this often; sooner when their number changes or one has trouble.
const NAMES_EVERY: Duration = Duration::from_secs(10);

/// Graphics lists are slow on some drivers (4.5 ms) and empty on servers: one in this many readings includes them, for
/// one device after the other.
const GRAPHICS_EVERY: u64 = 10;

/// Readings precede the frame that shows them by this part of the interval.
const LEAD: u32 = 10;

/// The events that a device reports by itself, and how many are read at a time.
const EVENTS: EventTypes = EventTypes::CRITICAL_XID_ERROR.union(EventTypes::MIG_CONFIG_CHANGE);
const EVENTS_MAX: usize = 4;

/// Replaces the processes of a divided device, which would count twice if both lists had them.
const DIVIDED: &str = "it is divided into MIG devices; look at these, each has its own";

/// One device, and when its slow readings are due.
pub(super) struct Watched<'a> {
    pub(super) device: Device<'a>,
    pub(super) info: DeviceInfo,
    pub(super) slow_at: Instant,
    /// Counts the slow readings; devices begin at different numbers.
    pub(super) second: u64,
    pub(super) is_first: bool,
    /// The last list of graphics processes, which is read less often.
    pub(super) graphics: Vec<ProcessUse>,
    pub(super) meter: Meter,
    pub(super) uses: Uses,
    pub(super) pids: Vec<u32>,
    /// Whether it is divided into MIG devices, which then have its processes.
    pub(super) is_divided: bool,
    /// Receives its critical errors and changes of its MIG devices, if it reports them.
    pub(super) events: Option<EventSet<'a>>,
    pub(super) refusals: Refusals,
}

/// A device's refusals, as last sent.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) memory: Option<ReadError>,
    pub(super) processes: Option<ReadError>,
    /// Whether the driver lists processes without their memory.
    pub(super) is_unreported: bool,
}

/// Why a watch ended.
enum End {
    /// gpuwatch stopped it, or nothing receives the facts.
    Wanted,
    /// The driver returns no list of devices: it may have been replaced, and must be opened again.
    Down(NvmlError),
}

/// Queries until it is stopped or nothing receives the facts; retries without a driver.
pub(super) fn run(
    options: &Options,
    begun: Instant,
    wanted: &Wanted,
    calls: &Calls,
    pids: &Listed,
    sender: &EventSender,
    hurry: &Notify,
) {
    let mut sent = None;
    let mut listed = BTreeMap::new();
    while !calls.must_end() {
        let mut builder = Nvml::builder();
        if let Some(library) = &options.library {
            builder.lib_path(library);
        }
        let found = calls.open(|| builder.init());
        calls.ends_stall();
        let error = match found {
            Ok(library) => {
                let watch = Watch {
                    nvml: &library,
                    direct: direct(options.library.as_deref()),
                    begun,
                    wanted,
                    calls,
                    pids,
                    sender,
                    hurry,
                    listed: &mut listed,
                    version: None,
                    troubled: Cell::default(),
                    news: Cell::default(),
                };
                match watch.run(&mut sent) {
                    End::Wanted => {
                        // Closing the library may block like any call, so do not wait for it.
                        std::mem::forget(library);
                        return;
                    }
                    End::Down(error) => {
                        calls.call(|| drop(library));
                        error
                    }
                }
            }
            Err(error) => error,
        };
        let why = absence(&error);
        if sent.as_ref() != Some(&why) {
            sender.send_blocking(surroundings::without_driver(&error));
            sender.send_blocking(Fact::Driver(DriverState::Absent { why: why.clone() }));
            hurry.notify_one();
            sent = Some(why);
        }
        calls.nap_until(Instant::now() + RETRY_EVERY);
    }
}

struct Watch<'a> {
    nvml: &'a Nvml,
    /// Direct calls for what the wrapper lacks, or does twice.
    direct: Option<Direct>,
    /// Readings are shown at whole intervals after this moment.
    begun: Instant,
    wanted: &'a Wanted,
    calls: &'a Calls,
    pids: &'a Listed,
    sender: &'a EventSender,
    /// Notified of facts that should not wait for the next frame.
    hurry: &'a Notify,
    /// Devices reported as present; outlives a driver that goes and returns.
    listed: &'a mut BTreeMap<DeviceId, DeviceInfo>,
    version: Option<Foreign>,
    /// Whether a device has refused a figure, or its division changed, since the devices were last listed.
    troubled: Cell<bool>,
    /// Whether this pass sent something to show at once: something began or ended, not just changed figures.
    news: Cell<bool>,
}

impl<'a> Watch<'a> {
    /// Watches the devices. Once the driver has returned a list of devices, reports it as up and clears `absent`.
    fn run(mut self, absent: &mut Option<Foreign>) -> End {
        self.version = self.call(|| self.nvml.sys_driver_version()).ok().map(Foreign::new);
        let mut devices: BTreeMap<DeviceId, Watched<'a>> = BTreeMap::new();
        let mut list_at = Instant::now();
        let mut read_at: Option<Instant> = None;
        let mut is_up = false;
        let mut named: Option<(u32, Instant)> = None;
        while !self.calls.must_end() {
            let now = Instant::now();
            let pass = self.interval().min(SLOW_EVERY);
            // Do what is nearly due together with what is due: each wakeup costs more than the readings.
            let soon = now + pass / 2;
            if soon >= list_at {
                list_at = now + LIST_EVERY;
                for watched in devices.values() {
                    self.events(watched);
                }
                match self.call(|| self.nvml.device_count()) {
                    Ok(count) => {
                        if !is_up {
                            surroundings::with_driver(count).map(|it| self.sender.send_blocking(it));
                            self.up();
                            self.news.set(true);
                            (is_up, *absent) = (true, None);
                        }
                        let is_known = named.is_some_and(|(it, at)| it == count && now < at + NAMES_EVERY);
                        if !is_known || self.troubled.replace(false) {
                            named = Some((count, now));
                            self.list(count, &mut devices);
                        }
                    }
                    Err(error) => {
                        // Freeing their events may block like any call.
                        self.call(|| devices.clear());
                        return End::Down(error);
                    }
                }
            }
            // Read each time, so that a changed refresh rate takes effect at once.
            let memory_due = read_at.is_none_or(|it| soon >= it + self.interval());
            if memory_due {
                read_at = Some(now);
            }
            for watched in devices.values_mut() {
                if memory_due && !self.memory(watched) {
                    return End::Wanted;
                }
                if soon >= watched.slow_at {
                    watched.slow_at = now + SLOW_EVERY;
                    self.slow(watched);
                }
            }
            let all: Vec<u32> = devices.values().flat_map(|it| it.pids.iter().copied()).collect();
            self.pids.set(Lister::Nvml, all);
            if self.news.replace(false) {
                self.hurry.notify_one();
            }
            // Shortly before the next frame, at most a second away, so that a new rate never waits longer.
            let ahead = now + pass / LEAD;
            let wait = beat(self.begun.into(), pass, ahead.into()).into_std().duration_since(ahead);
            self.calls.nap_until(now + wait);
        }
        End::Wanted
    }

    fn interval(&self) -> Duration {
        (*self.wanted.pace.borrow()).max(FASTEST)
    }

    /// Reports the critical errors since the last check, and whether the device's division changed, without waiting.
    fn events(&self, watched: &Watched<'a>) {
        let Some(set) = &watched.events else { return };
        for _ in 0..EVENTS_MAX {
            let Ok(event) = self.call(|| set.wait(0)) else { return };
            self.troubled.set(self.troubled.get() || event.event_type.contains(EventTypes::MIG_CONFIG_CHANGE));
            if let Some(XidError::Value(number)) = event.event_data {
                let (index, name) = (watched.info.index, watched.info.name.raw());
                let words = format!("GPU {index} ({name}) reports {}", xid_message(number));
                self.news.set(true);
                self.sender.send_blocking(Fact::Notice(Foreign::new(words)));
            }
        }
    }

    /// Returns false when nothing receives the facts any more.
    fn memory(&self, watched: &mut Watched<'a>) -> bool {
        let reading =
            self.call(|| memory(&watched.device, &watched.info.id, self.direct.as_ref(), || machine(Path::new("/"))));
        self.troubled.set(self.troubled.get() || reading.is_err());
        self.note_refusal(reading.as_ref().err(), &mut watched.refusals.memory);
        self.sender.send_blocking(Fact::Memory { device: watched.info.id.clone(), reading })
    }

    fn slow(&self, watched: &mut Watched<'a>) {
        let device = watched.info.id.clone();
        let second = watched.second;
        watched.second += 1;
        let is_graphics_due = std::mem::take(&mut watched.is_first) || second.is_multiple_of(GRAPHICS_EVERY);
        self.processes(watched, is_graphics_due);
        self.uses(watched, second);
        let is_focused = self.wanted.focus.borrow().includes(&device);
        for place in watched.meter.due(second, is_focused) {
            let asked = Asked { device: &watched.device, direct: self.direct.as_ref(), uuid: &device.0 };
            let answer = self.call(|| READS[place].values(&asked));
            watched.meter.take(place, answer);
        }
        if let Some(changes) = watched.meter.news(second, is_focused) {
            self.sender.send_blocking(Fact::Metrics { device, changes });
        }
    }

    /// Reads what each process uses of a device, if something needs it.
    fn uses(&self, watched: &mut Watched<'a>, second: u64) {
        let device = &watched.info.id;
        let needed = self.wanted.focus.borrow().uses_every(device, self.wanted.recorded);
        // Which of several processes rests shows only this call.
        let every = needed.or_else(|| (watched.pids.len() > 1).then_some(RECORDED_EVERY));
        let read = || self.call(|| uses(self.direct.as_ref(), &device.0, unix_us()));
        for (pid, changes) in watched.uses.turn(second, every, read) {
            self.sender.send_blocking(Fact::Figures { pid, device: Some(device.clone()), changes });
        }
    }

    fn processes(&self, watched: &mut Watched<'a>, is_graphics_due: bool) {
        let device = watched.info.id.clone();
        if watched.is_divided {
            watched.pids.clear();
            let reading = Err(ReadError::Other(DIVIDED.into()));
            self.note_refusal(reading.as_ref().err(), &mut watched.refusals.processes);
            self.sender.send_blocking(Fact::Processes { device, reading });
            return;
        }
        if is_graphics_due {
            watched.graphics = self.call(|| graphics(&watched.device));
        }
        let reading = self.call(|| compute(&watched.device, &watched.info.id, self.direct.as_ref()));
        let reading = reading.map(|it| merged([&it, &watched.graphics]));
        self.troubled.set(self.troubled.get() || reading.is_err());
        self.note_refusal(reading.as_ref().err(), &mut watched.refusals.processes);
        let is_unreported =
            reading.as_ref().is_ok_and(|it| !it.is_empty() && it.iter().all(|process| process.used.is_none()));
        self.news.set(self.news.get() || is_unreported != watched.refusals.is_unreported);
        watched.refusals.is_unreported = is_unreported;
        watched.pids = reading.iter().flatten().map(|it| it.pid).collect();
        self.sender.send_blocking(Fact::Processes { device, reading });
    }

    /// Compares a refusal, or its absence, with the last one sent.
    fn note_refusal(&self, now: Option<&ReadError>, sent: &mut Option<ReadError>) {
        if now != sent.as_ref() {
            *sent = now.cloned();
            self.news.set(true);
        }
    }

    /// Makes a call; the first that returns after a stall reports that the driver answers again.
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let answer = self.calls.call(call);
        if self.calls.ends_stall() {
            self.up();
            self.news.set(true);
        }
        answer
    }

    fn up(&self) {
        self.sender.send_blocking(Fact::Driver(DriverState::Up { version: self.version.clone() }));
    }
}

/// Critical errors (Xid): the most common ones with their number, meaning, and what to do, after NVIDIA's "Xid Errors"
/// catalogue.
const XIDS: [(u64, &str, &str); 15] = [
    (13, "a kernel of a job used memory out of bounds", "run that job under compute-sanitizer"),
    (31, "a job used an address that is not mapped", "run that job under compute-sanitizer"),
    (43, "a job's work was stopped by a fault of its own", "see that job's output; the device still works"),
    (45, "work was removed, as after a job that was killed", "see what ended that job"),
    (48, "memory had an error that could not be corrected", "end the jobs and reset the device"),
    (62, "the device's own controller has halted", "end the jobs and reset the device"),
    (63, "a page of memory is to be replaced", "reset the device when its jobs have ended"),
    (64, "a page of memory could not be replaced", "reset the device; replace it if the error returns"),
    (74, "a link to another device (NVLink) failed", "end the jobs and reset the device; look at its link"),
    (79, "the device has fallen off the bus", "drain the node and reboot it; look at power and cooling"),
    (92, "corrected memory errors come often", "reset the device soon; replace it if they continue"),
    (94, "a memory error was contained: one job has lost", "start that job again, and reset the device soon"),
    (95, "a memory error was not contained", "end the jobs and reset the device"),
    (119, "the device's system processor does not answer", "end the jobs and reset the device, or reboot"),
    (120, "the device's system processor failed", "end the jobs and reset the device, or reboot"),
];

/// Describes an error, with the next step.
fn xid_message(number: u64) -> String {
    match XIDS.iter().find(|it| it.0 == number) {
        Some((_, what, step)) => format!("Xid {number}, {what}: {step}"),
        None => format!("Xid {number}: look it up in NVIDIA's catalogue of Xid errors, and see dmesg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_next_step() {
        assert!(XIDS.windows(2).all(|it| it[0].0 < it[1].0), "each once, in order");
        assert!(xid_message(79).ends_with("look at power and cooling"));
        assert!(xid_message(12_345).contains("dmesg"));
    }
}
