//! The driver, through NVML on a thread of its own: calls block, and a driver may stall for seconds.
//!
//! Memory at most ten times a second; process lists, fans and ECC at most once, staggered over the
//! devices, as they hold the driver's lock. What the driver does not say is absent, never zero.

mod reading;
mod watch;
mod watched;
mod xid;

use super::{EventSender, beat, now};
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

/// A call that takes longer counts as stalled.
const DEADLINE_US: u64 = 750_000;

/// The same for opening the library, which wakes unused devices one after the other.
const OPENING_US: u64 = 8_000_000;

/// Between two looks whether a call is under way, at most.
const LOOK: Duration = Duration::from_secs(1);

/// How the driver is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The library, instead of the system's `libnvidia-ml.so.1`.
    pub library: Option<OsString>,
    /// Between two readings of memory, at first; at least 100 ms.
    pub interval: Duration,
}

/// When the call began that has not come back yet, µs, or 0: written by the thread, seen from outside.
#[derive(Default)]
struct Calls {
    since: AtomicU64,
    opening: AtomicBool,
    stalled: AtomicBool,
    end: AtomicBool,
}

impl Calls {
    /// Makes a call under the eye of the deadline.
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.since.store(now().0.max(1), SeqCst);
        let answer = call();
        self.since.store(0, SeqCst);
        answer
    }

    /// Opens the library, which may take its time.
    fn open<T>(&self, call: impl FnOnce() -> T) -> T {
        self.opening.store(true, SeqCst);
        let answer = self.call(call);
        self.opening.store(false, SeqCst);
        answer
    }

    /// How long the call that is under way may still take, µs: 0 when it is overdue, none when there is no call.
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

/// Starts the thread and watches that its calls come back.
pub(super) async fn run(
    options: Options,
    begun: Instant,
    pace: Receiver<Duration>,
    pids: Sender<Vec<u32>>,
    sender: EventSender,
    hurry: Arc<Notify>,
) {
    let calls = Arc::new(Calls::default());
    let (shared, said, asked) = (Arc::clone(&calls), sender.clone(), pace.clone());
    let begins_or_ends = Arc::clone(&hurry);
    let spawned = thread::Builder::new().name("nvml".into()).spawn(move || {
        watch::run(&options, begun.into_std(), &asked, &shared, &pids, &said, &begins_or_ends);
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
        let interval = (*pace.borrow()).clamp(watch::FASTEST, LOOK);
        sleep_until(beat(begun, interval, Instant::now())).await;
        // A call that is under way is looked at again when it should be back; where there is none, there is nothing to
        // wake up for before the next readings.
        let left_us = calls.left_us();
        if let Some(left_us @ 1..) = left_us {
            sleep(Duration::from_micros(left_us).min(LOOK)).await;
        }
        if left_us.is_some() && calls.left_us() == Some(0) && !calls.stalled.swap(true, SeqCst) {
            let since = Stamp(calls.since.load(SeqCst));
            sender.send(Fact::Driver(DriverState::Stalled { since })).await;
            hurry.notify_one();
        }
    }
}
