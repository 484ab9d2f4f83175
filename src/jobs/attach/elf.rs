//! Reads the files that a process has mapped: symbols, the C library's release, the machine.

use object::{Architecture, LittleEndian, Object, ObjectSegment, ObjectSymbol, elf::PF_X, read::elf::ElfFile64};
use std::collections::BTreeMap;

type File<'a> = ElfFile64<'a, LittleEndian>;

/// A mapped file, parsed.
pub(super) struct Image<'a> {
    file: File<'a>,
    bytes: &'a [u8],
}

impl<'a> Image<'a> {
    /// `None` except for ELF files of 64 bits.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        Some(Self { file: File::parse(bytes).ok()?, bytes })
    }

    /// Whether it is of this program's machine.
    pub(super) fn is_native(&self) -> bool {
        let own = if cfg!(target_arch = "x86_64") { Architecture::X86_64 } else { Architecture::Aarch64 };
        self.file.architecture() == own
    }

    /// The addresses of exported symbols, relative to where the file is loaded.
    pub(super) fn symbols(&self, wanted: &[&'static str]) -> BTreeMap<&'static str, u64> {
        let named = |name: &str| wanted.iter().find(|it| **it == name).copied();
        let defined = self.file.dynamic_symbols().filter(|it| !it.is_undefined());
        defined.filter_map(|it| Some((named(it.name().ok()?)?, it.address()))).collect()
    }

    /// What is added to the addresses of the file where its byte 0 is mapped at `start`.
    pub(super) fn bias(&self, start: u64) -> u64 {
        let first = self.file.segments().find(|it| it.file_range().0 == 0);
        start.wrapping_sub(first.map_or(0, |it| it.address()))
    }

    /// The first place of these bytes among its instructions.
    pub(super) fn code(&self, wanted: &[u8]) -> Option<u64> {
        let is_code = |it: &object::elf::ProgramHeader64<LittleEndian>| it.p_flags.get(LittleEndian).0 & PF_X.0 != 0;
        let mut headers = self.file.elf_program_headers().iter().filter(|it| is_code(it));
        headers.find_map(|header| {
            let from = usize::try_from(header.p_offset.get(LittleEndian)).ok()?;
            let length = usize::try_from(header.p_filesz.get(LittleEndian)).ok()?;
            let code = self.bytes.get(from..from.checked_add(length)?)?;
            let at = code.windows(wanted.len()).position(|it| it == wanted)?;
            header.p_vaddr.get(LittleEndian).checked_add(u64::try_from(at).ok()?)
        })
    }

    /// What the file has at an address, as far as it is in the file.
    pub(super) fn at(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        let mut data = self.file.segments().filter_map(|it| it.data_range(address, length).ok().flatten());
        data.next()
    }

    /// The newest release of glibc 2 that it names: 36 of 2.36.
    pub(super) fn glibc(&self) -> Option<u32> {
        const NAME: &[u8] = b"GLIBC_2.";
        let starts = self.bytes.windows(NAME.len()).enumerate().filter(|(_, it)| *it == NAME).map(|(at, _)| at);
        let minor = |at: usize| {
            let digits = self.bytes.get(at + NAME.len()..)?.iter().take_while(|it| it.is_ascii_digit());
            String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
        };
        starts.filter_map(minor).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_read_like_any_other() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let image = Image::parse(&bytes).unwrap();
        assert!(image.is_native());
        assert!(image.glibc().is_none_or(|it| it >= 17));
        assert!(Image::parse(b"#!/bin/sh").is_none());
    }
}
