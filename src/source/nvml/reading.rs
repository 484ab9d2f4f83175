//! Single readings of one device, each with its own way to be absent.

use crate::{
    event::{DeviceId, DeviceInfo, DeviceMemory, Load, ProcessUse, Trouble},
    text::Foreign,
    units::Bytes,
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor},
    enums::device::UsedGpuMemory,
    error::NvmlError,
    struct_wrappers::device::ProcessInfo,
};
use std::collections::BTreeMap;

const NO_V2: &str = "this driver is too old to say (nvmlDeviceGetMemoryInfo_v2 is missing): 510 or newer does";

/// What a device is; the UUID is what everything is joined by, so a device without one is none.
pub(super) fn info(device: &Device<'_>, index: u32, parent: Option<DeviceId>) -> Result<DeviceInfo, NvmlError> {
    let id = DeviceId(device.uuid()?);
    let name = Foreign::new(device.name().unwrap_or_default());
    Ok(DeviceInfo { id, index, name, parent })
}

/// Memory with the driver's reserve apart.
pub(super) fn memory(device: &Device<'_>) -> Result<DeviceMemory, Trouble> {
    let memory = device.memory_info().map_err(|e| match e {
        // The older call is out of the wrapper's safe reach.
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => Trouble::Other(NO_V2.into()),
        other => trouble(&other),
    })?;
    Ok(DeviceMemory {
        total: Bytes(memory.total),
        used: Bytes(memory.used),
        free: Bytes(memory.free),
        reserved: Some(Bytes(memory.reserved)),
    })
}

/// What a device says of its work, and of its warmth if that is asked for; the rest is as it was.
pub(super) fn load(device: &Device<'_>, before: &Load, warmth: bool) -> Load {
    let utilization = device.utilization_rates().ok();
    Load {
        gpu_percent: utilization.as_ref().map(|it| it.gpu),
        memory_percent: utilization.as_ref().map(|it| it.memory),
        celsius: if warmth { device.temperature(TemperatureSensor::Gpu).ok() } else { before.celsius },
        power_mw: device.power_usage().ok(),
        ..*before
    }
}

/// What hardly moves.
pub(super) fn steady(device: &Device<'_>) -> Load {
    Load {
        power_limit_mw: device.enforced_power_limit().ok(),
        fan_percent: device.fan_speed(0).ok(),
        ecc_errors: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        ..Load::default()
    }
}

/// Processes that compute. The wrapper asks twice, for the count and then for the list: whoever comes in
/// between makes it too short, so it is tried once more. Drivers before 510 have the second version of the call.
pub(super) fn compute(device: &Device<'_>) -> Result<Vec<ProcessUse>, Trouble> {
    match device.running_compute_processes() {
        Err(NvmlError::InsufficientSize(_)) => device.running_compute_processes(),
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => device.running_compute_processes_v2(),
        other => other,
    }
    .map(|it| it.iter().map(process).collect())
    .map_err(|e| trouble(&e))
}

/// Processes that draw; a device without a display knows no such list, and then there are none.
pub(super) fn graphics(device: &Device<'_>) -> Vec<ProcessUse> {
    device.running_graphics_processes().unwrap_or_default().iter().map(process).collect()
}

/// One list of both, the larger figure where both name the same process.
pub(super) fn merged(lists: [&[ProcessUse]; 2]) -> Vec<ProcessUse> {
    let mut by_pid: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    for process in lists.into_iter().flatten() {
        let known = by_pid.entry(process.pid).or_default();
        *known = (*known).max(process.used);
    }
    by_pid.into_iter().map(|(pid, used)| ProcessUse { pid, used }).collect()
}

fn process(info: &ProcessInfo) -> ProcessUse {
    let used = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    ProcessUse { pid: info.pid, used }
}

/// The reason for a device's silence.
fn trouble(error: &NvmlError) -> Trouble {
    match error {
        NvmlError::NoPermission => Trouble::NoPermission,
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            Trouble::NotSupported
        }
        // 28 is GPU_NOT_FOUND of newer headers.
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound | NvmlError::UnexpectedVariant(28) => {
            Trouble::Lost
        }
        other => Trouble::Other(Foreign::new(other.to_string())),
    }
}

/// Why there is no driver to ask, and what to do.
pub(super) fn absence(error: &NvmlError) -> Foreign {
    let why = match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            "no NVIDIA driver library here (libnvidia-ml.so.1): install the driver, or set GPUWATCH_NVML_PATH"
                .to_owned()
        }
        NvmlError::DriverNotLoaded => "the NVIDIA kernel driver is not loaded: try `sudo modprobe nvidia`".to_owned(),
        NvmlError::NoPermission => "this user may not ask the NVIDIA driver: see the modes of /dev/nvidia*".to_owned(),
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA driver was updated under the running kernel module: reload it or reboot".to_owned()
        }
        NvmlError::OperatingSystem => {
            "the operating system keeps the GPU away: a container needs `--gpus`, a job its devices".to_owned()
        }
        other => format!("the NVIDIA driver does not answer ({other}): see `nvidia-smi`"),
    };
    Foreign::new(why)
}
