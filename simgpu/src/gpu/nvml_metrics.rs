//! NVML: clocks, power, temperature, links, errors and modes of a board.

use super::{
    abi::Out,
    nvml::{Device, about},
    nvml::{figure, no_number, number, numbers},
    nvml_faults::Faults,
    nvml_faults::status,
    sensors::{MEMORY_MHZ, SM_MHZ, Sensors, now_us, power_limit},
    state::Card,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// `nvmlTemperature_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Temperature {
    version: u32,
    sensor: i32,
    celsius: i32,
}

/// `nvmlBAR1Memory_t`.
#[repr(C)]
struct Bar1 {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlFieldValue_t`, its value as the number that most fields have.
#[repr(C)]
#[derive(Clone, Copy)]
struct Field {
    id: u32,
    scope: u32,
    at_us: i64,
    latency_us: i64,
    kind: i32,
    status: i32,
    value: u64,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
struct Attributes {
    multiprocessors: u32,
    /// Engines for copies, decoding, encoding, JPEG and optical flow.
    shared: [u32; 5],
    slices: u32,
    compute_slices: u32,
    memory_mib: u64,
}

/// Slices of a whole device, and the multiprocessors of each.
const SLICES: u32 = 7;
const MULTIPROCESSORS: u32 = 16;

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`
const UNSIGNED_LONG_LONG: i32 = 3;

/// `NVML_CLOCK_MEM`
const MEMORY_CLOCK: i32 = 2;

/// Links of NVLink.
const LINKS: u32 = 18;

/// BAR1 maps all memory, and the driver uses a little of it.
const BAR1_TOTAL: u64 = 256 << 30;
const BAR1_USED: u64 = 1 << 20;

/// Hottest temperatures, by NVML's kind of threshold: shutdown, slowdown, the memory's, the GPU's.
const THRESHOLDS: [u32; 4] = [92, 87, 95, 85];

/// Fields and their values: ECC errors, memory temperature, errors and number of links, errors of PCIe, remapped rows.
const FIELDS: [(u32, u64); 15] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (38, 0),
    (45, 0),
    (52, 0),
    (59, 0),
    (82, 71),
    (91, LINKS as u64),
    (94, 0),
    (142, 0),
    (143, 0),
    (144, 0),
    (145, 0),
];

fn clock(call: &str, device: Device, kind: i32, out: Out<u32>, sm: impl FnOnce(&Card, usize) -> u32) -> i32 {
    let value = |card: &Card, index| if kind == MEMORY_CLOCK { MEMORY_MHZ } else { sm(card, index) };
    number(&format!("{call}:{kind}"), device, out, value)
}

/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`.
const NVLINK_DATA: [u32; 2] = [138, 139];

/// Totals of NVLink in millionths of a KiB, and when they were read, by device and field. They begin with the first
/// reading of a process, and grow by what flowed since the reading before.
static TOTALS: Mutex<BTreeMap<(usize, u32), (u64, u128)>> = Mutex::new(BTreeMap::new());

/// Returns the KiB that went over the links until a time, µs since 1970; `flow` are the KiB in a second.
fn linked_kib(index: usize, id: u32, flow: u64, now_us: u64) -> u64 {
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    let (then_us, total) = totals.entry((index, id)).or_insert((now_us, 0));
    *total += u128::from(flow) * u128::from(now_us.saturating_sub(*then_us));
    *then_us = now_us.max(*then_us);
    u64::try_from(*total / 1_000_000).unwrap_or(u64::MAX)
}

/// Answers one field, as a call of its own that faults and tests can name.
fn field(device: Device, mut it: Field) -> Field {
    let call = format!("nvmlDeviceGetFieldValues:{}", it.id);
    it.kind = UNSIGNED_LONG_LONG;
    let now_us = now_us();
    it.at_us = i64::try_from(now_us).unwrap_or(0);
    let known = FIELDS.iter().find(|(id, _)| *id == it.id).map(|(_, value)| *value);
    it.status = about(&call, device, |card, index| {
        let faults = Faults::now();
        let flow = || Sensors::now(card, index).nvlink_kib(it.id == NVLINK_DATA[0]);
        let flow = || faults.answer(&format!("{call}:flow"), index).unwrap_or_else(flow);
        let linked = || NVLINK_DATA.contains(&it.id).then(|| linked_kib(index, it.id, flow(), now_us));
        let Some(value) = faults.answer(&call, index).or(known).or_else(linked) else {
            return status::NOT_SUPPORTED;
        };
        it.value = value;
        0
    });
    it
}

entry_points! {
    fn nvmlDeviceGetTemperature(device: Device, _sensor: i32, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetTemperature", device, out, |card, index| Sensors::now(card, index).celsius())
    }

    fn nvmlDeviceGetTemperatureV(device: Device, out: Out<Temperature>) -> i32 {
        about("nvmlDeviceGetTemperatureV", device, |card, index| {
            let Some(request) = out.held() else { return status::INVALID_ARGUMENT };
            let celsius = i32::try_from(Sensors::now(card, index).celsius()).unwrap_or(0);
            out.put(Temperature { celsius, ..request });
            0
        })
    }

    fn nvmlDeviceGetTemperatureThreshold(device: Device, kind: i32, out: Out<u32>) -> i32 {
        let call = format!("nvmlDeviceGetTemperatureThreshold:{kind}");
        match usize::try_from(kind).ok().and_then(|it| THRESHOLDS.get(it)) {
            Some(celsius) => number(&call, device, out, |_, _| *celsius),
            None => no_number(&call, device, out),
        }
    }

    fn nvmlDeviceGetPowerUsage(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetPowerUsage", device, out, |card, index| Sensors::now(card, index).power())
    }

    fn nvmlDeviceGetPowerManagementLimit(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetPowerManagementLimit", device, out, |card, _| power_limit(card))
    }

    fn nvmlDeviceGetEnforcedPowerLimit(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetEnforcedPowerLimit", device, out, |card, _| power_limit(card))
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(device: Device, least: Out<u32>, most: Out<u32>) -> i32 {
        let call = "nvmlDeviceGetPowerManagementLimitConstraints";
        numbers(call, device, [least, most], |card| [power_limit(card) / 7 * 2, power_limit(card)])
    }

    fn nvmlDeviceGetPerformanceState(device: Device, out: Out<i32>) -> i32 {
        number("nvmlDeviceGetPerformanceState", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetClockInfo(device: Device, kind: i32, out: Out<u32>) -> i32 {
        clock("nvmlDeviceGetClockInfo", device, kind, out, |card, index| Sensors::now(card, index).sm_mhz())
    }

    fn nvmlDeviceGetMaxClockInfo(device: Device, kind: i32, out: Out<u32>) -> i32 {
        clock("nvmlDeviceGetMaxClockInfo", device, kind, out, |_, _| SM_MHZ)
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Device, out: Out<u64>) -> i32 {
        number("nvmlDeviceGetCurrentClocksThrottleReasons", device, out, |card, index| {
            Sensors::now(card, index).throttle_reasons()
        })
    }

    // Passively cooled, as boards for servers are.
    fn nvmlDeviceGetFanSpeed(device: Device, out: Out<u32>) -> i32 {
        no_number("nvmlDeviceGetFanSpeed", device, out)
    }

    fn nvmlDeviceGetFanSpeed_v2(device: Device, _fan: u32, out: Out<u32>) -> i32 {
        no_number("nvmlDeviceGetFanSpeed_v2", device, out)
    }

    fn nvmlDeviceGetNumFans(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetNumFans", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetEccMode(device: Device, now: Out<i32>, pending: Out<i32>) -> i32 {
        numbers("nvmlDeviceGetEccMode", device, [now, pending], |_| [1, 1])
    }

    fn nvmlDeviceGetTotalEccErrors(device: Device, _kind: i32, _counter: i32, out: Out<u64>) -> i32 {
        number("nvmlDeviceGetTotalEccErrors", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetMemoryErrorCounter(
        device: Device, _kind: i32, _counter: i32, _location: i32, out: Out<u64>,
    ) -> i32 {
        number("nvmlDeviceGetMemoryErrorCounter", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetPersistenceMode(device: Device, out: Out<i32>) -> i32 {
        number("nvmlDeviceGetPersistenceMode", device, out, |_, _| 1)
    }

    fn nvmlDeviceGetComputeMode(device: Device, out: Out<i32>) -> i32 {
        number("nvmlDeviceGetComputeMode", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetCurrPcieLinkGeneration", device, out, |_, _| 5)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetMaxPcieLinkGeneration", device, out, |_, _| 5)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetCurrPcieLinkWidth", device, out, |_, _| 16)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetMaxPcieLinkWidth", device, out, |_, _| 16)
    }

    fn nvmlDeviceGetPcieThroughput(device: Device, counter: i32, out: Out<u32>) -> i32 {
        let call = format!("nvmlDeviceGetPcieThroughput:{counter}");
        number(&call, device, out, |card, index| Sensors::now(card, index).pcie_kib(counter == 0))
    }

    fn nvmlDeviceGetPcieReplayCounter(device: Device, out: Out<u32>) -> i32 {
        number("nvmlDeviceGetPcieReplayCounter", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetBAR1MemoryInfo(device: Device, out: Out<Bar1>) -> i32 {
        let call = "nvmlDeviceGetBAR1MemoryInfo";
        figure(call, device, out, |_, index| {
            let used = Faults::now().answer(call, index).unwrap_or(BAR1_USED);
            Bar1 { total: BAR1_TOTAL, free: BAR1_TOTAL.saturating_sub(used), used }
        })
    }

    // Nothing is encoded or decoded in training; the second number is the sampling period.
    fn nvmlDeviceGetEncoderUtilization(device: Device, out: Out<u32>, period_us: Out<u32>) -> i32 {
        period_us.put(167_000);
        number("nvmlDeviceGetEncoderUtilization", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetDecoderUtilization(device: Device, out: Out<u32>, period_us: Out<u32>) -> i32 {
        period_us.put(167_000);
        number("nvmlDeviceGetDecoderUtilization", device, out, |_, _| 0)
    }

    fn nvmlDeviceGetNvLinkState(device: Device, link: u32, out: Out<u32>) -> i32 {
        let call = format!("nvmlDeviceGetNvLinkState:{link}");
        if link < LINKS { number(&call, device, out, |_, _| 1) } else { no_number(&call, device, out) }
    }

    // Only MIG devices have some, each an equal part.
    fn nvmlDeviceGetAttributes_v2(device: Device, out: Out<Attributes>) -> i32 {
        about("nvmlDeviceGetAttributes_v2", device, |card, index| {
            if !card.uuid().starts_with("MIG-") {
                return status::NOT_SUPPORTED;
            }
            let parts = u32::try_from(Faults::now().parts(index).max(1)).unwrap_or(1);
            let slices = SLICES / parts;
            out.put(Attributes {
                multiprocessors: slices * MULTIPROCESSORS,
                shared: [1; 5],
                slices,
                compute_slices: slices,
                memory_mib: card.total >> 20,
            });
            0
        })
    }

    fn nvmlDeviceGetFieldValues(device: Device, count: i32, values: Out<Field>) -> i32 {
        let found = about("nvmlDeviceGetFieldValues", device, |_, _| 0);
        if found != 0 {
            return found;
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let Some(request) = values.held_at(index) else { return status::INVALID_ARGUMENT };
            values.put_at(index, field(device, request));
        }
        0
    }
}
