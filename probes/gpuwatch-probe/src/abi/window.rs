//! The C ABI of windows: the open request, its end, and the folder for its file.

use super::{OFF, OK, guarded, local};
use std::{
    ffi::{CString, c_char},
    os::unix::ffi::OsStringExt,
    panic::catch_unwind,
    ptr,
    sync::{Mutex, PoisonError},
};

/// The latest folder that was returned.
static FOLDER: Mutex<Option<CString>> = Mutex::new(None);

/// Returns the open request for a window: steps in the low 20 bits, seconds in the next 10, in the high 32 the number
/// that names its file; 0 without a request.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_window_asked() -> u64 {
    catch_unwind(|| local().probe().map_or(0, |it| it.window_asked())).unwrap_or(0)
}

/// Ends a request for a window, if it is still open.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_window_ended(request: u64) -> i32 {
    guarded(|| {
        let Some(probe) = local().probe() else { return OFF };
        probe.window_ended(request);
        OK
    })
}

/// Returns the folder of the probe's socket, until the next call; null without a probe.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwatch_folder() -> *const c_char {
    let folder = || {
        let folder = local().probe()?.socket().parent()?.as_os_str().to_owned();
        let mut latest = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        Some(latest.insert(CString::new(folder.into_vec()).ok()?).as_ptr())
    };
    catch_unwind(folder).ok().flatten().unwrap_or(ptr::null())
}
