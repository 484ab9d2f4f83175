//! Reads what a shared object needs and offers from its dynamic section's tables.

use object::{
    Endianness,
    elf::{self, FileHeader64, Sym64},
    read::{
        ReadCache, Result, StringTable, SymbolIndex,
        elf::{Dyn as _, FileHeader as _, SectionHeader as _, Sym as _},
    },
};
use std::{
    fs::File,
    io::{self, Error},
    path::Path,
};

/// A symbol that an object takes from another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) name: String,
    /// The library and the version that it was linked with, where it was versioned.
    pub(crate) version: Option<(String, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Object {
    pub(crate) needed: Vec<String>,
    pub(crate) imports: Vec<Import>,
    pub(crate) exports: Vec<String>,
}

/// A file of which only the tables are read: PyTorch's libraries have gigabytes.
type Tables = ReadCache<File>;

impl Object {
    /// Reads one shared object; an object without dynamic symbols needs and offers nothing.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&Tables::new(File::open(path)?)).map_err(unread)
    }

    fn parse(data: &Tables) -> Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let mut object = Self::default();
        if let Some((entries, link)) = sections.dynamic(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            for entry in entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED) {
                object.needed.push(text(entry.string(endian, strings)?));
            }
        }
        let Some(table) = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_DYNSYM) else {
            return Ok(object);
        };
        let versions = sections.versions(endian, data)?;
        // At once: there are many thousands of names.
        let names = sections.section(table.link(endian))?.data(endian, data)?;
        let strings = StringTable::new(names, 0, names.len() as u64);
        let symbols: &[Sym64<Endianness>] = table.data_as_array(endian, data)?;
        for (index, symbol) in symbols.iter().enumerate().skip(1) {
            let name = text(symbol.name(endian, strings)?);
            if symbol.st_shndx(endian) != elf::SHN_UNDEF {
                object.exports.push(name);
                continue;
            }
            let version = match &versions {
                Some(all) => all.version(all.version_index(endian, SymbolIndex(index)).index())?,
                None => None,
            };
            let version = version.and_then(|it| Some((text(it.file()?), text(it.name()))));
            object.imports.push(Import { name, version });
        }
        Ok(object)
    }
}

/// The contents of the read-only data of an object, where the texts of the program are.
pub(crate) fn read_only_data(path: &Path) -> io::Result<Vec<u8>> {
    let parse = |data: &Tables| -> Result<Vec<u8>> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let mut all = Vec::new();
        for section in header.sections(endian, data)?.iter() {
            let flags = section.sh_flags(endian);
            if section.sh_type(endian) == elf::SHT_PROGBITS
                && flags & (elf::SHF_WRITE | elf::SHF_ALLOC | elf::SHF_EXECINSTR) == elf::SHF_ALLOC
            {
                all.extend(section.data(endian, data)?);
            }
        }
        Ok(all)
    };
    parse(&Tables::new(File::open(path)?)).map_err(unread)
}

fn unread(error: object::read::Error) -> Error {
    Error::other(error.to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_object_lists_what_it_needs_offers_and_imports() {
        let dir = tempfile::tempdir().unwrap();
        let library = crate::prepare_nvml(dir.path()).unwrap();
        let stubs = Object::read(&library).unwrap();
        assert!(stubs.needed.iter().any(|it| it == "libsimgpu.so"), "{:?}", stubs.needed);
        assert!(stubs.exports.iter().any(|it| it == "nvmlDeviceGetSerial"));
        let device = Object::read(&dir.path().join("libsimgpu.so")).unwrap();
        assert!(device.exports.iter().any(|it| it == "cudaMalloc"));
        let write = device.imports.iter().find(|it| it.name == "mmap" || it.name == "mmap64").unwrap();
        assert!(write.version.as_ref().is_some_and(|(file, _)| file.starts_with("libc.so")), "{write:?}");
    }

    #[test]
    fn other_files_than_shared_objects_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("text", b"hello".as_slice()), ("cut", b"\x7fELF\x02\x01")] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            assert!(Object::read(&dir.path().join(name)).is_err());
        }
    }
}
