//! NVML: the same devices and the same processes, as a monitor sees them.

use super::{
    abi::{In, Out},
    nvml_faults::{Faults, status},
    process::process,
    state::Card,
};
use std::{
    ffi::{CStr, c_char},
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

static USERS: AtomicUsize = AtomicUsize::new(0);

/// A device as callers name it: its index plus one, and for a MIG device so many times `PART` more as its slot plus
/// one.
pub(super) type Device = usize;

/// More than a machine has devices.
const PART: usize = 1 << 16;

/// The name of one MIG device of a device.
pub(super) fn part_of(device: Device, slot: usize) -> Device {
    device + (slot + 1) * PART
}

/// The index, and for a MIG device its slot there.
fn place(device: Device) -> Option<(usize, Option<usize>)> {
    Some(((device % PART).checked_sub(1)?, (device / PART).checked_sub(1)))
}

/// Answers a question about a device: `work` gets its card and its index.
pub(super) fn about(call: &str, device: Device, work: impl FnOnce(&Card, usize) -> i32) -> i32 {
    if USERS.load(Ordering::Relaxed) == 0 {
        return status::UNINITIALIZED;
    }
    let Some((index, slot)) = place(device) else { return status::INVALID_ARGUMENT };
    let faults = Faults::now();
    if let Err(status) = faults.suffer(call, Some(index)) {
        return status;
    }
    let parts = faults.parts(index);
    let mut process = process();
    let Ok(book) = process.book() else { return status::UNKNOWN };
    book.locked(|it| match (it.cards().get(index), slot) {
        (None, _) => status::INVALID_ARGUMENT,
        (Some(_), _) if faults.is_gone(index) => status::GPU_IS_LOST,
        (Some(card), None) => match &faults.kept(index)[..] {
            [] => work(card, index),
            kept => work(&card.with(kept), index),
        },
        (Some(card), Some(slot)) if slot < parts => work(&card.part(slot, parts), index),
        (Some(_), Some(_)) => status::NOT_FOUND,
    })
}

/// Finds a device whose card and index, among the present ones, satisfy `wanted`.
fn find(call: &str, out: Out<Device>, wanted: impl Fn(&Card, usize) -> bool) -> i32 {
    if USERS.load(Ordering::Relaxed) == 0 {
        return status::UNINITIALIZED;
    }
    let faults = Faults::now();
    let Ok(found) = process().book().map(|book| {
        book.locked(|it| {
            let there = it.cards().iter().enumerate().filter(|(index, _)| !faults.is_gone(*index));
            let mut named = there.enumerate().map(|(place, (index, card))| (index, wanted(card, place)));
            named.find(|(_, is_wanted)| *is_wanted).map(|(index, _)| index)
        })
    }) else {
        return status::UNKNOWN;
    };
    // A device that does not answer keeps its place, and has no handle.
    if let Err(status) = faults.suffer(call, found) {
        return status;
    }
    found.map_or(status::NOT_FOUND, |index| {
        out.put(index + 1);
        0
    })
}

fn begin() -> i32 {
    if let Err(status) = Faults::now().suffer("nvmlInit_v2", None) {
        return status;
    }
    if process().book().is_err() {
        return status::DRIVER_NOT_LOADED;
    }
    USERS.fetch_add(1, Ordering::Relaxed);
    0
}

/// Writes a text the way NVML does: whole, or not at all.
pub(super) fn put(out: Out<c_char>, capacity: u32, text: &str) -> i32 {
    let capacity = usize::try_from(capacity).unwrap_or(0);
    if out.is_null() {
        return status::INVALID_ARGUMENT;
    }
    if text.len() >= capacity {
        return status::INSUFFICIENT_SIZE;
    }
    out.put_text(text, capacity);
    0
}

fn error_text(status: i32) -> &'static CStr {
    match status {
        0 => c"Success",
        status::UNINITIALIZED => c"Uninitialized",
        status::INVALID_ARGUMENT => c"Invalid Argument",
        status::NOT_SUPPORTED => c"Not Supported",
        status::NO_PERMISSION => c"Insufficient Permissions",
        status::NOT_FOUND => c"Not Found",
        status::INSUFFICIENT_SIZE => c"Insufficient Size",
        status::DRIVER_NOT_LOADED => c"Driver Not Loaded",
        status::FUNCTION_NOT_FOUND => c"Function Not Found",
        status::GPU_IS_LOST => c"GPU is lost",
        status::TIMEOUT => c"Timeout",
        status::LIBRARY_MISMATCH => c"Driver/library version mismatch",
        status::VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
}

#[repr(C)]
struct Process1 {
    pid: u32,
    used: u64,
}

#[repr(C)]
struct Process3 {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

const NO_INSTANCE: u32 = u32::MAX;
const NOT_AVAILABLE: u64 = u64::MAX;

/// The processes on a device, or how many there are where the caller has no room for them.
fn processes(call: &str, device: Device, count: Out<u32>, put: impl Fn(usize, u32, u64)) -> i32 {
    let Some(capacity) = count.held() else { return status::INVALID_ARGUMENT };
    let hidden = place(device).is_some_and(|it| Faults::now().has("no-process-memory", call, it.0));
    about(call, device, |card, _| {
        let tenants = card.tenants();
        count.put(u32::try_from(tenants.len()).unwrap_or(0));
        if tenants.len() > usize::try_from(capacity).unwrap_or(0) {
            return status::INSUFFICIENT_SIZE;
        }
        for (index, tenant) in tenants.iter().enumerate() {
            put(index, tenant.pid, if hidden { NOT_AVAILABLE } else { tenant.used });
        }
        0
    })
}

fn no_processes(call: &str, device: Device, count: Out<u32>) -> i32 {
    about(call, device, |_, _| {
        count.put(0);
        0
    })
}

fn command_of(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(bytes.split(|it| *it == 0).next()?).into_owned())
}

/// A question with a structure for an answer.
pub(super) fn figure<T>(call: &str, device: Device, out: Out<T>, value: impl FnOnce(&Card, usize) -> T) -> i32 {
    about(call, device, |card, index| {
        if out.is_null() {
            return status::INVALID_ARGUMENT;
        }
        out.put(value(card, index));
        0
    })
}

/// A question with a number for an answer, which a test may set.
pub(super) fn number<T: TryFrom<u64>>(
    call: &str,
    device: Device,
    out: Out<T>,
    value: impl FnOnce(&Card, usize) -> T,
) -> i32 {
    figure(call, device, out, |card, index| set(call, index).unwrap_or_else(|| value(card, index)))
}

/// A question that has no answer unless a test sets one.
pub(super) fn no_number<T: TryFrom<u64>>(call: &str, device: Device, out: Out<T>) -> i32 {
    about(call, device, |_, index| {
        let Some(value) = set(call, index) else { return status::NOT_SUPPORTED };
        out.put(value);
        0
    })
}

/// A question with two numbers for an answer.
pub(super) fn numbers<T>(call: &str, device: Device, out: [Out<T>; 2], values: impl FnOnce(&Card) -> [T; 2]) -> i32 {
    about(call, device, |card, _| {
        for (out, value) in out.into_iter().zip(values(card)) {
            out.put(value);
        }
        0
    })
}

/// The number that a test has set for a call.
pub(super) fn set<T: TryFrom<u64>>(call: &str, index: usize) -> Option<T> {
    Faults::now().answer(call, index).and_then(|it| T::try_from(it).ok())
}

entry_points! {
    fn nvmlInit_v2() -> i32 {
        begin()
    }

    fn nvmlInit() -> i32 {
        begin()
    }

    fn nvmlInitWithFlags(_flags: u32) -> i32 {
        begin()
    }

    fn nvmlShutdown() -> i32 {
        let left = USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
        left.map_or(status::UNINITIALIZED, |_| 0)
    }

    fn nvmlErrorString(status: i32) -> *const c_char {
        error_text(status).as_ptr()
    }

    fn nvmlSystemGetDriverVersion(out: Out<c_char>, capacity: u32) -> i32 {
        put(out, capacity, "595.00.sim")
    }

    fn nvmlSystemGetNVMLVersion(out: Out<c_char>, capacity: u32) -> i32 {
        put(out, capacity, "13.595.00")
    }

    fn nvmlSystemGetCudaDriverVersion(out: Out<i32>) -> i32 {
        out.put(super::wheel::Wheel::here().runtime);
        0
    }

    fn nvmlSystemGetCudaDriverVersion_v2(out: Out<i32>) -> i32 {
        out.put(super::wheel::Wheel::here().runtime);
        0
    }

    fn nvmlSystemGetProcessName(pid: u32, out: Out<c_char>, capacity: u32) -> i32 {
        let Some(name) = command_of(pid) else { return status::NOT_FOUND };
        out.put_text(&name, usize::try_from(capacity).unwrap_or(0));
        0
    }

    fn nvmlDeviceGetCount_v2(out: Out<u32>) -> i32 {
        if USERS.load(Ordering::Relaxed) == 0 {
            return status::UNINITIALIZED;
        }
        let faults = Faults::now();
        if let Err(status) = faults.suffer("nvmlDeviceGetCount_v2", None) {
            return status;
        }
        let mut process = process();
        let Ok(book) = process.book() else { return status::UNKNOWN };
        let count = book.locked(|it| (0..it.cards().len()).filter(|index| !faults.is_gone(*index)).count());
        out.put(u32::try_from(count).unwrap_or(0));
        0
    }

    fn nvmlDeviceGetHandleByIndex_v2(wanted: u32, out: Out<Device>) -> i32 {
        let found = find("nvmlDeviceGetHandleByIndex_v2", out, |_, index| u32::try_from(index) == Ok(wanted));
        if found == status::NOT_FOUND { status::INVALID_ARGUMENT } else { found }
    }

    fn nvmlDeviceGetHandleByUUID(wanted: In<c_char>, out: Out<Device>) -> i32 {
        let wanted = wanted.text().unwrap_or_default();
        find("nvmlDeviceGetHandleByUUID", out, |card, _| card.uuid() == wanted)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(wanted: In<c_char>, out: Out<Device>) -> i32 {
        let wanted = wanted.text().unwrap_or_default();
        let bus = wanted.split(':').nth(1).and_then(|it| usize::from_str_radix(it, 16).ok());
        find("nvmlDeviceGetHandleByPciBusId_v2", out, |_, index| bus == Some(index + 1))
    }

    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: Out<u32>, out: Out<Process1>) -> i32 {
        processes("nvmlDeviceGetComputeRunningProcesses", device, count, |index, pid, used| {
            out.put_at(index, Process1 { pid, used });
        })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Device, count: Out<u32>, out: Out<Process3>) -> i32 {
        processes("nvmlDeviceGetComputeRunningProcesses_v2", device, count, |index, pid, used| {
            out.put_at(index, Process3 { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE });
        })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: Out<u32>, out: Out<Process3>) -> i32 {
        processes("nvmlDeviceGetComputeRunningProcesses_v3", device, count, |index, pid, used| {
            out.put_at(index, Process3 { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE });
        })
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(device: Device, count: Out<u32>, _out: usize) -> i32 {
        no_processes("nvmlDeviceGetGraphicsRunningProcesses", device, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Device, count: Out<u32>, _out: usize) -> i32 {
        no_processes("nvmlDeviceGetGraphicsRunningProcesses_v2", device, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: Out<u32>, _out: usize) -> i32 {
        no_processes("nvmlDeviceGetGraphicsRunningProcesses_v3", device, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Device, count: Out<u32>, _out: usize) -> i32 {
        no_processes("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, count)
    }
}
