//! Fields that several kinds of lines share: a number, a stamp, a device.

use super::Line;

impl Line {
    /// Returns its sequence number; `None` if it has none.
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

    /// Returns its stamp, µs of `CLOCK_MONOTONIC`; `None` if it has none.
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

    /// Returns every stamp in it, to convert it to another clock.
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

    /// Returns the process's ordinal of the device that its figures belong to.
    pub fn device(&self) -> Option<u32> {
        match self {
            Self::Sample(it) => Some(it.device),
            Self::Oom(it) => Some(it.device),
            _ => None,
        }
    }
}
