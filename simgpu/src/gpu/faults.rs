//! The errors that the driver API and the runtime API share: number, names, words, as documented.

use std::ffi::CStr;

/// Defines the errors, with the name in each API and the text that both share.
macro_rules! faults {
    ($($fault:ident = $number:literal, $runtime:literal, $driver:literal, $text:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Fault {
            $($fault = $number,)*
        }

        /// Returns the names and the text of an error number.
        pub(super) fn words(number: i32) -> Option<Words> {
            match number {
                0 => Some(Words { runtime: c"cudaSuccess", driver: c"CUDA_SUCCESS", text: c"no error" }),
                $($number => Some(Words { runtime: $runtime, driver: $driver, text: $text }),)*
                _ => None,
            }
        }
    };
}

/// An error's name in each API, and its words.
pub(super) struct Words {
    pub(super) runtime: &'static CStr,
    pub(super) driver: &'static CStr,
    pub(super) text: &'static CStr,
}

faults! {
    InvalidValue = 1, c"cudaErrorInvalidValue", c"CUDA_ERROR_INVALID_VALUE", c"invalid argument";
    OutOfMemory = 2, c"cudaErrorMemoryAllocation", c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory";
    NotInitialized = 3, c"cudaErrorInitializationError", c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error";
    NoDevice = 100, c"cudaErrorNoDevice", c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected";
    InvalidDevice = 101, c"cudaErrorInvalidDevice", c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal";
    InvalidContext = 201, c"cudaErrorDeviceUninitialized", c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context";
    InvalidHandle = 400, c"cudaErrorInvalidResourceHandle", c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle";
    IllegalState = 401, c"cudaErrorIllegalState", c"CUDA_ERROR_ILLEGAL_STATE",
        c"the operation cannot be performed in the present state";
    NotFound = 500, c"cudaErrorSymbolNotFound", c"CUDA_ERROR_NOT_FOUND", c"named symbol not found";
    NotReady = 600, c"cudaErrorNotReady", c"CUDA_ERROR_NOT_READY", c"device not ready";
    NotSupported = 801, c"cudaErrorNotSupported", c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported";
    CaptureUnsupported = 900, c"cudaErrorStreamCaptureUnsupported", c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing";
    CaptureInvalidated = 901, c"cudaErrorStreamCaptureInvalidated", c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture";
    CaptureMerge = 902, c"cudaErrorStreamCaptureMerge", c"CUDA_ERROR_STREAM_CAPTURE_MERGE",
        c"operation would result in a merge of separate capture sequences";
    CaptureUnmatched = 903, c"cudaErrorStreamCaptureUnmatched", c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"capture was not ended in the same stream as it began";
    CaptureUnjoined = 904, c"cudaErrorStreamCaptureUnjoined", c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        c"capturing stream has unjoined work";
    CaptureIsolation = 905, c"cudaErrorStreamCaptureIsolation", c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        c"dependency created on uncaptured work in another stream";
    CaptureImplicit = 906, c"cudaErrorStreamCaptureImplicit", c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        c"operation would make the legacy stream depend on a capturing blocking stream";
    CapturedEvent = 907, c"cudaErrorCapturedEvent", c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream";
    CaptureWrongThread = 908, c"cudaErrorStreamCaptureWrongThread", c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        c"attempt to terminate a thread-local capture sequence from another thread";
}
