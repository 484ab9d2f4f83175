//! Finds probes by scanning their socket directories each second; a task per connection reads the lines.

/// Answers of replays.
pub mod answers;
mod connection;
mod directory;
mod error_file;
mod input;
mod known;
mod lines;

use super::{EventSender, doubled, proc};
use crate::{
    facts::{
        event::{Fact, Request, Unread},
        text::Foreign,
    },
    model::session::PROBES,
};
use answers::Answers;
use connection::{Job, Unreachable, connect};
use directory::{Contents, Notifications, Socket, SocketId, contents};
use error_file::Spilled;
use known::Probes;
pub use lines::pace;
use lines::{Next, Report};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env,
    ffi::OsStr,
    path::PathBuf,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

/// Time between two scans; shorter at first, because a job often starts just before its viewer.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const FIRST_SCANS_EVERY: Duration = Duration::from_millis(200);
const FIRST_SCANS: u32 = 10;

/// Shortest time between two scans that changes in the directories trigger.
const BETWEEN_CHANGES: Duration = Duration::from_millis(10);

/// After a fault that may last (another protocol, garbage), the scanner waits before it tries a socket again: first
/// twice this long, then twice as long each time.
const LATER: Duration = Duration::from_secs(1);
const LATER_MAX: Duration = Duration::from_secs(64);

/// The places to search for probes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Socket directories.
    pub directories: Vec<PathBuf>,
    /// Also scan the private /tmp of the user's processes on devices.
    pub private_tmp: bool,
    /// Only the probes of this run.
    pub run: Option<String>,
    /// Read every sample, also of many probes. [`Sources::start`](super::Sources::start) sets it for a recording.
    pub whole: bool,
}

impl Options {
    /// Returns every directory that a probe of this user may choose, or only `$GPUWATCH_SOCKET_DIR` if it is set.
    pub fn user() -> Self {
        let is_chosen = env::var_os("GPUWATCH_SOCKET_DIR").is_some_and(|it| !it.is_empty());
        Self { directories: gpuwatch_probe::socket::directories(), private_tmp: !is_chosen, run: None, whole: false }
    }
}

/// The kernel's file timestamps lag behind the clock by at most this much.
const TICK: Duration = Duration::from_millis(10);

/// Scans for probes each second and when directories change, and reads them until nothing receives the facts.
pub(super) async fn run(
    options: Options,
    begun: Instant,
    pids: watch::Receiver<Vec<u32>>,
    read_pids: watch::Sender<Vec<u32>>,
    mut asked: mpsc::Receiver<Request>,
    mut captures: mpsc::Receiver<oneshot::Sender<()>>,
    sender: EventSender,
) {
    let (reports, mut reported) = mpsc::channel(64);
    let mut scanner = Scanner::new(options, reports, sender);
    let mut scan = interval_at(begun, FIRST_SCANS_EVERY);
    let (mut scans, mut awake) = (0, begun);
    loop {
        tokio::select! {
            biased;
            Some(report) = reported.recv() => scanner.receive(&report),
            Some(request) = asked.recv() => scanner.probes.ask(request),
            Some(reply) = captures.recv() => {
                scanner.last.push(reply);
                scanner.scan(&pids).await;
            }
            () = async { sleep_until(awake).await; scanner.notifications.next().await } => {
                awake = Instant::now() + BETWEEN_CHANGES;
                scanner.scan(&pids).await;
            }
            _ = scan.tick() => {
                scans += 1;
                if scans == FIRST_SCANS {
                    scan = interval_at(begun + FIRST_SCANS_EVERY * FIRST_SCANS + SCAN_EVERY, SCAN_EVERY);
                    scan.set_missed_tick_behavior(MissedTickBehavior::Skip);
                }
                scanner.scan(&pids).await;
            }
        }
        if scanner.sender.is_closed() {
            return;
        }
        scanner.reply();
        read_pids.send_if_modified(|it| {
            let now = scanner.probes.processes();
            let changed = *it != now;
            *it = now;
            changed
        });
    }
}

/// Scans the directories and tracks which sockets are read.
struct Scanner {
    options: Options,
    began: SystemTime,
    probes: Probes,
    notifications: Notifications,
    /// Sockets and spills that tasks read.
    read: HashSet<SocketId>,
    /// The ones among them whose probe is not known yet.
    unknown: HashSet<SocketId>,
    /// Sockets that are skipped for now.
    left: HashMap<SocketId, Left>,
    /// Spills that were read, with their length. Keyed by name, because a removed file's inode is reused.
    spilled: HashMap<PathBuf, u64>,
    answers: Answers,
    reported: HashSet<String>,
    /// Sockets of this scan that exceeded the limit.
    no_room: u64,
    /// Losses that gpuwatch has reported.
    unread: BTreeMap<Unread, u64>,
    connections: JoinSet<()>,
    reports: mpsc::Sender<Report>,
    sender: EventSender,
    /// Callers that wait until everything present now has been read.
    last: Vec<oneshot::Sender<()>>,
}

/// Why a socket is skipped, and how often it failed.
struct Left {
    next: Next,
    until: Instant,
    times: u32,
}

impl Scanner {
    fn new(options: Options, reports: mpsc::Sender<Report>, sender: EventSender) -> Self {
        Self {
            options,
            began: SystemTime::now().checked_sub(TICK).unwrap_or(SystemTime::UNIX_EPOCH),
            probes: Probes::default(),
            notifications: Notifications::new(),
            read: HashSet::new(),
            unknown: HashSet::new(),
            left: HashMap::new(),
            spilled: HashMap::new(),
            answers: Answers::default(),
            reported: HashSet::new(),
            no_room: 0,
            unread: BTreeMap::new(),
            connections: JoinSet::new(),
            reports,
            sender,
            last: Vec::new(),
        }
    }

    fn receive(&mut self, report: &Report) {
        match *report {
            Report::Greeted(id) => {
                self.unknown.remove(&id);
                self.left.remove(&id);
            }
            Report::Ended(id, next) => {
                self.unknown.remove(&id);
                self.read.remove(&id);
                if next != Next::Again {
                    let times = self.left.get(&id).map_or(0, |it| it.times) + 1;
                    let until = Instant::now() + doubled(LATER, times, LATER_MAX);
                    self.left.insert(id, Left { next, until, times });
                }
                while self.connections.try_join_next().is_some() {}
            }
        }
    }

    /// Answers the callers that wait until everything has been read.
    fn reply(&mut self) {
        if self.unknown.is_empty() {
            for reply in self.last.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    async fn scan(&mut self, pids: &watch::Receiver<Vec<u32>>) {
        let Contents { trusted, sockets, spills, answers, troubles, names_left } = {
            let directories = directories(&self.options, pids);
            // Watch first, so that changes during the scan are not missed.
            self.notifications.watch(directories.iter());
            contents(&directories)
        };
        for trouble in troubles {
            if self.reported.insert(trouble.clone()) {
                self.sender.send(Fact::Notice(Foreign::new(trouble))).await;
            }
        }
        let there: HashSet<_> = sockets.iter().map(|it| it.id).chain(spills.iter().map(|it| it.id)).collect();
        self.left.retain(|id, _| there.contains(id));
        self.spilled.retain(|path, _| spills.iter().any(|it| it.path == *path));
        for answer in self.answers.unread(&answers, &self.probes, &self.unknown) {
            self.sender.send(answer).await;
        }
        answers::sweep(&answers, &sockets);
        self.no_room = 0;
        for socket in sockets {
            self.connect(socket);
        }
        for spill in spills {
            self.take_up(spill);
        }
        for (what, count) in [(Unread::Sockets, self.no_room), (Unread::Names, names_left)] {
            if self.unread.insert(what, count).unwrap_or(0) != count {
                self.sender.send(Fact::Unread { what, count }).await;
            }
        }
        for directory in &trusted {
            gpuwatch_probe::error_file::sweep(directory);
        }
    }

    fn connect(&mut self, socket: Socket) {
        let is_left = |it: &Left| match it.next {
            Next::Never => true,
            Next::After(probe) => self.probes.is_read(probe),
            Next::Later | Next::Again => it.until > Instant::now(),
        };
        let id = socket.id;
        if self.read.contains(&id) || self.left.get(&id).is_some_and(is_left) {
            return;
        }
        let connected = if self.read.len() < PROBES { connect(&socket.path) } else { Err(Unreachable::NoRoom) };
        let stream = match connected {
            Ok(stream) => stream,
            // Nothing listens there; try again each second, because a new probe may reuse the name.
            Err(why) => {
                self.no_room += u64::from(why == Unreachable::NoRoom);
                return;
            }
        };
        self.begin(id);
        let Options { run, whole, .. } = &self.options;
        let job = Job { socket, stream, probes: self.probes.clone(), run: run.clone(), whole: *whole };
        self.connections.spawn(job.read(self.sender.clone(), self.reports.clone()));
    }

    /// Reads a spill whose lines no viewer received at the socket, because the socket is gone or no longer useful.
    fn take_up(&mut self, found: directory::Found) {
        let id = found.id;
        if self.read.contains(&id) || self.spilled.get(&found.path) == Some(&found.bytes) {
            return;
        }
        // Its socket delivers the same. A spill has the name of its probe, and is not read for it each time.
        let name = found.path.file_name().and_then(OsStr::to_str).and_then(gpuwatch_probe::error_file::instance);
        if name.and_then(|it| self.probes.named(it)).is_some_and(|it| self.probes.is_read(it.probe)) {
            return;
        }
        let Some(spilled) = Spilled::read(&found.path) else { return };
        let is_ours = match &self.options.run {
            Some(run) => spilled.hello.run.as_ref() == Some(run),
            // This reader ignores spills from before it began.
            None => found.modified >= self.began,
        };
        if is_ours && spilled.is_written() {
            return;
        }
        // A spill read before its process was seen to end may lack the last lines.
        let Some(spilled) = Spilled::read(&found.path) else { return };
        self.spilled.insert(found.path.clone(), found.bytes);
        if is_ours && self.read.len() < PROBES {
            self.begin(id);
            let (probes, is_run) = (self.probes.clone(), self.options.run.is_some());
            let read = error_file::read(found, spilled, probes, is_run, self.sender.clone(), self.reports.clone());
            self.connections.spawn(read);
        }
    }

    fn begin(&mut self, id: SocketId) {
        self.read.insert(id);
        self.unknown.insert(id);
    }
}

/// Returns the requested directories, and the private /tmp of the user's own processes on devices.
fn directories(options: &Options, pids: &watch::Receiver<Vec<u32>>) -> Vec<PathBuf> {
    let mut all = options.directories.clone();
    if options.private_tmp {
        let uid = rustix::process::geteuid().as_raw();
        let own = pids.borrow().iter().copied().filter(|it| proc::owner(*it) == Some(uid)).collect::<Vec<_>>();
        all.extend(own.iter().map(|pid| PathBuf::from(format!("/proc/{pid}/root/tmp/gpuwatch-{uid}"))));
    }
    all
}
