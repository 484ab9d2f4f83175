//! Bounds the connections of a listener. A connection takes a seat with its first authorized request, so that peers
//! without the token keep no scraper waiting.

use std::{collections::VecDeque, convert::Infallible, future::pending, sync::Arc};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, mpsc};

/// Connections with an authorized request at the same time; more wait.
const SEATS: usize = 8;

/// Connections without one at the same time; the next one displaces the oldest.
const STRANGERS: usize = 64;

/// Admits connections.
pub(super) struct Admission {
    seats: Arc<Semaphore>,
    /// The latest connections, the oldest first. Dropping one displaces it.
    latest: VecDeque<mpsc::Receiver<Infallible>>,
}

/// What an admitted connection holds until it ends.
pub(super) struct Guest {
    seats: Arc<Semaphore>,
    seat: OnceCell<OwnedSemaphorePermit>,
    place: mpsc::Sender<Infallible>,
}

impl Admission {
    pub(super) fn new() -> Self {
        Self { seats: Arc::new(Semaphore::new(SEATS)), latest: VecDeque::new() }
    }

    /// Admits a connection. If there are too many, it displaces the oldest.
    pub(super) fn admit(&mut self) -> Guest {
        self.latest.retain(|it| !it.is_closed());
        if self.latest.len() == STRANGERS {
            self.latest.pop_front();
        }
        let (place, displacing) = mpsc::channel(1);
        self.latest.push_back(displacing);
        Guest { seats: Arc::clone(&self.seats), seat: OnceCell::new(), place }
    }
}

impl Guest {
    /// Takes a seat, or waits for one. The connection keeps it.
    pub(super) async fn sit(&self) {
        // It fails only if the semaphore is closed, and no code closes it.
        let _ = self.seat.get_or_try_init(|| Arc::clone(&self.seats).acquire_owned()).await;
    }

    /// Waits until a newer connection displaces this one; for ever if it has a seat.
    pub(super) async fn displaced(&self) {
        self.place.closed().await;
        if self.seat.initialized() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    fn is_ready(future: impl Future<Output = ()>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_connection_without_a_seat_makes_room() {
        let mut admission = Admission::new();
        let seated = admission.admit();
        assert!(is_ready(seated.sit()));
        let mut strangers: Vec<Guest> = (0..STRANGERS).map(|_| admission.admit()).collect();
        assert!(!is_ready(seated.displaced()) && strangers.iter().all(|it| !is_ready(it.displaced())));
        // One that has ended makes room without displacing another.
        drop(strangers.pop());
        strangers.push(admission.admit());
        assert!(!is_ready(strangers[0].displaced()));
        strangers.push(admission.admit());
        assert!(is_ready(strangers[0].displaced()) && !is_ready(strangers[1].displaced()));
        assert!(!is_ready(seated.displaced()));
    }

    #[test]
    fn a_connection_keeps_its_seat_and_others_wait_for_one() {
        let mut admission = Admission::new();
        let mut seated: Vec<Guest> = (0..SEATS).map(|_| admission.admit()).collect();
        let next = admission.admit();
        assert!(seated.iter().all(|it| is_ready(it.sit())) && !is_ready(next.sit()));
        assert!(is_ready(seated[0].sit()));
        seated.pop();
        assert!(is_ready(next.sit()));
    }
}
