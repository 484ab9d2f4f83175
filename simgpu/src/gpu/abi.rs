//! The parts of entry points: exported names, pointers that C callers vouch for, error numbers.

pub(super) use super::faults::Fault;
use std::{
    ffi::{CStr, c_char},
    io::Write,
    sync::LazyLock,
};

pub(super) type Answer = Result<(), Fault>;

/// The number that C callers get.
pub(super) fn code(answer: Answer) -> i32 {
    answer.err().map_or(0, |it| it as i32)
}

/// Writes one trace line, if `SIMGPU_TRACE` asks for it.
pub(super) fn trace(line: impl FnOnce() -> String) {
    static ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SIMGPU_TRACE").is_some());
    if *ON {
        // Tracing must not fail the call it describes.
        let _ = writeln!(std::io::stderr(), "[simgpu] {}", line());
    }
}

/// The address for a result of a C caller; null if the caller wants none.
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

// Written out, because a pointer can be copied whatever it points at.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// For arguments whose type another argument determines.
    pub(super) fn from_address(address: usize) -> Self {
        Self(address as *mut T)
    }

    pub(super) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: an `Out` comes from a C caller only, whose contract is that it is null or room for one T.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Writes the `index`-th of several; the caller has checked that there is room for it.
    pub(super) fn put_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: as for `put`; the C caller declared room for more than `index` of them.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(super) fn address(self) -> usize {
        self.0 as usize
    }
}

impl<T: Copy> Out<T> {
    /// Reads the current value, for arguments that carry a value in and another one out.
    pub(super) fn held(self) -> Option<T> {
        // SAFETY: an `Out` comes from a C caller only, whose contract is that it is null or points at one T.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// Reads the `index`-th of several; the caller has checked that there are so many.
    pub(super) fn held_at(self, index: usize) -> Option<T> {
        // SAFETY: as for `held`; the C caller declared more than `index` of them.
        (!self.0.is_null()).then(|| unsafe { self.0.add(index).read_unaligned() })
    }
}

impl Out<c_char> {
    /// A string with its zero byte, cut to the room there is (at least one byte, or nothing is written).
    pub(super) fn put_text(self, text: &str, capacity: usize) {
        if self.0.is_null() || capacity == 0 {
            return;
        }
        let len = text.len().min(capacity - 1);
        super::sys::copy(self.0 as usize, text.as_ptr() as usize, len);
        super::sys::fill(self.0 as usize + len, 0, 1);
    }
}

/// A value that a C caller passes by pointer.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// For arguments whose type another argument determines.
    pub(super) fn from_address(address: usize) -> Self {
        Self(address as *const T)
    }

    pub(super) fn get(self) -> Option<T> {
        self.at(0)
    }

    /// Returns the `index`-th element of an array whose length the caller gave.
    pub(super) fn at(self, index: usize) -> Option<T> {
        // SAFETY: an `In` comes from a C caller only, whose contract is that it is null or points at enough Ts.
        (!self.0.is_null()).then(|| unsafe { self.0.add(index).read_unaligned() })
    }

    pub(super) fn address(self) -> usize {
        self.0 as usize
    }
}

impl In<c_char> {
    pub(super) fn text(self) -> Option<String> {
        // SAFETY: an `In<c_char>` comes from a C caller only, whose contract is that it is null or ends in a zero byte.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Defines exported C entry points. In the library's own copy of this code they are ordinary functions: a program that
/// only reads the simulated machine's state must not export a CUDA runtime.
macro_rules! entry_points {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $($(#[$meta])* #[cfg_attr(simgpu_device, unsafe(no_mangle))] $vis extern "C" fn $name($($arg: $type),*) -> $ret $body)*
    };
}
