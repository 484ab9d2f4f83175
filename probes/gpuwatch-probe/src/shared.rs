//! State shared by the job's threads and the probe's thread.

use crate::{
    error_file, identity,
    log::Log,
    reading::{DEVICE_FREE, DEVICE_TOTAL, Reading},
    sites::SitesRequest,
    store::{Entry, Store},
    sys,
    sys::{Cuda, Private},
    window,
    wire::{Edge, Hello, Line, encode},
};
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
};

/// Most devices of one process.
pub(crate) const DEVICES_MAX: usize = 64;

const SECOND_US: u64 = 1_000_000;

/// Why an entry was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The probe is off, stopped, or belongs to the parent of a forked process.
    Off,
    /// The queue is full; the loss is counted and sent on the wire.
    Full,
    /// More devices than the limit.
    Device,
}

pub(crate) struct Shared {
    pub(crate) pid: u32,
    pub(crate) dropped: AtomicU64,
    pub(crate) version: AtomicU64,
    pub(crate) reason: Mutex<Option<String>>,
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) sites_request: SitesRequest,
    pub(crate) window_request: window::WindowRequest,
    pub(crate) store: Mutex<Store>,
    pub(crate) path: Mutex<PathBuf>,
    pub(crate) queue: SyncSender<Entry>,
    pub(crate) hello: Mutex<Hello>,
    pub(crate) stopping: AtomicBool,
    pub(crate) off: AtomicBool,
    pub(crate) complained: AtomicBool,
    pub(crate) cuda: OnceLock<Cuda>,
    /// When each device's figures were last queried, in µs.
    pub(crate) queried_us: [AtomicU64; DEVICES_MAX],
    pub(crate) waker: Private<UnixStream>,
    pub(crate) log: Log,
}

impl Shared {
    pub(crate) fn is_here(&self) -> bool {
        self.pid == sys::pid() && !self.stopping() && !self.off.load(Ordering::Relaxed)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn hand_over(&self, entry: Entry) -> Result<(), Refusal> {
        match self.queue.try_send(entry) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Err(Refusal::Full)
            }
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Off),
        }
    }

    /// A call into the driver, so only once a second, and only where the job's own context is current.
    pub(crate) fn add_device_figures(&self, reading: &mut Reading) -> Result<(), Refusal> {
        let slot = usize::try_from(reading.device).ok().and_then(|it| self.queried_us.get(it));
        let queried = slot.ok_or(Refusal::Device)?;
        let (Edge::Step | Edge::Call, Some(cuda)) = (reading.edge, self.cuda.get()) else { return Ok(()) };
        let before = queried.load(Ordering::Relaxed);
        if before != 0 && reading.at_us.saturating_sub(before) < SECOND_US {
            return Ok(());
        }
        queried.store(reading.at_us, Ordering::Relaxed);
        if let Some((free, total)) = cuda.free_and_total(reading.device) {
            reading.put(DEVICE_FREE, free);
            reading.put(DEVICE_TOTAL, total);
        }
        Ok(())
    }

    /// Uses a libcuda that the job has loaded meanwhile, and queries what devices lack.
    pub(crate) fn find_cuda(&self) {
        if self.cuda.get().is_none()
            && let Some(found) = Cuda::loaded()
        {
            let _ = self.cuda.set(found);
        }
        let Some(cuda) = self.cuda.get() else { return };
        let mut changed = false;
        for device in &mut locked(&self.hello).devices {
            let before = device.clone();
            device.uuid = device.uuid.take().or_else(|| cuda.uuid(device.ordinal));
            device.name = device.name.take().or_else(|| cuda.name(device.ordinal));
            device.total = device.total.or_else(|| cuda.total(device.ordinal));
            changed |= *device != before;
        }
        if changed {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn hello_line(&self, seq: u64) -> String {
        hello_line(&locked(&self.hello), seq)
    }

    /// Reads the hello.
    pub(crate) fn with_hello<T>(&self, read: impl FnOnce(&Hello) -> T) -> T {
        read(&locked(&self.hello))
    }

    pub(crate) fn moved(&self, path: &Path) {
        path.clone_into(&mut locked(&self.path));
    }

    /// Stops accepting samples.
    pub(crate) fn switch_off(&self) {
        self.off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn turn_off(&self, why: &str) {
        self.switch_off();
        self.log.line(why);
    }

    pub(crate) fn log_once(&self, line: &str) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            self.log.line(line);
        }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.store)
    }

    /// Returns whether the process was started for a run, in which case a recorder may read its error file.
    pub(crate) fn is_of_a_run(&self) -> bool {
        self.with_hello(|it| it.run.is_some())
    }

    /// Writes everything reported so far to disk.
    pub(crate) fn write_error_file(&self) {
        let path = locked(&self.path).clone();
        let Some(dir) = path.parent() else { return };
        let name = self.with_hello(|it| error_file::name(it.pid, it.instance.as_deref().unwrap_or_default()));
        let mut store = self.store();
        store.take_entries(&self.dropped, sys::monotonic_us());
        if let Err(fault) = store.write_error_file(dir, &name, |seq| self.hello_line(seq)) {
            self.log_once(&format!("an error could not be kept for readers that come later: {fault}"));
        }
    }
}

/// Formats the hello as a line.
fn hello_line(hello: &Hello, seq: u64) -> String {
    let mut hello = hello.clone();
    hello.seq = seq;
    hello.monotonic_us = sys::monotonic_us();
    hello.unix_us = identity::unix_us();
    let mut line = String::new();
    encode(&Line::Hello(hello), &mut line);
    line
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
