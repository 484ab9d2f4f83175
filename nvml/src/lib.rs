//! NVML asked directly, for viewers: a list of processes in one call, where what wraps NVML for Rust makes two, and the
//! first calls, for drivers that lack their successors.

#![allow(unsafe_code, reason = "this crate is for the calls of a C library")]

use libc::{RTLD_LAZY, RTLD_NOLOAD, dlclose, dlopen, dlsym};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_uint, c_void},
    mem::transmute,
    ptr,
};

const INSUFFICIENT_SIZE: i32 = 7;
const FUNCTION_NOT_FOUND: i32 = 13;

/// Entries that a list has room for at first and at most; it grows to what the driver asks for, as often as this.
const ROOM: usize = 64;
const ROOM_MAX: usize = 1 << 16;
const TRIES: usize = 3;

/// What NVML says of a process's memory where it says none.
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_t`, bytes; what the driver keeps for itself is in `used`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// The rest.
    pub used: u64,
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct First {
    pid: c_uint,
    used: u64,
}

/// `nvmlProcessInfo_t`, of the second version of the calls and the third.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Listed {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Call2<A, B> = Option<unsafe extern "C" fn(A, B) -> i32>;
type Call3<A, B, C> = Option<unsafe extern "C" fn(A, B, C) -> i32>;
type List<T> = Call3<*mut c_void, *mut c_uint, *mut T>;

/// A process and its bytes, where the driver says them.
pub type Process = (u32, Option<u64>);

/// Calls of an NVML that this process has loaded, each absent where it lacks it; it stays loaded with them.
pub struct Direct {
    library: *mut c_void,
    device: Call2<*const c_char, *mut *mut c_void>,
    memory: Call2<*mut c_void, *mut Memory>,
    /// The newest first.
    processes: [List<Listed>; 2],
    first_processes: List<First>,
    /// Devices by UUID, which NVML looks for among all of them.
    devices: RefCell<BTreeMap<String, *mut c_void>>,
}

impl Direct {
    /// Those of the library by that name or path, if it is loaded already.
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
                devices: RefCell::default(),
            })
        }
    }

    /// The memory of the device of that UUID, by the first version of the call.
    ///
    /// # Errors
    ///
    /// `nvmlReturn_t`, as the driver gives it.
    pub fn memory(&self, uuid: &str) -> Result<Memory, i32> {
        let memory = self.memory.ok_or(FUNCTION_NOT_FOUND)?;
        self.about(uuid, |device| {
            let mut out = Memory::default();
            // SAFETY: the driver writes one structure of this type.
            check(unsafe { memory(device, &raw mut out) })?;
            Ok(out)
        })
    }

    /// The processes that compute on the device of that UUID, by the newest version of the call that the driver has.
    ///
    /// # Errors
    ///
    /// `nvmlReturn_t`, as the driver gives it.
    pub fn processes(&self, uuid: &str) -> Result<Vec<Process>, i32> {
        self.about(uuid, |device| {
            for version in self.processes {
                match list(version, device, |it: &Listed| (it.pid, it.used)) {
                    Err(FUNCTION_NOT_FOUND) => {}
                    answer => return answer,
                }
            }
            list(self.first_processes, device, |it: &First| (it.pid, it.used))
        })
    }

    /// Asks about a device. One that refused may have gone and come back, and is looked for anew the next time.
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
        // SAFETY: the handle was given by `dlopen`, and is given back once.
        unsafe { dlclose(self.library) };
    }
}

fn list<T: Clone + Default>(
    call: List<T>,
    device: *mut c_void,
    said: impl Fn(&T) -> (u32, u64),
) -> Result<Vec<Process>, i32> {
    let call = call.ok_or(FUNCTION_NOT_FOUND)?;
    let mut list = vec![T::default(); ROOM];
    for _ in 0..TRIES {
        let mut count = c_uint::try_from(list.len()).unwrap_or(0);
        // SAFETY: the driver writes as many entries of this type as there is room for, at most, and their number.
        let result = unsafe { call(device, &raw mut count, list.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or(0);
        if result != INSUFFICIENT_SIZE {
            check(result)?;
            list.truncate(count);
            let known = |(pid, used)| (pid, Some(used).filter(|it| *it != NOT_AVAILABLE));
            return Ok(list.iter().map(|it| known(said(it))).collect());
        }
        // Some may begin meanwhile.
        list.resize(count.saturating_add(ROOM).min(ROOM_MAX), T::default());
    }
    Err(INSUFFICIENT_SIZE)
}

fn check(result: i32) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(result) }
}
