//! The driver, through NVML on its own thread: calls block, and a driver may stall for seconds.
//!
//! gpuwatch reads memory at most ten times a second, and process lists and other metrics at most once, staggered over
//! the devices, because they hold the driver's lock. Figures that the driver does not report are absent, never zero.

mod metrics;
mod reading;
mod watch;

pub use metrics::call;

use super::{EventSender, beat, focus::Focus, now};
use crate::facts::event::{DriverState, Fact};
use crate::facts::text::Foreign;
use crate::facts::units::Stamp;
use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        watch::{Receiver, Sender},
    },
    time::{Instant, sleep, sleep_until},
};

/// A call that takes longer has stalled.
const DEADLINE_US: u64 = 750_000;

/// The limit for opening the library, which wakes unused devices one after the other.
const OPENING_US: u64 = 8_000_000;

/// Longest time between two checks whether a call is running.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How to query the driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The library to open instead of the system's `libnvidia-ml.so.1`.
    pub library: Option<OsString>,
    /// Initial time between two readings of memory; at least 100 ms.
    pub interval: Duration,
}

/// What the user wants to see.
pub(super) struct Wanted {
    /// Time between two readings of memory.
    pub(super) pace: Receiver<Duration>,
    /// What is shown.
    pub(super) focus: Receiver<Focus>,
    /// Whether a recording needs the figures of all processes.
    pub(super) recorded: bool,
}

/// When the running call began, in µs, or 0: the thread writes it, the task reads it.
#[derive(Default)]
struct Calls {
    since: AtomicU64,
    opening: AtomicBool,
    stalled: AtomicBool,
    end: AtomicBool,
}

impl Calls {
    /// Makes a call that the deadline watches.
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.since.store(now().0.max(1), SeqCst);
        let answer = call();
        self.since.store(0, SeqCst);
        answer
    }

    /// Opens the library, which has a longer deadline.
    fn open<T>(&self, call: impl FnOnce() -> T) -> T {
        self.opening.store(true, SeqCst);
        let answer = self.call(call);
        self.opening.store(false, SeqCst);
        answer
    }

    /// Returns how many µs the running call has left: 0 when it is overdue, `None` without a call.
    fn left_us(&self) -> Option<u64> {
        let since = Some(Stamp(self.since.load(SeqCst))).filter(|it| it.0 != 0)?;
        let deadline = if self.opening.load(SeqCst) { OPENING_US } else { DEADLINE_US };
        Some(deadline.saturating_sub(now().since(since)))
    }
}

/// Ends the thread when the task is dropped.
struct EndOnDrop(Arc<Calls>, Thread);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end.store(true, SeqCst);
        self.1.unpark();
    }
}

/// Starts the thread and watches for stalled calls.
pub(super) async fn run(
    options: Options,
    begun: Instant,
    wanted: Wanted,
    pids: Sender<Vec<u32>>,
    sender: EventSender,
    hurry: Arc<Notify>,
) {
    let calls = Arc::new(Calls::default());
    let (shared, facts, pace) = (Arc::clone(&calls), sender.clone(), wanted.pace.clone());
    let begins_or_ends = Arc::clone(&hurry);
    let spawned = thread::Builder::new().name("nvml".into()).spawn(move || {
        watch::run(&options, begun.into_std(), &wanted, &shared, &pids, &facts, &begins_or_ends);
    });
    let calls = match spawned {
        Ok(thread) => EndOnDrop(calls, thread.thread().clone()),
        Err(e) => {
            let why = Foreign::new(format!("no thread could be started to ask the driver: {e}"));
            sender.send(Fact::Driver(DriverState::Absent { why })).await;
            return;
        }
    };
    let calls = &calls.0;
    loop {
        let interval = (*pace.borrow()).clamp(watch::FASTEST, CHECK_EVERY);
        sleep_until(beat(begun, interval, Instant::now())).await;
        // Checks a running call again at its deadline. Without a call, there is nothing to wake up for before the next
        // readings.
        let left_us = calls.left_us();
        if let Some(left_us @ 1..) = left_us {
            sleep(Duration::from_micros(left_us).min(CHECK_EVERY)).await;
        }
        if left_us.is_some() && calls.left_us() == Some(0) && !calls.stalled.swap(true, SeqCst) {
            let since = Stamp(calls.since.load(SeqCst));
            sender.send(Fact::Driver(DriverState::Stalled { since })).await;
            hurry.notify_one();
        }
    }
}

/// Sleeps on the driver's thread until a moment, or until the thread must end.
fn nap_until(until: std::time::Instant, calls: &Calls) {
    while !calls.end.load(SeqCst) {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return;
        }
        // The thread that stops the watch unparks this one.
        thread::park_timeout(left);
    }
}
