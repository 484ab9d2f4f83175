//! The C ABI, as `gpuwatch_probe.h` declares it: for ctypes and for jobs that are not Rust.
//!
//! Every call returns 0 or an error, and catches panics. In a forked child, calls start from scratch.
#![expect(unsafe_code, reason = "names without mangling, and pointers from C")]

pub mod oom;
pub mod python;

use crate::{
    log::Log,
    probe::{Description, Probe, log_path},
    reading::{Reading, SLOTS},
    shared::Refusal,
    socket, sys,
    wire::{Counters, Device, Edge, LINE_MAX, quoted},
};
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    fmt::Write,
    os::unix::ffi::OsStringExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicPtr, Ordering},
    },
};

/// Most bytes of an answer to `sites`, so that it fits a line.
const SITES_BYTES_MAX: usize = LINE_MAX - 1024;

/// Most bytes of a path in the text.
const PATH_MAX: usize = 4096;

thread_local! {
    /// The latest text that was returned to this thread.
    static TEXT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// The latest folder that was returned.
static FOLDER: Mutex<Option<CString>> = Mutex::new(None);

const OK: i32 = 0;
const OFF: i32 = -1;
const INVALID: i32 = -2;
const FAULT: i32 = -3;
const FULL: i32 = -4;

/// `struct gpuwatch_sample`.
#[repr(C)]
pub struct GpuwatchSample {
    step: u64,
    present: u64,
    device: u32,
    edge: u32,
    values: [u64; SLOTS],
}

/// The state of one process. A forked child creates its own and leaves the parent's alone.
struct Local {
    pid: u32,
    description: Mutex<Description>,
    probe: RwLock<Option<Arc<Probe>>>,
    /// Why the probe could not start, which the log has too.
    fault: Mutex<Option<CString>>,
}

static LOCAL: AtomicPtr<Local> = AtomicPtr::new(ptr::null_mut());

fn local() -> &'static Local {
    let pid = sys::pid();
    let found = LOCAL.load(Ordering::Acquire);
    // SAFETY: the pointer is null or was leaked below, and is never freed.
    if let Some(local) = unsafe { found.as_ref() }
        && local.pid == pid
    {
        return local;
    }
    let made = Box::leak(Box::new(Local {
        pid,
        description: Mutex::default(),
        probe: RwLock::new(None),
        fault: Mutex::default(),
    }));
    match LOCAL.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        // SAFETY: another thread of this process was faster, and its state is never freed.
        Err(other) => unsafe { &*other },
    }
}

impl Local {
    fn described(&self) -> MutexGuard<'_, Description> {
        self.description.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The probe, also one that was stopped.
    fn probe(&self) -> Option<Arc<Probe>> {
        self.probe.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with_probe(&self, act: impl FnOnce(&Probe) -> Result<(), Refusal>) -> i32 {
        match self.probe().map_or(Err(Refusal::Off), |it| act(&it)) {
            Ok(()) => OK,
            Err(Refusal::Off) => OFF,
            Err(Refusal::Full) => FULL,
            Err(Refusal::Device) => INVALID,
        }
    }
}

fn guarded(act: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(FAULT)
}

/// Converts `GPUWATCH_STEP` etc.
fn edge(code: u64) -> Option<Edge> {
    [Edge::Step, Edge::Tick, Edge::Call].get(usize::try_from(code).ok()?).copied()
}

/// Reads text from C: any bytes, up to the zero.
///
/// # Safety
/// `text` is null or a zero-terminated string.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Sets a field of the job's description; most useful before the start.
///
/// # Safety
/// Both are null or zero-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_describe(key: *const c_char, value: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (Some(key), Some(value)) = (unsafe { text(key) }, unsafe { text(value) }) else { return INVALID };
        let local = local();
        if local.probe().is_none() {
            describe(&mut local.described(), &key, value);
            return OK;
        }
        local.with_probe(|probe| {
            probe.describe(|hello| {
                let mut changed = Description { hello: hello.clone(), ..Description::default() };
                describe(&mut changed, &key, value);
                *hello = changed.hello;
                Ok(())
            })
        })
    })
}

fn describe(description: &mut Description, key: &str, value: String) {
    let hello = &mut description.hello;
    let number = || value.trim().parse::<u64>().ok();
    match key {
        "rank" => hello.rank = number(),
        "local_rank" => hello.local_rank = number(),
        "world_size" => hello.world_size = number(),
        "restart" => hello.restart = number(),
        "probe" => hello.probe = value,
        "framework" => hello.framework = Some(value),
        "framework_version" => hello.framework_version = Some(value),
        "backend" => hello.backend = Some(value),
        "allocator_conf" => hello.allocator_conf = Some(value),
        "sites" => hello.sites = Some(value),
        "fitted" => hello.fitted = Some(value),
        "run" => hello.run = Some(value),
        "attached_us" => hello.attached_us = number(),
        "attached_step" => hello.attached_step = number(),
        "directory" => description.directories.push(value.into()),
        "log" => description.log = Some(value.into()),
        _ => {}
    }
}

/// Adds a device, or updates its description.
///
/// # Safety
/// Both texts are null or zero-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_device(ordinal: u32, uuid: *const c_char, name: *const c_char, total: u64) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (uuid, name) = unsafe { (text(uuid), text(name)) };
        let device = Device { ordinal, uuid, name, total: Some(total).filter(|it| *it > 0) };
        let local = local();
        if local.probe().is_none() {
            local.described().device(device);
            return OK;
        }
        local.with_probe(|probe| probe.device(device))
    })
}

/// Starts the thread and binds the socket.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_start() -> i32 {
    guarded(|| {
        let local = local();
        // Held so that two threads do not start two probes.
        let description = local.described();
        if let Some(probe) = local.probe() {
            return if probe.is_here() { OK } else { OFF };
        }
        match Probe::start(description.clone()) {
            Ok(probe) => {
                *local.probe.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(probe));
                OK
            }
            Err(_) if crate::identity::asks_for("off") => OFF,
            Err(fault) => {
                let mut known = local.fault.lock().unwrap_or_else(PoisonError::into_inner);
                if known.is_none() {
                    early_log(&description).line(&fault.to_string());
                    *known = CString::new(fault.to_string()).ok();
                }
                FAULT
            }
        }
    })
}

/// Returns the counters that a backend of PyTorch fills, a bit for each place.
///
/// # Safety
/// `backend` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_torch_counters(backend: *const c_char) -> u64 {
    // SAFETY: as the caller promises.
    let counters = || unsafe { text(backend) }.map_or(0, |it| Counters::of_torch(&it));
    catch_unwind(counters).unwrap_or(0)
}

/// Pushes a sample.
///
/// # Safety
/// `sample` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_push(sample: *const GpuwatchSample) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let Some(sample) = (unsafe { sample.as_ref() }) else { return INVALID };
        let Some(edge) = edge(sample.edge.into()) else { return INVALID };
        let (device, steps, present, values) = (sample.device, sample.step, sample.present, sample.values);
        let reading = Reading { at_us: 0, device, edge, steps, present, values };
        local().with_probe(|probe| probe.push(&reading))
    })
}

/// Marks the current phase of the job.
///
/// # Safety
/// `name` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_mark(name: *const c_char, value: i64, has_value: i32) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let Some(name) = (unsafe { text(name) }) else { return INVALID };
        local().with_probe(|probe| probe.mark(&name, (has_value != 0).then_some(value)))
    })
}

/// Returns the open request for sites: steps in the low 32 bits, above them a bit for a collector run and one for
/// growth that a viewer saw; 0 without a request.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_sites_asked() -> u64 {
    catch_unwind(|| local().probe().map_or(0, |it| it.sites_request())).unwrap_or(0)
}

/// Returns when the growth's rises are expected: their period in steps (24 bits), the remainder of a rise's step
/// divided by it (24), and by how many steps a rise may come early or late (16); 0 if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_sites_rises() -> u64 {
    catch_unwind(|| local().probe().map_or(0, |it| it.sites_rises())).unwrap_or(0)
}

/// Sends sites to all viewers: as the answer to a request, or unrequested.
///
/// # Safety
/// `object` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_sites(object: *const c_char, is_answer: i32) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let Some(object) = (unsafe { text(object) }) else { return INVALID };
        let fields = object.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        // A line has no newline inside, whatever it contains.
        let fields = fields.filter(|it| it.len() <= SITES_BYTES_MAX && it.bytes().all(|byte| byte >= b' '));
        let Some(fields) = fields.filter(|it| !it.is_empty()) else { return INVALID };
        local().with_probe(|probe| probe.sites_as_written(fields, is_answer != 0))
    })
}

/// Returns the open request for a window: steps in the low 20 bits, seconds in the next 10, in the high 32 the number
/// that names its file; 0 without a request.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_window_asked() -> u64 {
    catch_unwind(|| local().probe().map_or(0, |it| it.window_request())).unwrap_or(0)
}

/// Ends a request for a window, if it is still open.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_window_ended(request: u64) -> i32 {
    guarded(|| {
        let Some(probe) = local().probe() else { return OFF };
        probe.window_ended(request);
        OK
    })
}

/// Returns the folder of the probe's socket, until the next call; null without a probe.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_folder() -> *const c_char {
    let folder = || {
        let folder = local().probe()?.socket().parent()?.as_os_str().to_owned();
        let mut latest = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        Some(latest.insert(CString::new(folder.into_vec()).ok()?).as_ptr())
    };
    catch_unwind(folder).ok().flatten().unwrap_or(ptr::null())
}

/// Returns why the probe could not start, until the thread's next call; null if it did not fail.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_fault() -> *const c_char {
    let fault = || {
        let fault = local().fault.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(TEXT.with(|it| it.borrow_mut().insert(fault).as_ptr()))
    };
    catch_unwind(fault).ok().flatten().unwrap_or(ptr::null())
}

/// Returns the latest counters of a device as a JSON object, until the thread's next call; null without any. A negative
/// number stands for the first device that has some.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_latest(device: i32) -> *const c_char {
    let latest = || {
        let probe = local().probe()?;
        let reading = probe.latest(u32::try_from(device).ok())?;
        let text = CString::new(latest_text(&reading, &probe.socket())).ok()?;
        TEXT.with(|it| Some(it.borrow_mut().insert(text).as_ptr()))
    };
    catch_unwind(latest).ok().flatten().unwrap_or(ptr::null())
}

/// Formats counters; those that are unknown are `null`.
fn latest_text(reading: &Reading, path: &Path) -> String {
    let value = |known: Option<u64>| known.map_or_else(|| "null".to_owned(), |it| it.to_string());
    let mut out = "{\"file\":".to_owned();
    quoted(&path.with_extension(socket::FIGURES).to_string_lossy(), PATH_MAX, &mut out);
    let _ = write!(out, ",\"device\":{},\"step\":{}", reading.device, value(reading.step()));
    for (place, name) in Counters::NAMES.iter().enumerate() {
        let _ = write!(out, ",\"{name}\":{}", value(reading.value(place)));
    }
    out.push('}');
    out
}

/// Sends a bye and removes the socket.
///
/// # Safety
/// `reason` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_stop(reason: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { text(reason) }.unwrap_or_else(|| crate::wire::EXIT.to_owned());
        local().with_probe(|probe| {
            if !probe.is_here() {
                return Err(Refusal::Off);
            }
            probe.stop(&reason);
            Ok(())
        })
    })
}

/// Forgets a stopped probe and its description, so that another one can be started.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_reset() -> i32 {
    guarded(|| {
        let local = local();
        let mut description = local.described();
        if local.probe().is_some_and(|it| it.is_here()) {
            return INVALID;
        }
        *description = Description::default();
        python::reset();
        *local.fault.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(local.probe.write().unwrap_or_else(PoisonError::into_inner).take());
        OK
    })
}

/// Writes one line to the probe's log file.
///
/// # Safety
/// `line` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_log(line: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let Some(line) = (unsafe { text(line) }) else { return INVALID };
        let local = local();
        match local.probe() {
            Some(probe) => probe.log(&line),
            None => early_log(&local.described()).line(&line),
        }
        OK
    })
}

/// Opens the log of a probe that has not started, or could not.
fn early_log(description: &Description) -> Log {
    let path = match socket::take(&socket::directories(), |it| Ok(it.to_owned())) {
        Ok(dir) => log_path(description.log.clone(), &dir, sys::pid()),
        Err(_) => description.log.clone().or_else(|| std::env::var_os("GPUWATCH_LOG").map(Into::into)),
    };
    Log::new(path)
}
