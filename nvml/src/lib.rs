//! Calls NVML directly, for viewers: lists processes in one call, where the Rust wrapper makes two, and uses the first
//! versions of calls on drivers that lack newer ones.

#![allow(unsafe_code, reason = "this crate is for the calls of a C library")]

use libc::{RTLD_LAZY, RTLD_NOLOAD, dlclose, dlopen, dlsym};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    mem::transmute,
    ptr,
    time::Duration,
};

const INSUFFICIENT_SIZE: i32 = 7;
const NOT_FOUND: i32 = 6;
const FUNCTION_NOT_FOUND: i32 = 13;

/// Entries in the first list, and the most entries; the list grows to what the driver requests, at most this often.
const ROOM: usize = 64;
const ROOM_MAX: usize = 1 << 16;
const TRIES: usize = 3;

/// NVML's value for unknown memory of a process.
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_t`, bytes; `used` includes the driver's own reserve.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The device's total memory.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Used memory.
    pub used: u64,
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct First {
    pid: c_uint,
    used: u64,
}

/// `nvmlProcessInfo_t`, of the second and third versions of the calls.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Listed {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlProcessUtilizationSample_t`: how a process used a device in one period, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utilization {
    /// The process.
    pub pid: c_uint,
    /// The end of the period, µs of Unix time.
    pub at_us: u64,
    /// The multiprocessors.
    pub sm: c_uint,
    /// The memory's bandwidth.
    pub memory: c_uint,
    /// The video encoder.
    pub encoder: c_uint,
    /// The video decoder.
    pub decoder: c_uint,
}

/// `nvmlFieldValue_t`, its value as the number that counters have.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Field {
    id: c_uint,
    /// The link, or all of them.
    scope: c_uint,
    /// Since 1970.
    at_us: i64,
    latency_us: i64,
    kind: c_int,
    status: c_int,
    value: u64,
}

/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`: KiB since the driver was loaded.
const NVLINK_DATA: [c_uint; 2] = [138, 139];

/// The scope of all links together.
const ALL_LINKS: c_uint = c_uint::MAX;

/// A total of data, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// KiB since the driver was loaded.
    pub kib: u64,
    /// When the total was that, since 1970, if the driver reports that.
    pub at: Option<Duration>,
}

type Call2<A, B> = Option<unsafe extern "C" fn(A, B) -> i32>;
type Call3<A, B, C> = Option<unsafe extern "C" fn(A, B, C) -> i32>;
type Call4<A, B, C, D> = Option<unsafe extern "C" fn(A, B, C, D) -> i32>;
type List<T> = Call3<*mut c_void, *mut c_uint, *mut T>;

/// A process and its bytes, if the driver reports them.
pub type Process = (u32, Option<u64>);

/// Functions of an NVML that this process has loaded; `None` where it lacks one. Keeps the library loaded.
pub struct Direct {
    library: *mut c_void,
    device: Call2<*const c_char, *mut *mut c_void>,
    memory: Call2<*mut c_void, *mut Memory>,
    /// The newest version first.
    processes: [List<Listed>; 2],
    first_processes: List<First>,
    fields: Call3<*mut c_void, c_int, *mut Field>,
    utilization: Call4<*mut c_void, *mut Utilization, *mut c_uint, u64>,
    /// Devices by UUID; NVML itself searches all of them each time.
    devices: RefCell<BTreeMap<String, *mut c_void>>,
}

impl Direct {
    /// Returns the functions of the library with this name or path, if it is loaded already.
    pub fn loaded(library: &CStr) -> Option<Self> {
        // SAFETY: with NOLOAD no initialiser runs; the name is a C string.
        let library = unsafe { dlopen(library.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is loaded until this is dropped.
        let find = |name: &CStr| unsafe { dlsym(library, name.as_ptr()) };
        // SAFETY: a null pointer is `None`; others have the signatures that NVML documents.
        unsafe {
            Some(Self {
                library,
                device: transmute::<*mut c_void, Call2<_, _>>(find(c"nvmlDeviceGetHandleByUUID")),
                memory: transmute::<*mut c_void, Call2<_, _>>(find(c"nvmlDeviceGetMemoryInfo")),
                processes: [
                    transmute::<*mut c_void, List<Listed>>(find(c"nvmlDeviceGetComputeRunningProcesses_v3")),
                    transmute::<*mut c_void, List<Listed>>(find(c"nvmlDeviceGetComputeRunningProcesses_v2")),
                ],
                first_processes: transmute::<*mut c_void, List<First>>(find(c"nvmlDeviceGetComputeRunningProcesses")),
                fields: transmute::<*mut c_void, Call3<_, _, _>>(find(c"nvmlDeviceGetFieldValues")),
                utilization: transmute::<*mut c_void, Call4<_, _, _, _>>(find(c"nvmlDeviceGetProcessUtilization")),
                devices: RefCell::default(),
            })
        }
    }

    /// Returns a device's memory, with the first version of the call.
    ///
    /// # Errors
    ///
    /// Fails with the driver's `nvmlReturn_t`.
    pub fn memory(&self, uuid: &str) -> Result<Memory, i32> {
        let memory = self.memory.ok_or(FUNCTION_NOT_FOUND)?;
        self.about(uuid, |device| {
            let mut out = Memory::default();
            // SAFETY: the driver writes one structure of this type.
            check(unsafe { memory(device, &raw mut out) })?;
            Ok(out)
        })
    }

    /// Returns a device's compute processes, with the newest version of the call that the driver has.
    ///
    /// # Errors
    ///
    /// Fails with the driver's `nvmlReturn_t`.
    pub fn processes(&self, uuid: &str) -> Result<Vec<Process>, i32> {
        self.about(uuid, |device| {
            for version in self.processes {
                match processes(version, device, |it: &Listed| (it.pid, it.used)) {
                    Err(FUNCTION_NOT_FOUND) => {}
                    answer => return answer,
                }
            }
            processes(self.first_processes, device, |it: &First| (it.pid, it.used))
        })
    }

    /// Returns what a device has sent and received over all links of NVLink since the driver was loaded.
    ///
    /// # Errors
    ///
    /// Fails with the driver's `nvmlReturn_t`, also that of one of the two.
    pub fn nvlink(&self, uuid: &str) -> Result<[Counted; 2], i32> {
        let call = self.fields.ok_or(FUNCTION_NOT_FOUND)?;
        self.about(uuid, |device| {
            let mut both = NVLINK_DATA.map(|id| Field { id, scope: ALL_LINKS, ..Field::default() });
            // SAFETY: the driver fills the two entries that it gets.
            check(unsafe { call(device, 2, both.as_mut_ptr()) })?;
            both.iter().try_for_each(|it| check(it.status))?;
            let at = |us| u64::try_from(us).ok().filter(|it| *it > 0).map(Duration::from_micros);
            Ok(both.map(|it| Counted { kib: it.value, at: at(it.at_us) }))
        })
    }

    /// Returns how processes used a device in the periods that ended after a time, µs of Unix time. A process that used
    /// it in none of them is not listed.
    ///
    /// # Errors
    ///
    /// Fails with the driver's `nvmlReturn_t`.
    pub fn utilization(&self, uuid: &str, since_us: u64) -> Result<Vec<Utilization>, i32> {
        let call = self.utilization.ok_or(FUNCTION_NOT_FOUND)?;
        self.about(uuid, |device| {
            // SAFETY: the driver writes as many entries of this type as there is room for, at most, and their number.
            match list(|count, out| unsafe { call(device, out, count, since_us) }) {
                // No process used it.
                Err(NOT_FOUND) => Ok(Vec::new()),
                answer => answer,
            }
        })
    }

    /// Makes a call about a device. After an error, looks the device up again the next time, because it may have gone
    /// and returned.
    fn about<T>(&self, uuid: &str, ask: impl FnOnce(*mut c_void) -> Result<T, i32>) -> Result<T, i32> {
        let known = self.devices.borrow().get(uuid).copied();
        let device = known.map_or_else(|| self.device(uuid), Ok)?;
        let answer = ask(device);
        if answer.is_err() {
            self.devices.borrow_mut().remove(uuid);
        } else if known.is_none() {
            self.devices.borrow_mut().insert(uuid.to_owned(), device);
        }
        answer
    }

    fn device(&self, uuid: &str) -> Result<*mut c_void, i32> {
        let (find, uuid) = (self.device.ok_or(FUNCTION_NOT_FOUND)?, CString::new(uuid).unwrap_or_default());
        let mut device = ptr::null_mut();
        // SAFETY: the driver reads a C string and writes one handle.
        check(unsafe { find(uuid.as_ptr(), &raw mut device) })?;
        Ok(device)
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // SAFETY: `dlopen` returned the handle, and it is closed once.
        unsafe { dlclose(self.library) };
    }
}

fn processes<T: Clone + Default>(
    call: List<T>,
    device: *mut c_void,
    fields: impl Fn(&T) -> (u32, u64),
) -> Result<Vec<Process>, i32> {
    let call = call.ok_or(FUNCTION_NOT_FOUND)?;
    // SAFETY: the driver writes as many entries of this type as there is room for, at most, and their number.
    let listed = list(|count, out| unsafe { call(device, count, out) })?;
    let known = |(pid, used)| (pid, Some(used).filter(|it| *it != NOT_AVAILABLE));
    Ok(listed.iter().map(|it| known(fields(it))).collect())
}

/// Returns the list that a call writes into the room that it gets.
fn list<T: Clone + Default>(call: impl Fn(*mut c_uint, *mut T) -> i32) -> Result<Vec<T>, i32> {
    let mut list = vec![T::default(); ROOM];
    for _ in 0..TRIES {
        let mut count = c_uint::try_from(list.len()).unwrap_or(0);
        let result = call(&raw mut count, list.as_mut_ptr());
        let count = usize::try_from(count).unwrap_or(0);
        if result != INSUFFICIENT_SIZE {
            check(result)?;
            list.truncate(count);
            return Ok(list);
        }
        // Processes may start meanwhile.
        list.resize(count.saturating_add(ROOM).min(ROOM_MAX), T::default());
    }
    Err(INSUFFICIENT_SIZE)
}

fn check(result: i32) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(result) }
}
