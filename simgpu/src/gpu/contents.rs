//! The contents of device memory: an anonymous file with each byte at its own address, and holes elsewhere.
//!
//! Nothing of the file is mapped. As on a machine with a device, a process's resident memory does not grow with what it
//! copies there; and another process can read what it was given a handle to.

use super::sys;
use std::{collections::BTreeMap, fs::File, os::fd::AsRawFd, sync::Arc};

/// Bytes that a copy between two places on devices moves at a time.
const CHUNK: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Contents {
    /// This process's file, created on first use.
    own: Option<Arc<File>>,
    /// Other processes' memory, by the address that it has here.
    imports: BTreeMap<usize, Import>,
}

struct Import {
    size: usize,
    file: Arc<File>,
    /// The owner's address.
    offset: usize,
}

/// The place of the bytes of a device address.
pub(super) struct Place {
    file: Arc<File>,
    offset: usize,
}

impl Contents {
    /// Returns the place of an address's bytes; `None` if the system gives no file.
    pub(super) fn place(&mut self, address: usize) -> Option<Place> {
        let imported = self.imports.range(..=address).next_back().filter(|(base, it)| address - *base < it.size);
        if let Some((base, it)) = imported {
            return Some(Place { file: it.file.clone(), offset: it.offset + (address - base) });
        }
        self.own().map(|file| Place { file, offset: address })
    }

    fn own(&mut self) -> Option<Arc<File>> {
        if self.own.is_none() {
            self.own = sys::anonymous_file(c"simgpu").ok().map(Arc::new);
        }
        self.own.clone()
    }

    /// The descriptor by which another process finds what is stored here.
    pub(super) fn descriptor(&mut self) -> Option<i32> {
        self.own().map(|it| it.as_raw_fd())
    }

    /// Has addresses stand for memory that another process stores.
    pub(super) fn import(&mut self, base: usize, size: usize, file: File, offset: usize) {
        self.imports.insert(base, Import { size, file: Arc::new(file), offset });
    }

    pub(super) fn forget_import(&mut self, base: usize) {
        self.imports.remove(&base);
    }

    /// Makes bytes at a device's address zero, which costs no memory.
    pub(super) fn zero(&mut self, at: usize, len: usize) {
        if let Some(Place { file, offset }) = self.place(at) {
            sys::punch(&file, offset, len);
        }
    }
}

impl Place {
    fn store(&self, at: usize, from: usize, len: usize) {
        sys::write_from(&self.file, self.offset + at, from, len);
    }

    fn load(&self, at: usize, to: usize, len: usize) {
        let read = sys::read_into(&self.file, self.offset + at, to, len);
        // Bytes that were never stored are zero.
        sys::fill(to + read, 0, len - read);
    }
}

/// Stores bytes of the host's on a device.
pub(super) fn store(to: Option<Place>, from: usize, len: usize) {
    if let Some(to) = to {
        to.store(0, from, len);
    }
}

/// Reads bytes on a device to where the host wants them.
pub(super) fn load(to: usize, from: Option<Place>, len: usize) {
    match from {
        Some(from) => from.load(0, to, len),
        None => sys::fill(to, 0, len),
    }
}

/// Copies bytes from one place on a device to another.
pub(super) fn transfer(to: Option<Place>, from: Option<Place>, len: usize) {
    let (Some(to), Some(from)) = (to, from) else { return };
    let mut chunk = vec![0_u8; len.min(CHUNK)];
    for at in (0..len).step_by(CHUNK) {
        let part = CHUNK.min(len - at);
        from.load(at, chunk.as_mut_ptr() as usize, part);
        to.store(at, chunk.as_ptr() as usize, part);
    }
}
