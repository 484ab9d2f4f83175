//! What the probe keeps: the history, the latest counters, and the error file for readers that may come too late. It
//! takes them from the queue, into which the job's threads push.
//!
//! Two threads use it: the server's in each turn, and a thread of the job that ran out of memory.

use crate::{
    error_file::ErrorFile,
    history::{BUDGET, History, Note},
    identity,
    reading::{RSS, Reading},
    wire::{self, Line},
};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::Receiver,
    },
};

/// Capacity of the queue: 40,000 samples a second between two turns of an unwatched probe.
pub(crate) const QUEUE: usize = 4096;

/// An entry from the job.
#[expect(clippy::large_enum_variant, reason = "a sample is the rule, and a box would allocate in the hot path")]
pub(crate) enum Entry {
    Sample(Reading),
    Note(Box<Note>),
}

/// What the probe keeps of its job.
pub(crate) struct Store {
    entries: Receiver<Entry>,
    pub(crate) history: History,
    /// Resident host memory, as of the latest second.
    pub(crate) rss: Option<u64>,
    error_file: Option<ErrorFile>,
    /// The latest value of every counter, by device.
    latest: BTreeMap<u32, Reading>,
}

impl Store {
    pub(crate) fn new(entries: Receiver<Entry>) -> Self {
        Self {
            entries,
            history: History::new(BUDGET),
            rss: identity::resident(),
            error_file: None,
            latest: BTreeMap::new(),
        }
    }

    /// Takes the queue's entries, and the number of those it could not take; returns how many entries there were.
    pub(crate) fn take_entries(&mut self, dropped: &AtomicU64, now_us: u64) -> usize {
        let mut taken = 0;
        while taken < QUEUE
            && let Ok(entry) = self.entries.try_recv()
        {
            taken += 1;
            match entry {
                Entry::Sample(mut reading) => {
                    if let Some(rss) = self.rss
                        && reading.value(RSS).is_none()
                    {
                        reading.put(RSS, rss);
                    }
                    self.latest.entry(reading.device).or_default().update(&reading);
                    self.history.sample(reading);
                }
                Entry::Note(note) => self.history.note(*note),
            }
        }
        let samples = dropped.swap(0, Ordering::Relaxed);
        if samples > 0 {
            self.history.note(Line::Lost(wire::Lost { at_us: now_us, samples, ..wire::Lost::default() }));
        }
        taken
    }

    /// Returns the latest counters of a device; without a number, of the first one that has some.
    pub(crate) fn latest(&self, device: Option<u32>) -> Option<Reading> {
        match device {
            Some(device) => self.latest.get(&device),
            None => self.latest.values().next(),
        }
        .copied()
    }

    /// Returns whether an error file was written.
    pub(crate) fn has_error_file(&self) -> bool {
        self.error_file.is_some()
    }

    /// Removes the error file, because readers have all of it.
    pub(crate) fn remove_error_file(&mut self) {
        if let Some(file) = self.error_file.take() {
            file.remove();
        }
    }

    /// Writes to the file with this name what the error file lacks. `hello` makes its first line when the file is
    /// created.
    pub(crate) fn write_error_file(
        &mut self,
        dir: &Path,
        name: &str,
        hello: impl FnOnce(u64) -> String,
    ) -> io::Result<()> {
        if self.error_file.as_ref().is_none_or(|it| !it.is_there()) {
            let hello = hello(self.history.seq());
            self.error_file = Some(ErrorFile::create(dir, name, hello, &self.history)?);
        }
        self.error_file.as_mut().map_or(Ok(()), |it| it.append(&self.history))
    }
}
