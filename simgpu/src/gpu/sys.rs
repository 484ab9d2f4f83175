//! The few calls of libc that `std` has no words for.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    fs::File,
    io,
    os::fd::AsRawFd,
    path::PathBuf,
    ptr,
};

const LOCK_EX: c_int = 2;
const LOCK_UN: c_int = 8;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;
const MADV_DONTNEED: c_int = 4;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const PAGE: usize = 4096;
/// What `mmap` answers instead of an address.
const FAILED: usize = usize::MAX;

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, len: usize) -> c_int;
    fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn pthread_atfork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> c_int;
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// Waits for the lock that every process using the state takes.
pub(super) fn lock(file: &File) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed.
        if unsafe { flock(file.as_raw_fd(), LOCK_EX) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

pub(super) fn unlock(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is borrowed.
    unsafe { flock(file.as_raw_fd(), LOCK_UN) };
}

/// Whether there is a process of that number; a zombie is one too.
pub(super) fn exists(pid: u32) -> bool {
    const NO_SUCH_PROCESS: i32 = 3;
    let Ok(pid) = c_int::try_from(pid) else { return false };
    // SAFETY: signal 0 is sent to nobody.
    unsafe { kill(pid, 0) == 0 || io::Error::last_os_error().raw_os_error() != Some(NO_SUCH_PROCESS) }
}

/// Maps the first `len` bytes of a file, shared with every other process that does.
pub(super) fn map_file(file: &File, len: usize) -> io::Result<*mut c_void> {
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
    let at = unsafe { mmap(ptr::null_mut(), len, PROT_READ_WRITE, MAP_SHARED, file.as_raw_fd(), 0) };
    if at as usize == FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
}

/// Address space that costs nothing until it is written, at a multiple of `align` (a power of two).
pub(super) fn map_anonymous(len: usize, align: usize) -> io::Result<usize> {
    let len = len.next_multiple_of(PAGE);
    let slack = if align > PAGE { align } else { 0 };
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
    let raw = unsafe { mmap(ptr::null_mut(), len + slack, PROT_READ_WRITE, flags, -1, 0) } as usize;
    if raw == FAILED {
        return Err(io::Error::last_os_error());
    }
    let at = raw.next_multiple_of(align.max(PAGE));
    unmap(raw, at - raw);
    unmap(at + len, raw + slack - at);
    Ok(at)
}

/// Gives back a mapping made here; an empty one is nothing.
pub(super) fn unmap(at: usize, len: usize) {
    if len > 0 {
        // SAFETY: callers pass ranges that they mapped themselves and that nothing refers to any more.
        unsafe { munmap(at as *mut c_void, len.next_multiple_of(PAGE)) };
    }
}

/// Forgets the contents of whole pages inside a mapping made here: they read as zero, and cost nothing.
pub(super) fn forget(at: usize, len: usize) {
    // SAFETY: callers pass ranges inside an anonymous mapping of their own.
    unsafe { madvise(at as *mut c_void, len, MADV_DONTNEED) };
}

/// Copies bytes that a caller of the CUDA API vouches for.
pub(super) fn copy(to: usize, from: usize, len: usize) {
    // SAFETY: by the contract of cudaMemcpy both ranges are valid for `len` bytes; they may overlap.
    unsafe { ptr::copy(from as *const u8, to as *mut u8, len) };
}

/// Fills bytes that a caller of the CUDA API vouches for.
pub(super) fn fill(at: usize, byte: u8, len: usize) {
    // SAFETY: by the contract of cudaMemset the range is valid for `len` bytes.
    unsafe { ptr::write_bytes(at as *mut u8, byte, len) };
}

pub(super) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the three functions live as long as this library, which is never unloaded (threads' locals refer to it).
    unsafe { pthread_atfork(prepare, parent, child) };
}

/// Loads a library for good, where it can be found.
pub(super) fn load(library: &CStr) {
    // SAFETY: the string ends in a zero byte; the generated libraries run no code when they are loaded.
    unsafe { dlopen(library.as_ptr(), RTLD_LAZY) };
}

/// The address of a symbol in a library that is loaded already, or in one that it depends on.
pub(super) fn loaded_symbol(library: &CStr, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: both strings end in a zero byte; a missing library or symbol answers null.
    let at = unsafe {
        let handle = dlopen(library.as_ptr(), RTLD_LAZY | RTLD_NOLOAD);
        if handle.is_null() { ptr::null_mut() } else { dlsym(handle, name.as_ptr()) }
    };
    (!at.is_null()).then_some(at)
}

/// The file that holds an address of code, and the nearest symbol's name.
pub(super) fn code_at(address: usize) -> Option<(PathBuf, String)> {
    let mut info = DlInfo { file: ptr::null(), base: ptr::null_mut(), symbol: ptr::null(), address: ptr::null_mut() };
    // SAFETY: dladdr writes into `info` only, and its strings live as long as the object that they name.
    unsafe {
        if dladdr(address as *const c_void, &raw mut info) == 0 {
            return None;
        }
        let text = |it: *const c_char| if it.is_null() { "?".into() } else { CStr::from_ptr(it).to_string_lossy() };
        Some((PathBuf::from(text(info.file).as_ref()), text(info.symbol).into_owned()))
    }
}
