//! The thread that reads the kernel's files: what is due when, and which facts it sends.

use super::{
    Options, Wanted,
    card::Card,
    clients::{Clients, Scanner},
    discovery::{DRIVERS, Found, find, listed, version},
    gauges::Gauges,
    kfd,
    uses::{Rates, Uses},
};
use crate::{
    facts::{
        event::{DeviceId, DeviceInfo, DriverState, Fact, ReadError},
        figures::RECORDED_EVERY,
        maker::Maker,
    },
    sources::{
        EventSender, beat,
        calls::{Calls, FASTEST},
        figures::Sent,
        listed::{Listed, Lister},
        proc,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc::SyncSender},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

const SLOW_EVERY: Duration = Duration::from_secs(1);

/// Time between two looks for devices while there are some, and while there is none.
const LIST_EVERY: Duration = Duration::from_secs(2);
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Readings precede the frame that shows them by this part of the interval.
const LEAD: u32 = 10;

/// Seconds between two facts with all figures of processes.
const WHOLE_EVERY: u64 = 60;

/// What the thread needs.
#[derive(Clone)]
pub(crate) struct Poll {
    pub(crate) options: Options,
    /// Readings are shown at whole intervals after this moment.
    pub(crate) begun: Instant,
    pub(crate) wanted: Wanted,
    pub(crate) pids: Arc<Listed>,
    pub(crate) sender: EventSender,
    /// Notified of facts that should not wait for the next frame.
    pub(crate) hurry: Arc<Notify>,
    pub(crate) calls: Arc<Calls>,
    /// Whose files are being read.
    pub(crate) reading: Arc<Reading>,
}

/// The maker whose files are being read; the first one until that is known.
pub(crate) struct Reading(Mutex<Maker>);

impl Default for Reading {
    fn default() -> Self {
        Self(Mutex::new(DRIVERS[0].maker))
    }
}

impl Reading {
    fn set(&self, maker: Maker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = maker;
    }

    fn get(&self) -> Maker {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device from one reading to the next.
#[derive(Default)]
struct State {
    gauges: Gauges,
    sent: Sent,
    /// The trouble with its memory, as last sent.
    trouble: Option<ReadError>,
    is_suspended: bool,
}

/// The devices and what is known of their processes.
struct Devices {
    found: Found,
    states: BTreeMap<DeviceId, State>,
    places: Vec<(String, PathBuf)>,
    scanner: Scanner,
    rates: Rates,
    /// Counts the slow readings.
    second: u64,
}

/// Returns the facts that introduce devices: their drivers, then each of them.
fn introduction(root: &Path, cards: &[Card]) -> Vec<Fact> {
    let modules: BTreeMap<Maker, &str> = cards.iter().map(|it| (it.driver.maker, it.driver.module)).collect();
    let up =
        |(maker, module)| Fact::KernelDriver { maker, state: DriverState::Up { version: Some(version(root, module)) } };
    modules.into_iter().map(up).chain(cards.iter().map(|it| Fact::Device(it.info.clone()))).collect()
}

impl Poll {
    /// Looks for devices, and sends whether there are any. Reads them until it is stopped or nothing receives the
    /// facts; ends at once without any.
    pub(super) fn run(self, looked: &SyncSender<bool>) {
        let root = &self.options.root;
        let (places, found) = self.watched(|| (listed(root), find(root, |maker| self.reading.set(maker))));
        for fact in introduction(root, &found.shown) {
            self.sender.send_blocking(fact);
        }
        let is_empty = found.shown.is_empty();
        // Nothing waits for it after a stall.
        let _ = looked.try_send(!is_empty);
        if is_empty {
            return;
        }
        self.hurry.notify_one();
        let (scanner, rates) = (Scanner::new(root), Rates::default());
        self.read(&mut Devices { found, states: BTreeMap::new(), places, scanner, rates, second: 0 });
    }

    /// Reads devices until it is stopped or nothing receives the facts.
    fn read(&self, devices: &mut Devices) {
        let (mut list_at, mut slow_at) = (Instant::now() + LIST_EVERY, Instant::now());
        let mut read_at: Option<Instant> = None;
        while !self.calls.must_end() && !self.sender.is_closed() {
            let now = Instant::now();
            let pass = self.interval().min(SLOW_EVERY);
            // Do what is nearly due together with what is due: each wakeup costs more than the readings.
            let soon = now + pass / 2;
            if soon >= list_at {
                list_at = now + LIST_EVERY;
                self.list(devices);
            }
            if devices.found.shown.is_empty() {
                self.calls.nap_until(now + LOOK_EVERY);
                continue;
            }
            if read_at.is_none_or(|it| soon >= it + self.interval()) {
                read_at = Some(now);
                self.memory(devices);
            }
            if soon >= slow_at {
                slow_at = now + SLOW_EVERY;
                self.slow(devices);
            }
            // Shortly before the next frame, so that it shows these figures.
            let ahead = now + pass / LEAD;
            let wait = beat(self.begun.into(), pass, ahead.into()).into_std().duration_since(ahead);
            self.calls.nap_until(now + wait);
        }
    }

    fn interval(&self) -> Duration {
        (*self.wanted.pace.borrow()).max(FASTEST)
    }

    /// Compares the devices with those of the last look.
    fn list(&self, devices: &mut Devices) {
        let root = &self.options.root;
        let look = || {
            let places = listed(root);
            let has_changed = places != devices.places || devices.found.is_outdated(root);
            has_changed.then(|| (places, find(root, |maker| self.reading.set(maker))))
        };
        let Some((places, found)) = self.watched(look) else { return };
        let before: BTreeMap<DeviceId, DeviceInfo> =
            devices.found.shown.iter().map(|it| (it.info.id.clone(), it.info.clone())).collect();
        devices.places = places;
        devices.found = found;
        devices.scanner.forget();
        devices.rates = Rates::default();
        let now: BTreeSet<&DeviceId> = devices.found.shown.iter().map(|it| &it.info.id).collect();
        for device in before.keys().filter(|it| !now.contains(it)) {
            self.sender.send_blocking(Fact::DeviceGone { device: device.clone() });
        }
        for fact in introduction(root, &devices.found.shown) {
            let is_known = matches!(&fact, Fact::Device(it) if before.get(&it.id) == Some(it));
            if !is_known {
                self.sender.send_blocking(fact);
            }
        }
        devices.states.retain(|id, _| now.contains(id));
        if devices.found.shown.is_empty() {
            self.pids.set(Lister::Kernel, Vec::new());
        }
        self.hurry.notify_one();
    }

    fn memory(&self, devices: &mut Devices) {
        for card in &devices.found.shown {
            let state = devices.states.entry(card.info.id.clone()).or_default();
            let reading = self.call(card.driver.maker, || {
                state.is_suspended = card.is_suspended();
                if state.is_suspended { Err(ReadError::Suspended) } else { card.memory() }
            });
            if state.trouble.as_ref() != reading.as_ref().err() {
                state.trouble = reading.as_ref().err().cloned();
                self.hurry.notify_one();
            }
            self.sender.send_blocking(Fact::Memory { device: card.info.id.clone(), reading });
        }
    }

    /// Reads processes and metrics.
    fn slow(&self, devices: &mut Devices) {
        let second = devices.second;
        devices.second += 1;
        let uses = self.uses(devices);
        let mut pids = BTreeSet::new();
        for (place, card) in devices.found.shown.iter().enumerate() {
            let Some(state) = devices.states.get_mut(&card.info.id) else { continue };
            let device = card.info.id.clone();
            let list = uses.list(place);
            pids.extend(list.iter().map(|it| it.pid));
            let needed = self.wanted.focus.borrow().uses_every(&device, self.wanted.recorded);
            let every = needed.or_else(|| (list.len() > 1).then_some(RECORDED_EVERY));
            let reading = if state.is_suspended { Err(ReadError::Suspended) } else { Ok(list) };
            self.sender.send_blocking(Fact::Processes { device: device.clone(), reading });
            let figures = match every {
                Some(every) if !second.is_multiple_of(every) => None,
                Some(_) => Some(uses.figures(place)),
                None => Some(BTreeMap::new()),
            };
            let is_whole = every.is_some() && second.is_multiple_of(WHOLE_EVERY);
            for (pid, changes) in figures.map(|it| state.sent.changes(it, is_whole)).into_iter().flatten() {
                self.sender.send_blocking(Fact::Figures { pid, device: Some(device.clone()), changes });
            }
            if state.is_suspended {
                state.gauges.clear();
            } else {
                self.call(card.driver.maker, || state.gauges.read(card, second, self.begun.elapsed()));
            }
            if let Some(changes) = state.gauges.news(second) {
                self.sender.send_blocking(Fact::Metrics { device, changes });
            }
        }
        self.pids.set(Lister::Kernel, pids.into_iter().collect());
    }

    /// Reads what processes use of the devices.
    fn uses(&self, devices: &mut Devices) -> Uses {
        let Devices { found, states, scanner, rates, .. } = devices;
        let cards = &found.shown;
        let is_awake = |place: usize| {
            let state = cards.get(place).and_then(|it| states.get(&it.info.id));
            state.is_some_and(|it| !it.is_suspended)
        };
        let maker = cards.first().map(|it| it.driver.maker).unwrap_or_default();
        let root = &self.options.root;
        self.call(maker, || {
            let are_awake = (0..cards.len()).any(is_awake);
            let names =
                cards.iter().enumerate().flat_map(|(at, card)| card.nodes.iter().map(move |it| (it.as_str(), at)));
            let nodes = names.collect();
            let clients = if are_awake { scanner.turn(&nodes, is_awake) } else { Clients::default() };
            let has_kfd = are_awake && cards.iter().any(|it| !it.gpu_ids.is_empty());
            // The compute driver numbers processes as the host does.
            let computing = if has_kfd && !is_contained(root) { kfd::processes(root) } else { Vec::new() };
            Uses::new(cards, &clients, &computing, rates, self.begun.elapsed())
        })
    }

    /// Makes a call about a maker's devices; the first that returns after a stall reports that the driver answers
    /// again.
    fn call<T>(&self, maker: Maker, call: impl FnOnce() -> T) -> T {
        self.reading.set(maker);
        self.watched(call)
    }

    /// The same for one that finds out itself whose files it reads.
    fn watched<T>(&self, call: impl FnOnce() -> T) -> T {
        let answer = self.calls.call(call);
        if self.calls.ends_stall() {
            let maker = self.reading.get();
            let module = DRIVERS.iter().find(|it| it.maker == maker).map_or("", |it| it.module);
            let state = DriverState::Up { version: Some(version(&self.options.root, module)) };
            self.sender.send_blocking(self.state(state));
            self.hurry.notify_one();
        }
        answer
    }

    /// Returns the fact of a state of the driver whose files are being read.
    pub(super) fn state(&self, state: DriverState) -> Fact {
        Fact::KernelDriver { maker: self.reading.get(), state }
    }
}

/// Returns whether pids here are not the host's.
fn is_contained(root: &Path) -> bool {
    root == Path::new("/") && proc::in_container()
}
