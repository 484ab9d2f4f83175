//! The few calls of libc that `std` has no words for.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::FileExt,
    },
    path::PathBuf,
    ptr, slice,
};

const LOCK_EX: c_int = 2;
const LOCK_UN: c_int = 8;
const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;
const MFD_CLOEXEC: c_uint = 1;
/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`
const PUNCH: c_int = 3;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const PAGE: usize = 4096;
/// The answer of a failed `mmap`.
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
    fn mincore(at: *mut c_void, len: usize, pages: *mut u8) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn fallocate64(fd: c_int, mode: c_int, offset: i64, len: i64) -> c_int;
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
    // SAFETY: signal 0 only checks that the process exists.
    unsafe { kill(pid, 0) == 0 || io::Error::last_os_error().raw_os_error() != Some(NO_SUCH_PROCESS) }
}

/// Maps the first `len` bytes of a file, shared with every other process that does.
pub(super) fn map_file(file: &File, len: usize) -> io::Result<*mut c_void> {
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
    let at = unsafe { mmap(ptr::null_mut(), len, PROT_READ_WRITE, MAP_SHARED, file.as_raw_fd(), 0) };
    if at as usize == FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
}

/// Memory that costs nothing until it is written.
pub(super) fn map_anonymous(len: usize) -> io::Result<usize> {
    map(len, PAGE, PROT_READ_WRITE)
}

/// Reserves addresses without memory, at a multiple of `align` (a power of two).
pub(super) fn map_nothing(len: usize, align: usize) -> io::Result<usize> {
    map(len, align, PROT_NONE)
}

fn map(len: usize, align: usize, protection: c_int) -> io::Result<usize> {
    let len = len.next_multiple_of(PAGE);
    let slack = if align > PAGE { align } else { 0 };
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
    let raw = unsafe { mmap(ptr::null_mut(), len + slack, protection, flags, -1, 0) } as usize;
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

/// How many bytes of the pages of a range are in memory; none where that cannot be known.
pub(super) fn resident(at: usize, len: usize) -> usize {
    let (first, end) = (at / PAGE * PAGE, (at + len).next_multiple_of(PAGE));
    let mut pages = [0_u8; 1 << 12];
    let mut bytes = 0;
    for begin in (first..end).step_by(pages.len() * PAGE) {
        let count = (end - begin).min(pages.len() * PAGE) / PAGE;
        // SAFETY: the kernel writes a byte per page, of which there are at most as many as `pages` has.
        if unsafe { mincore(begin as *mut c_void, count * PAGE, pages.as_mut_ptr()) } == 0 {
            bytes += pages.iter().take(count).filter(|it| **it & 1 == 1).count() * PAGE;
        }
    }
    bytes
}

/// A file that has no name, and ends with its last descriptor.
pub(super) fn anonymous_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name ends in a zero byte; the descriptor is new, and the file's alone.
    let fd = unsafe { memfd_create(name.as_ptr(), MFD_CLOEXEC) };
    // SAFETY: as above.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { File::from_raw_fd(fd) }) }
}

/// Writes bytes that a caller of the CUDA API vouches for to a file; what it has no room for is lost.
pub(super) fn write_from(file: &File, offset: usize, from: usize, len: usize) {
    // SAFETY: by the contract of cudaMemcpy the range is valid for `len` bytes.
    let bytes = unsafe { slice::from_raw_parts(from as *const u8, len) };
    let _ = file.write_all_at(bytes, offset as u64);
}

/// Reads bytes of a file to where a caller of the CUDA API wants them; gives how many there were.
pub(super) fn read_into(file: &File, offset: usize, to: usize, len: usize) -> usize {
    // SAFETY: by the contract of cudaMemcpy the range is valid for `len` bytes, and nothing reads uninitialised bytes.
    let bytes = unsafe { slice::from_raw_parts_mut(to as *mut u8, len) };
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|it| !it.is_empty()) {
        match file.read_at(rest, (offset + read) as u64) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    read
}

/// Makes bytes of a file zero, and gives back the memory of the pages among them.
pub(super) fn punch(file: &File, offset: usize, len: usize) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open as long as `file` is borrowed.
    unsafe { fallocate64(file.as_raw_fd(), PUNCH, offset, len) };
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
