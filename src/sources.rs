//! Where events come from: probes' sockets, the driver, this host's /proc. They stamp what they say.

/// The driver: NVML on its own thread.
pub mod nvml;

/// Probes: finding their sockets, reading their lines.
pub mod probe;

/// Whether a command starts a Python that leaves the probe out.
pub mod python;

/// This host: who a process is, and the passing of seconds.
pub mod system;

use crate::{
    facts::redact::{leave_arguments_out, redact},
    facts::{
        event::{Ask, DriverState, Event, Fact},
        units::Stamp,
    },
};
use rustix::time::{ClockId, clock_gettime};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

/// Events that may wait between the sources and whoever reads them; then sources wait.
const QUEUE: usize = 4096;

/// Questions that may wait for probes; a person asks no faster.
const ASKS: usize = 64;

/// Which sources, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The driver; `None` switches it off.
    pub nvml: Option<nvml::Options>,
    /// Probes; `None` looks for none.
    pub probes: Option<probe::Options>,
    /// Of command lines, only the program is passed on.
    pub no_arguments: bool,
}

/// What a view is fed with.
pub struct Feed<'a> {
    /// What happens.
    pub events: &'a mut mpsc::Receiver<Event>,
    /// Pictures are drawn whole intervals after this moment, when those who tell have just told.
    pub begun: Instant,
    /// Notified of facts that should not wait for the next picture.
    pub hurry: Arc<Notify>,
}

/// Sources at work. Dropping it ends them; a driver call that never comes back is left behind.
pub struct Sources {
    /// What they say, in the order of arrival.
    pub events: mpsc::Receiver<Event>,
    /// The pace at which the driver is read: what is sent here holds from now on. `None` where it is not read.
    pub pace: Option<watch::Sender<Duration>>,
    /// The way to probes: what is sent here is asked of the one that is meant, if it is connected.
    pub asks: mpsc::Sender<Ask>,
    captures: mpsc::Sender<oneshot::Sender<()>>,
    begun: Instant,
    hurry: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sources {
    /// Starts them; needs a tokio runtime around it.
    pub fn start(options: Options) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let sender = EventSender { queue: sender, no_arguments: options.no_arguments };
        let (pids_out, pids) = watch::channel(Vec::new());
        let (probed_out, probed) = watch::channel(Vec::new());
        let (asks, asked) = mpsc::channel(ASKS);
        let (captures, looked) = mpsc::channel(1);
        // All that recurs does so at the same moments, so that there are few to wake up at.
        let begun = Instant::now();
        let mut tasks = vec![tokio::spawn(system::run(begun, pids.clone(), probed, sender.clone()))];
        let hurry = Arc::new(Notify::new());
        let mut pace = None;
        if let Some(nvml) = options.nvml {
            let (set, asked) = watch::channel(nvml.interval);
            pace = Some(set);
            tasks.push(tokio::spawn(nvml::run(nvml, begun, asked, pids_out, sender.clone(), Arc::clone(&hurry))));
        } else {
            let sender = sender.clone();
            tasks.push(tokio::spawn(async move {
                sender.send(Fact::Driver(DriverState::Off)).await;
            }));
        }
        if let Some(probes) = options.probes {
            tasks.push(tokio::spawn(probe::run(probes, begun, pids, probed_out, asked, looked, sender)));
        }
        Self { events, pace, asks, captures, begun, hurry, tasks }
    }

    /// Looks for probes once more, and is over when everything that they left is among the events or on its way there.
    pub fn last_look(&self) -> impl Future<Output = ()> + use<> {
        let captures = self.captures.clone();
        async move {
            let (reply, replied) = oneshot::channel();
            // Where no probes are looked for, there is nothing to wait for.
            if captures.send(reply).await.is_ok() {
                let _ = replied.await;
            }
        }
    }

    /// What a view of them is fed with.
    pub fn feed(&mut self) -> Feed<'_> {
        Feed { events: &mut self.events, begun: self.begun, hurry: Arc::clone(&self.hurry) }
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The instant, on the clock that all processes of a boot share.
pub fn now() -> Stamp {
    let now = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    Stamp(s * 1_000_000 + ns / 1_000)
}

/// The first moment after `now` that is whole intervals after `begun`. What recurs at such moments needs one waking, where
/// each of several clocks of their own would need another.
pub fn beat(begun: Instant, interval: Duration, now: Instant) -> Instant {
    let interval = interval.max(Duration::from_millis(1));
    let past = now.saturating_duration_since(begun).as_nanos() / interval.as_nanos();
    begun + interval * u32::try_from(past + 1).unwrap_or(u32::MAX)
}

/// The wall clock, µs of Unix time.
pub fn unix_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let (s, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    s * 1_000_000 + ns / 1_000
}

/// This host's name.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The way into the queue, on which secrets are left behind. When nobody listens any more, words go nowhere and nothing
/// fails.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    queue: mpsc::Sender<Event>,
    no_arguments: bool,
}

impl EventSender {
    /// Says it now; waits while the queue is full. False when nobody listens any more.
    async fn send(&self, fact: Fact) -> bool {
        self.send_at(now(), fact).await
    }

    async fn send_at(&self, at: Stamp, fact: Fact) -> bool {
        self.queue.send(Event { at, fact: self.clean(fact) }).await.is_ok()
    }

    /// Whether nobody listens any more.
    fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// The same from a thread of its own.
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
    fn what_recurs_does_so_whole_intervals_after_the_beginning() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        for (past_ms, next_ms) in [(0, 1000), (999, 1000), (1000, 2000), (1500, 2000), (86_400_000, 86_401_000)] {
            let next = beat(begun, second, begun + Duration::from_millis(past_ms));
            assert_eq!(next, begun + Duration::from_millis(next_ms), "after {past_ms} ms");
        }
        assert_eq!(beat(begun + second, second, begun), begun + second * 2, "of a moment before it, the first");
        assert!(beat(begun, Duration::ZERO, begun) > begun, "an interval of nothing stands still for nobody");
    }
}
