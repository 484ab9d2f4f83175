//! Rows of numbers, oldest first, each kept as its differences from the row before.
//!
//! Most of a session's memory is what it remembers of each process, and neighbouring rows of that differ little or not
//! at all: a row takes a fifth to a tenth of its own size, without loss. For each row a mask names the numbers that
//! differ, and their differences follow, small ones in one byte (LEB128, negative ones interleaved with positive ones).
//! The newest row is unpacked, because it may still change. The others can only be read from the oldest on.

use serde::{Deserialize, Serialize};
use std::array;

/// Most numbers of a row: a mask has a bit for each.
const MOST: usize = 48;

/// Bytes that are added at once, at least.
const ROOM: usize = 192;

/// A row as numbers and back, without loss. The fewer of them differ from row to row, and the less, the smaller it is.
pub trait Numbers<const N: usize>: Copy {
    /// Returns the row's numbers.
    fn numbers(&self) -> [u64; N];

    /// Returns the row with these numbers.
    fn of_numbers(numbers: &[u64; N]) -> Self;
}

/// Returns so many of these numbers, with 0 for each one that is missing.
pub fn numbers<const N: usize>(these: impl IntoIterator<Item = u64>) -> [u64; N] {
    let mut these = these.into_iter();
    array::from_fn(|_| these.next().unwrap_or(0))
}

/// Rows of `N` numbers each, at most 48.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Numbers<N> + Serialize", deserialize = "T: Numbers<N> + Deserialize<'de>"))]
#[serde(into = "Vec<T>", from = "Vec<T>")]
pub struct Packed<T, const N: usize> {
    /// The numbers of the row that was dropped last; 0 if none was.
    before: [u64; N],
    /// All rows but the newest, after those that were dropped: bytes up to `from`.
    bytes: Vec<u8>,
    from: usize,
    rows: usize,
    /// The numbers of the last of them.
    last: [u64; N],
    newest: Option<T>,
}

impl<T, const N: usize> Default for Packed<T, N> {
    fn default() -> Self {
        const { assert!(N <= MOST) };
        Self { before: [0; N], bytes: Vec::new(), from: 0, rows: 0, last: [0; N], newest: None }
    }
}

impl<T: Numbers<N>, const N: usize> Packed<T, N> {
    /// Adds a row.
    pub fn push(&mut self, row: T) {
        let Some(before) = self.newest.replace(row) else { return };
        let numbers = before.numbers();
        let moves: [u64; N] = array::from_fn(|place| {
            let difference = numbers[place].wrapping_sub(self.last[place]);
            difference << 1 ^ (difference >> 63).wrapping_neg()
        });
        let mask = moves.iter().rev().fold(0, |mask, it| mask << 1 | u64::from(*it != 0));
        let differing = || moves.into_iter().filter(|it| *it != 0);
        self.make_room([mask].into_iter().chain(differing()).map(size).sum());
        [mask].into_iter().chain(differing()).for_each(|it| self.number(it));
        self.last = numbers;
        self.rows += 1;
    }

    /// Adds a row and drops the oldest if there are `most`. Returns whether it did.
    pub fn push_within(&mut self, most: usize, row: T) -> bool {
        let is_full = self.len() >= most;
        if is_full {
            self.drop_oldest();
        }
        self.push(row);
        is_full
    }

    /// Writes a number as seven bits a byte, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            let [low, ..] = number.to_le_bytes();
            self.bytes.push(low | 0x80);
            number >>= 7;
        }
        let [low, ..] = number.to_le_bytes();
        self.bytes.push(low);
    }

    fn drop_oldest(&mut self) {
        if self.rows == 0 {
            self.newest = None;
            return;
        }
        let mut left = self.bytes.get(self.from..).unwrap_or_default();
        add(&mut self.before, &mut left);
        self.from = self.bytes.len() - left.len();
        self.rows -= 1;
    }

    /// Returns the rows, oldest first.
    pub fn iter(&self) -> Rows<'_, T, N> {
        let bytes = self.bytes.get(self.from..).unwrap_or_default();
        Rows { bytes, left: self.rows, numbers: self.before, newest: self.newest }
    }

    /// Returns the oldest row.
    pub fn oldest(&self) -> Option<T> {
        self.iter().next()
    }

    /// Returns the newest row.
    pub fn newest(&self) -> Option<&T> {
        self.newest.as_ref()
    }

    /// Returns the newest row, which may be changed.
    pub fn newest_mut(&mut self) -> Option<&mut T> {
        self.newest.as_mut()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows + usize::from(self.newest.is_some())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// Returns the bytes of memory that it takes beside itself.
    pub fn heap(&self) -> usize {
        self.bytes.capacity()
    }

    /// Grows by an eighth, because doubling would leave a third of the memory of all histories empty.
    fn make_room(&mut self, bytes: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.bytes.drain(..std::mem::take(&mut self.from));
            let more = bytes.max(self.bytes.len() / 8).max(ROOM);
            if self.bytes.capacity() - self.bytes.len() < bytes.max(more / 2) {
                self.bytes.reserve_exact(more);
            }
        }
    }
}

impl<T: Numbers<N>, const N: usize> FromIterator<T> for Packed<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        let mut all = Self::default();
        rows.into_iter().for_each(|it| all.push(it));
        all
    }
}

impl<T: Numbers<N>, const N: usize> From<Vec<T>> for Packed<T, N> {
    fn from(rows: Vec<T>) -> Self {
        rows.into_iter().collect()
    }
}

impl<T: Numbers<N>, const N: usize> From<Packed<T, N>> for Vec<T> {
    fn from(packed: Packed<T, N>) -> Self {
        packed.iter().collect()
    }
}

impl<T: Numbers<N> + PartialEq, const N: usize> PartialEq for Packed<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Numbers<N> + Eq, const N: usize> Eq for Packed<T, N> {}

impl<'a, T: Numbers<N>, const N: usize> IntoIterator for &'a Packed<T, N> {
    type Item = T;
    type IntoIter = Rows<'a, T, N>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Unpacked rows, oldest first.
#[derive(Clone, Debug)]
pub struct Rows<'a, T, const N: usize> {
    bytes: &'a [u8],
    left: usize,
    numbers: [u64; N],
    newest: Option<T>,
}

impl<T: Numbers<N>, const N: usize> Iterator for Rows<'_, T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.left == 0 {
            return self.newest.take();
        }
        self.left -= 1;
        add(&mut self.numbers, &mut self.bytes);
        Some(T::of_numbers(&self.numbers))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let all = self.left + usize::from(self.newest.is_some());
        (all, Some(all))
    }
}

impl<T: Numbers<N>, const N: usize> ExactSizeIterator for Rows<'_, T, N> {}

/// Adds the differences of the next row.
fn add(numbers: &mut [u64], bytes: &mut &[u8]) {
    let mut mask = number(bytes);
    while mask != 0 {
        let place = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let folded = number(bytes);
        let difference = folded >> 1 ^ (folded & 1).wrapping_neg();
        numbers[place] = numbers[place].wrapping_add(difference);
    }
}

/// Returns how many bytes a number takes.
fn size(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Reads a number.
fn number(bytes: &mut &[u8]) -> u64 {
    if let [byte @ ..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return u64::from(*byte);
    }
    let (mut value, mut place) = (0, 0_u32);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << place.min(63);
        place += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    struct Three(u64, u64, u64);

    impl Numbers<3> for Three {
        fn numbers(&self) -> [u64; 3] {
            [self.0, self.1, self.2]
        }

        fn of_numbers(&[one, two, three]: &[u64; 3]) -> Self {
            Self(one, two, three)
        }
    }

    /// Numbers of every size, and such that hardly differ.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0_u64..4, Just(u64::MAX), (0..64_u32).prop_map(|bit| 1 << bit)]
    }

    proptest! {
        #[test]
        fn rows_are_as_they_were(
            rows in prop::collection::vec((any_number(), any_number(), any_number()), 0..200),
            most in 1_usize..60,
            new in any_number(),
        ) {
            let (mut packed, mut plain) = (Packed::<Three, 3>::default(), VecDeque::new());
            for (one, two, three) in rows {
                prop_assert_eq!(packed.push_within(most, Three(one, two, three)), plain.len() == most);
                if plain.len() == most {
                    plain.pop_front();
                }
                plain.push_back(Three(one, two, three));
            }
            if let (Some(it), Some(same)) = (packed.newest_mut(), plain.back_mut()) {
                (it.1, same.1) = (new, new);
            }
            prop_assert_eq!((packed.len(), packed.iter().len()), (plain.len(), plain.len()));
            prop_assert_eq!(packed.iter().collect::<VecDeque<_>>(), plain.clone());
            prop_assert_eq!((packed.oldest(), packed.newest()), (plain.front().copied(), plain.back()));
            let json = serde_json::to_string(&packed).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&plain).unwrap());
            prop_assert_eq!(serde_json::from_str::<Packed<Three, 3>>(&json).unwrap(), packed);
        }
    }

    #[test]
    fn the_largest_row_has_room_and_a_usual_one_is_small() {
        #[derive(Clone, Copy)]
        struct Wide([u64; MOST]);
        impl Numbers<MOST> for Wide {
            fn numbers(&self) -> [u64; MOST] {
                self.0
            }
            fn of_numbers(numbers: &[u64; MOST]) -> Self {
                Self(*numbers)
            }
        }
        let far = |row: u64| Wide([if row.is_multiple_of(2) { 0 } else { 1 << 63 }; MOST]);
        let all: Packed<Wide, MOST> = (0..9).map(far).collect();
        assert!(all.iter().zip(0..9).all(|(it, row)| it.0 == far(row).0));
        let usual: Packed<Three, 3> = (0..1000).map(|row| Three(row, row * 20_000, 8 << 30)).collect();
        assert!(usual.heap() < 1000 * size_of::<Three>() / 4, "{}", usual.heap());
    }
}
