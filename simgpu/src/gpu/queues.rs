//! Streams and events as queues of time: work takes `SIMGPU_KERNEL_US` on its stream, by default none at all, so that
//! events can be late as on a device and blocks that another stream uses come back later.

use super::abi::Fault;
use std::{
    collections::HashMap,
    env,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

/// Handles below this are the default streams, one of each per device; `device * DEFAULTS + handle` is their key.
const DEFAULTS: usize = 16;
const FIRST_HANDLE: usize = 0x10_000;

pub(super) struct Stream {
    pub(super) device: usize,
    pub(super) priority: i32,
    pub(super) flags: u32,
    pub(super) busy_until: Option<Instant>,
    /// The graph that the stream's work is being captured into.
    pub(super) capture: Option<usize>,
}

/// When the work before the event is done; none before it was ever recorded.
#[derive(Clone, Copy, Default)]
pub(super) struct Event(pub(super) Option<Instant>);

#[derive(Default)]
pub(super) struct Queues {
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    handles: usize,
}

fn kernel() -> Duration {
    static TIME: LazyLock<Duration> = LazyLock::new(|| {
        let us = env::var("SIMGPU_KERNEL_US").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
        Duration::from_micros(us)
    });
    *TIME
}

/// Waits until work is done. Never free of charge, so that other threads get their turn at the interpreter's lock, as
/// they do while a device works.
pub(super) fn wait(until: Option<Instant>) {
    const LEAST: Duration = Duration::from_micros(30);
    let left = until.map_or(LEAST, |it| it.saturating_duration_since(Instant::now()).max(LEAST));
    thread::sleep(left);
}

impl Queues {
    /// A number that no other object of this process has.
    pub(super) fn handle(&mut self) -> usize {
        self.handles += 1;
        FIRST_HANDLE + self.handles * DEFAULTS
    }

    pub(super) fn add_stream(&mut self, device: usize, flags: u32, priority: i32) -> usize {
        let handle = self.handle();
        self.streams.insert(handle, Stream { device, priority, flags, busy_until: None, capture: None });
        handle
    }

    /// A stream by its handle; the default ones exist wherever they are named.
    pub(super) fn stream(&mut self, handle: usize, device: usize) -> Result<&mut Stream, Fault> {
        if handle >= DEFAULTS {
            return self.streams.get_mut(&handle).ok_or(Fault::InvalidHandle);
        }
        let fresh = Stream { device, priority: 0, flags: 0, busy_until: None, capture: None };
        Ok(self.streams.entry(device * DEFAULTS + handle.min(1)).or_insert(fresh))
    }

    pub(super) fn remove_stream(&mut self, handle: usize) -> Result<(), Fault> {
        if handle < FIRST_HANDLE {
            return Err(Fault::InvalidHandle);
        }
        self.streams.remove(&handle).map(|_| ()).ok_or(Fault::InvalidHandle)
    }

    pub(super) fn add_event(&mut self) -> usize {
        let handle = self.handle();
        self.events.insert(handle, Event::default());
        handle
    }

    pub(super) fn event(&mut self, handle: usize) -> Result<&mut Event, Fault> {
        self.events.get_mut(&handle).ok_or(Fault::InvalidHandle)
    }

    pub(super) fn remove_event(&mut self, handle: usize) -> Result<(), Fault> {
        self.events.remove(&handle).map(|_| ()).ok_or(Fault::InvalidHandle)
    }

    /// One kernel's time on a stream.
    pub(super) fn work(&mut self, handle: usize, device: usize) -> Result<(), Fault> {
        let stream = self.stream(handle, device)?;
        if !kernel().is_zero() && stream.capture.is_none() {
            let now = Instant::now();
            stream.busy_until = Some(stream.busy_until.map_or(now, |it| it.max(now)) + kernel());
        }
        Ok(())
    }

    /// When all that was ever asked of a device is done.
    pub(super) fn device_busy_until(&self, device: usize) -> Option<Instant> {
        self.streams.values().filter(|it| it.device == device).filter_map(|it| it.busy_until).max()
    }
}
