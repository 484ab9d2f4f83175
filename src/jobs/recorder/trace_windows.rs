//! Traces some steps of a job that is not traced, for its findings. The traces lie beside the recording, where the
//! replays find them.

use crate::{
    facts::{
        event::{ProbeId, Request, WindowDetail, WindowRequest, replayed::WINDOW_STEPS},
        units::Stamp,
    },
    model::{
        alerts::Due,
        session::{Session, process::Process},
    },
    sources,
    storage::traces::{self, WindowState, window_state},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tokio::sync::mpsc::Sender;

/// µs between two windows of a process: its probe accepts one in ten minutes.
const BETWEEN_US: u64 = 610 * 1_000_000;

/// µs after which no trace is expected any more.
const PATIENCE_US: u64 = 300 * 1_000_000;

/// The requests to the probes of a run.
pub struct TraceWindows {
    asks: Sender<Request>,
    recording: PathBuf,
    /// The latest request to each probe.
    requests: BTreeMap<ProbeId, PendingWindow>,
}

struct PendingWindow {
    at: Stamp,
    pid: u32,
    /// The file, until it is complete or given up.
    file: Option<PathBuf>,
}

impl TraceWindows {
    /// Returns windows to request by `asks`; their traces go beside the recording.
    pub fn new(asks: Sender<Request>, recording: PathBuf) -> Self {
        Self { asks, recording, requests: BTreeMap::new() }
    }

    /// Requests windows of the processes with these findings, and stores those that are complete. Call it once a
    /// second.
    pub fn look(&mut self, session: &Session, due: &[Due]) {
        for it in self.requests.values_mut() {
            it.take_up(&self.recording, session.now);
        }
        for it in due {
            let is_early = |request: &PendingWindow| session.now.since(request.at) < BETWEEN_US;
            if self.requests.get(&it.probe).is_some_and(is_early) {
                continue;
            }
            if let Some(process) = session.process(it.probe).filter(|process| can_be_asked(process)) {
                self.ask(process, session.now);
            }
        }
    }

    /// Stores what a process that has ended has traced until then.
    pub fn finish(&mut self, now: Stamp) {
        for it in self.requests.values_mut() {
            it.take_up(&self.recording, now);
        }
    }

    fn ask(&mut self, process: &Process, now: Stamp) {
        let id = new_id();
        let Some((file, hello)) = file(process, id).zip(process.hello.as_ref()) else { return };
        let ask =
            WindowRequest { probe: process.probe, id, steps: WINDOW_STEPS, detail: WindowDetail::Events, alert: true };
        // A full queue has requests of users; the next second tries again.
        if self.asks.try_send(ask.into()).is_ok() {
            self.requests.insert(process.probe, PendingWindow { at: now, pid: hello.pid, file: Some(file) });
        }
    }
}

impl PendingWindow {
    /// Moves a complete trace beside the recording.
    fn take_up(&mut self, recording: &Path, now: Stamp) {
        let Some(file) = &self.file else { return };
        match window_state(file) {
            Ok(Some(WindowState::Complete)) => {
                // Without it, the finding has no advice, and that is all.
                let _ = store(file, recording, self.pid);
            }
            Ok(Some(WindowState::Refused(_))) | Err(_) => {}
            Ok(_) if now.since(self.at) < PATIENCE_US => return,
            Ok(_) => {}
        }
        let _ = fs::remove_file(file);
        self.file = None;
    }
}

/// Returns a number for a window of its own, so that no other one's file is taken for it.
pub fn new_id() -> u32 {
    u32::try_from(sources::unix_us() & u64::from(u32::MAX)).unwrap_or_default().max(1)
}

/// Returns the path of a window's file.
pub fn file(process: &Process, id: u32) -> Option<PathBuf> {
    let own = process.hello.as_ref()?.pid;
    Some(Path::new(process.socket.raw()).with_file_name(traces::window_name(own, id)))
}

/// Copies a window to the traces of a recording.
fn store(file: &Path, recording: &Path, pid: u32) -> std::io::Result<()> {
    let folder = traces::folder(recording);
    fs::create_dir_all(&folder)?;
    // A replay must not read a part of it.
    let part = folder.join(format!("{pid}.part"));
    fs::copy(file, &part)?;
    fs::rename(part, folder.join(format!("{pid}_{}.trace", sources::unix_us())))
}

/// Whether gpuwatch may ask this process by itself: as for captures of call stacks.
pub(super) fn can_be_asked(process: &Process) -> bool {
    let is_ready = process.hello.as_ref().is_some_and(|it| it.can_capture());
    is_ready && process.is_alive()
}
