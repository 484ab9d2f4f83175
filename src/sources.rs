//! Sources of events: probes' sockets, the driver, this host's /proc. They add the time stamps.

/// What a screen, a report or a recording needs beside what is always read.
pub mod focus;

/// Children that end with this process.
pub mod child;

/// What the kernel shows of processes.
pub mod proc;

/// Reads a process's environment and control groups.
mod environment;

/// What processes use of this host.
mod figures;

/// The host's memory, its limits, and what jobs and their workers hold.
pub mod host_memory;

/// Names of users.
pub mod users;

/// Reads what of this machine decides whether there is a GPU to see.
pub mod surroundings;

/// Calls that may stall, on threads of their own.
mod calls;

/// The processes that drivers list.
mod listed;

/// The driver: NVML on its own thread.
pub mod nvml;

/// The kernel's drivers for AMD's and Intel's devices, on their own thread.
pub mod drm;

/// What the drivers of each maker give.
pub mod makers;

/// Probes: finding their sockets, reading their lines.
pub mod probe;

/// Detects a command that starts a Python without the probe.
pub mod python;

/// This host's processes, and the passing of seconds.
pub mod system;

/// Thins the samples of fast jobs.
pub mod thinner;

use crate::{
    facts::redact::{leave_arguments_out, redact},
    facts::{
        event::{DriverState, Event, Fact, Request},
        units::Stamp,
    },
};
use focus::Focus;
use rustix::time::{ClockId, clock_gettime};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

/// Events that may be queued for the reader; when the queue is full, sources wait.
const QUEUE: usize = 4096;

/// Requests that may be queued for probes; users are slower.
const ASKS: usize = 64;

/// Which sources to start, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// NVIDIA's driver; `None` disables it.
    pub nvml: Option<nvml::Options>,
    /// The kernel's drivers for other makers' devices; `None` disables them.
    pub drm: Option<drm::Options>,
    /// Probes; `None` disables them.
    pub probes: Option<probe::Options>,
    /// Whether command lines are reduced to the program's name.
    pub no_arguments: bool,
    /// What is shown first.
    pub focus: Focus,
    /// Whether a recording needs the figures of all processes, and every sample.
    pub recorded: bool,
}

impl Options {
    /// Returns the same with every metric and figure, also the costly ones, for a single report.
    #[must_use]
    pub fn in_detail(self) -> Self {
        Self { focus: Focus::All, ..self }
    }

    /// Returns the same with what a recording needs.
    #[must_use]
    pub fn recorded(self) -> Self {
        Self { recorded: true, ..self }
    }
}

/// The input of a view.
pub struct Feed<'a> {
    /// The queue into which all sources put their events.
    pub events: &'a mut mpsc::Receiver<Event>,
    /// Frames are drawn at whole intervals after this moment, just after the sources have sent their events.
    pub begun: Instant,
    /// Notified of events that should not wait for the next frame.
    pub hurry: Arc<Notify>,
}

/// Running sources. Dropping it stops them, but leaves a driver call that never returns.
pub struct Sources {
    /// Their events, in order of arrival.
    pub events: mpsc::Receiver<Event>,
    /// Changes the drivers' refresh rate. `None` if no driver is read.
    pub pace: Option<watch::Sender<Duration>>,
    /// Sets what is shown.
    pub focus: watch::Sender<Focus>,
    /// Sends a request to its probe, if that is connected.
    pub asks: mpsc::Sender<Request>,
    captures: mpsc::Sender<oneshot::Sender<()>>,
    last_memory: mpsc::Sender<oneshot::Sender<()>>,
    begun: Instant,
    hurry: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sources {
    /// Starts them; needs a tokio runtime.
    pub fn start(options: Options) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let sender = EventSender { queue: sender, no_arguments: options.no_arguments };
        let (listed, pids) = listed::Listed::new();
        let listed = Arc::new(listed);
        let (probed_out, probed) = watch::channel(Vec::new());
        let (asks, asked) = mpsc::channel(ASKS);
        let (captures, requests) = mpsc::channel(1);
        // All recurring work happens at the same moments, so that there are few wakeups.
        let begun = Instant::now();
        let (focus, focused) = watch::channel(options.focus);
        let mut tasks = vec![tokio::spawn(system::run(begun, pids.clone(), probed.clone(), sender.clone()))];
        let recorded = options.recorded;
        let (last_memory, last) = mpsc::channel(1);
        let root = PathBuf::from("/");
        let host = host_memory::Needs {
            root,
            pids: pids.clone(),
            probed: probed.clone(),
            focus: focused.clone(),
            recorded,
            last,
        };
        tasks.push(tokio::spawn(host_memory::run(begun, host, sender.clone())));
        let needs = figures::Needs { pids: pids.clone(), probed, focus: focused.clone(), recorded };
        tasks.push(tokio::spawn(figures::run(begun, needs, sender.clone())));
        let hurry = Arc::new(Notify::new());
        let interval = options.nvml.as_ref().map(|it| it.interval).or(options.drm.as_ref().map(|it| it.interval));
        let (set, paced) = watch::channel(interval.unwrap_or_default());
        let mut is_read = options.nvml.is_some();
        if let Some(options) = options.drm {
            let wanted = drm::Wanted { pace: paced.clone(), focus: focused.clone(), recorded };
            let kernel = drm::Source::start(drm::Poll {
                options,
                begun: begun.into_std(),
                wanted,
                pids: Arc::clone(&listed),
                sender: sender.clone(),
                hurry: Arc::clone(&hurry),
                calls: Arc::default(),
                reading: Arc::default(),
            });
            // Before the first look of any other source, so that a single report waits for these devices.
            is_read |= kernel.has_devices();
            tasks.push(tokio::spawn(kernel.run()));
        }
        let pace = is_read.then_some(set);
        if let Some(nvml) = options.nvml {
            let wanted = nvml::Wanted { pace: paced, focus: focused, recorded };
            tasks.push(tokio::spawn(nvml::run(nvml, begun, wanted, listed, sender.clone(), Arc::clone(&hurry))));
        } else {
            let sender = sender.clone();
            tasks.push(tokio::spawn(async move {
                sender.send(Fact::Driver(DriverState::Off)).await;
            }));
        }
        if let Some(probes) = options.probes {
            let whole = probe::Options { whole: recorded, ..probes };
            tasks.push(tokio::spawn(probe::run(whole, begun, pids, probed_out, asked, requests, sender)));
        }
        Self { events, pace, focus, asks, captures, last_memory, begun, hurry, tasks }
    }

    /// Scans for probes once more, and reads the host's memory. Completes when everything that the probes left and the
    /// reading are among the events or queued.
    pub fn last_scan(&self) -> impl Future<Output = ()> + use<> {
        let askers = [self.captures.clone(), self.last_memory.clone()];
        async move {
            for asker in askers {
                let (reply, replied) = oneshot::channel();
                // Without a scanner, there is nothing to wait for.
                if asker.send(reply).await.is_ok() {
                    let _ = replied.await;
                }
            }
        }
    }

    /// Returns the input of a view.
    pub fn feed(&mut self) -> Feed<'_> {
        Feed { events: &mut self.events, begun: self.begun, hurry: Arc::clone(&self.hurry) }
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns the current time on the clock that all processes of a boot share.
pub fn now() -> Stamp {
    let now = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    Stamp(s * 1_000_000 + ns / 1_000)
}

/// Returns the first moment after `now` that is a whole number of intervals after `begun`. Everything that recurs at
/// such moments shares one wakeup.
pub fn beat(begun: Instant, interval: Duration, now: Instant) -> Instant {
    let interval = interval.max(Duration::from_millis(1));
    let past = now.saturating_duration_since(begun).as_nanos() / interval.as_nanos();
    begun + interval * u32::try_from(past + 1).unwrap_or(u32::MAX)
}

/// Returns the pause after so many failures in a row before this one: `first`, then twice as long each time, up to
/// `longest`.
pub fn doubled(first: Duration, failures: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << failures.min(31)).min(longest)
}

/// Returns the wall clock, µs of Unix time.
pub fn unix_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let (s, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    s * 1_000_000 + ns / 1_000
}

/// Returns this host's name.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The input of the queue, which hides secrets. Sending never fails; without a receiver, events are dropped.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    queue: mpsc::Sender<Event>,
    no_arguments: bool,
}

impl EventSender {
    /// Sends an event and waits while the queue is full. Returns false without a receiver.
    async fn send(&self, fact: Fact) -> bool {
        self.send_at(now(), fact).await
    }

    async fn send_at(&self, at: Stamp, fact: Fact) -> bool {
        self.queue.send(Event { at, fact: self.clean(fact) }).await.is_ok()
    }

    /// Sends an event if the queue has room.
    fn try_send(&self, fact: Fact) {
        // Only full in the beginning if there are thousands of devices; these are introduced again when they change.
        let _ = self.queue.try_send(Event { at: now(), fact: self.clean(fact) });
    }

    /// Returns whether the receiver is gone.
    fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// The same for a thread.
    fn send_blocking(&self, fact: Fact) -> bool {
        self.queue.blocking_send(Event { at: now(), fact: self.clean(fact) }).is_ok()
    }

    fn clean(&self, mut fact: Fact) -> Fact {
        if self.no_arguments {
            leave_arguments_out(&mut fact);
        }
        redact(&mut fact);
        fact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurring_work_runs_whole_intervals_after_the_beginning() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        for (past_ms, next_ms) in [(0, 1000), (999, 1000), (1000, 2000), (1500, 2000), (86_400_000, 86_401_000)] {
            let next = beat(begun, second, begun + Duration::from_millis(past_ms));
            assert_eq!(next, begun + Duration::from_millis(next_ms), "after {past_ms} ms");
        }
        assert_eq!(beat(begun + second, second, begun), begun + second * 2, "of a moment before it, the first");
        assert!(beat(begun, Duration::ZERO, begun) > begun, "an interval of nothing stands still for nobody");
    }
}
