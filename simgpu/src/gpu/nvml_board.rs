//! NVML: the figures of a board.

use super::{
    abi::Out,
    model::Model,
    nvml::{Device, about, put},
    nvml::{figure, number, numbers, set},
    nvml_faults::status,
    sensors::Sensors,
};
use std::ffi::c_char;

/// `nvmlPciInfo_t` of the third version.
#[repr(C)]
struct Pci {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem: u32,
    id: [u8; 32],
}

#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

/// `nvmlGpuFabricInfo_v2_t`, with which later ones begin.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fabric {
    version: u32,
    cluster: [u8; 16],
    status: i32,
    clique: u32,
    state: u8,
    health: u32,
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N - 1);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

fn pci(index: usize) -> Pci {
    let bus = u32::try_from(index).unwrap_or(0) + 1;
    Pci {
        legacy: bytes(&format!("0000:{bus:02X}:00.0")),
        domain: 0,
        bus,
        device: 0,
        device_id: 0x2335_10de,
        subsystem: 0,
        id: bytes(&format!("00000000:{bus:02X}:00.0")),
    }
}

entry_points! {
    fn nvmlDeviceGetName(device: Device, out: Out<c_char>, capacity: u32) -> i32 {
        about("nvmlDeviceGetName", device, |card, _| put(out, capacity, card.name()))
    }

    fn nvmlDeviceGetUUID(device: Device, out: Out<c_char>, capacity: u32) -> i32 {
        about("nvmlDeviceGetUUID", device, |card, _| put(out, capacity, card.uuid()))
    }

    fn nvmlDeviceGetIndex(device: Device, out: Out<u32>) -> i32 {
        figure("nvmlDeviceGetIndex", device, out, |_, index| u32::try_from(index).unwrap_or(0))
    }

    fn nvmlDeviceGetMinorNumber(device: Device, out: Out<u32>) -> i32 {
        figure("nvmlDeviceGetMinorNumber", device, out, |_, index| u32::try_from(index).unwrap_or(0))
    }

    fn nvmlDeviceGetPciInfo_v3(device: Device, out: Out<Pci>) -> i32 {
        figure("nvmlDeviceGetPciInfo_v3", device, out, |_, index| pci(index))
    }

    fn nvmlDeviceGetMemoryInfo(device: Device, out: Out<Memory>) -> i32 {
        figure("nvmlDeviceGetMemoryInfo", device, out, |card, _| {
            let used = card.used() + card.reserved;
            Memory { total: card.total, free: card.total.saturating_sub(used), used }
        })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: Out<Memory2>) -> i32 {
        about("nvmlDeviceGetMemoryInfo_v2", device, |card, _| {
            let Some(request) = out.held() else { return status::INVALID_ARGUMENT };
            if usize::try_from(request.version & 0x00ff_ffff) != Ok(size_of::<Memory2>()) {
                return status::VERSION_MISMATCH;
            }
            let used = card.used();
            let free = card.capacity().saturating_sub(used);
            out.put(Memory2 { version: request.version, total: card.total, reserved: card.reserved, free, used });
            0
        })
    }

    fn nvmlDeviceGetUtilizationRates(device: Device, out: Out<Utilization>) -> i32 {
        figure("nvmlDeviceGetUtilizationRates", device, out, |card, index| {
            let set = set("nvmlDeviceGetUtilizationRates", index);
            let gpu = set.unwrap_or_else(|| Sensors::now(card, index).utilisation());
            Utilization { gpu, memory: gpu / 2 }
        })
    }

    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: Out<i32>, minor: Out<i32>) -> i32 {
        numbers("nvmlDeviceGetCudaComputeCapability", device, [major, minor], |card| {
            let model = Model::of(card.name());
            [model.major, model.minor]
        })
    }

    fn nvmlDeviceGetDisplayActive(device: Device, out: Out<i32>) -> i32 {
        number("nvmlDeviceGetDisplayActive", device, out, |_, _| 0)
    }

    // A board that is on no fabric of several nodes.
    fn nvmlDeviceGetGpuFabricInfoV(device: Device, out: Out<Fabric>) -> i32 {
        about("nvmlDeviceGetGpuFabricInfoV", device, |_, _| {
            let Some(request) = out.held() else { return status::INVALID_ARGUMENT };
            out.put(Fabric { version: request.version, cluster: [0; 16], status: 0, clique: 0, state: 0, health: 0 });
            0
        })
    }

    fn nvmlDeviceGetArchitecture(device: Device, out: Out<u32>) -> i32 {
        figure("nvmlDeviceGetArchitecture", device, out, |card, _| match Model::of(card.name()) {
            Model { major: 7, minor: 0, .. } => 5,
            Model { major: 7, .. } => 6,
            Model { major: 8, minor: 9, .. } => 8,
            Model { major: 8, .. } => 7,
            Model { major: 9, .. } => 9,
            _ => 10,
        })
    }
}
