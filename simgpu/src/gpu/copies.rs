//! What a copy does where no kernel ever computes anything.
//!
//! Small copies are stored; large ones are not, because nothing was computed that they could carry. A read of a few
//! bytes (`item()`, the counts that `nonzero` reads back, `found_inf`) is zero, unless exactly these bytes were copied
//! in and no kernel was launched since. So a program's control flow does not depend on what nobody computed.

use super::{process::process, sys};
use std::collections::HashSet;

/// Bytes above which a copy's contents are not kept.
const STORED: usize = 1 << 20;
/// Bytes up to which a read decides about control flow, rather than about numbers.
const SCALAR: usize = 16;
const REMEMBERED: usize = 4096;
const PAGE: usize = 4096;

#[derive(Default)]
pub(super) struct Copies {
    launches: u64,
    /// The addresses of scalars that were copied in when the launches stood at `at`.
    fresh: HashSet<usize>,
    at: u64,
}

impl Copies {
    /// A kernel, or a library call that stands for one, may have written anything.
    pub(super) fn launched(&mut self) {
        self.launches += 1;
    }

    fn is_fresh(&self, address: usize) -> bool {
        self.at == self.launches && self.fresh.contains(&address)
    }

    fn note(&mut self, address: usize) {
        if self.at != self.launches || self.fresh.len() >= REMEMBERED {
            self.fresh.clear();
            self.at = self.launches;
        }
        self.fresh.insert(address);
    }
}

enum Effect {
    Nothing,
    Zero,
    Copy,
}

/// Copies between any two of host and device.
pub(super) fn copy(to: usize, from: usize, len: usize) {
    if len == 0 {
        return;
    }
    match effect(to, from, len) {
        Effect::Nothing => {}
        Effect::Zero => sys::fill(to, 0, len),
        Effect::Copy => sys::copy(to, from, len),
    }
}

fn effect(to: usize, from: usize, len: usize) -> Effect {
    let mut process = process();
    let (into_device, from_device) = (process.ranges.on_device(to), process.ranges.on_device(from));
    let fresh = process.copies.is_fresh(from);
    if from_device && !into_device {
        return if len > STORED || (len <= SCALAR && !fresh) { Effect::Zero } else { Effect::Copy };
    }
    if into_device && len > STORED {
        return Effect::Nothing;
    }
    if into_device && len <= SCALAR && (!from_device || fresh) {
        process.copies.note(to);
    }
    Effect::Copy
}

/// Fills memory of host or device.
pub(super) fn fill(at: usize, byte: u8, len: usize) {
    let on_device = process().ranges.on_device(at);
    if on_device && len > STORED {
        return;
    }
    if on_device && byte == 0 && len > PAGE {
        let (first, end) = (at.next_multiple_of(PAGE), (at + len) / PAGE * PAGE);
        sys::fill(at, 0, first - at);
        sys::forget(first, end - first);
        sys::fill(end, 0, at + len - end);
    } else {
        sys::fill(at, byte, len);
    }
}
