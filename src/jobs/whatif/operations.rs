//! The operations of a replay as columns, in the form that the Python program reads.

use std::io::{self, Write};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Frees the block of a slot.
    Free {
        /// The index that stands for the block, which later blocks use again.
        slot: u32,
    },
    /// Allocates a block into a slot.
    Allocate {
        /// The index that stands for the block, which later blocks use again.
        slot: u32,
        /// Bytes.
        size: u64,
        /// The stream's index.
        stream: u32,
    },
    /// Requests a block that the recorded run did not get.
    Attempt {
        /// Bytes.
        size: u64,
        /// The stream's index.
        stream: u32,
    },
    /// Releases free segments to the driver.
    Empty,
    /// Peaks are measured from here on.
    Ready,
}

/// A list of operations.
#[derive(Clone, Debug, Default)]
pub(super) struct Operations {
    sizes: Vec<u64>,
    slots: Vec<u32>,
    streams: Vec<u32>,
    kinds: Vec<u8>,
    /// The index of the trace event behind each operation.
    events: Vec<u32>,
    used: u32,
    unused: Vec<u32>,
    last_stream: u32,
}

impl Operations {
    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns an unused slot.
    pub(super) fn slot(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// Appends an operation for an event of the device's trace.
    pub(super) fn push(&mut self, it: Operation, event: usize) {
        let (kind, slot, size, stream) = match it {
            Operation::Free { slot } => {
                self.unused.push(slot);
                (0, slot, 0, 0)
            }
            Operation::Allocate { slot, size, stream } => (1, slot, size, stream),
            Operation::Attempt { size, stream } => (2, 0, size, stream),
            Operation::Empty => (3, 0, 0, 0),
            Operation::Ready => (4, 0, 0, 0),
        };
        self.sizes.push(size);
        self.slots.push(slot);
        self.streams.push(stream);
        self.kinds.push(kind);
        self.events.push(u32::try_from(event).unwrap_or(u32::MAX));
        self.last_stream = self.last_stream.max(stream);
    }

    /// Returns the index of the trace event behind an operation.
    pub(super) fn event(&self, at: usize) -> Option<usize> {
        self.events.get(at).map(|it| *it as usize)
    }

    /// Writes them: their number, the number of slots and of streams, then the columns.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for it in [self.len() as u64, u64::from(self.used), u64::from(self.last_stream) + 1] {
            out.write_all(&it.to_ne_bytes())?;
        }
        self.sizes.iter().try_for_each(|it| out.write_all(&it.to_ne_bytes()))?;
        self.slots.iter().chain(&self.streams).try_for_each(|it| out.write_all(&it.to_ne_bytes()))?;
        out.write_all(&self.kinds)
    }

    /// Returns all operations.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<Operation> {
        let one = |at: usize| {
            let (slot, size, stream) = (self.slots[at], self.sizes[at], self.streams[at]);
            match self.kinds[at] {
                0 => Operation::Free { slot },
                1 => Operation::Allocate { slot, size, stream },
                2 => Operation::Attempt { size, stream },
                3 => Operation::Empty,
                _ => Operation::Ready,
            }
        };
        (0..self.len()).map(one).collect()
    }
}
