//! What is on the machine's stack: numbers, and references into tables.

use crate::model::trace::{StackId, TextId};

/// Where an object is memoised; [`NOWHERE`] of one that is not.
pub(super) type Slot = u32;

/// The slot of what is not memoised.
pub(super) const NOWHERE: Slot = Slot::MAX;

/// A value on the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// A whole number.
    Int(i64),
    /// A whole number above those.
    Large(u64),
    /// Any other number.
    Float(f64),
    /// What the machine remembers by a few bytes.
    Kept(Kept),
    /// A list or dictionary that was made here, which may still be filled.
    Fresh(Slot, Kept),
}

/// Rows of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Frame,
    Event,
    Segment,
    Block,
    Note,
}

/// What the machine remembers of an object, in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kept {
    None,
    Bool(bool),
    Text(TextId),
    /// Two whole numbers, by their place among the pools.
    Pair(u32),
    /// A number that was memoised, by its place among those.
    Number(u32),
    /// An empty dictionary.
    Dict,
    /// An empty list.
    List,
    /// A dictionary that became a row.
    Row(Kind, u32),
    /// A list of frames.
    Stack(StackId),
    /// Any other list that matters, by its place among the lists.
    Rows(u32),
    /// A dictionary of settings, by its place among those.
    Map(u32),
    /// The whole snapshot.
    Root,
    /// What no snapshot needs.
    Opaque,
}
