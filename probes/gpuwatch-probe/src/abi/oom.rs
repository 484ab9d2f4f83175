//! Out-of-memory errors, with what was live and what asked for memory.

use super::{INVALID, guarded, local, text};
use crate::wire::{FRAMES_MAX, Frame, GROUPS_MAX, Oom};
use std::{ffi::c_char, slice};

/// `struct gpuwatch_blocks`.
#[repr(C)]
pub struct GpuwatchBlocks {
    largest_free: u64,
    other_blocks: u64,
    other_bytes: u64,
    groups: u64,
    group: [[u64; 2]; GROUPS_MAX],
}

/// `struct gpuwatch_frame`.
#[repr(C)]
pub struct GpuwatchFrame {
    file: *const c_char,
    line: u64,
    function: *const c_char,
}

/// `struct gpuwatch_request`.
#[repr(C)]
pub struct GpuwatchRequest {
    frames: *const GpuwatchFrame,
    count: u32,
    has_library: u32,
    phase: *const c_char,
    again_bytes: u64,
}

/// Reports an allocation that failed for good; zeros are unknown.
///
/// # Safety
/// `message` is null or a zero-terminated string; `blocks` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_oom(
    device: u32,
    step: u64,
    tried: u64,
    device_free: u64,
    limit: u64,
    message: *const c_char,
    blocks: *const GpuwatchBlocks,
) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { gpuwatch_oom_of(device, step, tried, device_free, limit, message, blocks, std::ptr::null()) }
}

/// Reports the same, and what asked for the memory.
///
/// # Safety
/// As for [`gpuwatch_oom`]; `request` is null or points to one, whose texts are null or zero-terminated strings, and
/// which has as many frames as it counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_oom_of(
    device: u32,
    step: u64,
    tried: u64,
    device_free: u64,
    limit: u64,
    message: *const c_char,
    blocks: *const GpuwatchBlocks,
    request: *const GpuwatchRequest,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (message, blocks, request) = unsafe { (text(message), blocks.as_ref(), request.as_ref()) };
        let known = |value: u64| Some(value).filter(|it| *it > 0);
        let (step, tried, limit) = (known(step), known(tried), known(limit));
        let mut oom = Oom { device, step, tried, device_free: known(device_free), limit, message, ..Oom::default() };
        if let Some(it) = blocks {
            let groups = usize::try_from(it.groups).unwrap_or(GROUPS_MAX);
            oom.blocks = it.group.iter().take(groups).map(|[size, count]| (*size, *count)).collect();
            oom.largest_free = Some(it.largest_free);
            oom.other_blocks = Some(it.other_blocks);
            oom.other_bytes = Some(it.other_bytes);
        }
        if let Some(it) = request {
            // SAFETY: as the caller promises.
            (oom.frames, oom.library, oom.phase) = unsafe { (it.calls(), it.library(), text(it.phase)) };
            oom.again_bytes = known(it.again_bytes);
        }
        local().with_probe(|probe| probe.oom(oom))
    })
}

impl GpuwatchRequest {
    /// # Safety
    /// It has as many frames as it counts, and their texts are null or zero-terminated strings.
    unsafe fn all(&self) -> &[GpuwatchFrame] {
        let count = usize::try_from(self.count).unwrap_or(0).saturating_add(usize::from(self.has_library != 0));
        if self.frames.is_null() {
            return &[];
        }
        // SAFETY: as the caller promises.
        unsafe { slice::from_raw_parts(self.frames, count) }
    }

    /// # Safety
    /// As for `all`.
    unsafe fn calls(&self) -> Vec<Frame> {
        let count = usize::try_from(self.count).unwrap_or(0).min(FRAMES_MAX);
        // SAFETY: as the caller promises.
        unsafe { self.all().iter().take(count).map(|it| it.frame()).collect() }
    }

    /// # Safety
    /// As for `all`.
    unsafe fn library(&self) -> Option<Frame> {
        // SAFETY: as the caller promises.
        unsafe { self.all().last().filter(|_| self.has_library != 0).map(|it| it.frame()) }
    }
}

impl GpuwatchFrame {
    /// # Safety
    /// Its texts are null or zero-terminated strings.
    unsafe fn frame(&self) -> Frame {
        // SAFETY: as the caller promises.
        let (file, function) = unsafe { (text(self.file), text(self.function)) };
        Frame { file: file.unwrap_or_default(), line: self.line, function: function.unwrap_or_default() }
    }
}

/// Sends the framework's message about the latest failure on a device.
///
/// # Safety
/// `message` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_oom_message(device: u32, message: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let Some(message) = (unsafe { text(message) }) else { return INVALID };
        local().with_probe(|probe| probe.oom_message(device, &message))
    })
}
