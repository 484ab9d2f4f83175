//! NVML: MIG devices; critical errors (Xid) and changes of how a device is divided as events.

use super::{
    abi::Out,
    nvml::{Device, about, part_of},
    nvml_faults::status,
    nvml_faults::{Faults, PARTS_MAX},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// `nvmlEventTypeXidCriticalError`
const XID: u64 = 8;
/// `nvmlEventMigConfigChange`
const MIG: u64 = 256;
const POLL_EVERY: Duration = Duration::from_millis(10);
const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlEventData_t` of the second version.
#[repr(C)]
struct EventData {
    device: Device,
    kind: u64,
    data: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// The watched devices, each with the watched kinds of events and its latest known parts; and the delivered errors,
/// each once for as long as it lasts.
#[derive(Default)]
struct EventSet {
    devices: BTreeMap<usize, (u64, usize)>,
    delivered: BTreeSet<(usize, u64)>,
}

impl EventSet {
    /// The device, the kind and the data of the next event.
    fn next(&mut self) -> Option<(usize, u64, u64)> {
        let faults = Faults::now();
        for (index, (kinds, known)) in &mut self.devices {
            let parts = faults.parts(*index);
            if *kinds & MIG != 0 && *known != parts {
                *known = parts;
                return Some((*index, MIG, 0));
            }
        }
        let is_of_interest = |it: &(usize, u64)| self.devices.get(&it.0).is_some_and(|device| device.0 & XID != 0);
        let standing: BTreeSet<_> = faults.errors().filter(is_of_interest).collect();
        self.delivered.retain(|it| standing.contains(it));
        let (index, data) = standing.difference(&self.delivered).next().copied()?;
        self.delivered.insert((index, data));
        Some((index, XID, data))
    }
}

fn sets() -> MutexGuard<'static, BTreeMap<usize, EventSet>> {
    static SETS: Mutex<BTreeMap<usize, EventSet>> = Mutex::new(BTreeMap::new());
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

entry_points! {
    fn nvmlDeviceGetMigMode(device: Device, now: Out<u32>, pending: Out<u32>) -> i32 {
        about("nvmlDeviceGetMigMode", device, |_, index| {
            let mode = u32::from(Faults::now().parts(index) > 0);
            now.put(mode);
            pending.put(mode);
            0
        })
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: Device, out: Out<u32>) -> i32 {
        about("nvmlDeviceGetMaxMigDeviceCount", device, |_, index| {
            let most = if Faults::now().parts(index) > 0 { PARTS_MAX } else { 0 };
            out.put(u32::try_from(most).unwrap_or(0));
            0
        })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Device, slot: u32, out: Out<Device>) -> i32 {
        about("nvmlDeviceGetMigDeviceHandleByIndex", device, |_, index| {
            let slot = usize::try_from(slot).unwrap_or(PARTS_MAX);
            if slot >= Faults::now().parts(index) {
                return status::NOT_FOUND;
            }
            out.put(part_of(index + 1, slot));
            0
        })
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part: Device, out: Out<Device>) -> i32 {
        about("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part, |_, index| {
            out.put(index + 1);
            0
        })
    }

    fn nvmlDeviceIsMigDeviceHandle(device: Device, out: Out<u32>) -> i32 {
        about("nvmlDeviceIsMigDeviceHandle", device, |card, _| {
            out.put(u32::from(card.uuid().starts_with("MIG-")));
            0
        })
    }

    fn nvmlDeviceGetSupportedEventTypes(device: Device, out: Out<u64>) -> i32 {
        about("nvmlDeviceGetSupportedEventTypes", device, |_, _| {
            out.put(XID | MIG);
            0
        })
    }

    fn nvmlEventSetCreate(out: Out<usize>) -> i32 {
        let mut sets = sets();
        let handle = sets.last_key_value().map_or(1, |(last, _)| last + 1);
        sets.insert(handle, EventSet::default());
        out.put(handle);
        0
    }

    fn nvmlDeviceRegisterEvents(device: Device, kinds: u64, set: usize) -> i32 {
        about("nvmlDeviceRegisterEvents", device, |_, index| {
            if kinds & !(XID | MIG) != 0 {
                return status::NOT_SUPPORTED;
            }
            sets().get_mut(&set).map_or(status::INVALID_ARGUMENT, |it| {
                it.devices.insert(index, (kinds, Faults::now().parts(index)));
                0
            })
        })
    }

    fn nvmlEventSetWait_v2(set: usize, out: Out<EventData>, patience_ms: u32) -> i32 {
        let end = Instant::now() + Duration::from_millis(patience_ms.into());
        loop {
            let Some(next) = sets().get_mut(&set).map(EventSet::next) else { return status::INVALID_ARGUMENT };
            if let Some((index, kind, data)) = next {
                let (gpu_instance, compute_instance) = (NO_INSTANCE, NO_INSTANCE);
                out.put(EventData { device: index + 1, kind, data, gpu_instance, compute_instance });
                return 0;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return status::TIMEOUT;
            }
            thread::sleep(left.min(POLL_EVERY));
        }
    }

    fn nvmlEventSetFree(set: usize) -> i32 {
        sets().remove(&set).map_or(status::INVALID_ARGUMENT, |_| 0)
    }
}
