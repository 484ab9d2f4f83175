//! Reads the files that a process has mapped: symbols, the C library's release, the machine.

use object::{Architecture, LittleEndian, Object, ObjectSegment, ObjectSymbol, elf::PF_X, read::elf::ElfFile64};
use rustix::fs::{FileType, fstat};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs::File, io::Read};

/// The largest file that is read, in bytes. A Python in one file with its debug symbols has some 100 MiB.
const BYTES_MAX: u64 = 256 << 20;

/// Bytes of each function that are compared with the process's memory.
const COMPARED: u64 = 32;

/// The symbols that attaching calls or reads.
pub(super) const ADD_PENDING: &str = "Py_AddPendingCall";
pub(super) const RUN_STRING: &str = "PyRun_SimpleString";
pub(super) const VERSION: &str = "Py_Version";
pub(super) const RUNTIME: &str = "_PyRuntime";
pub(super) const MAP: &str = "mmap";
const WANTED: [&str; 5] = [ADD_PENDING, RUN_STRING, VERSION, RUNTIME, MAP];

/// `mov $15, %rax; syscall`: how the C library calls `rt_sigreturn`.
pub(super) const RESTORER: [u8; 9] = [0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05];

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// What attaching needs to know of a mapped file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Image {
    /// Whether it is of this program's machine.
    pub(super) is_native: bool,
    /// The address of its byte 0, relative to where it is loaded.
    first: u64,
    /// The newest release of glibc 2 that it names: 36 of 2.36.
    pub(super) glibc: Option<u32>,
    /// The exported symbols among those that attaching uses.
    pub(super) symbols: BTreeMap<String, Symbol>,
    /// Where [`RESTORER`] is, relative to where the file is loaded.
    pub(super) restorer: Option<u64>,
}

/// An exported symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Symbol {
    /// Relative to where the file is loaded.
    pub(super) address: u64,
    /// The first bytes there; fewer where the file has fewer.
    pub(super) code: Vec<u8>,
}

impl Image {
    /// Reads an open file. `None` except for regular ELF files of 64 bits and of a bounded size.
    pub(super) fn read(file: &File) -> Option<Self> {
        let about = fstat(file).ok()?;
        let bytes_max = usize::try_from(BYTES_MAX).ok()?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile
            || about.st_size > i64::try_from(BYTES_MAX).ok()?
        {
            return None;
        }
        let mut bytes = Vec::new();
        // A file can grow while it is read.
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() <= bytes_max).then(|| Self::parse(&bytes)).flatten()
    }

    /// `None` except for ELF files of 64 bits.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let file = Elf::parse(bytes).ok()?;
        let own = if cfg!(target_arch = "x86_64") { Architecture::X86_64 } else { Architecture::Aarch64 };
        let first = file.segments().find(|segment| segment.file_range().0 == 0);
        let code = |address: u64| {
            let mut data = file.segments().filter_map(|segment| segment.data_range(address, COMPARED).ok().flatten());
            data.next().unwrap_or_default().to_vec()
        };
        let defined = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
        let symbols = defined.filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| WANTED.contains(name))?;
            Some((name.to_owned(), Symbol { address: symbol.address(), code: code(symbol.address()) }))
        });
        Some(Self {
            is_native: file.architecture() == own,
            first: first.map_or(0, |segment| segment.address()),
            glibc: glibc(bytes),
            symbols: symbols.collect(),
            restorer: instructions(&file, bytes, &RESTORER),
        })
    }

    /// What is added to the addresses of the file where its byte 0 is mapped at `start`.
    pub(super) fn bias(&self, start: u64) -> u64 {
        start.wrapping_sub(self.first)
    }
}

/// The address of the first place of these bytes among a file's instructions.
fn instructions(file: &Elf, bytes: &[u8], wanted: &[u8]) -> Option<u64> {
    let is_code = |it: &object::elf::ProgramHeader64<LittleEndian>| it.p_flags.get(LittleEndian).0 & PF_X.0 != 0;
    let mut headers = file.elf_program_headers().iter().filter(|it| is_code(it));
    headers.find_map(|header| {
        let from = usize::try_from(header.p_offset.get(LittleEndian)).ok()?;
        let length = usize::try_from(header.p_filesz.get(LittleEndian)).ok()?;
        let code = bytes.get(from..from.checked_add(length)?)?;
        let at = code.windows(wanted.len()).position(|it| it == wanted)?;
        header.p_vaddr.get(LittleEndian).checked_add(u64::try_from(at).ok()?)
    })
}

/// The newest release of glibc 2 that a file names.
fn glibc(bytes: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"GLIBC_2.";
    /// More digits than a release has.
    const DIGITS_MAX: usize = 4;
    let starts = bytes.windows(NAME.len()).enumerate().filter(|(_, it)| *it == NAME).map(|(at, _)| at);
    let minor = |at: usize| {
        let digits = bytes.get(at + NAME.len()..)?.iter().take_while(|it| it.is_ascii_digit());
        String::from_utf8(digits.take(DIGITS_MAX).copied().collect()).ok()?.parse().ok()
    };
    starts.filter_map(minor).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::OpenOptionsExt};

    #[test]
    fn this_program_is_read_like_any_other() {
        let image = Image::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(image.is_native);
        assert!(image.glibc.is_none_or(|it| it >= 17));
        assert!(Image::parse(b"#!/bin/sh").is_none());
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let sparse = folder.path().join("libpython3.12.so.1.0");
        fs::copy("/proc/self/exe", &sparse).unwrap();
        let open = || File::options().read(true).write(true).open(&sparse).unwrap();
        assert!(Image::read(&open()).is_some());
        open().set_len(1 << 40).unwrap();
        assert_eq!(Image::read(&open()), None);
        assert_eq!(Image::read(&File::open("/dev/zero").unwrap()), None);
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        assert_eq!(Image::read(&File::options().read(true).custom_flags(nonblocking).open(pipe).unwrap()), None);
    }
}
