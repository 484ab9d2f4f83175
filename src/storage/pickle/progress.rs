//! How much of a file is read.

use crate::facts::units::Bytes;
use std::{
    fmt,
    io::{self, Read},
};

/// Bytes between two reports.
const STEP: u64 = 1 << 20;

/// How much of a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far, before decompression.
    pub read: u64,
    /// The file's size; `None` of a pipe.
    pub total: Option<u64>,
}

impl Progress {
    /// Returns the percentage that is read; `None` of a pipe.
    pub fn percent(self) -> Option<u64> {
        let total = u128::from(self.total?);
        let share = (u128::from(self.read) * 100).checked_div(total).unwrap_or(100).min(100);
        u64::try_from(share).ok()
    }
}

impl fmt::Display for Progress {
    /// Writes `412.0 MiB of 1.00 GiB`, or `412.0 MiB` of a pipe.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, total } = *self;
        match total {
            Some(total) => write!(f, "{} of {}", Bytes(read.min(total)), Bytes(total)),
            None => write!(f, "{}", Bytes(read)),
        }
    }
}

/// Reports while it is read how much of it is read.
pub(super) struct Reporting<R, F> {
    from: R,
    progress: Progress,
    reported: u64,
    report: F,
}

impl<R: Read, F: FnMut(Progress)> Reporting<R, F> {
    pub(super) fn new(from: R, total: Option<u64>, report: F) -> Self {
        Self { from, progress: Progress { read: 0, total }, reported: 0, report }
    }
}

impl<R: Read, F: FnMut(Progress)> Read for Reporting<R, F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buf)?;
        self.progress.read += count as u64;
        if self.progress.read - self.reported >= STEP {
            self.reported = self.progress.read;
            (self.report)(self.progress);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_file_is_reported_once() {
        let bytes = vec![7; 5 * (1 << 20) + 9];
        let mut seen = Vec::new();
        let total = Some(bytes.len() as u64);
        io::copy(&mut Reporting::new(&bytes[..], total, |it: Progress| seen.push(it)), &mut io::sink()).unwrap();
        assert_eq!(seen.iter().map(|it| it.read >> 20).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(seen.iter().all(|it| it.total == total));
        assert_eq!((seen[0].percent(), seen[4].percent()), (Some(19), Some(99)));
    }

    #[test]
    fn a_pipe_has_no_percentage_and_an_empty_file_is_read_at_once() {
        let pipe = Progress { read: 3 << 20, total: None };
        assert_eq!((pipe.percent(), pipe.to_string().as_str()), (None, "3.00 MiB"));
        assert_eq!(Progress { read: 0, total: Some(0) }.percent(), Some(100));
        // A file that grows while it is read.
        let grown = Progress { read: 9 << 20, total: Some(8 << 20) };
        assert_eq!((grown.percent(), grown.to_string().as_str()), (Some(100), "8.00 MiB of 8.00 MiB"));
        assert_eq!(Progress { read: u64::MAX / 2, total: Some(u64::MAX) }.percent(), Some(49));
    }
}
