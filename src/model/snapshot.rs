//! The analysis of a memory snapshot: what each device held at that moment, for which code, and since which events.

use crate::{
    facts::event::anatomy::Anatomy,
    model::{
        analysis::ladder::{DeviceFigures, Gap, Ladder, OwnFigures, Unused, ladder},
        anatomy::by_frames::Steps,
        trace::{
            Block, BlockState, Fit, Free, History, Moment, Segment, Setting, StackId, StackShare, Totals, Trace, Tree,
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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
    pub live: Vec<StackShare>,
    /// Events of its trace.
    pub events: usize,
    /// The stream that has most of its memory.
    pub stream: Option<u64>,
    /// What was live after each event; `None` until the trace is walked through.
    pub history: Option<History>,
    /// The moment of the trace at which most was live.
    pub peak: Option<Moment>,
    /// What is live, at that moment and at the end; `None` until the trace is walked through.
    pub consists: Option<Consists>,
}

/// What is live on a device, by part, phase and line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consists {
    /// At the moment at which most was live; `None` without a trace.
    pub peak: Option<Anatomy>,
    /// At the end.
    pub end: Anatomy,
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
    pub shares: Vec<StackShare>,
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

/// The history and the peak of each device, in order, and what is live.
pub type Histories = Vec<(History, Option<Moment>, Consists)>;

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
        for (device, (history, peak, consists)) in self.devices.iter_mut().zip(histories) {
            (device.history, device.peak, device.consists) = (Some(history), peak, Some(consists));
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
        let sum = |shares: &[StackShare]| shares.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
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
    pub fn gap(&self, piece: &Piece, state: BlockState) -> Gap {
        let segment = self.segment(piece);
        match state {
            BlockState::Live => Gap::Wanted,
            BlockState::Pending => Gap::Pending,
            BlockState::Other => Gap::Unattributed,
            BlockState::Free => match segment.map_or(Free::Releasable, |it| self.trace.free_in(it)) {
                Free::Stuck => Gap::Stuck,
                Free::Cached => Gap::Cached,
                Free::Releasable => Gap::Releasable,
                Free::GraphPool => Gap::Pools,
                Free::MemPool => Gap::MemPools,
            },
        }
    }

    /// Returns the blocks of a device that match a filter; `None` if the filter is empty.
    pub fn matches(&self, device: &Device, filter: &str) -> Option<Matches> {
        let name = filter.trim().to_lowercase();
        if name.is_empty() {
            return None;
        }
        let found = self.trace.stacks.matches(filter);
        let is_found = |frame: &u32| found.get(*frame as usize) == Some(&true);
        let numbers = (0..self.trace.stacks.count()).map(|it| StackId(u32::try_from(it).unwrap_or(u32::MAX)));
        let stacks = numbers.map(|it| self.trace.stacks.numbers(it).iter().any(is_found)).collect();
        let mut matches =
            Matches { stacks, blocks: vec![false; self.trace.blocks.len()], segments: BTreeMap::default() };
        for piece in &device.segments {
            self.match_segment(piece, &name, &mut matches);
        }
        Some(matches)
    }

    fn match_segment(&self, piece: &Piece, name: &str, matches: &mut Matches) {
        let Some(segment) = self.segment(piece) else { return };
        let is_named = self.segment_names(segment).iter().any(|it| it == name);
        let is_state: Vec<bool> =
            BlockState::ALL.iter().map(|it| self.state_names(piece, *it).contains(&name)).collect();
        let (mut blocks, mut bytes) = (0, 0_u64);
        for (place, block) in (segment.blocks.start as usize..).zip(self.trace.blocks_of(segment)) {
            if is_named || is_state[block.state as usize] || matches.has_stack(block.stack) {
                if let Some(it) = matches.blocks.get_mut(place) {
                    *it = true;
                }
                blocks += 1;
                bytes = bytes.saturating_add(block.size);
            }
        }
        if is_named || blocks > 0 || matches.has_stack(segment.stack) {
            matches.segments.insert(piece.place, (blocks, bytes));
        }
    }

    /// Returns the live blocks of some segments by stack: those that match.
    fn live_matches<'a>(&'a self, segments: impl Iterator<Item = &'a Segment>, matches: &Matches) -> Vec<StackShare> {
        let of = |segment: &'a Segment| {
            let blocks = self.trace.blocks_of(segment).iter().enumerate();
            blocks.filter(move |it| matches.has_block(segment, it.0)).map(|it| it.1)
        };
        let is_live = |it: &&Block| it.state == BlockState::Live;
        self.trace.shares(segments.flat_map(of).filter(is_live))
    }

    /// Returns the names by which a filter finds segments and blocks of a device, in the order of the screens.
    pub fn filter_names(&self, device: &Device) -> Vec<String> {
        let segments = || device.segments.iter().filter_map(|it| self.segment(it));
        let streams: BTreeSet<u64> = segments().map(|it| it.stream).collect();
        let mut names: Vec<String> = streams.into_iter().map(stream_name).collect();
        let pools: BTreeSet<Option<u32>> = segments().map(|it| it.pool).collect();
        names.extend(pools.into_iter().filter_map(|it| self.pool_name(it)));
        let kinds: BTreeSet<&str> = segments().map(kind).collect();
        names.extend(kinds.into_iter().map(str::to_owned));
        let states = device.segments.iter().flat_map(|piece| {
            let blocks = self.segment(piece).map(|it| self.trace.blocks_of(it)).unwrap_or_default();
            let seen: BTreeSet<BlockState> = blocks.iter().map(|it| it.state).collect();
            seen.into_iter().flat_map(move |it| self.state_names(piece, it))
        });
        let states: BTreeSet<&str> = states.collect();
        names.extend(states.into_iter().map(str::to_owned));
        names
    }

    /// Returns the name of a pool: `default pool`, `graph pool (1, 0)`, `private pool (0, 1)`; `None` where the
    /// snapshot lacks it.
    fn pool_name(&self, pool: Option<u32>) -> Option<String> {
        Some(match self.trace.pools.get(pool?)? {
            (0, 0) => "default pool".to_owned(),
            // Only a capture makes these.
            (a, 0) => format!("graph pool ({a}, 0)"),
            (a, b) => format!("private pool ({a}, {b})"),
        })
    }

    /// Returns the name of a stream's and pool's segments: `stream 0, private pool (0, 1)`.
    pub fn part_name(&self, stream: u64, pool: Option<u32>) -> String {
        let pool = self.pool_name(pool).map_or_else(String::new, |it| format!(", {it}"));
        stream_name(stream) + &pool
    }

    fn segment_names(&self, it: &Segment) -> Vec<String> {
        let mut names = vec![stream_name(it.stream), kind(it).to_owned(), format!("{:#x}", it.address)];
        names.extend(self.pool_name(it.pool));
        if self.trace.is_private(it) {
            names.push("private pool".to_owned());
        }
        names
    }

    /// The names of the blocks of a segment with a state.
    fn state_names(&self, piece: &Piece, state: BlockState) -> [&'static str; 2] {
        [state.name(), self.gap(piece, state).row().name]
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
            consists: None,
        }
    }
}

fn history(trace: &Trace, ordinal: u32) -> (History, Option<Moment>, Consists) {
    let (history, steps) = (trace.history(ordinal), Steps::new(trace, ordinal));
    let peak = history.peak.and_then(|event| history.moment(trace, ordinal, event));
    let consists = Consists {
        peak: history.peak.and_then(|event| steps.moment(trace, &history, event)),
        end: steps.end(trace, &history, ordinal),
    };
    (history, peak, consists)
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

/// The blocks of a device that match a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Whether each call stack matches, by its number.
    stacks: Vec<bool>,
    /// Whether each block of the trace matches, by its place.
    blocks: Vec<bool>,
    /// The segments that match or have such blocks, by their places, with the number of these blocks and their bytes.
    segments: BTreeMap<usize, (u64, u64)>,
}

impl Matches {
    /// Returns whether a segment, by its place among the trace's, matches or has blocks that do.
    pub fn has_segment(&self, place: usize) -> bool {
        self.segments.contains_key(&place)
    }

    /// Returns whether a call stack matches.
    pub fn has_stack(&self, stack: StackId) -> bool {
        self.stacks.get(stack.0 as usize) == Some(&true)
    }

    /// Returns whether a block of a segment matches, by its place there.
    pub fn has_block(&self, segment: &Segment, place: usize) -> bool {
        self.blocks.get(segment.blocks.start as usize + place) == Some(&true)
    }

    /// Returns how many segments and blocks match, and the bytes of these blocks.
    pub fn counts(&self) -> [u64; 3] {
        let sum = |of: fn(&(u64, u64)) -> u64| self.segments.values().map(of).fold(0, u64::saturating_add);
        [self.segments.len() as u64, sum(|it| it.0), sum(|it| it.1)]
    }
}

fn stream_name(stream: u64) -> String {
    format!("stream {stream}")
}

/// Returns the kind of a segment.
pub fn kind(it: &Segment) -> &'static str {
    match (it.is_expandable, it.is_small) {
        (true, _) => "expandable",
        (_, true) => "small",
        _ => "large",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::{Frame, Trace};
    use std::sync::Arc;

    /// Two segments with a live and a free block each; the second one is of stream 10 and of a private pool.
    fn snapshot() -> Snapshot {
        let mut trace = Trace::default();
        let mut stack = |name: &str| {
            let texts = &mut trace.stacks.texts;
            let frame = Frame { name: texts.id(name.as_bytes()), file: texts.id(b"/job/model.py"), line: 7 };
            let frame = trace.stacks.frames.id(frame);
            trace.stacks.id(&[frame])
        };
        let stacks = [stack("max_pool"), stack("attention")];
        let [default, private] = [(0, 0), (0, 5)].map(|it| trace.pools.id(it));
        for (place, (stack, (stream, pool))) in stacks.into_iter().zip([(1, default), (10, private)]).enumerate() {
            let address = place as u64 * 4096;
            let begin = u32::try_from(trace.blocks.len()).unwrap();
            let block = |state, stack, offset| Block {
                address: address + offset,
                size: 1024,
                state,
                stack,
                ..Block::default()
            };
            trace.blocks.push(block(BlockState::Live, stack, 0));
            trace.blocks.push(block(BlockState::Free, StackId::default(), 1024));
            let (blocks, pool) = (begin..begin + 2, Some(pool));
            let segment = Segment { device: Some(0), address, size: 2048, stream, pool, blocks, ..Segment::default() };
            trace.segments.push(Segment { is_small: place == 0, ..segment });
        }
        Snapshot::new(Arc::new(trace), 0, None)
    }

    #[test]
    fn a_filter_finds_blocks_by_call_stream_pool_kind_address_and_state() {
        let snapshot = snapshot();
        let device = &snapshot.devices[0];
        let counts = |filter: &str| snapshot.matches(device, filter).unwrap().counts();
        for (filter, found) in [
            ("POOL", [1, 1, 1024]),
            ("model.py:7", [2, 2, 2048]),
            ("stream 1", [1, 2, 2048]),
            (" Stream 10 ", [1, 2, 2048]),
            ("stream", [0, 0, 0]),
            ("private pool", [1, 2, 2048]),
            ("private pool (0, 5)", [1, 2, 2048]),
            ("default pool", [1, 2, 2048]),
            ("small", [1, 2, 2048]),
            ("0x1000", [1, 2, 2048]),
            ("free", [2, 2, 2048]),
            ("stuck", [1, 1, 1024]),
            ("mem pools", [1, 1, 1024]),
            ("live", [2, 2, 2048]),
            ("no such call", [0, 0, 0]),
        ] {
            assert_eq!(counts(filter), found, "{filter}");
        }
        assert_eq!(snapshot.matches(device, "  "), None);
        // Every name that is offered finds something.
        let names = snapshot.filter_names(device);
        assert!(names.iter().all(|it| counts(it)[1] > 0), "{names:?}");
        assert!(["stream 10", "large", "stuck"].iter().all(|it| names.contains(&(*it).to_owned())), "{names:?}");
    }
}
