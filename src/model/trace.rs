//! What a program's allocator did, and how its memory stood at the end: events as columns, segments with their blocks, call
//! stacks. Knows nothing of who wrote it down.

/// What was live while a trace went by.
mod curve;
/// Events as columns.
mod events;
/// Segments and their blocks.
mod layout;
/// Whose live blocks are.
mod peak;
/// Frames in words.
mod places;
/// Texts, frames and stacks, each kept once.
mod stacks;
/// What is live, stuck and free.
mod totals;
/// Whose, as a tree of calls.
mod tree;

pub use curve::{Levels, Stretch};
pub use events::{Action, Event, Events};
pub use layout::{Block, Segment, State};
pub use peak::{Moment, Share};
pub use stacks::{Distinct, Frame, StackId, Stacks, TextId, Texts};
pub use totals::{Fit, Totals};
pub use tree::{Call, Tree};

use std::ops::Range;

/// The allocator's events of some devices, and what it held afterwards.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Texts, frames and call stacks of everything below.
    pub stacks: Stacks,
    /// Memory pools: (0, 0) is the default pool, all others are private.
    pub pools: Distinct<(u64, u64)>,
    /// The events of all devices, those of one device side by side.
    pub events: Events,
    /// Which events are whose, by the device's ordinal; in order of time.
    pub devices: Vec<Range<usize>>,
    /// Which events are of pinned host memory.
    pub host: Range<usize>,
    /// What the allocator held at the end, on all devices.
    pub segments: Vec<Segment>,
    /// The same for pinned host memory.
    pub host_segments: Vec<Segment>,
    /// The blocks of all segments.
    pub blocks: Vec<Block>,
    /// Ranges of the program's own with their times.
    pub notes: Vec<Note>,
    /// The allocator's settings, as far as they were written down.
    pub settings: Option<Settings>,
}

/// One end of a range that the program or a library named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Whether it begins or ends there; `None` where neither is given.
    pub begins: Option<bool>,
    /// The range's name.
    pub name: TextId,
    /// The device's ordinal.
    pub device: Option<u32>,
    /// µs since 1970.
    pub unix_us: Option<u64>,
}

/// The allocator's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The text that they were set with; empty where all are the defaults.
    pub text: TextId,
    /// Each by its name.
    pub values: Vec<(TextId, Setting)>,
}

/// The value of one setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A switch.
    Switch(bool),
    /// A whole number.
    Number(i64),
    /// A fraction.
    Fraction(f64),
    /// A text.
    Text(TextId),
    /// A number for each of several sizes, by the size's text.
    BySize(Vec<(TextId, i64)>),
}

impl Trace {
    /// The blocks of a segment, by ascending address.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        let range = segment.blocks.start as usize..segment.blocks.end as usize;
        self.blocks.get(range).unwrap_or_default()
    }
}
