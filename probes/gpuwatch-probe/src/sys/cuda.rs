//! libcuda, if the job has loaded it already, with result codes as plain integers. Nothing here loads a library,
//! creates a context or waits for a device.
//!
//! In a job of ROCm's, AMD's library takes its place for the names of devices. What it reports as free is not used,
//! because it does not count what programs without ROCm have.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr,
};

const CAPTURE_RELAXED: c_int = 2;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Call1<A> = Option<unsafe extern "C" fn(A) -> i32>;
type Call2<A, B> = Option<unsafe extern "C" fn(A, B) -> i32>;
type Call3<A, B, C> = Option<unsafe extern "C" fn(A, B, C) -> i32>;

/// The names of AMD's library, by release.
const ROCM: [&CStr; 4] = [c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so.5", c"libamdhip64.so"];

/// Functions of a loaded libcuda; `None` where the driver lacks one.
#[derive(Clone, Copy)]
pub(crate) struct Cuda {
    /// Whether it is AMD's library, whose UUIDs are text.
    is_rocm: bool,
    context: Call1<*mut *mut c_void>,
    context_device: Call1<*mut i32>,
    memory: Call2<*mut usize, *mut usize>,
    capture_mode: Call1<*mut c_int>,
    device: Call2<*mut i32, c_int>,
    uuid: Call2<*mut [u8; 16], i32>,
    name: Call3<*mut c_char, c_int, i32>,
    total: Call2<*mut usize, i32>,
    /// The place on the bus, of AMD's library alone.
    address: Call3<*mut c_char, c_int, c_int>,
    #[cfg(feature = "cudarc")]
    pool: Call2<*mut *mut c_void, i32>,
    #[cfg(feature = "cudarc")]
    pool_figure: Call3<*mut c_void, c_int, *mut u64>,
}

impl Cuda {
    /// Returns the libcuda that is already loaded, or AMD's library, if any.
    pub(crate) fn loaded() -> Option<Self> {
        library(c"libcuda.so.1").map(Self::of).or_else(|| ROCM.into_iter().find_map(library).map(Self::of_rocm))
    }

    /// Returns the functions of AMD's library that have the same arguments.
    fn of_rocm(library: *mut c_void) -> Self {
        // SAFETY: the library is loaded and stays so, as its handle is never closed.
        let find = |name: &CStr| unsafe { dlsym(library, name.as_ptr()) };
        // SAFETY: a null pointer is `None`; others have the signatures that the HIP runtime documents.
        unsafe {
            Self {
                is_rocm: true,
                context: None,
                context_device: None,
                memory: None,
                capture_mode: None,
                device: transmute::<*mut c_void, Call2<_, _>>(find(c"hipDeviceGet")),
                uuid: transmute::<*mut c_void, Call2<_, _>>(find(c"hipDeviceGetUuid")),
                name: transmute::<*mut c_void, Call3<_, _, _>>(find(c"hipDeviceGetName")),
                total: transmute::<*mut c_void, Call2<_, _>>(find(c"hipDeviceTotalMem")),
                address: transmute::<*mut c_void, Call3<_, _, _>>(find(c"hipDeviceGetPCIBusId")),
                #[cfg(feature = "cudarc")]
                pool: None,
                #[cfg(feature = "cudarc")]
                pool_figure: None,
            }
        }
    }

    fn of(library: *mut c_void) -> Self {
        // SAFETY: the library is loaded and stays so, as its handle is never closed.
        let find = |name: &CStr| unsafe { dlsym(library, name.as_ptr()) };
        // SAFETY: a null pointer is `None`; others have the signatures that the driver API documents.
        unsafe {
            Self {
                is_rocm: false,
                context: transmute::<*mut c_void, Call1<_>>(find(c"cuCtxGetCurrent")),
                context_device: transmute::<*mut c_void, Call1<_>>(find(c"cuCtxGetDevice")),
                memory: transmute::<*mut c_void, Call2<_, _>>(find(c"cuMemGetInfo_v2")),
                capture_mode: transmute::<*mut c_void, Call1<_>>(find(c"cuThreadExchangeStreamCaptureMode")),
                device: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceGet")),
                uuid: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceGetUuid_v2")),
                name: transmute::<*mut c_void, Call3<_, _, _>>(find(c"cuDeviceGetName")),
                total: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceTotalMem_v2")),
                address: None,
                #[cfg(feature = "cudarc")]
                pool: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceGetMemPool")),
                #[cfg(feature = "cudarc")]
                pool_figure: transmute::<*mut c_void, Call3<_, _, _>>(find(c"cuMemPoolGetAttribute")),
            }
        }
    }

    /// Returns free and total bytes of a device, if its context is current on this thread.
    pub(crate) fn free_and_total(&self, ordinal: u32) -> Option<(u64, u64)> {
        let mut context: *mut c_void = ptr::null_mut();
        let mut device = -1;
        let (mut free, mut total) = (0_usize, 0_usize);
        let memory = self.memory?;
        // SAFETY: each call writes one value of the type it is given; the last ones need the current context
        // that the first has found. The mode is the thread's own, and "relaxed" keeps a graph whole that the job
        // may be capturing.
        let found = unsafe {
            let is_current = self.context?(&raw mut context) == 0
                && !context.is_null()
                && self.context_device?(&raw mut device) == 0
                && Some(device) == self.handle(ordinal);
            let mut mode = CAPTURE_RELAXED;
            let exchange = self.capture_mode.filter(|_| is_current);
            let is_relaxed = exchange.is_some_and(|it| it(&raw mut mode) == 0);
            let found = is_current && memory(&raw mut free, &raw mut total) == 0;
            if is_relaxed {
                self.capture_mode?(&raw mut mode);
            }
            found
        };
        found.then_some((free as u64, total as u64))
    }

    /// Returns counters of the pool that allocations on a device come from, by the device's handle; creates nothing.
    #[cfg(feature = "cudarc")]
    pub(crate) fn pool_figures<const N: usize>(&self, device: i32, attributes: [c_int; N]) -> [Option<u64>; N] {
        let mut pool = ptr::null_mut();
        // SAFETY: the driver writes one handle, or refuses.
        let found = self.pool.is_some_and(|it| unsafe { it(&raw mut pool, device) } == 0);
        attributes.map(|attribute| {
            let mut bytes = 0_u64;
            let figure = self.pool_figure.filter(|_| found && !pool.is_null())?;
            // SAFETY: the driver knows the pool, and all requested attributes have 64 bits.
            (unsafe { figure(pool, attribute, &raw mut bytes) } == 0).then_some(bytes)
        })
    }

    /// Returns a device's UUID as the driver's tools write it; one of AMD's without a serial number has its place on
    /// the bus instead. A MIG slice is identified by its name only.
    pub(crate) fn uuid(&self, ordinal: u32) -> Option<String> {
        let mut bytes = [0_u8; 16];
        // SAFETY: the driver writes 16 bytes.
        let is_known = unsafe { self.uuid?(&raw mut bytes, self.handle(ordinal)?) } == 0;
        if self.is_rocm {
            return is_known.then(|| rocm_uuid(&bytes)).flatten().or_else(|| self.place(ordinal));
        }
        if !is_known {
            return None;
        }
        let slice = self.name(ordinal).is_some_and(|it| it.contains(" MIG "));
        let mut text = String::from(if slice { "MIG" } else { "GPU" });
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let digit = |it: u8| char::from_digit(it.into(), 16).unwrap_or('0');
            text.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        Some(text)
    }

    /// Returns a device's place on the bus, in the form in which gpuwatch names devices by it.
    fn place(&self, ordinal: u32) -> Option<String> {
        let mut bytes = [0_u8; 32];
        let device = c_int::try_from(ordinal).ok()?;
        // SAFETY: the library writes at most 31 bytes and a zero.
        if unsafe { self.address?(bytes.as_mut_ptr().cast::<c_char>(), 31, device) } != 0 {
            return None;
        }
        let address = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?;
        Some(format!("PCI-{}", address.to_ascii_lowercase()))
    }

    /// Returns a device's product name.
    pub(crate) fn name(&self, ordinal: u32) -> Option<String> {
        let mut bytes = [0_u8; 256];
        // SAFETY: the driver writes at most 255 bytes and a zero.
        if unsafe { self.name?(bytes.as_mut_ptr().cast::<c_char>(), 255, self.handle(ordinal)?) } != 0 {
            return None;
        }
        CStr::from_bytes_until_nul(&bytes).ok().map(|it| it.to_string_lossy().into_owned())
    }

    /// Returns a device's total bytes.
    pub(crate) fn total(&self, ordinal: u32) -> Option<u64> {
        let mut bytes = 0_usize;
        // SAFETY: the driver writes one size.
        (unsafe { self.total?(&raw mut bytes, self.handle(ordinal)?) } == 0).then_some(bytes as u64)
    }

    fn handle(&self, ordinal: u32) -> Option<i32> {
        let mut device = -1;
        // SAFETY: the driver writes one integer, or refuses where the job has not initialised it.
        (unsafe { self.device?(&raw mut device, i32::try_from(ordinal).ok()?) } == 0).then_some(device)
    }
}

/// Returns a library that is already loaded.
fn library(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: with NOLOAD no initialiser runs; the name is a C string.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
    (!library.is_null()).then_some(library)
}

/// Returns a device's UUID as AMD's tools write it: the digits of its serial number; `None` for a device without one.
fn rocm_uuid(bytes: &[u8; 16]) -> Option<String> {
    let digits = std::str::from_utf8(bytes).ok().filter(|text| text.bytes().all(|it| it.is_ascii_hexdigit()))?;
    Some(format!("GPU-{}", digits.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_of_amds_library_is_the_text_of_its_serial_number() {
        assert_eq!(rocm_uuid(b"2a71c1f1B2D3E4F5").as_deref(), Some("GPU-2a71c1f1b2d3e4f5"));
        assert_eq!(rocm_uuid(&[0; 16]), None);
        assert_eq!(rocm_uuid(b"XX--------------"), None);
    }
}
