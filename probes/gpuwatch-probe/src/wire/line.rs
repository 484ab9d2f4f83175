//! What several kinds of lines have: a number, a stamp, a device.

use super::Line;

impl Line {
    /// Its sequence number; `None` for lines that are not numbered, and where it was left out.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Sample(it) => it.seq,
            Self::Mark(it) => it.seq,
            Self::Oom(it) => it.seq,
            Self::OomMessage(it) => it.seq,
            Self::Sites(it) => it.seq,
            Self::Lost(it) => it.seq,
            Self::Bye(it) => it.seq,
            Self::Hello(_) | Self::History(_) | Self::Live(_) | Self::Refused(_) | Self::Unknown => None,
        }
    }

    /// When it was made, µs of `CLOCK_MONOTONIC`; `None` for lines that carry no stamp.
    pub fn at_us(&self) -> Option<u64> {
        match self {
            Self::Hello(it) => Some(it.monotonic_us),
            Self::Sample(it) => Some(it.at_us),
            Self::Mark(it) => Some(it.at_us),
            Self::Oom(it) => Some(it.at_us),
            Self::OomMessage(it) => Some(it.at_us),
            Self::Sites(it) => Some(it.at_us),
            Self::Lost(it) => Some(it.at_us),
            Self::Bye(it) => Some(it.at_us),
            Self::History(_) | Self::Live(_) | Self::Refused(_) | Self::Unknown => None,
        }
    }

    /// Every stamp in it, to be moved to another clock.
    pub fn stamps_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let (one, other) = match self {
            Self::Hello(it) => (Some(&mut it.monotonic_us), None),
            Self::Sample(it) => (Some(&mut it.at_us), None),
            Self::Mark(it) => (Some(&mut it.at_us), None),
            Self::Oom(it) => (Some(&mut it.at_us), None),
            Self::OomMessage(it) => (Some(&mut it.at_us), None),
            Self::Sites(it) => (Some(&mut it.at_us), None),
            Self::Lost(it) => (Some(&mut it.at_us), None),
            Self::Bye(it) => (Some(&mut it.at_us), None),
            Self::History(it) => (Some(&mut it.from_us), Some(&mut it.to_us)),
            Self::Live(_) | Self::Refused(_) | Self::Unknown => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// The process's own number of the device that its figures are of.
    pub fn device(&self) -> Option<u32> {
        match self {
            Self::Sample(it) => Some(it.device),
            Self::Oom(it) => Some(it.device),
            _ => None,
        }
    }
}
