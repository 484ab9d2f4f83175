//! A probe: the functions that the job calls. None of them waits for the server, and a full queue drops and counts.

use crate::{
    history::Note,
    identity,
    log::Log,
    reading::Reading,
    server::{self, Endpoint, Server},
    shared::{DEVICES_MAX, Refusal, Shared, locked},
    sites::SitesRequest,
    socket,
    store::{Entry, QUEUE, Store},
    sys,
    sys::Private,
    window,
    wire::{self, Device, Hello, Line},
};
use std::{
    env, io, mem,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    time::Duration,
};

/// Longer names are useless on a screen; the wire's own limits are the same or less.
const NAME_CHARS_MAX: usize = 1024;
const MESSAGE_CHARS_MAX: usize = 16 * 1024;

/// How long `stop` waits for the viewers to receive the end.
const STOP_WAIT: Duration = Duration::from_millis(1200);

/// The configuration of a probe. Empty fields are read from the process and its environment.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Its hello.
    pub hello: Hello,
    /// The log file; by default `$GPUWATCH_LOG` or `<pid>.log` next to the socket.
    pub log: Option<PathBuf>,
    /// Directories for the socket, of which the first usable one is taken; by default [`socket::directories`].
    pub directories: Vec<PathBuf>,
}

impl Description {
    /// Adds a device, or updates it; ignores devices beyond the limit.
    pub fn device(&mut self, device: Device) {
        let _ = add_device(&mut self.hello, device);
    }
}

/// A running probe. Dropping it stops it.
pub struct Probe {
    shared: Arc<Shared>,
    ended: Mutex<Receiver<()>>,
}

impl Probe {
    /// Binds the socket and starts the thread, which blocks all signals.
    pub fn start(description: Description) -> io::Result<Self> {
        if identity::asks_for("off") {
            return Err(io::Error::other("GPUWATCH=off"));
        }
        sys::remember_pid();
        let pid = sys::pid();
        let chosen = description.directories;
        let directories = if chosen.is_empty() { socket::directories() } else { chosen };
        // If a disk is full or read-only, try the next directory.
        let (dir, endpoint) = socket::take(&directories, |dir| {
            socket::sweep(dir);
            Ok((dir.to_owned(), Endpoint::bind(dir, pid)?))
        })?;
        let (waker, rung) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        rung.set_nonblocking(true)?;
        let mut hello = description.hello;
        identity::complete(&mut hello);
        let (queue, entries) = sync_channel(QUEUE);
        let shared = Arc::new(Shared {
            pid,
            dropped: AtomicU64::new(0),
            version: AtomicU64::new(1),
            reason: Mutex::new(None),
            directories,
            sites_request: SitesRequest::default(),
            window_request: window::WindowRequest::default(),
            store: Mutex::new(Store::new(entries)),
            path: Mutex::new(endpoint.path().to_owned()),
            queue,
            hello: Mutex::new(hello),
            stopping: AtomicBool::new(false),
            off: AtomicBool::new(false),
            complained: AtomicBool::new(false),
            cuda: OnceLock::new(),
            queried_us: [const { AtomicU64::new(0) }; DEVICES_MAX],
            waker: Private::new(waker),
            log: Log::new(log_path(description.log, &dir, pid)),
        });
        shared.find_cuda();
        let ended = server::start(Server::new(Arc::clone(&shared), endpoint, Private::new(rung)))?;
        Ok(Self { shared, ended: Mutex::new(ended) })
    }

    /// Returns whether it runs, in the process that started it.
    pub fn is_here(&self) -> bool {
        self.shared.is_here()
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        locked(&self.shared.path).clone()
    }

    /// Pushes a sample: stamps it, takes no lock, never waits.
    ///
    /// Once a second, at a step of the device whose context is current, adds the device's free and total bytes.
    pub fn push(&self, reading: &Reading) -> Result<(), Refusal> {
        let mut reading = *reading;
        if !self.shared.is_here() {
            return Err(Refusal::Off);
        }
        reading.at_us = sys::monotonic_us();
        reading.present &= Reading::NAMED;
        self.shared.add_device_figures(&mut reading)?;
        self.shared.hand_over(Entry::Sample(reading))
    }

    /// Returns the latest counters of a device, or of the first one that has some. Counters that are read once a second
    /// have their latest value. Calls nothing of CUDA.
    pub fn latest(&self, device: Option<u32>) -> Option<Reading> {
        if !self.shared.is_here() {
            return None;
        }
        let mut store = self.shared.store();
        store.take_entries(&self.shared.dropped, sys::monotonic_us());
        store.latest(device)
    }

    /// Marks the current phase of the job, such as an epoch.
    pub fn mark(&self, name: &str, value: Option<i64>) -> Result<(), Refusal> {
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        self.note(Line::Mark(wire::Mark { seq: None, at_us: sys::monotonic_us(), name, value }))
    }

    /// Reports an allocation that failed for good. The probe sets sequence number and stamp. The error is on disk when
    /// this returns, because the process may be gone before a reader receives it.
    pub fn oom(&self, mut oom: wire::Oom) -> Result<(), Refusal> {
        oom.at_us = sys::monotonic_us();
        oom.blocks.truncate(wire::GROUPS_MAX);
        oom.message = oom.message.map(|it| it.chars().take(MESSAGE_CHARS_MAX).collect());
        self.note(Line::Oom(oom)).inspect(|()| self.shared.write_error_file())
    }

    /// Answers `sites`. The probe sets sequence number and stamp.
    pub fn sites(&self, sites: wire::Sites) -> Result<(), Refusal> {
        let queued = self.note(Line::Sites(wire::Sites { at_us: sys::monotonic_us(), ..sites }));
        // An answer that the queue could not take does not count: the job captures again.
        queued.inspect(|()| self.shared.sites_request.answered())
    }

    /// The same with the fields of a JSON object.
    pub(crate) fn sites_as_written(&self, fields: &str, is_answer: bool) -> Result<(), Refusal> {
        let queued = self.note(Note::Sites { at_us: sys::monotonic_us(), fields: fields.into() });
        if is_answer { queued.inspect(|()| self.shared.sites_request.answered()) } else { queued }
    }

    /// Returns the open request for sites (see the C header); 0 without one.
    pub(crate) fn sites_request(&self) -> u64 {
        self.shared.sites_request.bits()
    }

    /// Returns when rises are expected (see the C header); 0 if unknown.
    pub(crate) fn sites_rises(&self) -> u64 {
        self.shared.sites_request.rises()
    }

    /// Returns the open request for a window (see the C header); 0 without one.
    pub(crate) fn window_request(&self) -> u64 {
        self.shared.window_request.bits()
    }

    /// Ends a request for a window.
    pub(crate) fn window_ended(&self, request: u64) {
        self.shared.window_request.end(request);
    }

    /// Sends the framework's message about the latest failure on a device, if it is known only after the report.
    pub fn oom_message(&self, device: u32, message: &str) -> Result<(), Refusal> {
        let mut message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
        message.shrink_to_fit();
        let line = wire::OomMessage { seq: None, at_us: sys::monotonic_us(), device, message };
        self.note(Line::OomMessage(line)).inspect(|()| self.shared.write_error_file())
    }

    /// Adds a device, or updates it. Missing fields are queried from a loaded libcuda.
    pub fn device(&self, device: Device) -> Result<(), Refusal> {
        self.describe(|hello| add_device(hello, device))
    }

    /// Changes the probe's description, and sends it to viewers.
    pub fn describe(&self, change: impl FnOnce(&mut Hello) -> Result<(), Refusal>) -> Result<(), Refusal> {
        if !self.shared.is_here() {
            return Err(Refusal::Off);
        }
        let result = change(&mut locked(&self.shared.hello));
        self.shared.find_cuda();
        self.shared.version.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Writes one line to the probe's log.
    pub fn log(&self, line: &str) {
        if self.shared.is_here() {
            self.shared.log.line(line);
        }
    }

    /// Sends a bye with the reason and removes the socket; waits for viewers that read, at most a second.
    pub fn stop(&self, reason: &str) {
        if !self.shared.is_here() {
            return;
        }
        *locked(&self.shared.reason) = Some(reason.to_owned());
        if !self.shared.stopping.swap(true, Ordering::AcqRel) {
            // If the waker's buffer is full, the thread wakes already.
            if self.shared.waker.is_ours() {
                let _ = sys::send_now(&*self.shared.waker, b"!");
            }
            let _ = locked(&self.ended).recv_timeout(STOP_WAIT);
        }
    }

    fn note(&self, note: impl Into<Note>) -> Result<(), Refusal> {
        if self.shared.is_here() {
            self.shared.hand_over(Entry::Note(Box::new(note.into())))
        } else {
            Err(Refusal::Off)
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.shared.pid == sys::pid() {
            self.stop(wire::EXIT);
        } else {
            // A forked child must not close or remove anything of its parent's.
            mem::forget(Arc::clone(&self.shared));
        }
    }
}

fn add_device(hello: &mut Hello, device: Device) -> Result<(), Refusal> {
    if let Some(known) = hello.devices.iter_mut().find(|it| it.ordinal == device.ordinal) {
        *known = device;
    } else if hello.devices.len() < DEVICES_MAX {
        hello.devices.push(device);
    } else {
        return Err(Refusal::Device);
    }
    Ok(())
}

/// Returns the log file's path: from the description, the environment, or next to the socket.
pub(crate) fn log_path(described: Option<PathBuf>, dir: &Path, pid: u32) -> Option<PathBuf> {
    let set = || env::var_os("GPUWATCH_LOG").filter(|it| !it.is_empty()).map(PathBuf::from);
    described.or_else(set).or_else(|| Some(dir.join(format!("{pid}.log"))))
}
