//! A program's allocation trace and the allocator's state at its end: events as columns, segments with their blocks,
//! call stacks. Independent of the file format.

/// Events as columns.
mod events;
/// What is held, event by event.
mod held;
/// Live and reserved bytes in the course of a trace.
mod history;
/// One trace from pieces.
mod join;
/// Segments and their blocks.
mod layout;
/// How long snapshots held up the program.
mod pauses;
/// Live blocks by call stack.
mod peak;
/// Formats frames.
mod places;
/// Interned texts, frames and stacks.
mod stacks;
/// What is live, stuck and free.
mod totals;
/// Live blocks as a tree of calls.
mod tree;

pub use events::{Action, Event, Events};
pub use held::Held;
pub use history::{History, Stretch};
pub use join::{Join, Whole};
pub use layout::{Block, Segment, State};
pub use pauses::Pauses;
pub use peak::{Moment, Share};
pub use places::Origin;
pub use stacks::{Distinct, Frame, StackId, Stacks, TextId, Texts};
pub use totals::{Fit, Totals};
pub use tree::{Call, Tree};

use std::ops::Range;

/// The allocator's events on all devices, and its state afterwards.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Texts, frames and call stacks of the fields below.
    pub stacks: Stacks,
    /// Memory pools: (0, 0) is the default pool, all others are private.
    pub pools: Distinct<(u64, u64)>,
    /// The events of all devices; those of one device are contiguous.
    pub events: Events,
    /// Each device's events, by ordinal; in order of time.
    pub devices: Vec<Range<usize>>,
    /// The events of pinned host memory.
    pub host: Range<usize>,
    /// The segments at the end, on all devices.
    pub segments: Vec<Segment>,
    /// The segments of pinned host memory.
    pub host_segments: Vec<Segment>,
    /// The blocks of all segments.
    pub blocks: Vec<Block>,
    /// Ranges that the program named, with their times.
    pub notes: Vec<Note>,
    /// The allocator's settings, as far as the trace has them.
    pub settings: Option<Settings>,
}

/// One end of a named range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Whether the range begins or ends here; `None` if the trace has neither.
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
    /// The text they were parsed from; empty for the defaults.
    pub text: TextId,
    /// The settings by name.
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
    /// A number for each of several sizes; the key is the size's text.
    BySize(Vec<(TextId, i64)>),
}

impl Trace {
    /// The blocks of a segment, by ascending address.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        let range = segment.blocks.start as usize..segment.blocks.end as usize;
        self.blocks.get(range).unwrap_or_default()
    }
}
