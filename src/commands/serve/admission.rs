//! Bounds the connections of a listener. A connection without an authorized request displaces the oldest of its kind,
//! and so does one with it: peers without the token, and readers that are slow, keep no scraper waiting.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Notify;

/// Connections with an authorized request at the same time: each may hold a text of the figures.
const SEATS: usize = 32;

/// Connections without one at the same time.
const STRANGERS: usize = 64;

/// Admits connections.
pub(super) struct Admission {
    seats: Arc<Mutex<Places>>,
    strangers: Arc<Mutex<Places>>,
}

/// An admitted connection; dropping it makes its place free.
pub(super) struct Guest {
    seats: Arc<Mutex<Places>>,
    strangers: Arc<Mutex<Places>>,
    /// Notified when a newer connection displaces this one.
    displaced: Arc<Notify>,
}

/// Connections of one kind, the one whose latest request is the oldest first.
struct Places {
    most: usize,
    taken: VecDeque<Weak<Notify>>,
}

impl Places {
    fn new(most: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { most, taken: VecDeque::new() }))
    }

    /// Takes the newest place. If there are too many, it displaces the oldest.
    fn take(&mut self, guest: &Arc<Notify>) {
        self.leave(guest);
        if self.taken.len() == self.most
            && let Some(oldest) = self.taken.pop_front().and_then(|it| it.upgrade())
        {
            oldest.notify_one();
        }
        self.taken.push_back(Arc::downgrade(guest));
    }

    /// Frees the place of a guest, and of those that have ended.
    fn leave(&mut self, guest: &Arc<Notify>) {
        self.taken.retain(|it| it.upgrade().is_some_and(|there| !Arc::ptr_eq(&there, guest)));
    }
}

fn locked(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Admission {
    pub(super) fn new() -> Self {
        Self { seats: Places::new(SEATS), strangers: Places::new(STRANGERS) }
    }

    /// Admits a connection.
    pub(super) fn admit(&self) -> Guest {
        let displaced = Arc::new(Notify::new());
        locked(&self.strangers).take(&displaced);
        Guest { seats: Arc::clone(&self.seats), strangers: Arc::clone(&self.strangers), displaced }
    }
}

impl Guest {
    /// Takes a seat, or takes the newest one again.
    pub(super) fn sit(&self) {
        locked(&self.strangers).leave(&self.displaced);
        locked(&self.seats).take(&self.displaced);
    }

    /// Waits until a newer connection displaces this one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    fn is_displaced(guest: &Guest) -> bool {
        pin!(guest.displaced()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_connection_without_a_seat_makes_room() {
        let admission = Admission::new();
        let seated = admission.admit();
        seated.sit();
        let mut strangers: Vec<Guest> = (0..STRANGERS).map(|_| admission.admit()).collect();
        assert!(!is_displaced(&seated) && !strangers.iter().any(is_displaced));
        // One that has ended makes room without displacing another.
        drop(strangers.pop());
        strangers.push(admission.admit());
        assert!(!is_displaced(&strangers[0]));
        strangers.push(admission.admit());
        assert!(is_displaced(&strangers[0]) && !is_displaced(&strangers[1]));
        assert!(!is_displaced(&seated));
    }

    #[test]
    fn a_slow_reader_makes_room_for_a_scraper_and_not_for_a_stranger() {
        let admission = Admission::new();
        let seated: Vec<Guest> = (0..SEATS).map(|_| admission.admit()).collect();
        seated.iter().for_each(Guest::sit);
        // The one that asks again is no longer the oldest.
        seated[0].sit();
        let next = admission.admit();
        assert!(!seated.iter().any(is_displaced));
        next.sit();
        assert!(is_displaced(&seated[1]) && !is_displaced(&seated[0]) && !is_displaced(&next));
        let strangers: Vec<Guest> = (0..=STRANGERS).map(|_| admission.admit()).collect();
        assert!(is_displaced(&strangers[0]) && !seated.iter().any(is_displaced));
    }
}
