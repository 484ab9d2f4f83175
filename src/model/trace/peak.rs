//! Live blocks by call stack: at the end of a trace, and at its peak.

use super::{Action, StackId, State, Trace};
use std::collections::{HashMap, HashSet};

/// Live blocks that one call stack requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The call stack; the empty one if it is unknown.
    pub stack: StackId,
    /// Their bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The live blocks after one event of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The event's index in the device's trace.
    pub event: usize,
    /// Its time, in µs since 1970.
    pub unix_us: Option<u64>,
    /// Requested bytes that are live.
    pub bytes: u64,
    /// Bytes in blocks that predate the trace.
    pub older: u64,
    /// The blocks by call stack, largest first.
    pub shares: Vec<Share>,
}

impl Trace {
    /// Returns a device's live blocks by call stack, the largest share first.
    pub fn live(&self, device: u32) -> Vec<Share> {
        let blocks = self.segments_on(device).flat_map(|it| self.blocks_of(it));
        shares(blocks.filter(|it| it.state == State::Live).map(|it| (it.stack, it.size)))
    }

    /// Returns the peak of a device's trace; `None` if nothing was allocated or freed.
    ///
    /// Counts requested bytes, because a trace lacks the blocks' sizes.
    pub fn peak(&self, device: u32) -> Option<Moment> {
        let mut walk = Walk::from_start(self, device);
        let (mut best, mut at) = (None, walk.bytes);
        for (place, event) in self.moves(device) {
            walk.go(event);
            if walk.bytes > at || best.is_none() {
                (best, at) = (Some(place), walk.bytes);
            }
        }
        self.moment(device, best?)
    }

    /// Returns the live blocks after an event of a device's trace, by its index; `None` if there is no such event.
    pub fn moment(&self, device: u32, event: usize) -> Option<Moment> {
        let range = self.devices.get(device as usize)?;
        let place = range.start.checked_add(event).filter(|place| range.contains(place))?;
        let unix_us = self.events.get(place)?.unix_us;
        let mut walk = Walk::from_start(self, device);
        for (_, event) in self.moves(device).take_while(|it| it.0 <= event) {
            walk.go(event);
        }
        let older = walk.live.values().filter(|it| it.is_older).map(|it| it.bytes).fold(0, u64::saturating_add);
        let shares = shares(walk.live.values().map(|it| (it.stack, it.bytes)));
        Some(Moment { event, unix_us, bytes: walk.bytes, older, shares })
    }

    /// Returns the live blocks after an event of a device's trace, by its place there: address, bytes asked for, stack.
    pub fn live_after(&self, device: u32, event: usize) -> Vec<(u64, u64, StackId)> {
        let mut walk = Walk::from_start(self, device);
        for (_, event) in self.moves(device).take_while(|it| it.0 <= event) {
            walk.go(event);
        }
        walk.live.iter().map(|(address, it)| (*address, it.bytes, it.stack)).collect()
    }

    /// The events that allocate or free blocks, with their index in the device's trace.
    fn moves(&self, device: u32) -> impl Iterator<Item = (usize, super::Event)> {
        let range = self.devices.get(device as usize).cloned().unwrap_or_default();
        let moves = |it: &(usize, super::Event)| {
            matches!(it.1.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
        };
        self.events.range(range).enumerate().filter(moves)
    }
}

/// A live block, as a trace knows it.
#[derive(Clone, Copy)]
struct Live {
    stack: StackId,
    bytes: u64,
    is_older: bool,
}

/// The live blocks in the course of a trace.
pub(super) struct Walk {
    live: HashMap<u64, Live>,
    pub(super) bytes: u64,
}

impl Walk {
    /// Returns the live blocks before the first event: those that are freed later or live at the end without an
    /// allocation in the trace.
    pub(super) fn from_start(trace: &Trace, device: u32) -> Self {
        let mut older: HashMap<u64, Live> = HashMap::new();
        let mut seen = HashSet::new();
        // Where frees have requests, a completion without a request belongs to a block that was freed before the trace.
        let is_requested = trace.moves(device).any(|it| it.1.action == Action::FreeRequested);
        let frees = if is_requested { Action::FreeRequested } else { Action::FreeCompleted };
        for (_, event) in trace.moves(device) {
            let (Some(address), Some(bytes)) = (event.address, event.size) else { continue };
            if seen.insert(address) && event.action == frees {
                older.insert(address, Live { stack: StackId::default(), bytes, is_older: true });
            }
        }
        let blocks = trace.segments_on(device).flat_map(|it| trace.blocks_of(it));
        for it in blocks.filter(|it| it.state == State::Live && !seen.contains(&it.address)) {
            let bytes = it.requested.unwrap_or(it.size);
            older.insert(it.address, Live { stack: it.stack, bytes, is_older: true });
        }
        let bytes = older.values().map(|it| it.bytes).fold(0, u64::saturating_add);
        Self { live: older, bytes }
    }

    pub(super) fn go(&mut self, event: super::Event) {
        let (Some(address), Some(bytes)) = (event.address, event.size) else { return };
        // A block goes with its free request, and the completion then finds nothing. Some traces have only completions.
        if let Some(gone) = self.live.remove(&address) {
            self.bytes = self.bytes.saturating_sub(gone.bytes);
        }
        if event.action == Action::Alloc {
            self.live.insert(address, Live { stack: event.stack, bytes, is_older: false });
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

fn shares(blocks: impl Iterator<Item = (StackId, u64)>) -> Vec<Share> {
    let mut sums: HashMap<StackId, Share> = HashMap::new();
    for (stack, bytes) in blocks {
        let share = sums.entry(stack).or_insert(Share { stack, ..Share::default() });
        share.bytes = share.bytes.saturating_add(bytes);
        share.blocks += 1;
    }
    let mut all: Vec<_> = sums.into_values().collect();
    all.sort_by_key(|it| (std::cmp::Reverse(it.bytes), it.stack));
    all
}
