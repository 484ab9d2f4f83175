//! NVML: how each process used a device in the last period.

use super::{
    abi::Out,
    nvml::{Device, about},
    nvml_faults::Faults,
    nvml_faults::status,
    sensors::{Sensors, period_us},
    state::Card,
};

/// `nvmlProcessUtilizationSample_t`
#[repr(C)]
struct Sample {
    pid: u32,
    at_us: u64,
    /// Percent: multiprocessors, memory, encoder, decoder.
    percent: [u32; 4],
}

const CALL: &str = "nvmlDeviceGetProcessUtilization";

/// What faults and tests call the four numbers.
const NUMBERS: [&str; 4] = ["sm", "memory", "encoder", "decoder"];

/// Returns the percents of a process: its part of the device's, unless a test sets them for it or for all.
fn percent(faults: &Faults, pid: u32, index: usize, device: u32, tenants: u32) -> [u32; 4] {
    let part = device / tenants.max(1);
    let usual = [part, part / 2, 0, 0];
    std::array::from_fn(|place| {
        let name = format!("{CALL}:{}", NUMBERS[place]);
        let set = faults.answer(&format!("{name}:{pid}"), index).or_else(|| faults.answer(&name, index));
        set.map_or(usual[place], |it| u32::try_from(it).unwrap_or(u32::MAX))
    })
}

/// Returns the processes that used a device.
fn samples(card: &Card, index: usize) -> Vec<Sample> {
    let faults = Faults::now();
    let (device, at_us) = (Sensors::now(card, index).utilisation(), period_us());
    let tenants = u32::try_from(card.tenants().len()).unwrap_or(u32::MAX);
    let pids = card.tenants().iter().map(|it| it.pid);
    pids.filter(|pid| !faults.has("idle", &format!("{CALL}:{pid}"), index))
        .map(|pid| Sample { pid, at_us, percent: percent(&faults, pid, index, device, tenants) })
        .collect()
}

entry_points! {
    fn nvmlDeviceGetProcessUtilization(device: Device, out: Out<Sample>, count: Out<u32>, since_us: u64) -> i32 {
        let Some(capacity) = count.held() else { return status::INVALID_ARGUMENT };
        about(CALL, device, |card, index| {
            let mut samples = samples(card, index);
            samples.retain(|it| it.at_us > since_us);
            count.put(u32::try_from(samples.len()).unwrap_or(0));
            if samples.is_empty() {
                return status::NOT_FOUND;
            }
            if out.is_null() || samples.len() > usize::try_from(capacity).unwrap_or(0) {
                return status::INSUFFICIENT_SIZE;
            }
            for (place, it) in samples.into_iter().enumerate() {
                out.put_at(place, it);
            }
            0
        })
    }
}
