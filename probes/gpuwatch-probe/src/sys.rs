//! System calls that std lacks; together with `abi`, the only unsafe code.
#![expect(unsafe_code, reason = "std has no poll, signal masks, peer credentials or dlopen")]

mod cuda;
#[cfg(gpuwatch_floor)]
mod floor;

pub(crate) use cuda::Cuda;

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void},
    fs::File,
    io,
    mem::{ManuallyDrop, size_of},
    ops::Deref,
    os::{
        fd::{AsRawFd, FromRawFd, RawFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    process, ptr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

/// glibc's and musl's `sigset_t` are both 128 bytes.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

#[repr(C)]
#[derive(Default)]
struct PeerCredentials {
    pid: i32,
    uid: u32,
    gid: u32,
}

const CLOCK_MONOTONIC: c_int = 1;
const POLLIN: i16 = 1;
const MSG_DONTWAIT: c_int = 0x40;
const MSG_NOSIGNAL: c_int = 0x4000;
const SOL_SOCKET: c_int = 1;
const SO_PEERCRED: c_int = 17;
const SIG_SETMASK: c_int = 2;
const SC_CLK_TCK: c_int = 2;
const SC_PAGESIZE: c_int = 30;
const PROT_READ_WRITE: c_int = 3;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
const MADV_WIPEONFORK: c_int = 18;

unsafe extern "C" {
    safe fn geteuid() -> u32;
    safe fn sysconf(name: c_int) -> c_long;
    safe fn close(fd: c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    fn poll(fds: *mut PollFd, count: c_ulong, timeout_ms: c_int) -> c_int;
    fn send(fd: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize;
    fn recv(fd: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> isize;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    fn sigfillset(set: *mut SignalSet) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    fn mmap(at: *mut c_void, length: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn madvise(at: *mut c_void, length: usize, advice: c_int) -> c_int;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Returns a symbol of the program and its linked libraries; null if there is none.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: null stands for the global scope, and the name ends in a zero.
    unsafe { dlsym(ptr::null_mut(), name.as_ptr()) }
}

/// Returns µs of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_us() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes one timespec into ours; this clock always exists.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    time.seconds.unsigned_abs() * 1_000_000 + time.nanoseconds.unsigned_abs() / 1000
}

/// Returns the effective user.
pub(crate) fn user() -> u32 {
    geteuid()
}

/// This process's pid, in memory that a forked child finds empty: the system call takes a microsecond with cold caches,
/// as they are after a training step. Null on kernels before 4.14.
static OWN_PID: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Returns this process's pid, correct in a child from its first instruction, however it was forked.
pub(crate) fn pid() -> u32 {
    // SAFETY: the pointer is null or to memory that is never unmapped.
    let Some(own) = (unsafe { OWN_PID.load(Ordering::Acquire).as_ref() }) else { return process::id() };
    let known = own.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let pid = process::id();
    own.store(pid, Ordering::Relaxed);
    pid
}

/// Makes [`pid`] cheap from here on.
pub(crate) fn remember_pid() {
    if !OWN_PID.load(Ordering::Acquire).is_null() {
        return;
    }
    let length = usize::try_from(page_size()).unwrap_or(4096);
    // SAFETY: a fresh page of its own, asked for without an address, and given advice as a whole.
    let page = unsafe {
        let page = mmap(ptr::null_mut(), length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
        if page.addr() == usize::MAX || madvise(page, length, MADV_WIPEONFORK) != 0 {
            return;
        }
        page
    };
    OWN_PID.store(page.cast::<AtomicU32>(), Ordering::Release);
}

/// Returns whether a process with this pid runs here.
pub(crate) fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns the bytes of a page.
pub(crate) fn page_size() -> u64 {
    u64::try_from(sysconf(SC_PAGESIZE)).unwrap_or(4096)
}

/// Returns the kernel's clock ticks per second, the unit of `/proc/<pid>/stat`.
pub(crate) fn ticks_per_second() -> u64 {
    u64::try_from(sysconf(SC_CLK_TCK)).unwrap_or(100)
}

/// Waits until one of `readable` can be read, a peer of `hangups` is gone, or the time is over.
pub(crate) fn wait(readable: &[RawFd], hangups: impl Iterator<Item = RawFd>, timeout_ms: i32) {
    let mut fds: Vec<PollFd> = readable.iter().map(|&fd| PollFd { fd, events: POLLIN, revents: 0 }).collect();
    fds.extend(hangups.map(|fd| PollFd { fd, events: 0, revents: 0 }));
    // SAFETY: the array lives through the call and its length is its own.
    unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, timeout_ms) };
}

/// Returns whether the peer has closed both directions.
pub(crate) fn hung_up(stream: &impl AsRawFd) -> bool {
    let mut fd = PollFd { fd: stream.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor, one element.
    unsafe { poll(&raw mut fd, 1, 0) > 0 }
}

/// Sends what the socket accepts at once; never waits, never raises SIGPIPE.
pub(crate) fn send_now(stream: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are one slice's.
    let sent =
        unsafe { send(stream.as_raw_fd(), bytes.as_ptr().cast::<c_void>(), bytes.len(), MSG_DONTWAIT | MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_negative| io::Error::last_os_error())
}

/// Receives what is there; never waits, whatever the job has opened in the descriptor's place meanwhile.
pub(crate) fn receive_now(stream: &impl AsRawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are one slice's.
    let received = unsafe { recv(stream.as_raw_fd(), into.as_mut_ptr().cast::<c_void>(), into.len(), MSG_DONTWAIT) };
    usize::try_from(received).map_err(|_negative| io::Error::last_os_error())
}

/// Returns the user at the other end.
pub(crate) fn peer_user(stream: &impl AsRawFd) -> io::Result<u32> {
    let mut peer = PeerCredentials::default();
    const { assert!(size_of::<PeerCredentials>() == 12, "three 32-bit numbers") };
    let mut length = 12;
    // SAFETY: the kernel writes at most `length` bytes into a struct of that size.
    let result = unsafe {
        getsockopt(stream.as_raw_fd(), SOL_SOCKET, SO_PEERCRED, (&raw mut peer).cast::<c_void>(), &raw mut length)
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Runs `start` with every signal blocked, so that a thread it starts never receives the job's signals.
pub(crate) fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = SignalSet([0; 128]);
    let mut before = SignalSet([0; 128]);
    // SAFETY: both sets are as large as any libc's, and the mask is this thread's own.
    let blocked = unsafe {
        sigfillset(&raw mut all);
        pthread_sigmask(SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let result = start();
    if blocked {
        // SAFETY: `before` was filled by the call above.
        unsafe { pthread_sigmask(SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    result
}

/// Descriptors that forked children must not keep open, because listeners would seem alive and connections would never
/// end. Each has the inode that distinguishes it from a later one with the same number.
static PRIVATE: [(AtomicI32, AtomicU64); 64] = [const { (AtomicI32::new(-1), AtomicU64::new(0)) }; 64];

static WATCHING_FORKS: AtomicBool = AtomicBool::new(false);

extern "C" fn close_private() {
    for (slot, inode) in &PRIVATE {
        let fd = slot.swap(-1, Ordering::Relaxed);
        if fd >= 0 && inode_of(fd) == Some(inode.load(Ordering::Relaxed)) {
            close(fd);
        }
    }
}

/// Returns the inode of a descriptor.
fn inode_of(fd: RawFd) -> Option<u64> {
    // SAFETY: the file is never dropped, so this only reads the descriptor's state.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    file.metadata().ok().map(|it| it.ino())
}

/// Owns a descriptor that is closed in forked children. If the job has closed it (some close every number), it is left
/// alone, because the number may belong to another file.
///
/// A forked child must leak it, never drop it.
pub(crate) struct Private<T: AsRawFd> {
    inner: ManuallyDrop<T>,
    inode: Option<u64>,
}

impl<T: AsRawFd> Private<T> {
    pub(crate) fn new(inner: T) -> Self {
        if !WATCHING_FORKS.swap(true, Ordering::Relaxed) {
            // SAFETY: the function only compares and closes descriptors, which is allowed between fork
            // and exec, and this code is never unloaded.
            unsafe { pthread_atfork(None, None, Some(close_private)) };
        }
        let fd = inner.as_raw_fd();
        let inode = inode_of(fd);
        for (slot, slot_inode) in &PRIVATE {
            if slot.compare_exchange(-1, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                slot_inode.store(inode.unwrap_or(0), Ordering::Relaxed);
                break;
            }
        }
        Self { inner: ManuallyDrop::new(inner), inode }
    }

    /// Returns whether the number still leads to the file that was opened.
    pub(crate) fn is_ours(&self) -> bool {
        inode_of(self.inner.as_raw_fd()) == self.inode
    }
}

impl<T: AsRawFd> Drop for Private<T> {
    fn drop(&mut self) {
        let fd = self.inner.as_raw_fd();
        for (slot, _) in &PRIVATE {
            if slot.compare_exchange(fd, -1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        if self.is_ours() {
            // SAFETY: dropped here, once, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

impl<T: AsRawFd> Deref for Private<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}
