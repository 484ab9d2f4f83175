//! How much of every text and list a line may carry: what is written keeps to it, and what arrives is cut to it.
//!
//! A cut text ends in `… 1,048,000 bytes omitted`. With these limits one line takes no more than 300 KiB of memory,
//! whatever its sender wrote.

use std::borrow::Cow;

/// Bytes of a text of no other kind.
pub const TEXT_MAX: usize = 4096;

/// Bytes of what a job names: marks, reasons.
pub const NAME_MAX: usize = 2048;

/// Bytes of a framework's message.
pub const MESSAGE_MAX: usize = 16 * 1024;

/// Bytes of a command line together, its arguments, and bytes of one of them.
pub const ARGV_MAX: usize = 32 * 1024;
/// See [`ARGV_MAX`].
pub const ARGUMENTS_MAX: usize = 4096;

/// Devices that a process may name.
pub const DEVICES_MAX: usize = 64;

/// Bytes of a device's name or UUID.
pub const DEVICE_TEXT_MAX: usize = 256;

/// Bytes of one text of an account of sites.
pub const SITE_TEXT_MAX: usize = 240;

/// Bytes of all texts of an account of sites, after which no further site is taken.
pub const ACCOUNT_MAX: usize = 128 * 1024;

/// Room for the words that say what was cut.
const NOTE: usize = 64;

/// The text within a limit. What is much longer is cut, and its end says how much is missing; a text that was cut
/// before stays as it is.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit + NOTE {
        return Cow::Borrowed(text);
    }
    let end = (0..=limit).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
    let (kept, left) = text.split_at(end);
    Cow::Owned(format!("{kept}… {} bytes omitted", grouped(left.len() as u64)))
}

/// The arguments within a limit of bytes and of their number; the last one says how many are missing.
pub fn arguments(all: impl IntoIterator<Item = String>, bytes_max: usize, count_max: usize) -> Vec<String> {
    let (mut kept, mut bytes, mut left) = (Vec::new(), 0, 0_u64);
    for it in all {
        bytes += it.len();
        // One more than the limit, as the words below are one themselves.
        if bytes <= bytes_max + NOTE && kept.len() <= count_max && left == 0 {
            kept.push(it);
        } else {
            left += 1;
        }
    }
    if left > 0 {
        let mut bytes: usize = kept.iter().map(String::len).sum();
        while bytes > bytes_max || kept.len() > count_max {
            bytes -= kept.pop().map_or(bytes, |it| it.len());
            left += 1;
        }
        kept.push(format!("… {} arguments omitted", grouped(left)));
    }
    kept
}

/// A number with its thousands apart: `1,048,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Taking from the wire no more than that. Each function is a `deserialize_with`.
#[cfg(feature = "serde")]
mod arriving {
    use super::shortened;
    use serde::{
        Deserialize, Deserializer,
        de::{DeserializeSeed, Error, IgnoredAny, SeqAccess, Visitor},
    };
    use std::{fmt, marker::PhantomData};

    /// A text of no more than about `LIMIT` bytes.
    ///
    /// # Errors
    /// When it is no text.
    pub fn text<'de, D: Deserializer<'de>, const LIMIT: usize>(from: D) -> Result<String, D::Error> {
        Text::<LIMIT>.deserialize(from)
    }

    /// The same, where there may be none.
    ///
    /// # Errors
    /// When it is no text.
    pub fn some_text<'de, D: Deserializer<'de>, const LIMIT: usize>(from: D) -> Result<Option<String>, D::Error> {
        from.deserialize_option(MaybeText::<LIMIT>)
    }

    /// The first `MOST` items of a list.
    ///
    /// # Errors
    /// When it is no list of them.
    pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(List { most: MOST, weigh: |_| 0, item: PhantomData })
    }

    /// The first items of a list, as long as all before them weigh less than [`super::ACCOUNT_MAX`].
    ///
    /// # Errors
    /// When it is no list of them.
    pub fn weighed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        from: D,
        most: usize,
        weigh: fn(&T) -> usize,
    ) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(List { most, weigh, item: PhantomData })
    }

    /// A command line.
    ///
    /// # Errors
    /// When it is no list of texts.
    pub fn argv<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        from.deserialize_seq(Argv)
    }

    struct Text<const LIMIT: usize>;

    impl<'de, const LIMIT: usize> DeserializeSeed<'de> for Text<LIMIT> {
        type Value = String;

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
            from.deserialize_str(self)
        }
    }

    impl<const LIMIT: usize> Visitor<'_> for Text<LIMIT> {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(shortened(text, LIMIT).into_owned())
        }
    }

    struct MaybeText<const LIMIT: usize>;

    impl<'de, const LIMIT: usize> Visitor<'de> for MaybeText<LIMIT> {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a string or nothing")
        }

        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            Text::<LIMIT>.deserialize(from).map(Some)
        }
    }

    struct List<T> {
        most: usize,
        weigh: fn(&T) -> usize,
        item: PhantomData<T>,
    }

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let (mut kept, mut weight) = (Vec::new(), 0);
            while kept.len() < self.most && weight <= super::ACCOUNT_MAX {
                let Some(item) = items.next_element()? else { return Ok(kept) };
                weight += (self.weigh)(&item);
                kept.push(item);
            }
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }

    struct Argv;

    impl<'de> Visitor<'de> for Argv {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list of strings")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<String>, A::Error> {
            let mut fault = None;
            let next = || match items.next_element_seed(Text::<{ super::TEXT_MAX }>) {
                Ok(item) => item,
                Err(e) => {
                    fault = Some(e);
                    None
                }
            };
            let kept = super::arguments(std::iter::from_fn(next), super::ARGV_MAX, super::ARGUMENTS_MAX);
            fault.map_or(Ok(kept), Err)
        }
    }
}

#[cfg(feature = "serde")]
pub use arriving::{argv, list, some_text, text, weighed};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_says_how_much_is_missing_and_is_not_cut_again() {
        assert_eq!(shortened("short", 2), "short", "the words would be longer than what they stand for");
        let long = "é".repeat(524_000);
        let cut = shortened(&long, 1001);
        assert!(cut.starts_with("éé") && cut.ends_with("é… 1,047,000 bytes omitted"), "{cut}");
        assert_eq!(shortened(&cut, 1001), cut);
    }

    #[test]
    fn arguments_are_cut_in_number_and_in_bytes_and_only_once() {
        let words = |count: usize, each: usize| vec!["x".repeat(each); count];
        assert_eq!(arguments(words(3, 5), 100, 3), words(3, 5));
        let many = arguments(words(5000, 1), 1 << 20, 100);
        assert_eq!((many.len(), many.last().unwrap().as_str()), (101, "… 4,900 arguments omitted"));
        assert_eq!(arguments(many.clone(), 1 << 20, 100), many);
        let heavy = arguments(words(50, 300), 1000, 100);
        assert_eq!((heavy.len(), heavy.last().unwrap().as_str()), (4, "… 47 arguments omitted"));
        assert_eq!(arguments(heavy.clone(), 1000, 100), heavy);
    }
}
