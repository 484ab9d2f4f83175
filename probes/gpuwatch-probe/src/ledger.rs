//! The contents of the queue after it is emptied: the history, and the spill for readers that may come too late.
//!
//! Two threads use it: the server's in each turn, and a thread of the job that ran out of memory.

use crate::{
    history::{BUDGET, History},
    identity,
    queue::{Entry, QUEUE},
    reading::{RSS, Reading},
    spill::Spill,
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

pub(crate) struct Ledger {
    entries: Receiver<Entry>,
    pub(crate) history: History,
    /// Resident host memory, as of the latest second.
    pub(crate) rss: Option<u64>,
    spill: Option<Spill>,
    /// The latest value of every counter, by device.
    latest: BTreeMap<u32, Reading>,
}

impl Ledger {
    pub(crate) fn new(entries: Receiver<Entry>) -> Self {
        Self { entries, history: History::new(BUDGET), rss: identity::resident(), spill: None, latest: BTreeMap::new() }
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

    /// Returns whether something was spilled.
    pub(crate) fn has_spilled(&self) -> bool {
        self.spill.is_some()
    }

    /// Removes the spill, because readers have all of it.
    pub(crate) fn drop_spill(&mut self) {
        if let Some(spill) = self.spill.take() {
            spill.remove();
        }
    }

    /// Writes to the file with this name what the spill lacks. `hello` makes its first line when the file is created.
    pub(crate) fn write_spill(&mut self, dir: &Path, name: &str, hello: impl FnOnce(u64) -> String) -> io::Result<()> {
        if self.spill.as_ref().is_none_or(|it| !it.is_there()) {
            let hello = hello(self.history.seq());
            self.spill = Some(Spill::create(dir, name, hello, &self.history)?);
        }
        self.spill.as_mut().map_or(Ok(()), |it| it.append(&self.history))
    }
}
