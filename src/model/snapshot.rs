//! The analysis of a memory snapshot: what each device held at that moment, for which code, and since which events.

/// What a filter selects.
mod matches;

use crate::model::{
    analysis::ladder::{DeviceFigures, Gap, Ladder, OwnFigures, Unused, ladder},
    trace::{Fit, Free, History, Moment, Segment, Setting, Share, StackId, State, Totals, Trace, Tree},
};
pub use matches::{Matches, kind};
use std::{collections::BTreeMap, sync::Arc};

/// An analysed snapshot.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The contents of the file.
    pub trace: Arc<Trace>,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Why it is not all that there should be, where that is so.
    pub ended: Option<String>,
    /// The devices that have segments or events.
    pub devices: Vec<Device>,
}

/// One device of it.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The device's number in the job.
    pub ordinal: u32,
    /// Sums over its segments.
    pub totals: Totals,
    /// Where the memory is that the allocator holds.
    pub ladder: Ladder,
    /// The sums by stream and pool.
    pub parts: Vec<(u64, Option<u32>, Totals)>,
    /// Its segments, the largest first.
    pub segments: Vec<Piece>,
    /// Live blocks by stack, the largest share first.
    pub live: Vec<Share>,
    /// Events of its trace.
    pub events: usize,
    /// The stream that has most of its memory.
    pub stream: Option<u64>,
    /// What was live after each event; `None` until the trace is walked through.
    pub history: Option<History>,
    /// The moment of the trace at which most was live.
    pub peak: Option<Moment>,
}

/// A segment, with its own sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    /// The segment, by its place among the trace's.
    pub place: usize,
    /// Its sums.
    pub totals: Totals,
}

/// A selection of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The blocks that are live in the snapshot.
    #[default]
    End,
    /// The blocks that were live after an event of the device's trace.
    Event(usize),
    /// The live ones of a segment, by its place among the trace's.
    Segment(usize),
}

/// Blocks by stack, and as a tree of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// By stack, the largest share first.
    pub shares: Vec<Share>,
    /// As a tree.
    pub tree: Tree,
    /// Bytes that a filter leaves out.
    pub hidden: u64,
}

/// A request of the trace that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The event, by its place in the device's trace.
    pub event: usize,
    /// Its time, in µs since 1970.
    pub unix_us: Option<u64>,
    /// Bytes that were asked for.
    pub bytes: Option<u64>,
    /// Bytes that were free on the device.
    pub free: Option<u64>,
    /// Requested bytes that were live.
    pub live: u64,
    /// Bytes of the segments.
    pub reserved: u64,
    /// The call stack.
    pub stack: StackId,
}

/// The history and the peak of each device, in order.
pub type Histories = Vec<(History, Option<Moment>)>;

impl Snapshot {
    /// Analyses a trace, without its history of events.
    pub fn new(trace: Arc<Trace>, bytes: u64, ended: Option<String>) -> Self {
        let devices = trace.ordinals().into_iter().map(|it| Device::new(&trace, it)).collect();
        Self { trace, bytes, ended, devices }
    }

    /// Walks through the trace of each device.
    pub fn histories(&self) -> Histories {
        self.devices.iter().map(|device| history(&self.trace, device.ordinal)).collect()
    }

    /// Adds the histories.
    pub fn complete(&mut self, histories: Histories) {
        for (device, (history, peak)) in self.devices.iter_mut().zip(histories) {
            (device.history, device.peak) = (Some(history), peak);
        }
    }

    /// Returns the text of the allocator's settings; `None` if the snapshot lacks it.
    pub fn settings(&self) -> Option<String> {
        self.trace.settings.as_ref().map(|it| self.trace.stacks.texts.get(it.text).into_owned())
    }

    /// Returns what the allocator would do with a request on the device's main stream; `None` where it has no segments.
    pub fn fit(&self, device: &Device, bytes: u64) -> Option<Fit> {
        Some(self.trace.fit(device.ordinal, device.stream?, bytes, largest_split(&self.trace)))
    }

    /// Returns the requests of a device's trace that failed, in order; none until the trace is walked through.
    pub fn failures(&self, device: &Device) -> Vec<Failure> {
        let first = self.trace.devices.get(device.ordinal as usize).map_or(0, |it| it.start);
        let failure = |history: &History, event: usize| {
            let it = self.trace.events.get(first + event)?;
            Some(Failure {
                event,
                unix_us: it.unix_us,
                bytes: it.size,
                // PyTorch writes it where other events have an address.
                free: it.address,
                live: history.live(event).unwrap_or(0),
                reserved: history.reserved(event),
                stack: it.stack,
            })
        };
        let history = device.history.as_ref();
        history.map_or_else(Vec::new, |it| it.failures.iter().filter_map(|event| failure(it, *event)).collect())
    }

    /// Returns the segment of a piece.
    pub fn segment(&self, piece: &Piece) -> Option<&Segment> {
        self.trace.segments.get(piece.place)
    }

    /// Returns blocks of a device by stack: those that match, if there is a filter. The tree begins with the outermost
    /// call or, if `inverted`, with the one that allocated.
    pub fn profile(&self, device: &Device, at: At, matches: Option<&Matches>, inverted: bool) -> Profile {
        let stacks = &self.trace.stacks;
        let segment = |place: usize| self.trace.segments.get(place).into_iter();
        let mut shares = match at {
            At::End => device.live.clone(),
            At::Event(event) => self.moment(device, event).map(|it| it.shares).unwrap_or_default(),
            At::Segment(place) => self.trace.live_in(segment(place)),
        };
        let sum = |shares: &[Share]| shares.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
        let whole = sum(&shares);
        match (at, matches) {
            (_, None) => {}
            (At::End, Some(it)) => shares = self.live_matches(self.trace.segments_on(device.ordinal), it),
            (At::Segment(place), Some(it)) => shares = self.live_matches(segment(place), it),
            // The blocks of an event have neither segment nor state.
            (At::Event(_), Some(it)) => shares.retain(|share| it.has_stack(share.stack)),
        }
        let shown = stacks.shown();
        let frames = |stack| {
            let mut frames = shown(stack);
            if inverted {
                frames.reverse();
            }
            frames
        };
        Profile { tree: Tree::new(&shares, frames), hidden: whole.saturating_sub(sum(&shares)), shares }
    }

    /// Returns what was live after an event of a device's trace.
    pub fn moment(&self, device: &Device, event: usize) -> Option<Moment> {
        device.history.as_ref()?.moment(&self.trace, device.ordinal, event)
    }

    /// Returns the gap that a block of a segment belongs to.
    pub fn gap(&self, piece: &Piece, state: State) -> Gap {
        let segment = self.segment(piece);
        match state {
            State::Live => Gap::Wanted,
            State::Pending => Gap::Pending,
            State::Other => Gap::Unattributed,
            State::Free => match segment.map_or(Free::Releasable, |it| self.trace.free_in(it)) {
                Free::Stuck => Gap::Stuck,
                Free::Cached => Gap::Cached,
                Free::Releasable => Gap::Releasable,
                Free::GraphPool => Gap::Pools,
                Free::MemPool => Gap::MemPools,
            },
        }
    }
}

impl Device {
    fn new(trace: &Trace, ordinal: u32) -> Self {
        let totals = Totals::of(trace, trace.segments_on(ordinal));
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for it in trace.segments_on(ordinal) {
            kinds.entry((it.stream, it.pool)).or_default().push(it);
        }
        let part = |((stream, pool), segments)| (stream, pool, Totals::of(trace, segments));
        let piece = |(place, it): (usize, &Segment)| Piece { place, totals: Totals::of(trace, [it]) };
        let own = trace.segments.iter().enumerate().filter(|(_, it)| it.device == Some(ordinal));
        let mut segments: Vec<Piece> = own.map(piece).collect();
        segments.sort_by_key(|it| (std::cmp::Reverse(it.totals.reserved), it.place));
        Self {
            ordinal,
            totals,
            ladder: ladder(&DeviceFigures::default(), &[figures(&totals)]),
            parts: kinds.into_iter().map(part).collect(),
            segments,
            live: trace.live(ordinal),
            events: trace.devices.get(ordinal as usize).map_or(0, ExactSizeIterator::len),
            stream: trace.main_stream(ordinal),
            history: None,
            peak: None,
        }
    }
}

fn history(trace: &Trace, ordinal: u32) -> (History, Option<Moment>) {
    let history = trace.history(ordinal);
    let peak = history.peak.and_then(|event| history.moment(trace, ordinal, event));
    (history, peak)
}

/// The allocator's counters at that moment, from its segments.
fn figures(it: &Totals) -> OwnFigures {
    OwnFigures {
        requested: it.requested,
        allocated: Some(it.allocated),
        active: Some(it.allocated.saturating_add(it.pending)),
        reserved: Some(it.reserved),
        unused: Some(Unused {
            stuck: it.stuck,
            graph_pools: it.graph_pools_free,
            mem_pools: it.mem_pools_free,
            releasable: it.releasable,
        }),
        ..OwnFigures::default()
    }
}

/// The setting `max_split_size`; negative where it is not set.
fn largest_split(trace: &Trace) -> Option<u64> {
    let values = &trace.settings.as_ref()?.values;
    let found = values.iter().find(|it| trace.stacks.texts.get(it.0) == "max_split_size")?;
    match found.1 {
        Setting::Number(it) => u64::try_from(it).ok(),
        _ => None,
    }
}
