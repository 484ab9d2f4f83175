//! The probe's thread: moves the queue's entries to the history and serves it.
//!
//! It checks the queue at fixed times instead of being woken, because waking costs the waker. Sends never wait, so a
//! slow viewer costs no more than none.

mod endpoint;
mod viewer;

pub(crate) use endpoint::Endpoint;

use crate::{
    identity,
    shared::Shared,
    sites,
    store::QUEUE,
    sys,
    sys::Private,
    window,
    wire::{self, Line},
};
use std::{
    io::{self, ErrorKind},
    iter,
    os::{fd::AsRawFd, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind},
    str::SplitAsciiWhitespace,
    sync::{
        Arc, PoisonError,
        atomic::Ordering,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};
use viewer::{Requests, Viewer};

/// Most viewers at once; the next one is refused with a reason.
pub(crate) const VIEWERS_MAX: usize = 32;

/// Refused connections wait for their reason in additional places.
const CONNECTIONS_MAX: usize = VIEWERS_MAX + 8;

const ALONE_MS: i32 = 100;
const WATCHED_MS: i32 = 15;
const EAGER_MS: i32 = 3;
const EAGER_US: u64 = 3000;

const SECOND_US: u64 = 1_000_000;

/// How long the end may take to reach viewers that read, in µs, and those that do not. A viewer of many probes reads
/// each four times a second.
const FAREWELL_US: u64 = 1_000_000;
const FAREWELL_STALLED_US: u64 = 400_000;

/// A recorder finds a probe that lives longer than this, in µs, on any busy machine.
const SHORT_US: u64 = 10_000_000;

/// A job that closes unknown descriptors has done so after this time, and has opened others in their places.
const JOB_AT_DESCRIPTORS: Duration = Duration::from_millis(200);

pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) endpoint: Endpoint,
    pub(crate) waker: Private<UnixStream>,
    pub(crate) user: u32,
    sites: sites::SitesLimit,
    windows: window::WindowLimit,
    viewers: Vec<Viewer>,
    started_us: u64,
    second_us: u64,
    /// The queue was nearly full.
    busy: bool,
    accepting: bool,
    /// Something ended the last wait early.
    hurried: bool,
}

impl Server {
    pub(crate) fn new(shared: Arc<Shared>, endpoint: Endpoint, waker: Private<UnixStream>) -> Self {
        let user = sys::user();
        Self {
            shared,
            endpoint,
            waker,
            user,
            sites: sites::SitesLimit::default(),
            windows: window::WindowLimit::default(),
            viewers: Vec::new(),
            started_us: sys::monotonic_us(),
            second_us: 0,
            busy: false,
            accepting: true,
            hurried: false,
        }
    }

    /// Serves until the probe is stopped.
    pub(crate) fn run(&mut self) {
        while !self.shared.stopping() {
            self.wait();
            if !self.waker.is_ours() || !self.endpoint.is_intact() {
                self.shared.switch_off();
                self.endpoint.remove();
                // The job is closing descriptors right now, and might close one that the probe opens for its log.
                thread::sleep(JOB_AT_DESCRIPTORS);
                self.shared.turn_off("the job closed the probe's descriptors, which turned it off");
                return;
            }
            self.turn();
        }
        self.farewell();
    }

    /// Waits until the next turn. Whatever others do to the socket, it shortens one wait and not the next as well.
    fn wait(&mut self) {
        let eager = self.busy || self.viewers.iter().any(Viewer::is_eager);
        let timeout_ms = if self.viewers.is_empty() { ALONE_MS } else { WATCHED_MS };
        let waker = self.waker.as_raw_fd();
        if eager || self.hurried {
            sys::wait(&[waker], iter::empty(), EAGER_MS);
        }
        self.hurried = false;
        if !eager && self.waker.is_ours() && !self.shared.stopping() {
            // A connection that cannot be accepted now would end every wait.
            let ready = if self.accepting { [waker, self.endpoint.fd()] } else { [waker; 2] };
            let before_us = sys::monotonic_us();
            sys::wait(&ready, self.viewers.iter().map(Viewer::fd), timeout_ms);
            self.hurried = sys::monotonic_us().saturating_sub(before_us) < EAGER_US;
        }
        let mut rung = [0_u8; 64];
        while self.waker.is_ours() && matches!(sys::receive_now(&*self.waker, &mut rung), Ok(1..)) {}
    }

    fn turn(&mut self) {
        let now_us = sys::monotonic_us();
        if now_us.saturating_sub(self.second_us) >= SECOND_US {
            self.second_us = now_us;
            self.second();
        }
        self.take_entries(now_us);
        self.accept(now_us);
        self.serve(now_us);
    }

    /// Does what is needed only once a second.
    fn second(&mut self) {
        let rss = identity::resident();
        self.shared.store().rss = rss;
        self.shared.find_cuda();
        if !self.endpoint.is_there() {
            self.find_again();
        }
    }

    /// Creates the socket's name again if it is gone or another's: cleaners of /tmp remove it, and probes with the same
    /// pid replace it.
    fn find_again(&mut self) {
        match crate::socket::take(&self.shared.directories, |dir| Endpoint::bind(dir, self.shared.pid)) {
            Ok(endpoint) => {
                self.endpoint = endpoint;
                self.shared.moved(self.endpoint.path());
            }
            Err(fault) => self.shared.log_once(&format!("the socket is gone and cannot be made again: {fault}")),
        }
    }

    fn take_entries(&mut self, now_us: u64) {
        let taken = self.shared.store().take_entries(&self.shared.dropped, now_us);
        self.busy = taken > QUEUE / 4;
    }

    fn accept(&mut self, now_us: u64) {
        self.accepting = true;
        while self.viewers.len() < CONNECTIONS_MAX {
            let stream = match self.endpoint.accept() {
                Ok(stream) => stream,
                Err(fault) => {
                    self.accepting = fault.kind() == ErrorKind::WouldBlock;
                    return;
                }
            };
            let allowed = sys::peer_user(&stream).is_ok_and(|peer| may_watch(peer, self.user));
            let full = self.viewers.len() >= VIEWERS_MAX;
            let mut viewer = Viewer::new(stream, now_us);
            if !allowed {
                viewer.dismiss("another user's process");
            } else if full {
                viewer.dismiss("as many viewers as this probe serves are connected");
            }
            self.viewers.push(viewer);
        }
        self.accepting = false;
    }

    fn serve(&mut self, now_us: u64) {
        let version = self.shared.version.load(Ordering::Acquire);
        let store = self.shared.store();
        if self.viewers.iter().any(|it| it.awaits_hello(version)) {
            let hello = self.shared.hello_line(store.history.seq());
            self.viewers.iter_mut().filter(|it| it.awaits_hello(version)).for_each(|it| it.greet(version, &hello));
        }
        let mut requests = RequestServer { sites: &mut self.sites, windows: &mut self.windows, shared: &self.shared };
        self.viewers.retain_mut(|viewer| {
            let stays = viewer.turn(now_us, &store.history, &mut requests);
            if let Some(window) = viewer.window().filter(|_| !stays) {
                // Its reader is gone.
                self.shared.window_request.end(window);
            }
            stays
        });
    }

    /// Sends the last samples and the bye, and closes the socket.
    fn farewell(&mut self) {
        let start_us = sys::monotonic_us();
        self.take_entries(start_us);
        self.accept(start_us);
        let reason = self.shared.reason.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reason = reason.unwrap_or_else(|| wire::EXIT.to_owned());
        self.shared.store().history.note(Line::Bye(wire::Bye { seq: None, at_us: start_us, reason }));
        self.endpoint.remove();
        let (mut sent, mut progress_us) = (0, start_us);
        loop {
            // Connections that still owe a `since` no longer get time for it.
            self.serve(u64::MAX);
            let now_us = sys::monotonic_us();
            let sent_now = self.viewers.iter().map(Viewer::sent_bytes).sum();
            if sent_now != sent {
                (sent, progress_us) = (sent_now, now_us);
            }
            let stalled = now_us.saturating_sub(progress_us) > FAREWELL_STALLED_US;
            let late = now_us.saturating_sub(start_us) > FAREWELL_US;
            if stalled || late || self.viewers.iter().all(Viewer::is_served) {
                break;
            }
            sys::wait(&[], iter::empty(), 1);
        }
        self.leave(start_us);
        self.viewers.clear();
    }

    /// Writes to disk what readers may lack: those that came too late, and those that are still to come.
    fn leave(&self, now_us: u64) {
        let is_short = now_us.saturating_sub(self.started_us) < SHORT_US;
        let is_received = self.viewers.iter().any(|it| it.is_served() && !it.has_missed());
        let has_error_file = self.shared.store().has_error_file();
        // A viewer that has everything need not be the recorder of the run.
        if is_received && has_error_file && !is_short {
            self.shared.store().remove_error_file();
        } else if has_error_file || (is_short && self.shared.is_of_a_run()) {
            self.shared.write_error_file();
        }
    }
}

/// Takes viewers' requests.
struct RequestServer<'a> {
    sites: &'a mut sites::SitesLimit,
    windows: &'a mut window::WindowLimit,
    shared: &'a Shared,
}

impl Requests for RequestServer<'_> {
    fn sites(&mut self, arguments: SplitAsciiWhitespace) -> Result<(), String> {
        self.shared.with_hello(|hello| self.sites.ask(arguments, hello, &self.shared.sites_request))
    }

    fn window(&mut self, arguments: SplitAsciiWhitespace) -> Result<u64, String> {
        self.windows.ask(arguments, &self.shared.window_request)
    }
}

/// Starts the thread; the receiver is notified when it ends.
pub(crate) fn start(mut server: Server) -> io::Result<Receiver<()>> {
    let (end, ended) = channel();
    let body = move || {
        let shared = Arc::clone(&server.shared);
        if catch_unwind(AssertUnwindSafe(|| server.run())).is_err() {
            shared.turn_off("a fault inside the probe turned it off");
            server.endpoint.remove();
        }
        drop(server);
        let _ = end.send(());
    };
    let builder = thread::Builder::new().name("gpuwatch".to_owned()).stack_size(256 * 1024);
    sys::with_signals_blocked(|| builder.spawn(body)).map(|_| ended)
}

/// Accepts the same user and root, but never the uid that stands for unmapped users.
fn may_watch(peer: u32, user: u32) -> bool {
    const NOBODY: u32 = 65_534;
    peer != NOBODY && (peer == user || peer == 0)
}

#[cfg(test)]
mod tests {
    use super::may_watch;

    #[test]
    fn the_same_user_and_root_may_watch() {
        assert!(may_watch(1000, 1000) && may_watch(0, 1000) && may_watch(0, 0));
        assert!(!may_watch(1001, 1000) && !may_watch(1000, 0));
        assert!(!may_watch(65_534, 65_534) && !may_watch(65_534, 0));
    }
}
