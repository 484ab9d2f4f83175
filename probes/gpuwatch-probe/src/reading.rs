//! A sample in the queue and in the history: one value of fixed size, copied.

use crate::wire::{Counters, Edge, Parts, Sample, encode_sample};

/// Places for counters; those after [`Counters::NAMES`] are reserved for later ones.
pub const SLOTS: usize = 24;

/// Places of what is counted of weights, gradients and optimizer state: no counters of the allocator's, and only in
/// the samples at whose instant they were counted.
pub(crate) const PARTS: [usize; 3] = [SLOTS - 3, SLOTS - 2, SLOTS - 1];

const _: () = assert!(Counters::NAMES.len() <= PARTS[0], "every counter has a place");

const ALLOCATED: usize = Counters::place("allocated");

/// Places of the counters that the probe fills itself.
pub(crate) const DEVICE_FREE: usize = Counters::place("device_free");
pub(crate) const DEVICE_TOTAL: usize = Counters::place("device_total");
pub(crate) const RSS: usize = Counters::place("rss");

/// The counters of one device at one instant, without heap memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// µs of `CLOCK_MONOTONIC`; the probe stamps it.
    pub at_us: u64,
    /// The process's own ordinal of the device.
    pub device: u32,
    /// When in the job's life it was taken.
    pub edge: Edge,
    /// Steps completed, from 1; 0 before the first one.
    pub steps: u64,
    /// Bit `i` is set if `values[i]` is known.
    pub present: u64,
    /// In the order of [`Counters::NAMES`].
    pub values: [u64; SLOTS],
}

impl Reading {
    /// The bits of what is known: counters that have a name, and parts.
    pub const NAMED: u64 = ((1 << Counters::NAMES.len()) - 1) | (7 << PARTS[0]);

    /// Returns the number of completed steps, if any.
    pub fn step(&self) -> Option<u64> {
        (self.steps > 0).then_some(self.steps)
    }

    /// Returns a counter by its place in [`Counters::NAMES`].
    pub fn value(&self, place: usize) -> Option<u64> {
        let known = place < SLOTS && self.present & (1 << place) != 0;
        if known { self.values.get(place).copied() } else { None }
    }

    /// Sets a counter by its place in [`Counters::NAMES`].
    pub fn put(&mut self, place: usize, value: u64) {
        if let Some(slot) = self.values.get_mut(place) {
            *slot = value;
            self.present |= 1 << place;
        }
    }

    /// Becomes a newer reading, which may lack counters that are read once a second only.
    pub(crate) fn update(&mut self, newer: &Self) {
        let older = std::mem::replace(self, *newer);
        for (place, value) in older.values.into_iter().enumerate().take(PARTS[0]) {
            if newer.value(place).is_none() && older.value(place).is_some() {
                self.put(place, value);
            }
        }
    }

    /// Appends the sample's line, directly from its form in the queue.
    pub(crate) fn encode(&self, seq: u64, out: &mut String) {
        let named = Counters::NAMES.iter().enumerate();
        let known = named.filter_map(|(place, name)| Some((*name, self.value(place)?)));
        encode_sample(out, Some(seq), (self.at_us, self.device, self.edge, self.step()), known, self.parts().as_ref());
    }

    /// Returns what the allocated bytes consist of, where that was counted.
    pub fn parts(&self) -> Option<Parts> {
        let [weights, gradients, optimizer] = PARTS.map(|place| self.value(place));
        Parts::of(self.value(ALLOCATED)?, [weights?, gradients?, optimizer?])
    }
}

impl From<&Sample> for Reading {
    fn from(sample: &Sample) -> Self {
        let mut reading = Self {
            at_us: sample.at_us,
            device: sample.device,
            edge: sample.edge,
            steps: sample.step.unwrap_or(0),
            ..Self::default()
        };
        for (place, value) in sample.counters.values().into_iter().enumerate() {
            if let Some(value) = value {
                reading.put(place, value);
            }
        }
        for (place, value) in PARTS.into_iter().zip(sample.parts.iter().flat_map(Parts::values)) {
            reading.put(place, value);
        }
        reading
    }
}
