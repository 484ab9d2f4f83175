//! Calls that may block, on a thread of their own: a deadline for each, so that a stall is noticed and reported.

use super::{beat, now};
use crate::facts::units::Stamp;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep, sleep_until},
};

/// A call that takes longer has stalled.
pub(super) const DEADLINE: Duration = Duration::from_millis(750);

/// The limit for opening a library, which wakes unused devices one after the other.
const OPENING: Duration = Duration::from_secs(8);

/// Longest time between two checks whether a call is running.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two readings of memory.
pub(super) const FASTEST: Duration = Duration::from_millis(100);

/// When the running call began, in µs, or 0: the thread writes it, the task reads it.
#[derive(Default)]
pub(super) struct Calls {
    since: AtomicU64,
    opening: AtomicBool,
    stalled: AtomicBool,
    end: AtomicBool,
}

impl Calls {
    /// Makes a call that the deadline watches.
    pub(super) fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.since.store(now().0.max(1), SeqCst);
        let answer = call();
        self.since.store(0, SeqCst);
        answer
    }

    /// Opens the library, which has a longer deadline.
    pub(super) fn open<T>(&self, call: impl FnOnce() -> T) -> T {
        self.opening.store(true, SeqCst);
        let answer = self.call(call);
        self.opening.store(false, SeqCst);
        answer
    }

    /// Returns whether the thread must end.
    pub(super) fn must_end(&self) -> bool {
        self.end.load(SeqCst)
    }

    /// Returns whether a stall was reported, and forgets it: its call has returned.
    pub(super) fn ends_stall(&self) -> bool {
        self.stalled.swap(false, SeqCst)
    }

    /// Returns when a call that has stalled began; each stall once.
    pub(super) fn overdue(&self) -> Option<Stamp> {
        let is_new = self.left_us() == Some(0) && !self.stalled.swap(true, SeqCst);
        is_new.then(|| Stamp(self.since.load(SeqCst)))
    }

    /// Sleeps on the thread until a moment, or until the thread must end.
    pub(super) fn nap_until(&self, until: std::time::Instant) {
        while !self.must_end() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            // The thread that stops the watch unparks this one.
            thread::park_timeout(left);
        }
    }

    /// Returns how many µs the running call has left: 0 when it is overdue, `None` without a call.
    fn left_us(&self) -> Option<u64> {
        let since = Some(Stamp(self.since.load(SeqCst))).filter(|it| it.0 != 0)?;
        let deadline = if self.opening.load(SeqCst) { OPENING } else { DEADLINE };
        let deadline = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        Some(deadline.saturating_sub(now().since(since)))
    }
}

/// Ends the thread when the task is dropped.
pub(super) struct EndOnDrop(pub(super) Arc<Calls>, pub(super) Thread);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end.store(true, SeqCst);
        self.1.unpark();
    }
}

/// Returns when a running call has stalled, with the moment at which it began; each stall once.
pub(super) async fn stall(begun: Instant, pace: &Receiver<Duration>, calls: &Calls) -> Stamp {
    loop {
        let interval = (*pace.borrow()).clamp(FASTEST, CHECK_EVERY);
        sleep_until(beat(begun, interval, Instant::now())).await;
        // Checks a running call again at its deadline. Without a call, there is nothing to wake up for before the next
        // readings.
        let left_us = calls.left_us();
        if let Some(left_us @ 1..) = left_us {
            sleep(Duration::from_micros(left_us).min(CHECK_EVERY)).await;
        }
        if left_us.is_some()
            && let Some(since) = calls.overdue()
        {
            return since;
        }
    }
}
