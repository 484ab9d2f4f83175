//! The hub of a communicator's ranks: a thread of the process that created the communicator's identity.
//!
//! A reader thread for each rank empties that rank's socket at once, so that no rank waits for the answer to another
//! one before it can send.

use super::{
    matching::Matching,
    wire::{Answer, Kind, Parcel, Request},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    process,
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

/// `ncclUniqueId`: the name of the socket where the ranks meet, and zeroes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) [u8; 128]);

impl Id {
    /// A socket's address in the kernel's own name space: it needs no file, and is gone with its last descriptor.
    fn address(&self) -> io::Result<SocketAddr> {
        let end = self.0.iter().position(|it| *it == 0).unwrap_or(0);
        SocketAddr::from_abstract_name(&self.0[..end])
    }

    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&self.address()?)
    }
}

/// Something that happened to a rank.
enum Event {
    Asked(Request),
    Left,
}

/// Opens a place to meet; it closes when the last of the ranks that met there has left.
pub(super) fn open() -> io::Result<Id> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("simgpu-nccl-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut id = Id([0; 128]);
    id.0[..name.len()].copy_from_slice(name.as_bytes());
    let listener = UnixListener::bind_addr(&id.address()?)?;
    thread::Builder::new().name("simgpu-nccl".into()).spawn(move || {
        // If the meeting fails, the ranks see their sockets closed.
        let _ = meet(&id, &listener);
    })?;
    Ok(id)
}

/// The ranks that run, by the identity of their communicator, where not all of them do.
fn present() -> MutexGuard<'static, HashMap<[u8; 128], BTreeSet<usize>>> {
    static PRESENT: LazyLock<Mutex<HashMap<[u8; 128], BTreeSet<usize>>>> = LazyLock::new(Mutex::default);
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes which ranks run of a communicator that this process has opened, before the first of them joins.
pub(super) fn note_present(id: &Id, ranks: BTreeSet<usize>) {
    present().insert(id.0, ranks);
}

/// Waits for all ranks that run, then serves them.
fn meet(id: &Id, listener: &UnixListener) -> io::Result<()> {
    let (mut ranks, mut missing) = (Vec::<Option<UnixStream>>::new(), None);
    while missing != Some(0) {
        let (mut stream, _) = listener.accept()?;
        // A rank that dies before it has sent its number does not count.
        let Ok(hello) = Request::read(&mut stream) else { continue };
        let count = usize::try_from(hello.ticket).unwrap_or(0);
        ranks.resize_with(ranks.len().max(count), || None);
        if let Some(place) = ranks.get_mut(hello.root).filter(|_| hello.kind == Kind::Join) {
            *place = Some(stream);
        }
        let runs = present().get(&id.0).cloned();
        let runs = |rank: usize| runs.as_ref().is_none_or(|it| it.contains(&rank));
        missing = Some(ranks.iter().enumerate().filter(|(rank, it)| it.is_none() && runs(*rank)).count());
    }
    present().remove(&id.0);
    let (sender, events) = mpsc::channel();
    let absent: BTreeSet<usize> = ranks.iter().enumerate().filter(|it| it.1.is_none()).map(|it| it.0).collect();
    let count = ranks.len();
    let mut streams = BTreeMap::new();
    for (rank, stream) in ranks.into_iter().enumerate() {
        let Some(mut stream) = stream else { continue };
        let (mut from, sender) = (stream.try_clone()?, sender.clone());
        thread::Builder::new().name("simgpu-nccl".into()).spawn(move || receive(rank, &mut from, &sender))?;
        let joined = Answer { ticket: 0, status: 0, parcel: Parcel { bytes: numbers(&absent), ..Parcel::default() } };
        // The reader of a rank that died meanwhile reports it.
        let _ = joined.write(&mut stream);
        streams.insert(rank, stream);
    }
    serve(&events, &mut streams, Matching::new(count, absent));
    Ok(())
}

/// What an answer to a rank that joins carries if some ranks are absent: their numbers.
fn numbers(absent: &BTreeSet<usize>) -> Option<Vec<u8>> {
    (!absent.is_empty()).then(|| absent.iter().flat_map(|it| (*it as u64).to_le_bytes()).collect())
}

fn receive(rank: usize, from: &mut UnixStream, events: &Sender<(usize, Event)>) {
    while let Ok(request) = Request::read(from) {
        if events.send((rank, Event::Asked(request))).is_err() {
            return;
        }
    }
    // The communicator is over, so nothing receives events.
    let _ = events.send((rank, Event::Left));
}

fn serve(events: &Receiver<(usize, Event)>, streams: &mut BTreeMap<usize, UnixStream>, mut matching: Matching) {
    while let Ok((rank, event)) = events.recv() {
        let mut answers = match event {
            Event::Asked(request) => matching.receive(rank, request),
            Event::Left => matching.left(rank),
        };
        // This process's own rank, which is mostly the first, comes last: it may end as soon as it is answered.
        answers.reverse();
        for (rank, answer) in answers {
            // A rank that does not take its answer has left; its reader reports it.
            let _ = streams.get_mut(&rank).map(|it| answer.write(it));
        }
        if matching.is_over() {
            return;
        }
    }
}
