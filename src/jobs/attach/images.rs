//! The files that a process has mapped and that attaching reads: its program, its C library, its Python.

use super::{elf::Image, maps::Maps};
use crate::sources::proc::Mapping;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
};

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// As the process sees it.
    pub(super) path: String,
    /// Where its byte 0 is mapped.
    pub(super) start: u64,
    /// Its content; `None` where it cannot be read.
    pub(super) image: Option<Image>,
}

/// What the files of a process show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Images {
    /// Whether its program is of this machine's architecture.
    pub(super) is_native: bool,
    /// The C library, if it is glibc.
    pub(super) libc: Option<Loaded>,
    /// The library with Python, or the program where there is none.
    pub(super) python: Option<Loaded>,
}

/// The same files, open and not read yet: the right to open them can be given up before they are read.
pub(super) struct Opened {
    program: Option<File>,
    libc: Option<(Mapping, Option<File>)>,
    python: Option<(Mapping, Option<File>)>,
}

impl Opened {
    /// Opens the files of a process, whose root directory `root` is.
    pub(super) fn open(pid: u32, root: &OwnedFd) -> Self {
        let maps = Maps::read(pid);
        let libc = maps.find(|it| it == "libc.so.6" || it.starts_with("libc-2."));
        let library = maps.find(|it| it.starts_with("libpython3.") && it != "libpython3.so");
        let python = library.or_else(|| maps.executable());
        let mapped = |it: &Mapping| (it.clone(), open_mapped(pid, root, it, maps.is_executable(it)));
        Self { program: open_magic(format!("/proc/{pid}/exe")), libc: libc.map(mapped), python: python.map(mapped) }
    }

    /// Reads the files.
    pub(super) fn read(&self) -> Images {
        let loaded = |(mapping, file): &(Mapping, Option<File>)| Loaded {
            path: mapping.path.clone(),
            start: mapping.start,
            image: file.as_ref().and_then(Image::read),
        };
        let program = self.program.as_ref().and_then(Image::read);
        Images {
            is_native: program.is_some_and(|it| it.is_native),
            libc: self.libc.as_ref().map(loaded),
            python: self.python.as_ref().map(loaded),
        }
    }
}

fn open_mapped(pid: u32, root: &OwnedFd, mapping: &Mapping, is_executable: bool) -> Option<File> {
    if is_executable {
        return open_magic(format!("/proc/{pid}/exe"));
    }
    // Where this is allowed, it is the very file, whatever lies under its name now.
    let mapped = open_magic(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
    let named = || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(root, mapping.path.as_str(), flags, Mode::empty(), within).ok().map(File::from)
    };
    mapped.or_else(named)
}

/// Opens what a link of the kernel's leads to. No name is looked up, so no user can exchange it.
fn open_magic(path: String) -> Option<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()
}
