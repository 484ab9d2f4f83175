//! AMD's and Intel's devices, as the kernel's drivers (amdgpu, xe, i915) show them in files: `/sys/class/drm`, the
//! `fdinfo` of descriptors, and `/sys/class/kfd`.
//!
//! What a driver gives stands in one table, `card::KernelDriver`; nothing else here differs between makers. A machine
//! without such a device costs one look at the start, and one each minute for a device that is plugged in. Every file,
//! also of the first look, is read on a thread of its own, because a driver may stall in any of them. A device that
//! sleeps is left asleep: its figures are unknown until something wakes it.

mod amd;
mod card;
mod clients;
mod discovery;
mod fdinfo;
mod gauges;
mod intel;
mod kfd;
mod link;
mod poll;
mod sysfs;
mod throttle;
mod uses;

use super::{
    calls::{DEADLINE, EndOnDrop, stall},
    focus::Focus,
};
use crate::facts::{
    event::{DriverState, Fact},
    maker::Maker,
    metrics::Metric,
    text::Foreign,
};
use discovery::DRIVERS;
use poll::LOOK_EVERY;
pub(super) use poll::Poll;
use std::{
    io,
    path::PathBuf,
    sync::{Arc, mpsc::sync_channel},
    thread,
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch::Receiver},
    time::{Instant, sleep},
};

/// Time for a thread to begin.
const MARGIN: Duration = Duration::from_millis(50);

/// How to read the kernel's files.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder below which `sys`, `proc` and `usr` lie.
    pub root: PathBuf,
    /// Initial time between two readings of memory; at least 100 ms.
    pub interval: Duration,
}

/// What the user wants to see.
#[derive(Clone)]
pub(super) struct Wanted {
    /// Time between two readings of memory.
    pub(super) pace: Receiver<Duration>,
    /// What is shown.
    pub(super) focus: Receiver<Focus>,
    /// Whether a recording needs the figures of all processes.
    pub(super) recorded: bool,
}

/// Returns the file in which a driver has a metric, by the driver's name in the kernel; `None` if it does not give it.
pub fn file(module: &str, metric: Metric) -> Option<&'static str> {
    let driver = DRIVERS.iter().find(|it| it.module == module)?;
    gauges::reads(driver).find(|it| it.metric == metric).map(|it| it.file)
}

/// Returns whether one of a maker's drivers gives a metric.
pub(super) fn gives(maker: Maker, metric: Metric) -> bool {
    DRIVERS.iter().any(|it| it.maker == maker && gauges::reads(it).any(|read| read.metric == metric))
}

/// Returns whether one of a maker's drivers gives the memory of devices.
pub(super) fn gives_memory(maker: Maker) -> bool {
    DRIVERS.iter().any(|it| it.maker == maker && it.memory.is_some())
}

/// A thread that looks for devices, and reads them until it is dropped if there are any.
struct Reader {
    calls: EndOnDrop,
    /// Whether its look found devices.
    found: std::sync::mpsc::Receiver<bool>,
    /// Closed when the thread ends.
    ended: oneshot::Receiver<()>,
}

impl Reader {
    /// Starts the thread.
    fn start(poll: &Poll) -> io::Result<Self> {
        let poll = Poll { calls: Arc::default(), ..poll.clone() };
        let (calls, (looked, found), (end, ended)) = (Arc::clone(&poll.calls), sync_channel(1), oneshot::channel());
        let thread = thread::Builder::new().name("drm".into()).spawn(move || {
            let _end = end;
            poll.run(&looked);
        })?;
        Ok(Self { calls: EndOnDrop(calls, thread.thread().clone()), found, ended })
    }
}

/// Reads devices, from the first look for them on.
pub(super) struct Source {
    poll: Poll,
    reader: io::Result<Reader>,
}

impl Source {
    /// Looks for devices, for as long as a call may take: what is found until then is among the events. Later facts
    /// follow when the driver answers.
    pub(super) fn start(poll: Poll) -> Self {
        let root = &poll.options.root;
        if !root.is_dir() {
            let root = Foreign::new(root.to_string_lossy());
            let why = format!("{root} is no folder, so no devices of AMD and Intel are found (GPUWATCH_DRM_ROOT)");
            poll.sender.try_send(Fact::Notice(Foreign::new(why)));
        }
        let reader = Reader::start(&poll);
        Self { poll, reader }
    }

    /// Waits for the first look, but not for longer than a call may take. Returns whether there are devices to read, as
    /// far as is known.
    pub(super) fn has_devices(&self) -> bool {
        let Ok(reader) = &self.reader else { return false };
        if let Ok(found) = reader.found.recv_timeout(DEADLINE + MARGIN) {
            return found;
        }
        if let Some(since) = reader.calls.0.overdue() {
            self.poll.sender.try_send(self.poll.state(DriverState::Stalled { since }));
        }
        true
    }

    /// Watches for stalled calls, and looks for devices again while there are none.
    pub(super) async fn run(self) {
        let Self { poll, mut reader } = self;
        let begun = Instant::from_std(poll.begun);
        loop {
            let mut running = match reader {
                Ok(it) => it,
                Err(e) => {
                    let why = Foreign::new(format!("no thread could be started to read the devices: {e}"));
                    poll.sender.send(poll.state(DriverState::Absent { why })).await;
                    return;
                }
            };
            loop {
                tokio::select! {
                    since = stall(begun, &poll.wanted.pace, &running.calls.0) => {
                        poll.sender.send(poll.state(DriverState::Stalled { since })).await;
                        poll.hurry.notify_one();
                    }
                    _ = &mut running.ended => break,
                }
            }
            sleep(LOOK_EVERY).await;
            reader = Reader::start(&poll);
        }
    }
}
