//! The effect of a copy where no kernel computes anything.
//!
//! Small copies are stored; large ones are not, because nothing was computed that they could carry. A read of a few
//! bytes (`item()`, the counts that `nonzero` reads back, `found_inf`) returns what the program's watcher answers, or
//! zero, unless these bytes were copied in and no kernel was launched since. So the control flow of a program never
//! depends on values that were not computed.

use super::{
    contents::{self, Place},
    process::process,
    spans::Origin,
    sys,
    watch::{self, Seen},
};
use std::cell::RefCell;

/// Bytes above which a copy's contents are not kept.
pub(super) const STORED: usize = 1 << 20;
/// Bytes up to which a read decides about control flow, rather than about numbers.
const SCALAR: usize = 16;

thread_local! {
    /// Places, of a length, that get what the thread's next copy from device to device copies.
    static ALIKE: RefCell<(Vec<usize>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Has the thread's next copy of this length, if it is the next at all, bring the same to other places: what others are
/// taken to have.
pub(super) fn repeat_next(places: Vec<usize>, len: usize) {
    ALIKE.set((places, len));
}

/// The result of a copy.
enum Effect {
    Nothing,
    Zero,
    Store(Option<Place>),
    /// What is stored, and where it comes from.
    Load(Option<Place>, Origin),
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
        Effect::Load(place, origin) => {
            contents::load(to, place, len);
            let seen = match origin {
                Origin::Computed => Some(Seen::Read),
                Origin::Assumed => Some(Seen::Assumed),
                Origin::Copied => None,
            };
            if let Some(seen) = seen {
                watch::report(seen, || len.to_string());
            }
        }
        Effect::Transfer(place, source) => {
            contents::transfer(place, source, len);
            let (places, expected) = ALIKE.take();
            if expected == len && !places.is_empty() {
                let (bytes, origin) = collect(from, len);
                for at in places {
                    deliver(at, len, bytes.as_deref(), origin.min(Origin::Assumed));
                }
            }
        }
        Effect::Host => sys::copy(to, from, len),
    }
}

fn effect(to: usize, from: usize, len: usize) -> Effect {
    let mut process = process();
    let (into_device, from_device) = (process.ranges.on_device(to), process.ranges.on_device(from));
    let origin = if from_device { process.copies.origin(from, len) } else { Origin::Copied };
    if into_device {
        process.copies.written(to, len, if len <= STORED { origin } else { Origin::Computed });
    }
    let contents = &mut process.contents;
    match (into_device, from_device) {
        (false, false) => Effect::Host,
        (false, true) if len > STORED || (len <= SCALAR && origin == Origin::Computed) => Effect::Zero,
        (false, true) => Effect::Load(contents.place(from), origin),
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
    process.copies.written(at, len, if byte == 0 || len <= STORED { Origin::Copied } else { Origin::Computed });
    if byte == 0 {
        process.contents.zero(at, len);
    } else if len <= STORED {
        let place = process.contents.place(at);
        drop(process);
        contents::store(place, vec![byte; len].as_ptr() as usize, len);
    }
}

/// Bytes that a library takes elsewhere, unless they are too many to be stored, and where they come from.
pub(super) fn collect(from: usize, len: usize) -> (Option<Vec<u8>>, Origin) {
    let mut process = process();
    if len > STORED {
        return (None, Origin::Computed);
    }
    let (on_device, origin) = (process.ranges.on_device(from), process.copies.origin(from, len));
    let place = process.contents.place(from);
    drop(process);
    let mut bytes = vec![0; len];
    let to = bytes.as_mut_ptr() as usize;
    if on_device {
        contents::load(to, place, len);
    } else {
        sys::copy(to, from, len);
    }
    (Some(bytes), if on_device { origin } else { Origin::Copied })
}

/// Bytes that a library brings: none where they were too many to be carried.
pub(super) fn deliver(to: usize, len: usize, bytes: Option<&[u8]>, origin: Origin) {
    let mut process = process();
    let on_device = process.ranges.on_device(to);
    if on_device {
        let is_whole = bytes.is_some_and(|it| it.len() >= len);
        process.copies.written(to, len, if is_whole { origin } else { Origin::Computed });
    }
    let place = process.contents.place(to);
    drop(process);
    let Some(bytes) = bytes else { return };
    let (from, len) = (bytes.as_ptr() as usize, bytes.len().min(len));
    if on_device { contents::store(place, from, len) } else { sys::copy(to, from, len) }
}
