//! AMD's and Intel's devices, as the kernel's drivers (amdgpu, xe, i915) show them in files: `/sys/class/drm`, the
//! `fdinfo` of descriptors, and `/sys/class/kfd`.
//!
//! What a driver gives stands in one table, `cards::KernelDriver`; nothing else here differs between makers. A machine
//! without such a device costs one look at the start, and one each minute for a device that is plugged in. Files are
//! read on a thread of their own, because a driver may stall in any of them. A device that sleeps is left asleep: its
//! figures are unknown until something wakes it.

mod amd;
mod card;
mod cards;
mod clients;
mod fdinfo;
mod gauges;
mod intel;
mod kfd;
mod link;
mod poll;
mod sysfs;
mod uses;

use super::{
    EventSender,
    calls::{Calls, EndOnDrop, stall},
    focus::Focus,
    listed::Listed,
};
use crate::facts::{
    event::{DriverState, Fact},
    maker::Maker,
    metrics::Metric,
    text::Foreign,
};
use card::Card;
use cards::DRIVERS;
use poll::{LOOK_EVERY, Poll, introduction};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};
use tokio::{
    sync::{Notify, watch::Receiver},
    task::spawn_blocking,
    time::{Instant, sleep},
};

/// How to read the kernel's files.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder below which `sys`, `proc` and `usr` lie.
    pub root: PathBuf,
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

/// The devices that the first look found.
pub(super) struct Look {
    cards: Vec<Card>,
    /// The facts that introduce them.
    pub(super) facts: Vec<Fact>,
}

/// Looks for devices.
pub(super) fn look(options: &Options) -> Look {
    let cards = cards::cards(&options.root);
    Look { facts: introduction(&options.root, &cards), cards }
}

/// Returns the file in which a driver has a metric, by the driver's name in the kernel; `None` if it does not give it.
pub fn file(module: &str, metric: Metric) -> Option<&'static str> {
    let driver = DRIVERS.iter().find(|it| it.module == module)?;
    driver.reads.iter().find(|it| it.metric == metric).map(|it| it.file)
}

/// Returns whether one of a maker's drivers gives a metric.
pub(super) fn gives(maker: Maker, metric: Metric) -> bool {
    DRIVERS.iter().any(|it| it.maker == maker && it.reads.iter().any(|read| read.metric == metric))
}

/// Returns whether one of a maker's drivers gives the memory of devices.
pub(super) fn gives_memory(maker: Maker) -> bool {
    DRIVERS.iter().any(|it| it.maker == maker && it.memory.is_some())
}

/// Waits for devices, starts the thread that reads them, and watches for stalled calls. The facts of the first look
/// have been sent.
pub(super) async fn run(
    options: Options,
    begun: Instant,
    wanted: Wanted,
    first: Look,
    pids: Arc<Listed>,
    sender: EventSender,
    hurry: Arc<Notify>,
) {
    let mut cards = first.cards;
    while cards.is_empty() {
        sleep(LOOK_EVERY).await;
        let again = options.clone();
        let Ok(found) = spawn_blocking(move || look(&again)).await else { return };
        for fact in found.facts {
            sender.send(fact).await;
        }
        cards = found.cards;
    }
    let calls = Arc::new(Calls::default());
    let reading = Arc::new(Mutex::new(Maker::default()));
    let maker = cards.first().map(|it| it.driver.maker).unwrap_or_default();
    let pace = wanted.pace.clone();
    let poll = Poll {
        options,
        begun: begun.into_std(),
        wanted,
        calls: Arc::clone(&calls),
        pids,
        sender: sender.clone(),
        hurry: Arc::clone(&hurry),
        reading: Arc::clone(&reading),
    };
    let spawned = thread::Builder::new().name("drm".into()).spawn(move || poll.run(cards));
    let calls = match spawned {
        Ok(thread) => EndOnDrop(calls, thread.thread().clone()),
        Err(e) => {
            let why = Foreign::new(format!("no thread could be started to read the devices: {e}"));
            sender.send(Fact::KernelDriver { maker, state: DriverState::Absent { why } }).await;
            return;
        }
    };
    loop {
        let since = stall(begun, &pace, &calls.0).await;
        let maker = *reading.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(Fact::KernelDriver { maker, state: DriverState::Stalled { since } }).await;
        hurry.notify_one();
    }
}
