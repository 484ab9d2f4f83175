//! The C ABI of the latest counters.

use super::local;
use crate::{
    reading::Reading,
    socket,
    wire::{Counters, quoted},
};
use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    fmt::Write,
    panic::catch_unwind,
    path::Path,
    ptr,
};

/// Most bytes of a path in the text.
const PATH_MAX: usize = 4096;

thread_local! {
    /// The latest text that was returned to this thread.
    static TEXT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Returns the latest counters of a device as a JSON object, until the thread's next call; null without any. A negative
/// number stands for the first device that has some.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_latest(device: i32) -> *const c_char {
    let latest = || {
        let probe = local().probe()?;
        let reading = probe.latest(u32::try_from(device).ok())?;
        let text = CString::new(text(&reading, &probe.socket())).ok()?;
        TEXT.with(|it| Some(it.borrow_mut().insert(text).as_ptr()))
    };
    catch_unwind(latest).ok().flatten().unwrap_or(ptr::null())
}

/// Formats counters; those that are unknown are `null`.
fn text(reading: &Reading, path: &Path) -> String {
    let value = |known: Option<u64>| known.map_or_else(|| "null".to_owned(), |it| it.to_string());
    let mut out = "{\"file\":".to_owned();
    quoted(&path.with_extension(socket::FIGURES).to_string_lossy(), PATH_MAX, &mut out);
    let _ = write!(out, ",\"device\":{},\"step\":{}", reading.device, value(reading.step()));
    for (place, name) in Counters::NAMES.iter().enumerate() {
        let _ = write!(out, ",\"{name}\":{}", value(reading.value(place)));
    }
    out.push('}');
    out
}
