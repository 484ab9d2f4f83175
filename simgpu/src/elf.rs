//! Reads what a shared object needs and offers from its dynamic section's tables: little-endian 64-bit ELF only.

use std::{
    fs::File,
    io::{self, Error},
    os::unix::fs::FileExt,
    path::Path,
};

const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const DT_NEEDED: u64 = 1;
const VERSION_MASK: u16 = 0x7fff;

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

#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
}

impl Object {
    /// Reads one shared object; an object without dynamic symbols needs and offers nothing.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let sections = sections(&file)?;
        let table = |kind| sections.iter().find(|it| it.kind == kind).copied();
        let load = |section: Option<Section>| section.map_or(Ok(Vec::new()), |it| bytes(&file, it.offset, it.size));
        let strings_of = |section: Option<Section>| {
            load(section.and_then(|it| sections.get(usize::try_from(it.link).ok()?).copied()))
        };

        let mut object = Self::default();
        let dynamic = table(SHT_DYNAMIC);
        let strings = strings_of(dynamic)?;
        for entry in load(dynamic)?.chunks_exact(16) {
            if word(entry, 0) == DT_NEEDED {
                object.needed.push(string(&strings, word(entry, 8)));
            }
        }
        let needs = table(SHT_GNU_VERNEED);
        let versions = needed_versions(&load(needs)?, &strings_of(needs)?);
        let symbols = table(SHT_DYNSYM);
        let strings = strings_of(symbols)?;
        let numbers = load(table(SHT_GNU_VERSYM))?;
        for (index, entry) in load(symbols)?.chunks_exact(24).enumerate().skip(1) {
            let name = string(&strings, u64::from(half(entry, 0)));
            let defined = short(entry, 6) != 0;
            if defined {
                object.exports.push(name);
            } else {
                let number = if numbers.is_empty() { 0 } else { short(&numbers, index * 2) & VERSION_MASK };
                let version = versions.iter().find(|it| it.0 == number).map(|it| (it.1.clone(), it.2.clone()));
                object.imports.push(Import { name, version });
            }
        }
        Ok(object)
    }
}

/// The contents of the read-only data of an object, where the texts of the program are.
pub(crate) fn read_only_data(path: &Path) -> io::Result<Vec<u8>> {
    const SHT_PROGBITS: u32 = 1;
    const SHF_WRITE: u64 = 1;
    const SHF_ALLOC: u64 = 2;
    const SHF_EXECINSTR: u64 = 4;
    let file = File::open(path)?;
    let mut data = Vec::new();
    for section in sections(&file)? {
        let kept = section.flags & (SHF_WRITE | SHF_ALLOC | SHF_EXECINSTR);
        if section.kind == SHT_PROGBITS && kept == SHF_ALLOC {
            data.extend(bytes(&file, section.offset, section.size)?);
        }
    }
    Ok(data)
}

fn sections(file: &File) -> io::Result<Vec<Section>> {
    let header = bytes(file, 0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(Error::other("not a 64-bit little-endian ELF file"));
    }
    let table = bytes(file, word(&header, 40), 64 * u64::from(short(&header, 60)))?;
    Ok(table
        .chunks_exact(64)
        .map(|it| Section {
            kind: half(it, 4),
            flags: word(it, 8),
            offset: word(it, 24),
            size: word(it, 32),
            link: half(it, 40),
        })
        .collect())
}

/// Version number of the symbols' table, library, version's name.
fn needed_versions(table: &[u8], strings: &[u8]) -> Vec<(u16, String, String)> {
    let mut versions = Vec::new();
    let mut at = 0;
    while table.len() >= at + 16 {
        let library = string(strings, u64::from(half(table, at + 4)));
        let mut aux = at + half(table, at + 8) as usize;
        for _ in 0..short(table, at + 2) {
            if table.len() < aux + 16 {
                break;
            }
            versions.push((short(table, aux + 6), library.clone(), string(strings, u64::from(half(table, aux + 8)))));
            aux += half(table, aux + 12) as usize;
        }
        match half(table, at + 12) as usize {
            0 => break,
            next => at += next,
        }
    }
    versions
}

fn bytes(file: &File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let end = offset.checked_add(size).ok_or_else(|| Error::other("a table beyond the end of the file"))?;
    if end > file.metadata()?.len() {
        return Err(Error::other("a table beyond the end of the file"));
    }
    let mut buffer = vec![0; usize::try_from(size).map_err(Error::other)?];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}

fn short(from: &[u8], at: usize) -> u16 {
    from.get(at..at + 2).and_then(|it| it.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn half(from: &[u8], at: usize) -> u32 {
    from.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn word(from: &[u8], at: usize) -> u64 {
    from.get(at..at + 8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn string(strings: &[u8], at: u64) -> String {
    let rest = usize::try_from(at).ok().and_then(|it| strings.get(it..)).unwrap_or_default();
    String::from_utf8_lossy(rest.split(|it| *it == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_object_says_what_it_needs_offers_and_imports() {
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
    fn what_is_no_shared_object_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("text", b"hello".as_slice()), ("cut", b"\x7fELF\x02\x01")] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            assert!(Object::read(&dir.path().join(name)).is_err());
        }
    }
}
