//! NVML's documented results.

pub(super) const UNINITIALIZED: i32 = 1;
pub(super) const INVALID_ARGUMENT: i32 = 2;
pub(super) const NOT_SUPPORTED: i32 = 3;
pub(super) const NO_PERMISSION: i32 = 4;
pub(super) const NOT_FOUND: i32 = 6;
pub(super) const INSUFFICIENT_SIZE: i32 = 7;
pub(super) const DRIVER_NOT_LOADED: i32 = 9;
pub(super) const TIMEOUT: i32 = 10;
pub(super) const FUNCTION_NOT_FOUND: i32 = 13;
pub(super) const GPU_IS_LOST: i32 = 15;
pub(super) const LIBRARY_MISMATCH: i32 = 18;
pub(super) const VERSION_MISMATCH: i32 = 25;
pub(super) const UNKNOWN: i32 = 999;
