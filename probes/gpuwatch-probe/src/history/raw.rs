//! The latest samples, all of them: differences to the device's previous sample, in chunks dropped from the front.
//!
//! A sample is: distance in seq, distance in time, device, edge, difference in steps, the mask of known
//! counters if it changed, the mask of changed counters, their differences. Most counters stand still from
//! step to step, so that a sample takes some 20 to 40 bytes instead of 224.

use crate::{
    reading::{Reading, SLOTS},
    wire::Edge,
};
use std::collections::VecDeque;

const CHUNK_BYTES: usize = 16 * 1024;

pub(super) struct Raw {
    budget: usize,
    bytes: usize,
    chunks: VecDeque<Chunk>,
    /// Numbers of the next chunk and the next sample, over the whole run.
    next_chunk: u64,
    next_sample: u64,
    state: State,
}

struct Chunk {
    number: u64,
    first_sample: u64,
    first_seq: u64,
    first_at_us: u64,
    bytes: Vec<u8>,
}

/// The base of differences: zero at a chunk's start.
#[derive(Clone, Default)]
struct State {
    seq: u64,
    at_us: u64,
    devices: Vec<Reading>,
}

/// A viewer's position.
#[derive(Clone)]
pub(super) struct Position {
    chunk: u64,
    offset: usize,
    sample: u64,
    state: State,
}

/// The result of reading at a position.
#[expect(clippy::large_enum_variant, reason = "a sample is the rule, and a box for each would cost more")]
pub(super) enum Next {
    Sample(u64, Reading),
    /// This many samples are gone.
    Lost(u64),
    UpToDate,
}

impl Raw {
    pub(super) fn new(budget: usize) -> Self {
        let state = State::default();
        Self { budget, bytes: 0, chunks: VecDeque::new(), next_chunk: 0, next_sample: 0, state }
    }

    pub(super) fn push(&mut self, seq: u64, reading: &Reading) {
        if self.chunks.back().is_none_or(|it| it.bytes.len() >= CHUNK_BYTES) {
            self.open_chunk(seq, reading.at_us);
        }
        if let Some(chunk) = self.chunks.back_mut() {
            let before = chunk.bytes.len();
            self.state.write(seq, reading, &mut chunk.bytes);
            self.bytes += chunk.bytes.len() - before;
            self.next_sample += 1;
        }
        while self.bytes > self.budget && self.chunks.len() > 1 {
            self.bytes -= self.chunks.pop_front().map_or(0, |it| it.bytes.len());
        }
    }

    fn open_chunk(&mut self, seq: u64, at_us: u64) {
        self.state = State { seq, at_us, devices: Vec::new() };
        self.chunks.push_back(Chunk {
            number: self.next_chunk,
            first_sample: self.next_sample,
            first_seq: seq,
            first_at_us: at_us,
            bytes: Vec::with_capacity(CHUNK_BYTES + 512),
        });
        self.next_chunk += 1;
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|it| it.bytes.capacity()).sum()
    }

    /// Returns sequence number and stamp of the first sample that is still here.
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.chunks.front().map(|it| (it.first_seq, it.first_at_us))
    }

    /// Returns a position before every remaining sample at or after `seq`; some earlier ones may follow it.
    pub(super) fn position(&self, seq: u64) -> Position {
        let index = self.chunks.partition_point(|it| it.first_seq <= seq).saturating_sub(1);
        match self.chunks.get(index) {
            Some(chunk) => Position::at(chunk),
            None => Position { chunk: self.next_chunk, offset: 0, sample: self.next_sample, state: State::default() },
        }
    }

    /// Returns the sample at a position and advances it.
    pub(super) fn next(&self, position: &mut Position) -> Next {
        let Some(first) = self.chunks.front() else { return Next::UpToDate };
        if position.chunk < first.number {
            let lost = first.first_sample.saturating_sub(position.sample);
            *position = Position::at(first);
            return Next::Lost(lost);
        }
        loop {
            let index = usize::try_from(position.chunk - first.number).unwrap_or(usize::MAX);
            let Some(chunk) = self.chunks.get(index) else { return Next::UpToDate };
            if position.offset == 0 {
                *position = Position::at(chunk);
            }
            let mut rest = chunk.bytes.get(position.offset..).unwrap_or_default();
            if !rest.is_empty() {
                let Some(reading) = position.state.read(&mut rest) else { return Next::UpToDate };
                position.offset = chunk.bytes.len() - rest.len();
                position.sample += 1;
                return Next::Sample(position.state.seq, reading);
            }
            if index + 1 >= self.chunks.len() {
                return Next::UpToDate;
            }
            position.chunk += 1;
            position.offset = 0;
        }
    }
}

impl Position {
    fn at(chunk: &Chunk) -> Self {
        let state = State { seq: chunk.first_seq, at_us: chunk.first_at_us, devices: Vec::new() };
        Self { chunk: chunk.number, offset: 0, sample: chunk.first_sample, state }
    }
}

impl State {
    /// Returns the device's previous sample, all zeros at its first.
    fn device(&mut self, device: u32) -> &mut Reading {
        let index = self.devices.iter().position(|it| it.device == device).unwrap_or(self.devices.len());
        if index == self.devices.len() {
            self.devices.push(Reading { device, ..Reading::default() });
        }
        &mut self.devices[index]
    }

    fn write(&mut self, seq: u64, reading: &Reading, out: &mut Vec<u8>) {
        put(seq.wrapping_sub(self.seq), out);
        put(reading.at_us.wrapping_sub(self.at_us), out);
        (self.seq, self.at_us) = (seq, reading.at_us);
        put(reading.device.into(), out);
        let before = self.device(reading.device);
        let new_mask = reading.present != before.present;
        put(edge_code(reading.edge) | (u64::from(new_mask) << 2), out);
        put_difference(reading.steps, before.steps, out);
        if new_mask {
            put(reading.present, out);
        }
        let mut changed = 0_u64;
        for place in 0..SLOTS {
            let known = reading.present & (1 << place) != 0;
            changed |= u64::from(known && reading.values[place] != before.values[place]) << place;
        }
        put(changed, out);
        for place in 0..SLOTS {
            if changed & (1 << place) != 0 {
                put_difference(reading.values[place], before.values[place], out);
                before.values[place] = reading.values[place];
            }
        }
        (before.steps, before.present) = (reading.steps, reading.present);
    }

    /// Returns `None` if the bytes end early, which written ones do not.
    fn read(&mut self, bytes: &mut &[u8]) -> Option<Reading> {
        let seq = self.seq.wrapping_add(take(bytes)?);
        let at_us = self.at_us.wrapping_add(take(bytes)?);
        let device = u32::try_from(take(bytes)?).ok()?;
        let head = take(bytes)?;
        let before = self.device(device);
        before.steps = take_difference(bytes, before.steps)?;
        if head & 4 != 0 {
            before.present = take(bytes)?;
        }
        let changed = take(bytes)?;
        for (place, value) in before.values.iter_mut().enumerate() {
            if changed & (1 << place) != 0 {
                *value = take_difference(bytes, *value)?;
            }
        }
        (before.at_us, before.edge) = (at_us, edge_of(head & 3));
        let mut reading = *before;
        for (place, value) in reading.values.iter_mut().enumerate() {
            if reading.present & (1 << place) == 0 {
                *value = 0;
            }
        }
        (self.seq, self.at_us) = (seq, at_us);
        Some(reading)
    }
}

fn edge_code(edge: Edge) -> u64 {
    match edge {
        Edge::Step => 0,
        Edge::Tick => 1,
        Edge::Call => 2,
    }
}

fn edge_of(code: u64) -> Edge {
    match code {
        0 => Edge::Step,
        2 => Edge::Call,
        _ => Edge::Tick,
    }
}

/// LEB128: seven bits a byte, the low ones first.
fn put(mut value: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A signed difference with its sign in the lowest bit, so that small falls are short too.
fn put_difference(now: u64, before: u64, out: &mut Vec<u8>) {
    let difference = now.wrapping_sub(before).cast_signed();
    put(((difference << 1) ^ (difference >> 63)).cast_unsigned(), out);
}

fn take_difference(bytes: &mut &[u8], before: u64) -> Option<u64> {
    let code = take(bytes)?;
    Some(before.wrapping_add((code >> 1) ^ (code & 1).wrapping_neg()))
}
