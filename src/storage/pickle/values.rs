//! Converts lists: frames become a stack, consecutive rows a range.

use crate::model::trace::{StackId, TextId, Trace};
use std::ops::Range;

/// Most lists of lists; a snapshot has one for each device.
const LISTS_MAX: usize = 4096;

/// A list other than a stack.
#[derive(Debug)]
enum List {
    /// Consecutive rows of one kind.
    Run { kind: Kind, first: u32, count: u32 },
    /// A stack under construction.
    Frames(Vec<u32>),
    /// A complete stack.
    Stack(StackId),
    /// Lists.
    Lists(Vec<Kept>),
}

/// All lists other than stacks.
#[derive(Debug, Default)]
pub(super) struct Lists {
    all: Vec<List>,
    frames: Vec<u32>,
}

impl Lists {
    /// Appends items to a list; `None` if it is not a list, or if rows are not consecutive.
    pub(super) fn extend(&mut self, list: Kept, items: &[Value], trace: &mut Trace) -> Option<Kept> {
        match list {
            _ if items.is_empty() && matches!(list, Kept::List | Kept::Stack(_) | Kept::Rows(_) | Kept::Opaque) => {
                Some(list)
            }
            Kept::List => Some(self.first(items, trace)),
            Kept::Stack(id) => {
                let mut frames = trace.stacks.numbers(id).to_vec();
                if !all_frames(items, &mut frames) {
                    return Some(Kept::Opaque);
                }
                Some(self.add(List::Frames(frames)))
            }
            Kept::Rows(place) => match self.all.get_mut(place as usize)? {
                List::Run { kind, first, count } => {
                    let more = run(items)?;
                    let follows = more.0 == *kind && first.checked_add(*count) == Some(more.1);
                    *count += u32::try_from(items.len()).ok().filter(|_| follows)?;
                    Some(list)
                }
                List::Frames(frames) => Some(if all_frames(items, frames) { list } else { Kept::Opaque }),
                List::Lists(lists) => {
                    Some(if lists.len() < LISTS_MAX && all_lists(items, lists) { list } else { Kept::Opaque })
                }
                List::Stack(_) => None,
            },
            Kept::Opaque => Some(Kept::Opaque),
            _ => None,
        }
    }

    fn first(&mut self, items: &[Value], trace: &mut Trace) -> Kept {
        if let [Value::Int(a), Value::Int(b)] = items {
            return pair(*a, *b, trace);
        }
        self.frames.clear();
        if all_frames(items, &mut self.frames) {
            return Kept::Stack(trace.stacks.id(&self.frames));
        }
        if let Some((kind, first)) = run(items)
            && let Ok(count) = u32::try_from(items.len())
        {
            return self.add(List::Run { kind, first, count });
        }
        let mut lists = Vec::new();
        if items.len() <= LISTS_MAX && all_lists(items, &mut lists) {
            self.add(List::Lists(lists))
        } else {
            Kept::Opaque
        }
    }

    fn add(&mut self, list: List) -> Kept {
        let place = u32::try_from(self.all.len());
        self.all.push(list);
        place.map_or(Kept::Opaque, Kept::Rows)
    }

    /// Completes a list: frames become a stack.
    pub(super) fn close(&mut self, list: Kept, trace: &mut Trace) -> Kept {
        if let Kept::Rows(place) = list
            && let Some(it) = self.all.get_mut(place as usize)
            && let List::Frames(frames) = it
        {
            let id = trace.stacks.id(frames);
            *it = List::Stack(id);
            return Kept::Stack(id);
        }
        list
    }

    /// Returns the stack of a list; the unknown stack for any other value.
    pub(super) fn stack(&self, value: Value) -> StackId {
        match value {
            Value::Kept(Kept::Stack(id)) => id,
            Value::Kept(Kept::Rows(place)) => match self.all.get(place as usize) {
                Some(List::Stack(id)) => *id,
                _ => StackId::default(),
            },
            _ => StackId::default(),
        }
    }

    /// Returns the rows of a kind in a list; `None` for any other list.
    pub(super) fn rows(&self, list: Kept, of: Kind) -> Option<Range<u32>> {
        match list {
            Kept::List => Some(0..0),
            Kept::Rows(place) => match self.all.get(place as usize)? {
                List::Run { kind, first, count } if *kind == of => Some(*first..*first + *count),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the lists in a list.
    pub(super) fn lists(&self, list: Kept) -> Option<&[Kept]> {
        match list {
            Kept::List => Some(&[]),
            Kept::Rows(place) => match self.all.get(place as usize)? {
                List::Lists(lists) => Some(lists),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns two whole numbers, such as a pool's id, as one value.
pub(super) fn pair(a: i64, b: i64, trace: &mut Trace) -> Kept {
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => Kept::Pair(trace.pools.id((a, b))),
        _ => Kept::Opaque,
    }
}

/// Appends the items if all of them are frames.
fn all_frames(items: &[Value], to: &mut Vec<u32>) -> bool {
    for it in items {
        let Value::Kept(Kept::Row(Kind::Frame, id)) = it else { return false };
        to.push(*id);
    }
    true
}

fn all_lists(items: &[Value], to: &mut Vec<Kept>) -> bool {
    for it in items {
        let Value::Kept(it @ (Kept::List | Kept::Rows(_))) = it else { return false };
        to.push(*it);
    }
    true
}

/// Returns the kind and the first of consecutive rows.
fn run(items: &[Value]) -> Option<(Kind, u32)> {
    let Some(Value::Kept(Kept::Row(kind, first))) = items.first() else { return None };
    let follows = |(it, at): (&Value, u32)| *it == Value::Kept(Kept::Row(*kind, at));
    items.iter().zip(*first..).all(follows).then_some((*kind, *first))
}

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
