//! The driver, through NVML on its own thread: calls block, and a driver may stall for seconds.
//!
//! gpuwatch reads memory at most ten times a second, and process lists and other metrics at most once, staggered over
//! the devices, because they hold the driver's lock. Figures that the driver does not report are absent, never zero.

mod metrics;
mod reading;
mod watch;

pub use metrics::call;

use super::{
    EventSender,
    calls::{Calls, EndOnDrop, stall},
    focus::Focus,
    listed::Listed,
};
use crate::facts::event::{DriverState, Fact};
use crate::facts::text::Foreign;
use std::{ffi::OsString, sync::Arc, thread, time::Duration};
use tokio::{
    sync::{Notify, watch::Receiver},
    time::Instant,
};

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

/// Starts the thread and watches for stalled calls.
pub(super) async fn run(
    options: Options,
    begun: Instant,
    wanted: Wanted,
    pids: Arc<Listed>,
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
    loop {
        let since = stall(begun, &pace, &calls.0).await;
        sender.send(Fact::Driver(DriverState::Stalled { since })).await;
        hurry.notify_one();
    }
}
