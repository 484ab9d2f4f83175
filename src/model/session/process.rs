//! One probed process: its state, its counters per device, and its lines.

/// What allocated bytes consist of.
mod counted_parts;

use super::{
    Latest, Session,
    device::DriverUse,
    oom::{self, OutOfMemory, Tenancy},
    timeline::Timeline,
};
use crate::{
    facts::{
        event::{
            Advised, DeviceId, PeakMoment, ProbeId, ProcessUse, Replayed,
            wire::{self, Counters, EXIT, Edge, Hello, Lost, Mark, Oom, OomMessage, Sample, Sites},
        },
        text::Foreign,
        units::Stamp,
    },
    model::{
        analysis::{
            episode::{Axis, Episode, Resource},
            fragmentation,
            growth::{self, Growth, Observation},
            hardware::Hardware,
            latch::{Band, Latch, Patience},
            pace::Pace,
            signature::CounterHistory,
            skew::Skew,
            stall::Stall,
            strain::{self, Strain},
        },
        statistics,
    },
};
pub use counted_parts::{CountedParts, GrownPart};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Marks kept per probe.
pub const MARKS: usize = 64;

/// Out-of-memory errors kept per probe.
pub const OOMS: usize = 16;

/// Answers to captures kept per probe.
pub const SITES: usize = 8;

/// Answers of replays kept per probe.
pub const REPLAYS: usize = 8;

/// How long a process is listed after it has ended, in µs.
const LISTED_US: u64 = 300_000_000;

/// A probed process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The probe's number.
    pub probe: ProbeId,
    /// The pid as the kernel translates it; `None` from another pid namespace.
    pub pid: Option<u32>,
    /// The user it belonged to when it ended; until then the description of its pid has that.
    pub user: Option<Foreign>,
    /// The socket's path.
    pub socket: Foreign,
    /// Its hello, once received.
    pub hello: Option<Box<Hello>>,
    /// Its state.
    pub life: ProbeState,
    /// When its last line arrived.
    pub last_line_at: Stamp,
    /// Samples dropped before any viewer received them.
    pub lost: u64,
    /// Lines about out-of-memory errors that no viewer received.
    pub lost_error_lines: u64,
    lost_seq: Option<u64>,
    /// The backlog has one of every `stride` samples; above 1, findings based on it are approximate.
    pub stride: u64,
    /// Its devices, by its own ordinals.
    pub devices: Vec<OnDevice>,
    /// Devices on which the driver lists it though it does not train there.
    pub contexts: Contexts,
    /// The job's marks.
    pub marks: Latest<Mark, MARKS>,
    /// Its out-of-memory errors.
    pub ooms: Latest<OutOfMemory, OOMS>,
    /// The answers to captures: which lines allocated what grew.
    pub sites: Latest<Box<Sites>, SITES>,
    /// What replays of its allocations show.
    pub replays: Latest<Box<Replayed>, REPLAYS>,
    /// The latest highest moment of a step that was traced.
    pub peak: Option<Box<PeakMoment>>,
    /// What was measured to save memory, the latest answer.
    pub advised: Option<Box<Advised>>,
    /// Why the last requested capture was refused.
    pub refused: Option<Foreign>,
    /// Whether its steps have stopped.
    pub stall: Stall,
    /// The probe that was started in the same process after this one had ended, and reports in its place.
    pub next: Option<ProbeId>,
}

/// Where a sample belongs: to a known device, to a new one, or nowhere because the process has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    Known,
    New,
    Nowhere,
}

/// Facts about a process that its samples do not repeat.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Settings {
    total: Option<u64>,
    expandable: bool,
}

/// A process on one of its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnDevice {
    /// The process's own ordinal of the device.
    pub ordinal: u32,
    /// The device.
    pub device: DeviceId,
    /// When the first sample was taken; `None` before it.
    pub first: Option<Stamp>,
    /// When the allocator's counters were read.
    pub at: Stamp,
    /// Steps completed; `None` before the first.
    pub step: Option<u64>,
    /// The latest counters. The allocator's own five come from one sample; the others, which not every sample carries,
    /// are the latest known.
    pub counters: Counters,
    /// What the allocated bytes consisted of when that was counted last.
    pub parts: Option<CountedParts>,
    /// That and earlier counts, oldest first; of many, some.
    counts: Vec<CountedParts>,
    /// Whether the latest counters were read between the ends of two steps.
    is_between_steps: bool,
    /// When `device_free` and `device_total` were read.
    pub device_at: Stamp,
    /// Its growth, from step to step.
    pub growth: Growth,
    /// The course of its counters.
    pub trail: CounterHistory,
    /// Its other problems: stuck memory, retries.
    pub strain: Strain,
    /// What is wrong with the device.
    pub hardware: Hardware,
    /// Every level in the course of the run.
    pub timeline: Timeline,
    /// The process's total on the device.
    pub driver_use: DriverUse,
    /// How long its steps take.
    pub pace: Pace,
    /// When they end, against the other ranks of its run.
    pub skew: Skew,
}

impl Process {
    /// Creates the process of a newly found probe.
    pub fn new(probe: ProbeId, pid: Option<u32>, socket: Foreign, at: Stamp) -> Self {
        Self {
            probe,
            pid,
            user: None,
            socket,
            hello: None,
            life: ProbeState::Found,
            last_line_at: at,
            lost: 0,
            lost_error_lines: 0,
            lost_seq: None,
            stride: 1,
            devices: Vec::new(),
            contexts: Contexts::default(),
            marks: Latest::default(),
            ooms: Latest::default(),
            sites: Latest::default(),
            replays: Latest::default(),
            peak: None,
            advised: None,
            refused: None,
            stall: Stall::default(),
            next: None,
        }
    }

    /// Returns whether more lines may come.
    pub fn is_alive(&self) -> bool {
        !matches!(self.life, ProbeState::Ended { .. } | ProbeState::Gone { .. })
    }

    /// Returns when it ended or was lost; `None` while it is alive.
    pub fn ended_at(&self) -> Option<Stamp> {
        match self.life {
            ProbeState::Ended { at, .. } | ProbeState::Gone { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Returns whether it ended so long ago that screens no longer list it.
    pub fn ended_long_ago(&self, now: Stamp) -> bool {
        self.ended_at().is_some_and(|end| now.since(end) > LISTED_US)
    }

    /// Returns whether the probe ended before its process, as after `gpuwatch detach`.
    pub fn has_left(&self) -> bool {
        matches!(&self.life, ProbeState::Ended { reason, .. } if reason.raw() != EXIT)
    }

    /// Returns whether two probes count the same allocator of one process.
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        let Some((own, its)) = self.hello.as_ref().zip(other.hello.as_ref()) else { return false };
        let starts = own.start_us.zip(its.start_us);
        let began_together = starts.is_some_and(|(own, its)| own.abs_diff(its) < super::START_US);
        let pid = self.pid.zip(other.pid).map_or(own.pid == its.pid, |(own, its)| own == its);
        pid && began_together && (&own.host, &own.framework) == (&its.host, &its.framework)
    }

    /// Returns its pid on this host, or the pid it reports.
    pub fn any_pid(&self) -> Option<u32> {
        self.pid.or_else(|| self.hello.as_ref().map(|it| it.pid))
    }

    /// Returns its global rank, if it is one of several.
    pub fn rank(&self) -> Option<u64> {
        self.hello.as_ref()?.rank
    }

    /// Returns the name of its script: of the first Python file of its command line, otherwise of the program.
    pub fn script(&self) -> Option<&str> {
        script(&self.hello.as_ref()?.argv)
    }

    /// Returns the first step that its probe counted, if the probe was started in a running job.
    pub fn attached_step(&self) -> Option<u64> {
        let hello = self.hello.as_ref()?;
        hello.attached_us.map(|_| hello.attached_step.unwrap_or(1))
    }

    /// Sets the device of an ordinal.
    pub(super) fn name_device(&mut self, ordinal: u32, id: &DeviceId) {
        match self.devices.binary_search_by_key(&ordinal, |it| it.ordinal) {
            Ok(place) => self.devices[place].device = id.clone(),
            Err(place) if self.devices.len() < DEVICES => {
                self.devices.insert(place, OnDevice::new(ordinal, id.clone()));
            }
            Err(_) => {}
        }
    }

    /// Applies a sample. Samples arrive in the order they were made, except after a reconnection.
    pub(super) fn sample(&mut self, sample: &Sample, peers: Peers, unnamed: impl FnOnce() -> DeviceId) -> Placed {
        let place = self.devices.binary_search_by_key(&sample.device, |it| it.ordinal);
        let fresh = place.is_err();
        if fresh && self.devices.len() >= DEVICES {
            return Placed::Nowhere;
        }
        let place = place.unwrap_or_else(|place| {
            self.devices.insert(place, OnDevice::new(sample.device, unnamed()));
            place
        });
        let settings = self.settings(sample.device);
        if let Some(entry) = self.devices.get_mut(place) {
            self.stall.sample(sample, &entry.counters);
            entry.sample(sample, peers, settings);
        }
        if fresh { Placed::New } else { Placed::Known }
    }

    /// Returns whether its allocator uses expandable segments.
    pub fn is_expandable(&self) -> bool {
        fragmentation::is_expandable(self.hello.as_ref().and_then(|it| it.allocator_conf.as_deref()))
    }

    fn settings(&self, ordinal: u32) -> Settings {
        let Some(hello) = &self.hello else { return Settings::default() };
        Settings {
            total: hello.devices.iter().find(|it| it.ordinal == ordinal).and_then(|it| it.total),
            expandable: self.is_expandable(),
        }
    }

    /// Adds a mark, unless it is a repetition after a reconnection.
    pub(super) fn mark(&mut self, mark: &Mark) {
        if is_news(mark.seq, self.marks.last().and_then(|it| it.seq)) {
            self.stall.word(Stamp(mark.at_us));
            self.marks.push(mark.clone());
        }
    }

    /// Adds an out-of-memory error, unless it is a repetition after a reconnection, with the processes that the driver
    /// lists on its device.
    pub(super) fn oom(&mut self, oom: &Oom, tenancy: Option<Tenancy>) {
        if is_news(oom.seq, self.ooms.last().and_then(|it| it.reported.seq)) {
            self.stall.word(Stamp(oom.at_us));
            let on = self.devices.iter().find(|it| it.ordinal == oom.device);
            let (known, expandable) = (on.map(|it| it.counters), self.settings(oom.device).expandable);
            let mut error = OutOfMemory::new(oom, &known.unwrap_or_default(), expandable, tenancy, self.pid);
            error.parts = on.and_then(|it| Some(it.parts?.parts));
            error.before = on.map(|it| oom::before(&it.trail, oom)).unwrap_or_default();
            let episodes = on.into_iter().flat_map(|it| it.growth.episodes());
            let is_open = |it: &&Episode| it.resolved.is_none() && it.first_alert_at.0 <= oom.at_us;
            error.growing = episodes.filter(is_open).copied().collect();
            self.ooms.push(error);
            self.attribute_error(oom.device);
        }
    }

    /// Adds the framework's message to the latest error of a device, unless it has one.
    pub(super) fn oom_message(&mut self, it: &OomMessage) {
        if let Some(oom) = self.ooms.newest_mut(|oom| oom.reported.device == it.device)
            && oom.reported.message.is_none()
            && is_news(it.seq, oom.reported.seq)
        {
            oom.worded(&it.message, self.pid);
            self.attribute_error(it.device);
        }
    }

    /// Adds an answer to a capture, unless it is a repetition after a reconnection.
    pub(super) fn sites(&mut self, sites: &Sites) {
        if is_news(sites.seq, self.sites.last().and_then(|it| it.seq)) {
            self.refused = None;
            self.sites.push(Box::new(sites.clone()));
        }
    }

    /// Counts losses, unless they are a repetition after a reconnection.
    pub(super) fn lose(&mut self, lost: &Lost) {
        if is_news(lost.seq, self.lost_seq) {
            self.lost = self.lost.saturating_add(lost.samples);
            self.lost_error_lines = self.lost_error_lines.saturating_add(lost.failures.unwrap_or(0));
            self.lost_seq = lost.seq.or(self.lost_seq);
        }
    }
}

/// Sequence numbers rise. A line without one is never a repetition.
fn is_news(seq: Option<u64>, last: Option<u64>) -> bool {
    seq.zip(last).is_none_or(|(seq, last)| seq > last)
}

impl OnDevice {
    /// Creates a device on which the process has reported nothing yet.
    pub fn new(ordinal: u32, device: DeviceId) -> Self {
        Self {
            ordinal,
            device,
            first: None,
            at: Stamp(0),
            step: None,
            counters: Counters::default(),
            parts: None,
            counts: Vec::new(),
            is_between_steps: false,
            device_at: Stamp(0),
            growth: Growth::default(),
            trail: CounterHistory::default(),
            strain: Strain::default(),
            hardware: Hardware::default(),
            timeline: Timeline::default(),
            driver_use: DriverUse::default(),
            pace: Pace::default(),
            skew: Skew::default(),
        }
    }

    fn sample(&mut self, sample: &Sample, peers: Peers, settings: Settings) {
        let at = Stamp(sample.at_us);
        self.first = Some(self.first.map_or(at, |it| it.min(at)));
        let boundary = sample.step.filter(|_| matches!(sample.edge, Edge::Step | Edge::Call));
        // Few samples have it.
        let bounded = sample.counters.joined.or(self.counters.joined);
        let bounded = bounded.zip(sample.counters.joined_blocks.or(self.counters.joined_blocks));
        self.observe(&Observation { bounded, ..peers.seen(sample, boundary) });
        if let Some(step) = boundary {
            self.pace.step(step, at, sample.counters.allocated_peak);
            self.skew.step(step, at);
        }
        let place = self.place_of(sample, at);
        if let Some(step) = place {
            self.trail.push(step, at, &sample.counters);
        }
        self.trail.follow(&self.growth);
        // A clock may be set back: a later step is news also then, and time stands still meanwhile.
        if at < self.at && boundary.is_none_or(|step| self.step.is_none_or(|known| step <= known)) {
            return;
        }
        let at = at.max(self.at);
        self.take_parts(sample, at);
        self.step = sample.step.or(self.step);
        self.merge(&sample.counters, at);
        self.remember(sample, at, settings);
        if let Some(step) = place {
            let seen = strain::StrainReading {
                step,
                at,
                counters: self.counters,
                total: settings.total,
                expandable: settings.expandable,
                grows: self.growth.episodes().any(|it| it.resource == Resource::Allocated && it.resolved.is_none()),
                others: peers.want,
            };
            self.strain = strain::step(std::mem::take(&mut self.strain), &seen);
        }
    }

    /// Adds a sample to the timeline. Without the driver's figures, it uses those that CUDA reports in some samples.
    fn remember(&mut self, sample: &Sample, at: Stamp, settings: Settings) {
        let it = &sample.counters;
        if let (Some(total), Some(free), Some(reserved)) = (it.device_total, it.device_free, it.reserved) {
            self.timeline.attribute_by_cuda(total.checked_sub(free).and_then(|used| used.checked_sub(reserved)));
        }
        if let driver @ Some(_) = self.timeline.push(at, sample.step, &self.figures(it, settings.expandable, at)) {
            self.observe(&Observation { at, driver, ..Observation::default() });
        }
    }

    /// The sample's position on the axis of growth; `None` between two steps.
    fn place_of(&self, sample: &Sample, at: Stamp) -> Option<u64> {
        match self.growth.axis() {
            Some(Axis::Seconds) => self.first.map(|it| at.since(it) / 1_000_000),
            _ if sample.edge == Edge::Tick => None,
            _ => sample.step,
        }
    }

    /// Applies an observation, whatever its source.
    pub(super) fn observe(&mut self, seen: &Observation) {
        self.growth = growth::step(std::mem::take(&mut self.growth), seen);
    }

    fn merge(&mut self, new: &Counters, at: Stamp) {
        let old = std::mem::replace(&mut self.counters, *new);
        self.counters.complete(&old);
        if new.allocated.is_some() || new.reserved.is_some() {
            self.at = at;
            self.counters.requested = new.requested;
            self.counters.allocated = new.allocated;
            self.counters.active = new.active;
            self.counters.inactive_split = new.inactive_split;
            self.counters.reserved = new.reserved;
        }
        if new.device_free.is_some() || new.device_total.is_some() {
            self.device_at = at;
        }
    }
}

/// Returns the name of the first Python file of a command line, otherwise of the program.
fn script(argv: &[String]) -> Option<&str> {
    let is_python = |word: &&String| Path::new(word).extension().is_some_and(|it| it == "py");
    let file = argv.iter().find(is_python).or_else(|| argv.first());
    file.and_then(|it| it.rsplit('/').next()).filter(|it| !it.is_empty())
}

/// A probe's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeState {
    /// Found; it has not sent its hello yet.
    Found,
    /// It uses another version of the wire, of which gpuwatch reads only the name.
    Incompatible {
        /// Its version of the wire.
        protocol: u32,
    },
    /// Its backlog is arriving.
    CatchingUp,
    /// Its lines arrive as they are made.
    Live,
    /// It ended with a bye.
    Ended {
        /// When.
        at: Stamp,
        /// `exit`, `stop`, ….
        reason: Foreign,
    },
    /// The connection broke.
    Gone {
        /// When.
        at: Stamp,
        /// The reason and the next step.
        why: Foreign,
    },
}

/// Figures of the other probed processes that one process needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peers {
    /// Bytes they reserved on its device, if the process watches the device.
    pub(super) reserved: Option<u64>,
    /// The median of the memory that the other ranks of its run want.
    pub(super) want: Option<u64>,
}

impl Peers {
    /// Returns a sample's input to growth detection; with `reserved`, also for unprobed memory on the device.
    pub(super) fn seen(&self, sample: &Sample, step: Option<u64>) -> Observation {
        let it = &sample.counters;
        let used = || it.device_total?.checked_sub(it.device_free?);
        let outside = || used()?.checked_sub(it.reserved?)?.checked_sub(self.reserved?);
        Observation {
            step,
            at: Stamp(sample.at_us),
            allocated: it.allocated,
            requested: it.requested,
            blocks: it.blocks,
            peak: it.allocated_peak,
            bounded: None,
            reserved: it.reserved,
            pools: it.private_pools,
            driver: None,
            device: outside(),
            pinned: it.pinned_reserved,
            host: it.rss,
        }
    }
}

impl Session {
    /// Returns the peers' figures for a sample of one process.
    pub(super) fn peers(&self, probe: ProbeId, sample: &Sample) -> Peers {
        let want = sample.step.filter(|_| sample.edge != wire::Edge::Tick).and_then(|_| self.peers_want(probe));
        Peers { reserved: self.reserved_by_others(probe, sample), want }
    }

    /// The median of what the other living ranks of the same run want of their devices.
    fn peers_want(&self, probe: ProbeId) -> Option<u64> {
        let own = self.process(probe)?.hello.as_ref()?.run.as_ref()?;
        let others = self.processes.iter().filter(|it| it.probe != probe && it.is_alive());
        let wanted = others
            .filter(|it| it.hello.as_ref().is_some_and(|hello| hello.run.as_ref() == Some(own)))
            .filter_map(|it| {
                let stepped = it.devices.iter().filter(|its| its.step.is_some());
                stepped.filter_map(|its| strain::wanted(&its.counters)).max()
            });
        statistics::median(wanted)
    }
}

/// Devices kept per probe.
pub const DEVICES: usize = 16;

/// Readings of the driver's list before gpuwatch reports a context, because the process may be about to train there,
/// and before it counts as gone.
const LISTED: Patience = Patience { on: 5, off: 10 };

/// The contexts of one process; at most as many as it may have devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contexts {
    all: Vec<Context>,
}

/// A CUDA context of a process on a device on which it does not train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The device that holds the context.
    pub device: DeviceId,
    /// When it is raised; the measure is the bytes that the driver charges for it, 0 if unknown.
    pub latch: Latch,
}

impl Contexts {
    /// Returns the contexts.
    pub fn iter(&self) -> impl Iterator<Item = &Context> {
        self.all.iter()
    }

    /// Applies a driver's list of a device: the process's entry, if any, and whether the process does not train there.
    pub(super) fn listed(&mut self, id: &DeviceId, entry: Option<&ProcessUse>, is_foreign: bool, step: u64, at: Stamp) {
        let is_context = entry.is_some() && is_foreign;
        if is_context && self.all.len() < DEVICES && self.all.iter().all(|it| it.device != *id) {
            self.all.push(Context { device: id.clone(), latch: Latch::default() });
        }
        if let Some(it) = self.all.iter_mut().find(|it| it.device == *id) {
            let used = entry.and_then(|it| it.used).map_or(0.0, |it| it.0 as f64);
            it.latch.step(LISTED, (if is_context { Band::High } else { Band::Low }, used), step, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_goes_by_its_script() {
        let argv = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, name) in [
            ("/usr/bin/python3 -u /home/ada/train.py --key hf_x", Some("train.py")),
            ("./bin/trainer --epochs 3", Some("trainer")),
            ("", None),
        ] {
            assert_eq!(script(&argv(line)), name);
        }
    }
}
