//! Limits of every text and list on a line: writers keep to them, and readers cut to them.
//!
//! A cut text ends in `… 1,048,000 bytes omitted`. With these limits one line takes no more than 300 KiB of memory,
//! whatever its sender wrote.

use std::borrow::Cow;

/// Most bytes of other texts.
pub const TEXT_MAX: usize = 4096;

/// Most bytes of names from the job: marks, reasons.
pub const NAME_MAX: usize = 2048;

/// Most bytes of a framework's message.
pub const MESSAGE_MAX: usize = 16 * 1024;

/// Most bytes of a whole command line, and of one argument.
pub const ARGV_MAX: usize = 32 * 1024;
/// See [`ARGV_MAX`].
pub const ARGUMENTS_MAX: usize = 4096;

/// Most devices of a process.
pub const DEVICES_MAX: usize = 64;

/// Most bytes of a device's name or UUID.
pub const DEVICE_TEXT_MAX: usize = 256;

/// Most bytes of one text in an answer to `sites`.
pub const SITE_TEXT_MAX: usize = 240;

/// Most bytes of all texts in an answer to `sites`; later sites are dropped.
pub const ACCOUNT_MAX: usize = 128 * 1024;

/// Room for the note about omitted text.
const NOTE: usize = 64;

/// Cuts a text that is much longer than a limit and adds how much is missing; leaves a text that was cut before
/// unchanged.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit + NOTE {
        return Cow::Borrowed(text);
    }
    let end = (0..=limit).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
    let (kept, left) = text.split_at(end);
    Cow::Owned(format!("{kept}… {} bytes omitted", grouped(left.len() as u64)))
}

/// Cuts arguments to limits of bytes and number; the last one is the number of missing ones.
pub fn arguments(all: impl IntoIterator<Item = String>, bytes_max: usize, count_max: usize) -> Vec<String> {
    let (mut kept, mut bytes, mut left) = (Vec::new(), 0, 0_u64);
    for it in all {
        bytes += it.len();
        // One more than the limit, because the note is an argument itself.
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

/// Formats a number with separators: `1,048,000`.
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

/// Limits for deserialising. Each function is a `deserialize_with`.
#[cfg(feature = "serde")]
mod arriving {
    use super::shortened;
    use serde::{
        Deserialize, Deserializer,
        de::{DeserializeSeed, Error, IgnoredAny, SeqAccess, Visitor},
    };
    use std::{fmt, marker::PhantomData};

    /// Reads a text of at most about `LIMIT` bytes.
    ///
    /// # Errors
    /// Fails if it is not a text.
    pub fn text<'de, D: Deserializer<'de>, const LIMIT: usize>(from: D) -> Result<String, D::Error> {
        Text::<LIMIT>.deserialize(from)
    }

    /// The same for an optional text.
    ///
    /// # Errors
    /// Fails if it is not a text.
    pub fn some_text<'de, D: Deserializer<'de>, const LIMIT: usize>(from: D) -> Result<Option<String>, D::Error> {
        from.deserialize_option(MaybeText::<LIMIT>)
    }

    /// Reads the first `MOST` items of a list.
    ///
    /// # Errors
    /// Fails if it is not a list of them.
    pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(List { most: MOST, weigh: |_| 0, item: PhantomData })
    }

    /// Reads the first items of a list, until their total weight reaches [`super::ACCOUNT_MAX`].
    ///
    /// # Errors
    /// Fails if it is not a list of them.
    pub fn weighed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        from: D,
        most: usize,
        weigh: fn(&T) -> usize,
    ) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(List { most, weigh, item: PhantomData })
    }

    /// Reads a command line.
    ///
    /// # Errors
    /// Fails if it is not a list of texts.
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
    fn a_cut_text_reports_how_much_is_missing_and_is_not_cut_again() {
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
