//! Interns texts, frames and call stacks: each is stored once and has a number.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::{
    hash::{BuildHasher, Hash},
    ops::Range,
};

/// The number of a text. Number 0 is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub u32);

/// The number of a call stack. Number 0 has no frames and stands for an unknown stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// A place in a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub name: TextId,
    /// The file; `??` of native code without symbols.
    pub file: TextId,
    /// The line, 0 where it is not known.
    pub line: u32,
}

/// Interned values: each is stored once and has a number.
#[derive(Clone, Debug)]
pub struct Distinct<T> {
    values: Vec<T>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    last: u32,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { values: Vec::new(), table: HashTable::new(), hasher: DefaultHashBuilder::default(), last: 0 }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    /// Returns the number of a value, a new one for a new value.
    pub fn id(&mut self, value: T) -> u32 {
        // Neighbouring values are often equal.
        if self.values.get(self.last as usize) == Some(&value) {
            return self.last;
        }
        let (values, hasher) = (&mut self.values, &self.hasher);
        let of = |it: &u32| values.get(*it as usize);
        let found = self.table.find(hasher.hash_one(value), |it| of(it) == Some(&value)).copied();
        self.last = found.unwrap_or_else(|| {
            let id = number(values.len());
            values.push(value);
            let values = &*values;
            let rehash = |it: &u32| values.get(*it as usize).map_or(0, |value| hasher.hash_one(value));
            self.table.insert_unique(hasher.hash_one(value), id, rehash);
            id
        });
        self.last
    }

    /// Returns the value with this number.
    pub fn get(&self, id: u32) -> Option<T> {
        self.values.get(id as usize).copied()
    }

    /// Returns the values in the order of their numbers.
    pub fn values(&self) -> &[T] {
        &self.values
    }
}

/// Interned runs of items, concatenated in one buffer.
#[derive(Clone, Debug)]
struct Runs<T> {
    items: Vec<T>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Eq + Hash> Default for Runs<T> {
    /// Run 0 is empty.
    fn default() -> Self {
        let mut runs = Self {
            items: Vec::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        runs.id(&[]);
        runs
    }
}

impl<T: Copy + Eq + Hash> Runs<T> {
    fn id(&mut self, run: &[T]) -> u32 {
        let (items, ends, hasher) = (&mut self.items, &mut self.ends, &self.hasher);
        let hash = hasher.hash_one(run);
        if let Some(id) = self.table.find(hash, |it| items.get(span(ends, *it)) == Some(run)) {
            return *id;
        }
        let id = number(ends.len());
        items.extend_from_slice(run);
        ends.push(items.len());
        let rehash = |it: &u32| items.get(span(ends, *it)).map_or(0, |value| hasher.hash_one(value));
        self.table.insert_unique(hash, id, rehash);
        id
    }

    fn get(&self, id: u32) -> &[T] {
        self.items.get(span(&self.ends, id)).unwrap_or_default()
    }
}

/// Returns a run's range among the items; an empty one for an unknown number.
fn span(ends: &[usize], id: u32) -> Range<usize> {
    let id = id as usize;
    let end = ends.get(id).copied().unwrap_or(0);
    let start = id.checked_sub(1).and_then(|it| ends.get(it)).copied().unwrap_or(0);
    start.min(end)..end
}

/// Every counted item takes more than a byte of the file, and no readable file has 2³² bytes.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Interned texts.
#[derive(Clone, Debug, Default)]
pub struct Texts(Runs<u8>);

impl Texts {
    /// Returns the number of a text, a new one for a new text. Reading replaces invalid UTF-8.
    pub fn id(&mut self, text: &[u8]) -> TextId {
        TextId(self.0.id(text))
    }

    /// Returns a text by its number.
    pub fn get(&self, id: TextId) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.0.get(id.0))
    }
}

/// Interned texts, frames and stacks.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// The texts of frames and of everything else with a name.
    pub texts: Texts,
    /// The frames.
    pub frames: Distinct<Frame>,
    runs: Runs<u32>,
}

impl Stacks {
    /// Returns the number of a stack of frames, innermost first; a new one for a new stack.
    pub fn id(&mut self, frames: &[u32]) -> StackId {
        StackId(self.runs.id(frames))
    }

    /// Adds a stack of others; returns its number here.
    pub fn copy(&mut self, from: &Self, id: StackId) -> StackId {
        let mut numbers = Vec::new();
        for frame in from.frames(id) {
            let [name, file] = [frame.name, frame.file].map(|it| self.texts.id(from.texts.get(it).as_bytes()));
            numbers.push(self.frames.id(Frame { name, file, line: frame.line }));
        }
        self.id(&numbers)
    }

    /// Returns the numbers of a stack's frames, the innermost first.
    pub fn numbers(&self, id: StackId) -> &[u32] {
        self.runs.get(id.0)
    }

    /// Returns a stack's frames, the innermost first.
    pub fn frames(&self, id: StackId) -> impl DoubleEndedIterator<Item = Frame> {
        self.numbers(id).iter().filter_map(|it| self.frames.get(*it))
    }

    /// Returns the number of different stacks, the empty one included.
    pub fn count(&self) -> usize {
        self.runs.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_kept_once_and_found_by_its_number() {
        let mut stacks = Stacks::default();
        assert_eq!((stacks.texts.id(b""), stacks.id(&[]), stacks.count()), (TextId(0), StackId(0), 1));
        let ids: Vec<_> = (0..500).map(|it: u32| stacks.texts.id(it.to_string().as_bytes())).collect();
        let again: Vec<_> = (0..500).map(|it: u32| stacks.texts.id(it.to_string().as_bytes())).collect();
        assert_eq!(ids, again);
        assert!((0..500).zip(&ids).all(|(it, id)| stacks.texts.get(*id) == it.to_string()));
        assert_eq!(stacks.texts.get(TextId(77_777)), "");
        let frame = |line| Frame { line, ..Frame::default() };
        let frames: Vec<_> = (0..500).map(|it| stacks.frames.id(frame(it / 2))).collect();
        assert!(frames.iter().zip(0..).all(|(id, it)| stacks.frames.get(*id) == Some(frame(it / 2))));
        assert_eq!(stacks.frames.values().len(), 250);
        let deep = stacks.id(&frames);
        assert_eq!((stacks.id(&frames), stacks.frames(deep).count()), (deep, 500));
        assert_ne!(stacks.id(&frames[..499]), deep);
    }
}
