//! NVML: the same devices and the same processes, as a monitor sees them.

use super::{
    abi::{In, Out},
    process::process,
    state::Card,
};
use std::{
    env,
    ffi::{CStr, c_char},
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// NVML's documented results.
pub(super) mod status {
    pub(in super::super) const UNINITIALIZED: i32 = 1;
    pub(in super::super) const INVALID_ARGUMENT: i32 = 2;
    pub(in super::super) const NOT_SUPPORTED: i32 = 3;
    pub(in super::super) const NO_PERMISSION: i32 = 4;
    pub(in super::super) const NOT_FOUND: i32 = 6;
    pub(in super::super) const INSUFFICIENT_SIZE: i32 = 7;
    pub(in super::super) const DRIVER_NOT_LOADED: i32 = 9;
    pub(in super::super) const FUNCTION_NOT_FOUND: i32 = 13;
    pub(in super::super) const GPU_IS_LOST: i32 = 15;
    pub(in super::super) const VERSION_MISMATCH: i32 = 25;
    pub(in super::super) const UNKNOWN: i32 = 999;
}

static USERS: AtomicUsize = AtomicUsize::new(0);

/// A device as callers name it: its index plus one.
pub(super) type Device = usize;

/// What is wrong with the machine right now: lines of the file `faults` in its directory, each
/// `WORD[=VALUE] [CALL [DEVICE]]`, where CALL is a name or the beginning of one with `*`, and DEVICE an index; without
/// them every call about every device is meant.
fn faults(call: &str, device: Option<Device>) -> Vec<(String, String)> {
    let dir = env::var_os("SIMGPU_DIR").map_or_else(|| PathBuf::from(super::process::DEFAULT_DIR), PathBuf::from);
    let text = fs::read_to_string(dir.join("faults")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (word, value) = words.next().map(|it| it.split_once('=').unwrap_or((it, "")))?;
            let pattern = words.next().unwrap_or("*");
            let meant = pattern.strip_suffix('*').map_or(pattern == call, |it| call.starts_with(it));
            let here = words.next().is_none_or(|it| it.parse().is_ok_and(|it: usize| device == Some(it + 1)));
            (meant && here).then(|| (word.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Suffers the faults that are meant for a call: waits, or gives the status that the call answers with.
fn suffer(call: &str, device: Option<Device>) -> Result<(), i32> {
    for (word, value) in faults(call, device) {
        match word.as_str() {
            "stall" => thread::sleep(Duration::from_secs_f64(value.parse().unwrap_or(0.0))),
            "lost" => return Err(status::GPU_IS_LOST),
            "no-permission" => return Err(status::NO_PERMISSION),
            "no-function" => return Err(status::FUNCTION_NOT_FOUND),
            "not-supported" => return Err(status::NOT_SUPPORTED),
            "unknown" => return Err(status::UNKNOWN),
            _ => {}
        }
    }
    Ok(())
}

/// Answers a question about a device: `work` gets its card and its index.
pub(super) fn about(call: &str, device: Device, work: impl FnOnce(&Card, usize) -> i32) -> i32 {
    if USERS.load(Ordering::Relaxed) == 0 {
        return status::UNINITIALIZED;
    }
    if let Err(status) = suffer(call, Some(device)) {
        return status;
    }
    let Some(index) = device.checked_sub(1) else { return status::INVALID_ARGUMENT };
    let mut process = process();
    let Ok(book) = process.book() else { return status::UNKNOWN };
    book.locked(|it| it.cards().get(index).map_or(status::INVALID_ARGUMENT, |card| work(card, index)))
}

/// Finds a device by what `wanted` says about its card and index.
fn find(call: &str, out: Out<Device>, wanted: impl Fn(&Card, usize) -> bool) -> i32 {
    if USERS.load(Ordering::Relaxed) == 0 {
        return status::UNINITIALIZED;
    }
    if let Err(status) = suffer(call, None) {
        return status;
    }
    let mut process = process();
    let Ok(book) = process.book() else { return status::UNKNOWN };
    let found = book.locked(|it| it.cards().iter().enumerate().position(|(index, card)| wanted(card, index)));
    found.map_or(status::NOT_FOUND, |it| {
        out.put(it + 1);
        0
    })
}

fn begin() -> i32 {
    if let Err(status) = suffer("nvmlInit_v2", None) {
        return status;
    }
    if process().book().is_err() {
        return status::DRIVER_NOT_LOADED;
    }
    USERS.fetch_add(1, Ordering::Relaxed);
    0
}

/// Writes a text the way NVML does: whole, or not at all.
pub(super) fn put(out: Out<c_char>, room: u32, text: &str) -> i32 {
    let room = usize::try_from(room).unwrap_or(0);
    if out.is_null() {
        return status::INVALID_ARGUMENT;
    }
    if text.len() >= room {
        return status::INSUFFICIENT_SIZE;
    }
    out.put_text(text, room);
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
    let Some(room) = count.held() else { return status::INVALID_ARGUMENT };
    let hidden = faults(call, Some(device)).iter().any(|(word, _)| word == "no-process-memory");
    about(call, device, |card, _| {
        let tenants = card.tenants();
        count.put(u32::try_from(tenants.len()).unwrap_or(0));
        if tenants.len() > usize::try_from(room).unwrap_or(0) {
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

    fn nvmlSystemGetDriverVersion(out: Out<c_char>, room: u32) -> i32 {
        put(out, room, "595.00.sim")
    }

    fn nvmlSystemGetNVMLVersion(out: Out<c_char>, room: u32) -> i32 {
        put(out, room, "13.595.00")
    }

    fn nvmlSystemGetCudaDriverVersion(out: Out<i32>) -> i32 {
        out.put(super::wheel::Wheel::here().runtime);
        0
    }

    fn nvmlSystemGetCudaDriverVersion_v2(out: Out<i32>) -> i32 {
        out.put(super::wheel::Wheel::here().runtime);
        0
    }

    fn nvmlSystemGetProcessName(pid: u32, out: Out<c_char>, room: u32) -> i32 {
        let Some(name) = command_of(pid) else { return status::NOT_FOUND };
        out.put_text(&name, usize::try_from(room).unwrap_or(0));
        0
    }

    fn nvmlDeviceGetCount_v2(out: Out<u32>) -> i32 {
        if USERS.load(Ordering::Relaxed) == 0 {
            return status::UNINITIALIZED;
        }
        if let Err(status) = suffer("nvmlDeviceGetCount_v2", None) {
            return status;
        }
        let mut process = process();
        let Ok(book) = process.book() else { return status::UNKNOWN };
        out.put(u32::try_from(book.locked(|it| it.cards().len())).unwrap_or(0));
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
