//! The operating system and libcuda where std has no words for them: with `abi`, the only unsafe code.
//!
//! libcuda is used only where the job has loaded it already, with result codes as plain integers: nothing
//! here loads a library, creates a context or waits for a device.
#![expect(unsafe_code, reason = "std has no poll, signal masks, peer credentials or dlopen")]

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void},
    fs::File,
    io,
    mem::{ManuallyDrop, size_of, transmute},
    ops::Deref,
    os::{
        fd::{AsRawFd, FromRawFd, RawFd},
        unix::fs::MetadataExt,
    },
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
const CAPTURE_RELAXED: c_int = 2;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

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
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A symbol of the program and the libraries it was linked with; null where there is none.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: null stands for the global scope, and the name ends in a zero.
    unsafe { dlsym(ptr::null_mut(), name.as_ptr()) }
}

/// µs of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_us() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes one timespec into ours; this clock always exists.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    time.seconds.unsigned_abs() * 1_000_000 + time.nanoseconds.unsigned_abs() / 1000
}

/// The effective user.
pub(crate) fn user() -> u32 {
    geteuid()
}

/// This process's number, in memory that a forked child finds empty: the call takes a microsecond where
/// the caches are cold, as they are after a training step. Null where the kernel is older than 4.14.
static OWN_PID: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// This process's number; true in a child from its first instruction, however it was forked.
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

/// Bytes of a page.
pub(crate) fn page_size() -> u64 {
    u64::try_from(sysconf(SC_PAGESIZE)).unwrap_or(4096)
}

/// The kernel's clock ticks in a second, as `/proc/<pid>/stat` counts them.
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

/// Whether the peer has closed both directions.
pub(crate) fn hung_up(stream: &impl AsRawFd) -> bool {
    let mut fd = PollFd { fd: stream.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor, one element.
    unsafe { poll(&raw mut fd, 1, 0) > 0 }
}

/// Sends what the socket takes at once; never waits, never raises SIGPIPE.
pub(crate) fn send_now(stream: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are one slice's.
    let sent =
        unsafe { send(stream.as_raw_fd(), bytes.as_ptr().cast::<c_void>(), bytes.len(), MSG_DONTWAIT | MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_negative| io::Error::last_os_error())
}

/// Receives what is there; never waits, whatever the job has put in the descriptor's place meanwhile.
pub(crate) fn receive_now(stream: &impl AsRawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are one slice's.
    let received = unsafe { recv(stream.as_raw_fd(), into.as_mut_ptr().cast::<c_void>(), into.len(), MSG_DONTWAIT) };
    usize::try_from(received).map_err(|_negative| io::Error::last_os_error())
}

/// The user at the other end.
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

/// Runs `start` with every signal blocked, so that a thread it starts never takes the job's signals.
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

/// What forked children must not keep open: listeners that seem alive, connections that never end.
/// Each descriptor with what tells it from a later one of the same number.
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

/// The number of what a descriptor leads to.
fn inode_of(fd: RawFd) -> Option<u64> {
    // SAFETY: the file is never dropped, so that the descriptor is only looked at.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    file.metadata().ok().map(|it| it.ino())
}

/// A descriptor's owner whose descriptor is closed in forked children, and left alone once the job has
/// closed it itself (some close every number they find): the number may be another's then.
///
/// In a forked child it must be leaked, never dropped.
pub(crate) struct Private<T: AsRawFd> {
    inner: ManuallyDrop<T>,
    inode: Option<u64>,
}

impl<T: AsRawFd> Private<T> {
    pub(crate) fn new(inner: T) -> Self {
        if !WATCHING_FORKS.swap(true, Ordering::Relaxed) {
            // SAFETY: the function only looks at descriptors and closes them, which is allowed between fork
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

    /// Whether the number still leads to what was opened.
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

type Call1<A> = Option<unsafe extern "C" fn(A) -> i32>;
type Call2<A, B> = Option<unsafe extern "C" fn(A, B) -> i32>;
type Call3<A, B, C> = Option<unsafe extern "C" fn(A, B, C) -> i32>;

/// The calls of a libcuda that this process has loaded; each is absent where the driver lacks it.
#[derive(Clone, Copy)]
pub(crate) struct Cuda {
    context: Call1<*mut *mut c_void>,
    context_device: Call1<*mut i32>,
    memory: Call2<*mut usize, *mut usize>,
    capture_mode: Call1<*mut c_int>,
    device: Call2<*mut i32, c_int>,
    uuid: Call2<*mut [u8; 16], i32>,
    name: Call3<*mut c_char, c_int, i32>,
    total: Call2<*mut usize, i32>,
}

impl Cuda {
    /// The libcuda that is loaded already, if one is.
    pub(crate) fn loaded() -> Option<Self> {
        // SAFETY: with NOLOAD no initialiser runs; the name is a C string.
        let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is loaded and stays so, as its handle is never closed.
        let find = |name: &CStr| unsafe { dlsym(library, name.as_ptr()) };
        // SAFETY: a null pointer is `None`; others have the signatures that the driver API documents.
        unsafe {
            Some(Self {
                context: transmute::<*mut c_void, Call1<_>>(find(c"cuCtxGetCurrent")),
                context_device: transmute::<*mut c_void, Call1<_>>(find(c"cuCtxGetDevice")),
                memory: transmute::<*mut c_void, Call2<_, _>>(find(c"cuMemGetInfo_v2")),
                capture_mode: transmute::<*mut c_void, Call1<_>>(find(c"cuThreadExchangeStreamCaptureMode")),
                device: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceGet")),
                uuid: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceGetUuid_v2")),
                name: transmute::<*mut c_void, Call3<_, _, _>>(find(c"cuDeviceGetName")),
                total: transmute::<*mut c_void, Call2<_, _>>(find(c"cuDeviceTotalMem_v2")),
            })
        }
    }

    /// Free and total bytes of a device, if its context is current on this thread.
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

    /// A device's UUID as the driver's tools write it. A MIG slice is known by its name alone.
    pub(crate) fn uuid(&self, ordinal: u32) -> Option<String> {
        let mut bytes = [0_u8; 16];
        // SAFETY: the driver writes 16 bytes.
        if unsafe { self.uuid?(&raw mut bytes, self.handle(ordinal)?) } != 0 {
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

    /// A device's product name.
    pub(crate) fn name(&self, ordinal: u32) -> Option<String> {
        let mut bytes = [0_u8; 256];
        // SAFETY: the driver writes at most 255 bytes and a zero.
        if unsafe { self.name?(bytes.as_mut_ptr().cast::<c_char>(), 255, self.handle(ordinal)?) } != 0 {
            return None;
        }
        CStr::from_bytes_until_nul(&bytes).ok().map(|it| it.to_string_lossy().into_owned())
    }

    /// A device's total bytes.
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
