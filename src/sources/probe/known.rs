//! Identifies probes: each keeps its number, whatever socket or file its lines come through.

use super::directory::{Socket, SocketId};
use crate::{
    facts::event::{ProbeId, Request, wire::Hello},
    sources::system,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::mpsc;

/// Most probes remembered; beyond that, unconnected ones are forgotten and would get a new number.
const KNOWN_MAX: usize = 4096;

/// A probe's identity: the name that it gives itself. An unnamed probe is identified by its process, or by its socket
/// if processes are indistinguishable (another pid namespace).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Instance(String),
    Process { pid: u32, start_ticks: u64 },
    Socket(SocketId),
}

/// A probe across its connections.
#[derive(Debug)]
struct Known {
    probe: ProbeId,
    pid: Option<u32>,
    /// The last line it sent; a new connection continues there.
    seq: u64,
    /// The socket that it is read from, and the channel for requests; `None` while nothing reads it.
    read: Option<(Option<Socket>, mpsc::Sender<Request>)>,
}

/// An identified probe, and the last line that it sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Introduced {
    pub(super) probe: ProbeId,
    pub(super) seq: u64,
}

/// Every known probe, shared by the tasks that read them.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes(Arc<Mutex<Register>>);

#[derive(Debug, Default)]
struct Register {
    known: HashMap<Identity, Known>,
    /// The last known probe of each socket.
    sockets: HashMap<SocketId, Identity>,
    next: u32,
    /// Number of probes that are read.
    read: usize,
}

impl Probes {
    /// Returns the last known probe of this socket.
    pub(super) fn last_at(&self, socket: &Socket) -> Option<Introduced> {
        let register = self.register();
        let known = register.known.get(register.sockets.get(&socket.id)?)?;
        known.read.is_none().then_some(Introduced { probe: known.probe, seq: known.seq })
    }

    /// Identifies the probe with this hello at a socket. From then on it counts as read, and gets requests through
    /// `ear`.
    ///
    /// # Errors
    /// The probe's number, if another socket is reading it already, because names may be removed and created again.
    pub(super) fn introduce(
        &self,
        hello: &Hello,
        socket: &Socket,
        pid: Option<u32>,
        ear: mpsc::Sender<Request>,
    ) -> Result<Introduced, ProbeId> {
        let mut register = self.register();
        let identity = register.identity(hello, socket, pid);
        register.read(identity, pid, Some(socket.clone()), ear)
    }

    /// The same for a probe that is read from its spill.
    pub(super) fn introduce_spilled(&self, instance: &str, pid: Option<u32>) -> Result<Introduced, ProbeId> {
        // No reader would receive the answer.
        let (ear, _) = mpsc::channel(1);
        self.register().read(Identity::Instance(instance.to_owned()), pid, None, ear)
    }

    /// Returns the probe with this name, if it is known.
    pub(super) fn named(&self, instance: &str) -> Option<Introduced> {
        let register = self.register();
        let known = register.known.get(&Identity::Instance(instance.to_owned()))?;
        Some(Introduced { probe: known.probe, seq: known.seq })
    }

    /// Returns the probe with this name, once the receiver of the events knows it: its socket is not among these.
    pub(super) fn introduced(&self, instance: &str, unknown: &HashSet<SocketId>) -> Option<ProbeId> {
        let register = self.register();
        let known = register.known.get(&Identity::Instance(instance.to_owned()))?;
        let is_known = match &known.read {
            Some((Some(socket), _)) => !unknown.contains(&socket.id),
            Some((None, _)) => false,
            None => true,
        };
        is_known.then_some(known.probe)
    }

    /// Marks a probe as no longer read; `seq` was its last line.
    pub(super) fn part(&self, probe: ProbeId, seq: u64) {
        let mut register = self.register();
        if let Some(known) = register.known.values_mut().find(|it| it.probe == probe) {
            known.read = None;
            known.seq = seq;
        }
        register.count();
    }

    /// Returns whether it is being read.
    pub(super) fn is_read(&self, probe: ProbeId) -> bool {
        self.register().known.values().any(|it| it.probe == probe && it.read.is_some())
    }

    /// Sends a request to a probe, if it is connected. The loss of a connection is a separate event.
    pub(super) fn ask(&self, request: Request) {
        let register = self.register();
        let asked = register.known.values().find(|it| it.probe == request.probe);
        if let Some((_, ear)) = asked.and_then(|it| it.read.as_ref()) {
            let _ = ear.try_send(request);
        }
    }

    /// Returns how many probes are read.
    pub(super) fn count(&self) -> usize {
        self.register().read
    }

    /// Returns the processes whose probes are read, by their pids on this host.
    pub(super) fn processes(&self) -> Vec<u32> {
        let register = self.register();
        let read = register.known.values().filter(|it| it.read.is_some());
        let mut processes: Vec<u32> = read.filter_map(|it| it.pid).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Register {
    fn identity(&self, hello: &Hello, socket: &Socket, pid: Option<u32>) -> Identity {
        if let Some(name) = hello.instance.as_ref().filter(|it| !it.is_empty()) {
            return Identity::Instance(name.clone());
        }
        let by_process = pid.and_then(|pid| Some(Identity::Process { pid, start_ticks: system::start_ticks(pid)? }));
        // A second socket of a process is a separate probe while the first still has its name.
        let is_another = |it: &Identity| {
            let read = self.known.get(it).and_then(|known| known.read.as_ref());
            read.and_then(|read| read.0.as_ref()).is_some_and(Socket::has_its_name)
        };
        by_process.filter(|it| !is_another(it)).unwrap_or(Identity::Socket(socket.id))
    }

    fn read(
        &mut self,
        identity: Identity,
        pid: Option<u32>,
        socket: Option<Socket>,
        ear: mpsc::Sender<Request>,
    ) -> Result<Introduced, ProbeId> {
        if self.known.len() > KNOWN_MAX {
            self.known.retain(|_, it| it.read.is_some());
            let known = &self.known;
            self.sockets.retain(|_, it| known.contains_key(it));
        }
        if let Some(socket) = &socket {
            self.sockets.insert(socket.id, identity.clone());
        }
        let known = self.known.entry(identity).or_insert_with(|| {
            self.next += 1;
            Known { probe: ProbeId(self.next - 1), pid, seq: 0, read: None }
        });
        if known.read.is_some() {
            return Err(known.probe);
        }
        known.pid = pid.or(known.pid);
        known.read = Some((socket, ear));
        let introduced = Introduced { probe: known.probe, seq: known.seq };
        self.count();
        Ok(introduced)
    }

    fn count(&mut self) {
        self.read = self.known.values().filter(|it| it.read.is_some()).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn ear() -> mpsc::Sender<Request> {
        mpsc::channel(1).0
    }

    fn socket(directory: &Path, name: &str) -> Socket {
        let path = directory.join(name);
        let _ = std::fs::remove_file(&path);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        Socket::at(path).unwrap()
    }

    #[test]
    fn a_probe_is_one_whatever_sockets_it_is_found_at() {
        let dir = tempfile::tempdir().unwrap();
        let own = Some(std::process::id());
        let named = |it: &str| Hello { instance: Some(it.to_owned()), ..Hello::default() };
        for (one, other) in [(named("a"), named("b")), (Hello::default(), Hello::default())] {
            let probes = Probes::default();
            let first = socket(dir.path(), "1.sock");
            let second = socket(dir.path(), "1.1.sock");
            let read = probes.introduce(&one, &first, own, ear()).unwrap().probe;
            let beside = probes.introduce(&other, &second, own, ear()).unwrap().probe;
            assert_ne!(read, beside, "two probes of one process, each at its socket");
            // Its name was removed and created again.
            let replaced = socket(dir.path(), "1.sock");
            assert_eq!(probes.introduce(&one, &replaced, own, ear()).unwrap_err(), read);
            probes.part(read, 7);
            let again = probes.introduce(&one, &replaced, own, ear()).unwrap();
            assert_eq!((again.probe, again.seq), (read, 7));
        }
    }
}
