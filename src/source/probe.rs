//! Probes: their socket directories are scanned each second, each connection is read by a task of its own.

mod connection;
mod directory;

use super::{Teller, system};
use crate::{
    event::{Ask, Fact, ProbeId},
    text::Foreign,
};
use connection::{Ended, connect};
use directory::{Socket, sockets};
use std::{
    collections::{HashMap, HashSet},
    env,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    time::{MissedTickBehavior, interval_at},
};

/// Between two looks into the directories; shorter at first, as a job is often started just before its viewer.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const FIRST_SCANS_EVERY: Duration = Duration::from_millis(200);
const FIRST_SCANS: u32 = 10;

/// After a fault that will hardly heal (another protocol, garbage), a socket is left alone for this long.
const LEAVE_ALONE: Duration = Duration::from_secs(3600);

/// More probes than this at once are not read.
const PROBES_MAX: usize = 512;

/// Probes remembered; past it, those that are not connected are forgotten and would get a new number.
const KNOWN_MAX: usize = 4096;

/// Where probes are looked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Socket directories.
    pub directories: Vec<PathBuf>,
    /// Also look into the private /tmp of the user's processes on devices.
    pub private_tmp: bool,
    /// Only probes of this run.
    pub run: Option<String>,
}

impl Options {
    /// Every directory that a probe of this user may choose; `$GPUWATCH_SOCKET_DIR` alone where it is set.
    pub fn user() -> Self {
        let is_chosen = env::var_os("GPUWATCH_SOCKET_DIR").is_some_and(|it| !it.is_empty());
        Self { directories: gpuwatch_probe::socket::directories(), private_tmp: !is_chosen, run: None }
    }
}

/// Who a probe is: a process, or where processes cannot be told apart (another pid namespace), its socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Process { pid: u32, start_ticks: u64 },
    Socket { device: u64, inode: u64 },
}

/// What is known of a probe across its connections.
#[derive(Clone, Copy, Debug)]
struct Known {
    probe: ProbeId,
    /// The last line it sent: where a reconnect goes on.
    seq: u64,
    connected: bool,
}

/// Every probe met, and the number of the next one.
#[derive(Default)]
struct Probes {
    known: HashMap<Identity, Known>,
    next: u32,
}

impl Probes {
    /// The processes whose probes are read, as this host numbers them.
    fn processes(&self) -> Vec<u32> {
        let read = self.known.iter().filter(|(_, it)| it.connected);
        let mut processes: Vec<u32> = read
            .filter_map(|(identity, _)| if let Identity::Process { pid, .. } = identity { Some(*pid) } else { None })
            .collect();
        processes.sort_unstable();
        processes
    }
}

/// Looks for probes each second and reads those found, until nobody listens.
pub(super) async fn run(
    options: Options,
    begun: tokio::time::Instant,
    pids: watch::Receiver<Vec<u32>>,
    read_pids: watch::Sender<Vec<u32>>,
    mut asked: mpsc::Receiver<Ask>,
    teller: Teller,
) {
    let (done, mut ended) = mpsc::channel(64);
    let mut probes = Probes::default();
    let mut read: HashSet<(u64, u64)> = HashSet::new();
    let mut left_alone: HashMap<(u64, u64), Instant> = HashMap::new();
    let mut told: HashSet<String> = HashSet::new();
    let mut connections = tokio::task::JoinSet::new();
    let mut ears: HashMap<ProbeId, mpsc::Sender<Ask>> = HashMap::new();
    let mut scan = interval_at(begun, FIRST_SCANS_EVERY);
    let mut scans = 0;
    loop {
        tokio::select! {
            Some(end) = ended.recv() => {
                let Ended { inode, identity, seq, leave_alone }: Ended = end;
                read.remove(&inode);
                if leave_alone {
                    left_alone.insert(inode, Instant::now() + LEAVE_ALONE);
                }
                if let Some(known) = probes.known.get_mut(&identity) {
                    ears.remove(&known.probe);
                    known.connected = false;
                    known.seq = seq;
                }
                while connections.try_join_next().is_some() {}
            }
            Some(ask) = asked.recv() => {
                // One that has just gone is not asked; that it has gone is told.
                let _ = ears.get(&ask.probe).map(|it| it.try_send(ask));
            }
            _ = scan.tick() => {
                scans += 1;
                if scans == FIRST_SCANS {
                    scan = interval_at(begun + FIRST_SCANS_EVERY * FIRST_SCANS + SCAN_EVERY, SCAN_EVERY);
                    scan.set_missed_tick_behavior(MissedTickBehavior::Skip);
                }
                left_alone.retain(|_, until| *until > Instant::now());
                let (found, troubles) = sockets(&directories(&options, &pids));
                for trouble in troubles {
                    if told.insert(trouble.clone()) && !teller.tell(Fact::Notice(Foreign::new(trouble))).await {
                        return;
                    }
                }
                for socket in found {
                    let inode = socket.inode;
                    if read.len() >= PROBES_MAX || left_alone.contains_key(&inode) || !read.insert(inode) {
                        continue;
                    }
                    let Some(stream) = connect(&socket.path) else {
                        // Refused: nobody listens there any more. It is asked again each second, as a
                        // name may be taken anew.
                        read.remove(&inode);
                        continue;
                    };
                    let (identity, known) = introduce(&mut probes, &socket, stream.pid);
                    let run = options.run.clone();
                    let (ear, asks) = mpsc::channel(4);
                    ears.insert(known.probe, ear);
                    let job = connection::Job { socket, stream, identity, known, run, asks };
                    connections.spawn(job.read(teller.clone(), done.clone()));
                }
                read_pids.send_if_modified(|it| {
                    let now = probes.processes();
                    let changed = *it != now;
                    *it = now;
                    changed
                });
            }
        }
    }
}

/// Its number: the one it had, or the next. A second socket of a process that is already read is a probe of
/// its own.
fn introduce(probes: &mut Probes, socket: &Socket, pid: Option<u32>) -> (Identity, Known) {
    let by_socket = Identity::Socket { device: socket.inode.0, inode: socket.inode.1 };
    let by_process = pid.and_then(|pid| Some(Identity::Process { pid, start_ticks: system::start_ticks(pid)? }));
    let known = &mut probes.known;
    let identity = by_process.filter(|it| !known.get(it).is_some_and(|it| it.connected)).unwrap_or(by_socket);
    if known.len() > KNOWN_MAX {
        known.retain(|_, it| it.connected);
    }
    let probe = known.entry(identity.clone()).or_insert_with(|| {
        probes.next += 1;
        Known { probe: ProbeId(probes.next - 1), seq: 0, connected: false }
    });
    probe.connected = true;
    (identity, *probe)
}

/// The directories asked for, and the private /tmp of the user's own processes on devices.
fn directories(options: &Options, pids: &watch::Receiver<Vec<u32>>) -> Vec<PathBuf> {
    let mut all = options.directories.clone();
    if options.private_tmp {
        let uid = rustix::process::geteuid().as_raw();
        let own = pids.borrow().iter().copied().filter(|it| system::owner(*it) == Some(uid)).collect::<Vec<_>>();
        all.extend(own.iter().map(|pid| PathBuf::from(format!("/proc/{pid}/root/tmp/gpuwatch-{uid}"))));
    }
    all
}
