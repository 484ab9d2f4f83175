//! NVML's first calls, for viewers on drivers that lack their successors: what wraps NVML for Rust knows those alone.

use super::cuda::{Call2, Call3, RTLD_LAZY, RTLD_NOLOAD, dlopen, dlsym};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
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

unsafe extern "C" {
    fn dlclose(library: *mut c_void) -> c_int;
}

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
struct Listed {
    pid: c_uint,
    used: u64,
}

/// The first calls of an NVML that this process has loaded, each absent where it lacks it; it stays loaded with them.
pub struct FirstCalls {
    library: *mut c_void,
    device: Call2<*const c_char, *mut *mut c_void>,
    memory: Call2<*mut c_void, *mut Memory>,
    processes: Call3<*mut c_void, *mut c_uint, *mut Listed>,
}

impl FirstCalls {
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
                processes: transmute::<*mut c_void, Call3<_, _, _>>(find(c"nvmlDeviceGetComputeRunningProcesses")),
            })
        }
    }

    /// The memory of the device of that UUID.
    ///
    /// # Errors
    ///
    /// `nvmlReturn_t`, as the driver gives it.
    pub fn memory(&self, uuid: &str) -> Result<Memory, i32> {
        let (device, memory) = (self.device(uuid)?, self.memory.ok_or(FUNCTION_NOT_FOUND)?);
        let mut out = Memory::default();
        // SAFETY: the driver writes one structure of this type.
        check(unsafe { memory(device, &raw mut out) })?;
        Ok(out)
    }

    /// The processes that compute on the device of that UUID: pid, and bytes where the driver says them.
    ///
    /// # Errors
    ///
    /// `nvmlReturn_t`, as the driver gives it.
    pub fn processes(&self, uuid: &str) -> Result<Vec<(u32, Option<u64>)>, i32> {
        let (device, processes) = (self.device(uuid)?, self.processes.ok_or(FUNCTION_NOT_FOUND)?);
        let mut list = vec![Listed::default(); ROOM];
        for _ in 0..TRIES {
            let mut count = c_uint::try_from(list.len()).unwrap_or(0);
            // SAFETY: the driver writes as many entries of this type as there is room for, at most, and their number.
            let result = unsafe { processes(device, &raw mut count, list.as_mut_ptr()) };
            let count = usize::try_from(count).unwrap_or(0);
            if result != INSUFFICIENT_SIZE {
                check(result)?;
                list.truncate(count);
                let used = |it: &Listed| Some(it.used).filter(|it| *it != NOT_AVAILABLE);
                return Ok(list.iter().map(|it| (it.pid, used(it))).collect());
            }
            // Some may begin meanwhile.
            list.resize(count.saturating_add(ROOM).min(ROOM_MAX), Listed::default());
        }
        Err(INSUFFICIENT_SIZE)
    }

    fn device(&self, uuid: &str) -> Result<*mut c_void, i32> {
        let (find, uuid) = (self.device.ok_or(FUNCTION_NOT_FOUND)?, CString::new(uuid).unwrap_or_default());
        let mut device = ptr::null_mut();
        // SAFETY: the driver reads a C string and writes one handle.
        check(unsafe { find(uuid.as_ptr(), &raw mut device) })?;
        Ok(device)
    }
}

impl Drop for FirstCalls {
    fn drop(&mut self) {
        // SAFETY: the handle was given by `dlopen`, and is given back once.
        unsafe { dlclose(self.library) };
    }
}

fn check(result: i32) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(result) }
}
