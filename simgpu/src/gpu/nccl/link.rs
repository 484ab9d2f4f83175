//! A rank's end of the socket to its communicator's hub.

use super::{
    hub::Id,
    wire::{Answer, Kind, Parcel, Request},
};
use std::{
    collections::HashMap,
    io,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long a rank waits for the others: PyTorch's default timeout of a collective.
const LIMIT: Duration = Duration::from_secs(600);
/// How long a rank that leaves waits for what it sent to arrive.
const FAREWELL: Duration = Duration::from_secs(10);

pub(super) struct Link {
    /// The socket, and the ticket of the next request.
    asking: Mutex<(UnixStream, u64)>,
    /// The socket, and answers that came while another one was waited for.
    answers: Mutex<(UnixStream, HashMap<u64, Answer>)>,
    socket: UnixStream,
}

fn held<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Sends this rank's number and the number of ranks to the hub, which answers ticket 0 when all are connected.
    pub(super) fn join(id: &Id, rank: usize, count: usize) -> io::Result<Self> {
        let socket = id.connect()?;
        socket.set_read_timeout(Some(LIMIT))?;
        let link = Self {
            asking: Mutex::new((socket.try_clone()?, count as u64)),
            answers: Mutex::new((socket.try_clone()?, HashMap::new())),
            socket,
        };
        link.ask(plain(Kind::Join, rank))?;
        held(&link.asking).1 = 1;
        Ok(link)
    }

    /// Sends a request; gives the ticket of its answer.
    pub(super) fn ask(&self, request: Request) -> io::Result<u64> {
        let mut asking = held(&self.asking);
        let (socket, next) = &mut *asking;
        let ticket = *next;
        *next += 1;
        Request { ticket, ..request }.write(socket)?;
        Ok(ticket)
    }

    pub(super) fn wait(&self, ticket: u64) -> io::Result<Answer> {
        let mut answers = held(&self.answers);
        let (socket, arrived) = &mut *answers;
        loop {
            if let Some(answer) = arrived.remove(&ticket) {
                return Ok(answer);
            }
            let answer = Answer::read(socket)?;
            arrived.insert(answer.ticket, answer);
        }
    }

    /// Leaves when what was sent has arrived, or cannot any more.
    pub(super) fn leave(&self) {
        // Do not wait for a hub that is gone, or slow.
        let _ = self.socket.set_read_timeout(Some(FAREWELL));
        let _ = self.ask(plain(Kind::Leave, 0)).and_then(|it| self.wait(it));
        self.cut();
    }

    /// Closes the connection: threads that wait on it get an error at once.
    pub(super) fn cut(&self) {
        // A socket that the other end has closed is cut already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A request that carries nothing.
pub(super) fn plain(kind: Kind, root: usize) -> Request {
    Request { kind, ticket: 0, data: 1, reduction: 0, factor: 1.0, root, len: 0, parcel: Parcel::default() }
}
