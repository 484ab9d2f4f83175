//! Streams and events as queues of time: work takes `SIMGPU_KERNEL_US` on its stream, by default none at all, so that
//! events can be late as on a device and blocks that another stream uses come back later.

use super::{abi::Fault, capture_state::Place};
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
    /// The stream's place in a capture, while it captures.
    pub(super) place: Option<Place>,
}

#[derive(Default)]
pub(super) struct Event {
    /// When the work before the event is done; none before it was ever recorded.
    pub(super) until: Option<Instant>,
    /// The position in a capture, if the event was last recorded in one.
    pub(super) place: Option<Place>,
}

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

/// The flag of streams that the legacy stream does not wait for.
const NON_BLOCKING: u32 = 1;

/// Whether a handle names the stream that waits for all others: by no name, or by its own.
pub(super) fn is_legacy(handle: usize) -> bool {
    handle < 2
}

/// The number of a stream among all of this process.
pub(super) fn key(handle: usize, device: usize) -> usize {
    if handle >= DEFAULTS { handle } else { device * DEFAULTS + handle.min(1) }
}

impl Queues {
    /// A number that no other object of this process has.
    pub(super) fn handle(&mut self) -> usize {
        self.handles += 1;
        FIRST_HANDLE + self.handles * DEFAULTS
    }

    pub(super) fn add_stream(&mut self, device: usize, flags: u32, priority: i32) -> usize {
        let handle = self.handle();
        self.streams.insert(handle, Stream { device, priority, flags, busy_until: None, place: None });
        handle
    }

    /// A stream by its handle; the default ones exist wherever they are named.
    pub(super) fn stream(&mut self, handle: usize, device: usize) -> Result<&mut Stream, Fault> {
        if handle >= DEFAULTS {
            return self.streams.get_mut(&handle).ok_or(Fault::InvalidHandle);
        }
        let fresh = Stream { device, priority: 0, flags: 0, busy_until: None, place: None };
        Ok(self.streams.entry(key(handle, device)).or_insert(fresh))
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

    /// An event that a graph's launch has come to.
    pub(super) fn passed(&mut self, event: usize) {
        if let Ok(event) = self.event(event) {
            *event = Event { until: Some(Instant::now()), place: None };
        }
    }

    pub(super) fn remove_event(&mut self, handle: usize) -> Result<(), Fault> {
        self.events.remove(&handle).map(|_| ()).ok_or(Fault::InvalidHandle)
    }

    /// One kernel's time on a stream.
    pub(super) fn work(&mut self, handle: usize, device: usize) -> Result<(), Fault> {
        let stream = self.stream(handle, device)?;
        if !kernel().is_zero() {
            let now = Instant::now();
            stream.busy_until = Some(stream.busy_until.map_or(now, |it| it.max(now)) + kernel());
        }
        Ok(())
    }

    /// Returns the positions of a device's capturing streams, and whether the legacy stream would wait for them.
    pub(super) fn places(&self, device: usize) -> impl Iterator<Item = (bool, &Place)> {
        let streams = self.streams.values().filter(move |it| it.device == device);
        streams.filter_map(|it| Some((it.flags & NON_BLOCKING == 0, it.place.as_ref()?)))
    }

    /// Takes the streams that stand in such places out of their capture.
    pub(super) fn leave(&mut self, captured: impl Fn(&Place) -> bool) {
        for stream in self.streams.values_mut() {
            stream.place.take_if(|it| captured(it));
        }
    }

    /// When all that was ever asked of a device is done.
    pub(super) fn device_busy_until(&self, device: usize) -> Option<Instant> {
        self.streams.values().filter(|it| it.device == device).filter_map(|it| it.busy_until).max()
    }
}
