//! NVML: how a call answers with a number, also one that a test sets.

use super::{
    abi::Out,
    nvml::{Device, about},
    nvml_faults::Faults,
    nvml_status as status,
    state::Card,
};

/// A question with a structure for an answer.
pub(super) fn figure<T>(call: &str, device: Device, out: Out<T>, value: impl FnOnce(&Card, usize) -> T) -> i32 {
    about(call, device, |card, index| {
        if out.is_null() {
            return status::INVALID_ARGUMENT;
        }
        out.put(value(card, index));
        0
    })
}

/// A question with a number for an answer, which a test may set.
pub(super) fn number<T: TryFrom<u64>>(
    call: &str,
    device: Device,
    out: Out<T>,
    value: impl FnOnce(&Card, usize) -> T,
) -> i32 {
    figure(call, device, out, |card, index| set(call, index).unwrap_or_else(|| value(card, index)))
}

/// A question that has no answer unless a test sets one.
pub(super) fn no_number<T: TryFrom<u64>>(call: &str, device: Device, out: Out<T>) -> i32 {
    about(call, device, |_, index| {
        let Some(value) = set(call, index) else { return status::NOT_SUPPORTED };
        out.put(value);
        0
    })
}

/// A question with two numbers for an answer.
pub(super) fn numbers<T>(call: &str, device: Device, out: [Out<T>; 2], values: impl FnOnce(&Card) -> [T; 2]) -> i32 {
    about(call, device, |card, _| {
        for (out, value) in out.into_iter().zip(values(card)) {
            out.put(value);
        }
        0
    })
}

/// The number that a test has set for a call.
pub(super) fn set<T: TryFrom<u64>>(call: &str, index: usize) -> Option<T> {
    Faults::now().answer(call, index).and_then(|it| T::try_from(it).ok())
}
