//! The effect of a copy where no kernel computes anything.
//!
//! Small copies are stored; large ones are not, because nothing was computed that they could carry. A read of a few
//! bytes (`item()`, the counts that `nonzero` reads back, `found_inf`) returns what the program's watcher answers, or
//! zero, unless these bytes were copied in and no kernel was launched since. So the control flow of a program never
//! depends on values that were not computed.

use super::{
    contents::{self, Place},
    process::process,
    sys,
    watch::{self, Seen},
};

/// Bytes above which a copy's contents are not kept.
pub(super) const STORED: usize = 1 << 20;
/// Bytes up to which a read decides about control flow, rather than about numbers.
const SCALAR: usize = 16;

/// The result of a copy.
enum Effect {
    Nothing,
    Zero,
    Store(Option<Place>),
    /// What is stored, and whether it is what was copied in.
    Load(Option<Place>, bool),
    Transfer(Option<Place>, Option<Place>),
    Host,
}

/// Copies between any two of host and device.
pub(super) fn copy(to: usize, from: usize, len: usize) {
    if len == 0 {
        return;
    }
    match effect(to, from, len) {
        Effect::Nothing => {}
        Effect::Zero => {
            sys::fill(to, 0, len);
            let answer = watch::report(Seen::Read, || len.to_string()).to_le_bytes();
            if len <= SCALAR {
                sys::copy(to, answer.as_ptr() as usize, len.min(answer.len()));
            }
        }
        Effect::Store(place) => contents::store(place, from, len),
        Effect::Load(place, is_known) => {
            contents::load(to, place, len);
            if !is_known {
                watch::report(Seen::Read, || len.to_string());
            }
        }
        Effect::Transfer(place, source) => contents::transfer(place, source, len),
        Effect::Host => sys::copy(to, from, len),
    }
}

fn effect(to: usize, from: usize, len: usize) -> Effect {
    let mut process = process();
    let (into_device, from_device) = (process.ranges.on_device(to), process.ranges.on_device(from));
    let fresh = !from_device || process.copies.is_fresh(from, len);
    if into_device {
        process.copies.written(to, len, fresh && len <= STORED);
    }
    let contents = &mut process.contents;
    match (into_device, from_device) {
        (false, false) => Effect::Host,
        (false, true) if len > STORED || (len <= SCALAR && !fresh) => Effect::Zero,
        (false, true) => Effect::Load(contents.place(from), fresh),
        (true, _) if len > STORED => Effect::Nothing,
        (true, false) => Effect::Store(contents.place(to)),
        (true, true) => Effect::Transfer(contents.place(to), contents.place(from)),
    }
}

/// Fills memory of host or device.
pub(super) fn fill(at: usize, byte: u8, len: usize) {
    let mut process = process();
    if !process.ranges.on_device(at) {
        drop(process);
        return sys::fill(at, byte, len);
    }
    process.copies.written(at, len, byte == 0 || len <= STORED);
    if byte == 0 {
        process.contents.zero(at, len);
    } else if len <= STORED {
        let place = process.contents.place(at);
        drop(process);
        contents::store(place, vec![byte; len].as_ptr() as usize, len);
    }
}

/// Bytes that a library takes elsewhere, unless they are too many to be stored, and whether they are what was copied
/// in.
pub(super) fn collect(from: usize, len: usize) -> (Option<Vec<u8>>, bool) {
    let mut process = process();
    if len > STORED {
        return (None, false);
    }
    let (on_device, fresh) = (process.ranges.on_device(from), process.copies.is_fresh(from, len));
    let place = process.contents.place(from);
    drop(process);
    let mut bytes = vec![0; len];
    let to = bytes.as_mut_ptr() as usize;
    if on_device {
        contents::load(to, place, len);
    } else {
        sys::copy(to, from, len);
    }
    (Some(bytes), fresh || !on_device)
}

/// Bytes that a library brings: none where they were too many to be carried.
pub(super) fn deliver(to: usize, len: usize, bytes: Option<&[u8]>, fresh: bool) {
    let mut process = process();
    let on_device = process.ranges.on_device(to);
    if on_device {
        process.copies.written(to, len, fresh && bytes.is_some_and(|it| it.len() >= len));
    }
    let place = process.contents.place(to);
    drop(process);
    let Some(bytes) = bytes else { return };
    let (from, len) = (bytes.as_ptr() as usize, bytes.len().min(len));
    if on_device { contents::store(place, from, len) } else { sys::copy(to, from, len) }
}
