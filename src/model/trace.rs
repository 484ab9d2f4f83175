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
/// Formats frames.
mod places;
/// Interned texts, frames and stacks.
mod stacks;
/// What is live, stuck and free.
mod totals;
/// Live blocks as a tree of calls.
mod tree;

pub use events::{Action, Event, Events};
use hashbrown::HashSet;
pub use held::{AllocatorState, Block, BlockState, Segment};
pub use history::{History, Life, Stretch, time};
pub use join::{Join, JoinedTrace, Pauses};
pub use places::{Origin, SourceLine};
pub use stacks::{Distinct, Frame, StackId, Stacks, TextId, Texts};
use std::ops::Range;
pub use totals::{Fit, Free, Totals};
pub use tree::{Call, Moment, StackShare, Tree};

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
    /// Blocks older than the first event that do not count, by device and address.
    pub left: HashSet<(u32, u64)>,
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
    /// Returns the innermost range that the program had open on a device at a time, in µs since 1970. A range ends with
    /// the end of one that began before it.
    pub fn range_at(&self, device: u32, unix_us: u64) -> Option<TextId> {
        let is_seen =
            |it: &&Note| it.device.is_none_or(|on| on == device) && it.unix_us.is_some_and(|at| at <= unix_us);
        let mut notes: Vec<&Note> = self.notes.iter().filter(is_seen).collect();
        notes.sort_by_key(|it| it.unix_us);
        let mut open: Vec<TextId> = Vec::new();
        for it in notes {
            match it.begins {
                Some(true) => open.push(it.name),
                Some(false) => {
                    if let Some(begun) = open.iter().rposition(|name| *name == it.name) {
                        open.truncate(begun);
                    }
                }
                None => {}
            }
        }
        open.pop()
    }

    /// The blocks of a segment, by ascending address.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        let range = segment.blocks.start as usize..segment.blocks.end as usize;
        self.blocks.get(range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_named_while_it_is_open() {
        let mut trace = Trace::default();
        let [step, inner] = ["step", "forward"].map(|it| trace.stacks.texts.id(it.as_bytes()));
        let note = |name, begins, at, device| Note { begins, name, device, unix_us: Some(at) };
        // In any order, as files have them; the second step on this device has no end.
        trace.notes = vec![
            note(step, Some(false), 40, Some(0)),
            note(step, Some(true), 10, Some(0)),
            note(inner, Some(true), 20, Some(0)),
            note(inner, Some(false), 30, Some(0)),
            note(inner, None, 45, Some(0)),
            note(inner, Some(true), 12, Some(1)),
            note(inner, Some(false), 50, None),
            note(step, Some(true), 60, None),
        ];
        let at = |time| trace.range_at(0, time);
        assert_eq!([9, 10, 25, 30, 39].map(at), [None, Some(step), Some(inner), Some(step), Some(step)]);
        assert_eq!([40, 46, 55, 60, 99].map(at), [None, None, None, Some(step), Some(step)]);
        assert_eq!(trace.range_at(1, 45), Some(inner));
    }
}
