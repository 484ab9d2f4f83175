//! Turns dictionaries into rows. Their keys determine the kind; unknown keys are skipped.

use super::{
    Fault,
    values::{Kept, Kind, Lists, Value},
};
use crate::model::trace::{
    Action, Block, BlockState, Event, Frame, Note, Segment, Setting, Settings, TextId, Texts, Trace,
};
use std::ops::Range;

/// Most dictionaries of numbers by size, and most pairs of each.
const MAPS_MAX: usize = 64;

/// The rows built so far.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) trace: Trace,
    pub(super) lists: Lists,
    /// Memoised numbers.
    pub(super) numbers: Vec<Value>,
    segments: Vec<Segment>,
    notes: Vec<Note>,
    maps: Vec<Vec<(TextId, i64)>>,
    settings: Option<Settings>,
    root: Root,
}

/// The values of the outermost dictionary.
#[derive(Debug, Default)]
struct Root {
    segments: Option<Kept>,
    traces: Option<Kept>,
    host_segments: Option<Kept>,
    host_traces: Option<Kept>,
    notes: Option<Kept>,
}

/// Kinds of dictionaries.
enum Shape {
    Row(Kind),
    Root,
    Settings,
}

/// Returns the shape that a key determines.
fn shape(key: Word) -> Option<Shape> {
    match key {
        Word::Filename => Some(Shape::Row(Kind::Frame)),
        Word::Action => Some(Shape::Row(Kind::Event)),
        Word::Blocks | Word::SegmentType => Some(Shape::Row(Kind::Segment)),
        Word::State => Some(Shape::Row(Kind::Block)),
        Word::Stage => Some(Shape::Row(Kind::Note)),
        Word::Segments | Word::DeviceTraces => Some(Shape::Root),
        Word::Conf | Word::NewConf | Word::MaxSplitSize => Some(Shape::Settings),
        _ => None,
    }
}

/// The pairs whose keys are texts.
fn pairs(items: &[Value]) -> impl Iterator<Item = (TextId, Value)> {
    items.chunks_exact(2).filter_map(|it| match it {
        [Value::Kept(Kept::Text(key)), value] => Some((*key, *value)),
        _ => None,
    })
}

fn known(items: &[Value]) -> impl Iterator<Item = (Word, Value)> {
    pairs(items).filter_map(|(key, value)| Some((word(key)?, value)))
}

/// Returns whether a dictionary with these items is the whole snapshot.
pub(super) fn is_root(items: &[Value]) -> bool {
    known(items).find_map(|(key, _)| shape(key)).is_some_and(|it| matches!(it, Shape::Root))
}

impl Rows {
    /// Adds pairs to a dictionary; `None` if it is not one, or is complete.
    pub(super) fn fill(&mut self, dict: Kept, items: &[Value]) -> Option<Kept> {
        match dict {
            _ if items.is_empty() => Some(dict),
            Kept::Dict => Some(match known(items).find_map(|(key, _)| shape(key)) {
                Some(Shape::Row(kind)) => self.row(kind, items),
                Some(Shape::Root) => self.root(items),
                Some(Shape::Settings) => self.settings(items),
                None => self.map(items),
            }),
            Kept::Root => Some(self.root(items)),
            Kept::Opaque | Kept::Map(_) => Some(Kept::Opaque),
            _ => None,
        }
    }

    fn row(&mut self, kind: Kind, items: &[Value]) -> Kept {
        let place = match kind {
            Kind::Frame => return Kept::Row(kind, self.frame(items)),
            Kind::Event => self.event(items),
            Kind::Segment => self.segment(items),
            Kind::Block => {
                let block = self.block(items);
                self.trace.blocks.push(block);
                self.trace.blocks.len() - 1
            }
            Kind::Note => {
                let note = self.note(items);
                self.notes.push(note);
                self.notes.len() - 1
            }
        };
        u32::try_from(place).map_or(Kept::Opaque, |it| Kept::Row(kind, it))
    }

    fn frame(&mut self, items: &[Value]) -> u32 {
        let mut frame = Frame::default();
        for (key, value) in known(items) {
            match key {
                Word::Name => frame.name = text(value),
                Word::Filename => frame.file = text(value),
                Word::Line => frame.line = self.short(value).unwrap_or(0),
                _ => {}
            }
        }
        self.trace.stacks.frames.id(frame)
    }

    fn event(&mut self, items: &[Value]) -> usize {
        let mut event = Event::default();
        for (key, value) in known(items) {
            match key {
                Word::Action => event.action = action(text(value)),
                Word::Addr | Word::DeviceFree => event.address = self.number(value),
                Word::Size => event.size = self.number(value),
                Word::Stream => event.stream = self.number(value),
                Word::TimeUs => event.unix_us = self.number(value),
                Word::Frames => event.stack = self.lists.stack(value),
                Word::PoolId => event.pool = pool(value),
                _ => {}
            }
        }
        self.trace.events.push(&event)
    }

    fn block(&self, items: &[Value]) -> Block {
        let mut block = Block::default();
        for (key, value) in known(items) {
            match key {
                Word::Address => block.address = self.number(value).unwrap_or(0),
                Word::Size => block.size = self.number(value).unwrap_or(0),
                Word::RequestedSize => block.requested = self.number(value),
                Word::State => {
                    block.state = match word(text(value)) {
                        Some(Word::Live) => BlockState::Live,
                        Some(Word::Pending | Word::Awaiting) => BlockState::Pending,
                        Some(Word::Inactive) => BlockState::Free,
                        _ => BlockState::Other,
                    }
                }
                Word::Frames => block.stack = self.lists.stack(value),
                _ => {}
            }
        }
        block
    }

    fn segment(&mut self, items: &[Value]) -> usize {
        let mut segment = Segment::default();
        for (key, value) in known(items) {
            match key {
                Word::Device => segment.device = self.short(value),
                Word::Address => segment.address = self.number(value).unwrap_or(0),
                Word::TotalSize => segment.size = self.number(value).unwrap_or(0),
                Word::AllocatedSize => segment.allocated = self.number(value),
                Word::ActiveSize => segment.active = self.number(value),
                Word::RequestedSize => segment.requested = self.number(value),
                Word::Stream => segment.stream = self.number(value).unwrap_or(0),
                Word::SegmentType => segment.is_small = word(text(value)) == Some(Word::Small),
                Word::SegmentPoolId => segment.pool = pool(value),
                Word::IsExpandable => segment.is_expandable = value == Value::Kept(Kept::Bool(true)),
                Word::Frames => segment.stack = self.lists.stack(value),
                Word::Blocks => segment.blocks = self.list(value, Kind::Block).unwrap_or(0..0),
                _ => {}
            }
        }
        self.place(&segment);
        self.segments.push(segment);
        self.segments.len() - 1
    }

    /// Computes a block's address: old releases leave it out, and blocks are contiguous.
    fn place(&mut self, segment: &Segment) {
        let mut next = segment.address;
        let range = segment.blocks.start as usize..segment.blocks.end as usize;
        for block in self.trace.blocks.get_mut(range).unwrap_or_default() {
            if block.address == 0 {
                block.address = next;
            }
            next = block.address.saturating_add(block.size);
        }
    }

    fn note(&self, items: &[Value]) -> Note {
        let mut note = Note::default();
        for (key, value) in known(items) {
            match key {
                Word::Stage => {
                    note.begins = match word(text(value)) {
                        Some(Word::Start) => Some(true),
                        Some(Word::End) => Some(false),
                        _ => None,
                    }
                }
                Word::Name => note.name = text(value),
                Word::Device => note.device = self.short(value),
                Word::TimeUs => note.unix_us = self.number(value),
                _ => {}
            }
        }
        note
    }

    fn root(&mut self, items: &[Value]) -> Kept {
        for (key, value) in known(items) {
            let Value::Kept(value) = value else { continue };
            match key {
                Word::Segments => self.root.segments = Some(value),
                Word::DeviceTraces => self.root.traces = Some(value),
                Word::HostSegments => self.root.host_segments = Some(value),
                Word::HostTraces => self.root.host_traces = Some(value),
                Word::ExternalAnnotations => self.root.notes = Some(value),
                // Settings are recognised by their keys alone.
                _ => {}
            }
        }
        Kept::Root
    }

    fn settings(&mut self, items: &[Value]) -> Kept {
        let mut settings = Settings::default();
        for (key, value) in pairs(items).take(MAPS_MAX) {
            if matches!(word(key), Some(Word::Conf | Word::NewConf)) {
                settings.text = text(value);
            }
            let value = match value {
                Value::Int(it) => Setting::Number(it),
                Value::Float(it) => Setting::Fraction(it),
                Value::Kept(Kept::Bool(it)) => Setting::Switch(it),
                Value::Kept(Kept::Text(it)) => Setting::Text(it),
                Value::Kept(Kept::Map(it)) => Setting::BySize(self.maps.get(it as usize).cloned().unwrap_or_default()),
                _ => continue,
            };
            settings.values.push((key, value));
        }
        self.settings = Some(settings);
        Kept::Opaque
    }

    /// Keeps numbers by text, if they are few: one setting is made of them.
    fn map(&mut self, items: &[Value]) -> Kept {
        let number = |(key, value): (TextId, Value)| match value {
            Value::Int(it) => Some((key, it)),
            _ => None,
        };
        if self.maps.len() >= MAPS_MAX || items.len() > 2 * MAPS_MAX {
            return Kept::Opaque;
        }
        let Some(map) = pairs(items).map(number).collect() else { return Kept::Opaque };
        self.maps.push(map);
        u32::try_from(self.maps.len() - 1).map_or(Kept::Opaque, Kept::Map)
    }

    fn number(&self, value: Value) -> Option<u64> {
        match value {
            Value::Int(it) => u64::try_from(it).ok(),
            Value::Large(it) => Some(it),
            Value::Kept(Kept::Number(it)) => {
                let it = *self.numbers.get(it as usize)?;
                if matches!(it, Value::Kept(_)) { None } else { self.number(it) }
            }
            _ => None,
        }
    }

    fn short(&self, value: Value) -> Option<u32> {
        self.number(value).and_then(|it| u32::try_from(it).ok())
    }

    fn list(&self, value: Value, kind: Kind) -> Option<Range<u32>> {
        let Value::Kept(it) = value else { return None };
        self.lists.rows(it, kind)
    }

    /// Builds the trace from the outermost object.
    ///
    /// # Errors
    /// Fails if it is not a snapshot, or if its parts do not fit together.
    pub(super) fn finish(mut self, outermost: Option<Kept>, at: u64) -> Result<Trace, Fault> {
        match outermost {
            Some(Kept::Root) => {}
            // The result of `torch.cuda.memory_snapshot()`.
            Some(list @ Kept::Rows(_)) if self.lists.rows(list, Kind::Segment).is_some() => {
                self.root = Root { segments: Some(list), ..Root::default() };
            }
            _ => return Err(Fault::NoSnapshot),
        }
        let damaged = |what: &str| Fault::Damaged { at, what: what.to_owned() };
        let lists = &self.lists;
        let rows = |kept: Option<Kept>, kind| kept.map_or(Some(0..0), |it| lists.rows(it, kind)).map(wide);
        let traces = |kept: Option<Kept>| -> Option<Vec<Range<usize>>> {
            let all = kept.map_or(Some(&[][..]), |it| lists.lists(it))?;
            all.iter().map(|it| lists.rows(*it, Kind::Event).map(wide)).collect()
        };
        let of = |range: Option<Range<usize>>| range.and_then(|it| self.segments.get(it)).map(<[_]>::to_vec);
        let segments = of(rows(self.root.segments, Kind::Segment))
            .ok_or_else(|| damaged("segments that are not a list of segments"))?;
        let host_segments = of(rows(self.root.host_segments, Kind::Segment)).unwrap_or_default();
        let devices = traces(self.root.traces).ok_or_else(|| damaged("device traces that are not a list of traces"))?;
        let host = rows(self.root.host_traces, Kind::Event).unwrap_or_default();
        let notes = rows(self.root.notes, Kind::Note).and_then(|it| self.notes.get(it)).map(<[_]>::to_vec);
        let mut ranges: Vec<_> = devices.iter().chain([&host]).filter(|it| !it.is_empty()).collect();
        ranges.sort_by_key(|it| it.start);
        if ranges.windows(2).any(|it| matches!(it, [a, b] if a.end > b.start)) {
            return Err(damaged("events that two devices share"));
        }
        let settings = self.settings;
        let trace = self.trace;
        Ok(Trace { segments, host_segments, devices, host, notes: notes.unwrap_or_default(), settings, ..trace })
    }
}

fn wide(range: Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

fn text(value: Value) -> TextId {
    if let Value::Kept(Kept::Text(it)) = value { it } else { TextId::default() }
}

fn pool(value: Value) -> Option<u32> {
    if let Value::Kept(Kept::Pair(it)) = value { Some(it) } else { None }
}

macro_rules! words {
    ($($name:ident = $text:literal,)+) => {
        /// A key, or a value with a meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Word {
            $($name,)+
        }

        /// Every word with its text, by number.
        const WORDS: &[(Word, &str)] = &[$((Word::$name, $text),)+];
    };
}

words! {
    Nothing = "",
    // The whole.
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
    // An event.
    Action = "action",
    Addr = "addr",
    DeviceFree = "device_free",
    Size = "size",
    Stream = "stream",
    TimeUs = "time_us",
    Frames = "frames",
    PoolId = "pool_id",
    // A frame.
    Name = "name",
    Filename = "filename",
    Line = "line",
    // A segment.
    Blocks = "blocks",
    Device = "device",
    Address = "address",
    TotalSize = "total_size",
    AllocatedSize = "allocated_size",
    ActiveSize = "active_size",
    RequestedSize = "requested_size",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Small = "small",
    // A block.
    State = "state",
    Live = "active_allocated",
    Pending = "active_pending_free",
    // PyTorch's documentation has this name.
    Awaiting = "active_awaiting_free",
    Inactive = "inactive",
    // An annotation.
    Stage = "stage",
    Start = "START",
    End = "END",
    // Settings.
    Conf = "PYTORCH_CUDA_ALLOC_CONF",
    NewConf = "PYTORCH_ALLOC_CONF",
    MaxSplitSize = "max_split_size",
}

/// Interns every word before any other text.
pub(super) fn begin(texts: &mut Texts) {
    for text in WORDS.iter().map(|it| it.1).chain(Action::WORDS.iter().map(|it| it.0)) {
        texts.id(text.as_bytes());
    }
}

/// Returns the word with this text.
pub(super) fn word(text: TextId) -> Option<Word> {
    WORDS.get(text.0 as usize).map(|it| it.0)
}

/// Returns the action with this name.
pub(super) fn action(text: TextId) -> Action {
    let place = (text.0 as usize).checked_sub(WORDS.len());
    place.and_then(|it| Action::WORDS.get(it)).map_or(Action::Other, |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_numbers() {
        let mut texts = Texts::default();
        begin(&mut texts);
        for (it, text) in WORDS {
            assert_eq!(word(texts.id(text.as_bytes())), Some(*it));
        }
        for (text, it) in Action::WORDS {
            assert_eq!(action(texts.id(text.as_bytes())), it);
        }
        let other = texts.id(b"seldom");
        assert_eq!((word(other), action(other), action(TextId(1))), (None, Action::Other, Action::Other));
    }
}
