//! Values on the machine's stack: numbers, and references into tables.

use crate::model::trace::{StackId, TextId};

/// An object's place in the memo; [`NOWHERE`] if it is not memoised.
pub(super) type Slot = u32;

/// The slot of an object that is not memoised.
pub(super) const NOWHERE: Slot = Slot::MAX;

/// A value on the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// A whole number.
    Int(i64),
    /// A larger whole number.
    Large(u64),
    /// Any other number.
    Float(f64),
    /// A reference of a few bytes.
    Kept(Kept),
    /// A new list or dictionary, which may still be extended.
    Fresh(Slot, Kept),
}

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Frame,
    Event,
    Segment,
    Block,
    Note,
}

/// A reference to an object, in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kept {
    None,
    Bool(bool),
    Text(TextId),
    /// Two whole numbers, by index among the pools.
    Pair(u32),
    /// A memoised number, by index.
    Number(u32),
    /// An empty dictionary.
    Dict,
    /// An empty list.
    List,
    /// A dictionary converted to a row.
    Row(Kind, u32),
    /// A list of frames.
    Stack(StackId),
    /// Any other relevant list, by index among the lists.
    Rows(u32),
    /// A dictionary of settings, by index.
    Map(u32),
    /// The whole snapshot.
    Root,
    /// An object that no snapshot needs.
    Opaque,
}
