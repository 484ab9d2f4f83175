//! Readings of one device, each of which can be absent in its own way, and what each process uses of it.

use crate::{
    facts::{
        event::{DeviceId, DeviceInfo, DeviceMemory, ProcessUse, ReadError, Unified},
        figures::{Changes, Figure, Figures},
        host_memory::MachineMemory,
        maker::Maker,
        text::Foreign,
        units::Bytes,
    },
    sources::figures::Sent,
};
use gpuwatch_nvml::{Direct, Utilization};
use nvml_wrapper::{Device, enums::device::UsedGpuMemory, error::NvmlError, struct_wrappers::device::ProcessInfo};
use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr},
    os::unix::ffi::OsStrExt,
};

/// The library that the wrapper opens by default.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// `NVML_ERROR_NOT_FOUND`
const NOT_FOUND: i32 = 6;

/// Returns a device's description. Everything is joined by UUID, so a device without one has none.
pub(super) fn info(device: &Device<'_>, index: u32, parent: Option<DeviceId>) -> Result<DeviceInfo, NvmlError> {
    let id = DeviceId(device.uuid()?);
    let name = Foreign::new(device.name().unwrap_or_default());
    Ok(DeviceInfo { id, index, name, parent, maker: Maker::Nvidia })
}

/// Returns memory, without the driver's reserve in `used`. Drivers before 510 have only the first version of the call,
/// which includes the reserve in `used` and does not report it.
/// `system` is asked where the device may share its memory.
pub(super) fn memory(
    device: &Device<'_>,
    id: &DeviceId,
    direct: Option<&Direct>,
    system: impl FnOnce() -> MachineMemory,
) -> Result<DeviceMemory, ReadError> {
    let reading = match (device.memory_info(), direct) {
        (Ok(it), _) => Ok(DeviceMemory {
            total: Bytes(it.total),
            used: Bytes(it.used),
            free: Bytes(it.free),
            reserved: Some(Bytes(it.reserved)),
            unified: None,
        }),
        (Err(error), Some(direct)) if is_missing(&error) => {
            let it = direct.memory(&id.0).map_err(|it| trouble(&refusal(it)))?;
            Ok(DeviceMemory {
                total: Bytes(it.total),
                used: Bytes(it.used),
                free: Bytes(it.free),
                reserved: None,
                unified: None,
            })
        }
        // A driver without the call says nothing of the device.
        (Err(error), _) if is_missing(&error) => return Err(trouble(&error)),
        (Err(error), _) => Err(trouble(&error)),
    };
    or_unified(reading, system)
}

/// Returns the memory of a device that shares the system's, of which some drivers report nothing, and others the
/// system's total with a page cache that counts as used (GB10, Jetson). What the driver reports of another device
/// stays.
fn or_unified(
    reading: Result<DeviceMemory, ReadError>,
    system: impl FnOnce() -> MachineMemory,
) -> Result<DeviceMemory, ReadError> {
    let total = match &reading {
        Err(ReadError::NotSupported) => None,
        Ok(it) => Some(it.total.0),
        Err(_) => return reading,
    };
    let system = system();
    let is_unified = total.is_none_or(|it| it == 0 || it.abs_diff(system.total.0) <= SAME_TOTAL);
    if !is_unified || system.total.0 == 0 {
        return reading;
    }
    let free = system.available.min(system.total);
    let cache = Bytes(free.0.saturating_sub(system.free.0));
    Ok(DeviceMemory {
        total: system.total,
        used: Bytes(system.total.0 - free.0),
        free,
        reserved: None,
        unified: Some(Unified { cache, swap: system.swap }),
    })
}

/// A driver that reports the system's total may round it, in bytes.
const SAME_TOTAL: u64 = 1 << 16;

/// Opens the already loaded library directly, without the wrapper.
pub(super) fn direct(library: Option<&OsStr>) -> Option<Direct> {
    let name = library.map_or(LIBRARY.as_bytes(), OsStr::as_bytes);
    Direct::loaded(&CString::new(name).ok()?)
}

/// Whether the driver is too old for a call.
pub(super) fn is_missing(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
}

pub(super) fn refusal(result: i32) -> NvmlError {
    NvmlError::from(u32::try_from(result).unwrap_or(u32::MAX))
}

/// Returns compute processes. The wrapper calls the driver twice, for the count and for the list, and holds its lock
/// each time, so it is only used for a device that is not found by UUID, such as MIG devices under some drivers.
pub(super) fn compute(
    device: &Device<'_>,
    id: &DeviceId,
    direct: Option<&Direct>,
) -> Result<Vec<ProcessUse>, ReadError> {
    match direct.map_or(Err(NOT_FOUND), |it| it.processes(&id.0)) {
        Ok(list) => Ok(list.iter().map(|(pid, used)| ProcessUse { pid: *pid, used: used.map(Bytes) }).collect()),
        Err(NOT_FOUND) => match device.running_compute_processes() {
            Ok(list) => Ok(list.iter().map(process).collect()),
            Err(error) => Err(trouble(&error)),
        },
        Err(result) => Err(trouble(&refusal(result))),
    }
}

/// Returns graphics processes; a device without a display has no such list.
pub(super) fn graphics(device: &Device<'_>) -> Vec<ProcessUse> {
    let list = match device.running_graphics_processes() {
        Err(error) if is_missing(&error) => device.running_graphics_processes_v2(),
        other => other,
    };
    list.unwrap_or_default().iter().map(process).collect()
}

/// Merges both lists; if both have a process, the larger figure counts.
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

/// Converts an error of a device.
pub(super) fn trouble(error: &NvmlError) -> ReadError {
    match error {
        NvmlError::NoPermission => ReadError::NoPermission,
        NvmlError::NotSupported => ReadError::NotSupported,
        missing if is_missing(missing) => ReadError::NotSupported,
        // 28 is GPU_NOT_FOUND in newer headers.
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound | NvmlError::UnexpectedVariant(28) => {
            ReadError::Lost
        }
        other => ReadError::Other(Foreign::new(other.to_string())),
    }
}

/// Describes why there is no driver, and what to do.
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

/// Periods that ended earlier do not count, in µs. Drivers end one every sixth of a second to every second.
const LATEST_US: u64 = 3_000_000;

/// Seconds after which a call that failed is tried again, and between two facts with all figures.
const RETRY_EVERY: u64 = 60;

/// What processes use of a device, as last sent.
#[derive(Default)]
pub(super) struct Uses {
    sent: Sent,
    is_needed: bool,
    has_failed: bool,
}

impl Uses {
    /// Reads in the device's so many-eth second, if that is due, and returns what to send. Without need, forgets what
    /// is known. A call that the driver lacks is made once a minute.
    pub(super) fn turn(
        &mut self,
        second: u64,
        every: Option<u64>,
        read: impl FnOnce() -> Result<Vec<Utilization>, i32>,
    ) -> Vec<(u32, Changes)> {
        let Some(every) = every else {
            self.is_needed = false;
            return self.sent.changes(BTreeMap::new(), false);
        };
        let is_whole = second.is_multiple_of(RETRY_EVERY);
        self.has_failed &= !is_whole;
        let is_new = !std::mem::replace(&mut self.is_needed, true);
        if self.has_failed || !(is_new || second.is_multiple_of(every)) {
            return Vec::new();
        }
        let answer = read();
        self.has_failed = answer.is_err();
        self.sent.changes(latest(&answer.unwrap_or_default()), is_whole)
    }
}

/// Makes the call.
pub(super) fn uses(direct: Option<&Direct>, uuid: &str, now_us: u64) -> Result<Vec<Utilization>, i32> {
    direct.map_or(Ok(Vec::new()), |it| it.utilization(uuid, now_us.saturating_sub(LATEST_US)))
}

/// Returns the latest sample of each process. The driver's list may have several, in any order.
fn latest(samples: &[Utilization]) -> BTreeMap<u32, Figures> {
    let mut by_pid: BTreeMap<u32, &Utilization> = BTreeMap::new();
    for it in samples {
        let known = by_pid.entry(it.pid).or_insert(it);
        if it.at_us > known.at_us {
            *known = it;
        }
    }
    by_pid.into_iter().map(|(pid, it)| (pid, figures(it))).collect()
}

fn figures(it: &Utilization) -> Figures {
    let values = [
        (Figure::SmPercent, it.sm),
        (Figure::MemoryPercent, it.memory),
        (Figure::EncoderPercent, it.encoder),
        (Figure::DecoderPercent, it.decoder),
    ];
    // Some drivers write numbers above 100.
    values.into_iter().filter(|(_, it)| *it <= 100).map(|(figure, it)| (figure, it.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{host_memory::Room, units::whole};

    #[test]
    fn the_latest_sample_of_each_process_counts_and_no_impossible_number() {
        let sample = |pid, at_us, sm| Utilization { pid, at_us, sm, memory: 1, encoder: 0, decoder: u32::MAX };
        let latest = latest(&[sample(7, 20, 34), sample(8, 20, 5), sample(7, 10, 90), sample(8, 30, 6)]);
        let of = |pid: u32, figure| latest[&pid].get(figure);
        assert_eq!((of(7, Figure::SmPercent), of(8, Figure::SmPercent)), (Some(34), Some(6)));
        assert_eq!((of(7, Figure::EncoderPercent), of(7, Figure::DecoderPercent)), (Some(0), None));
    }

    #[test]
    fn a_call_is_made_when_it_is_needed_and_once_a_minute_where_it_fails() {
        let mut uses = Uses::default();
        let mut asked = Vec::new();
        for (second, every, answer) in [
            (1, None, Ok(())),
            (3, Some(2), Ok(())),
            (4, Some(2), Ok(())),
            (5, Some(2), Ok(())),
            (6, Some(2), Err(3)),
            (8, Some(2), Ok(())),
            (60, Some(2), Err(3)),
            (62, None, Ok(())),
            (120, Some(10), Ok(())),
            (122, Some(10), Ok(())),
        ] {
            uses.turn(second, every, || {
                asked.push(second);
                answer.map(|()| Vec::new())
            });
        }
        assert_eq!(asked, [3, 4, 6, 60, 120]);
    }

    /// The machine of a GB10 with so much free and available, in MiB.
    fn gb10(free: u64, available: u64) -> MachineMemory {
        let mib = |it: u64| Bytes(it << 20);
        MachineMemory {
            total: Bytes(127_600_168 << 10),
            free: mib(free),
            available: mib(available),
            swap: Room { size: mib(16 << 10), used: mib(1 << 10) },
            ..MachineMemory::default()
        }
    }

    /// Reports of what these systems show: nvtop 511 (89.276 GiB are used, not the 98.695 that are not free) and 449,
    /// unsloth 10704 (a file of 60 GiB in the page cache moves `MemFree` from 103.25 to 41.52 GiB, `MemAvailable` not).
    #[test]
    fn a_device_without_memory_of_its_own_has_the_systems() {
        let gib = |it: Bytes| format!("{:.2}", it.0 as f64 / f64::from(1 << 30));
        let mib = |gib: f64| whole(gib * 1024.0);
        let total = 127_600_168.0 / 1_048_576.0;
        for (free, available, used, cache) in [
            (mib(total - 98.695), mib(total - 89.276), "89.28", "9.42"),
            (mib(103.25), mib(115.85), "5.84", "12.60"),
            (mib(41.52), mib(115.65), "6.04", "74.13"),
        ] {
            let it = or_unified(Err(ReadError::NotSupported), || gb10(free, available)).unwrap();
            let unified = it.unified.unwrap();
            assert_eq!((gib(it.total).as_str(), gib(it.used).as_str()), ("121.69", used));
            assert_eq!((it.used.plus(it.free), gib(unified.cache).as_str()), (it.total, cache));
            assert_eq!(unified.swap.free(), Bytes(15 << 30));
        }
        // nvitop 208: this driver reports the system's total, and page cache as used.
        let total = gb10(0, 0).total;
        let reported = |total| DeviceMemory { total, used: total, free: Bytes(0), reserved: None, unified: None };
        let it = or_unified(Ok(reported(total)), || gb10(mib(41.52), mib(115.65))).unwrap();
        assert_eq!(gib(it.free), "115.65");
        let discrete = reported(Bytes(80 << 30));
        assert_eq!(or_unified(Ok(discrete), || gb10(1, 2)), Ok(discrete));
        assert_eq!(or_unified(Err(ReadError::NoPermission), || gb10(1, 2)), Err(ReadError::NoPermission));
        let nothing = or_unified(Err(ReadError::NotSupported), MachineMemory::default);
        assert_eq!(nothing, Err(ReadError::NotSupported), "nor does the system report anything");
    }
}
