//! Writes a shared object of stubs: each jumps into the simulated device, with the address of its own data.

/// The stubs' machine code.
mod code;

use code::{Code, code};
use object::{
    Endianness,
    elf::{self, DynamicTag},
    write::{
        Result, StringId,
        elf::{FileHeader, ProgramHeader, Rel, SectionHeader, SectionIndex, Sym, SymbolIndex, Verdef, Writer},
    },
};
use std::{
    io::{self, Error},
    ops::Range,
};

/// Segments begin at a multiple of this, which is a multiple of every page size.
const PAGE: u64 = 0x10000;
/// The version index of a symbol without a version, and of one with the library's only version.
const UNVERSIONED: u16 = 1;
const VERSIONED: u16 = 2;

/// A library of stubs.
pub(crate) struct Shared<'a> {
    pub(crate) soname: &'a str,
    /// The version of its symbols.
    pub(crate) version: Option<&'a str>,
    /// The libraries that it needs, which are in the same directory.
    pub(crate) needed: Vec<&'a str>,
    /// The function in that library that all stubs jump to.
    pub(crate) target: &'a str,
    /// Names of functions, and the data whose address the target receives.
    pub(crate) stubs: Vec<(&'a str, Vec<u8>)>,
}

/// Numbers of the sections that others refer to, and names of those that have no usual one.
struct Sections {
    dynsym: SectionIndex,
    text: SectionIndex,
    relocations_name: StringId,
    data_name: StringId,
    text_name: StringId,
    got_name: StringId,
}

/// The layout of the file: offsets, which are also addresses, and the numbers of strings and sections.
struct Layout {
    sections: Sections,
    soname: StringId,
    needed: Vec<StringId>,
    path: StringId,
    version: Option<StringId>,
    target: (StringId, SymbolIndex),
    /// The stubs' names.
    names: Vec<StringId>,
    dynsym: u64,
    dynstr: u64,
    hash: u64,
    versym: u64,
    verdef: u64,
    relocations: u64,
    /// The stubs' data.
    places: Vec<u64>,
    data: Range<u64>,
    text: Range<u64>,
    writable: Range<u64>,
    dynamic: u64,
    got: u64,
}

impl Shared<'_> {
    /// Returns the file.
    pub(crate) fn file(&self) -> io::Result<Vec<u8>> {
        let (code, mut file) = (code()?, Vec::new());
        self.write(&code, &mut file).map_err(|it| Error::other(it.to_string()))?;
        Ok(file)
    }

    /// Writes the file's parts in the order in which [`Self::layout`] reserves them.
    fn write(&self, code: &Code, file: &mut Vec<u8>) -> Result<()> {
        let mut out = Writer::new(Endianness::Little, true, file);
        let it = self.layout(code, &mut out)?;
        write_headers(code, &it, &mut out)?;
        self.write_symbols(code, &it, &mut out);
        self.write_versions(&it, &mut out);
        self.write_stubs(code, &it, &mut out);
        write_dynamic(&it, &mut out)?;
        out.write_shstrtab();
        write_section_headers(&it, &mut out);
        Ok(())
    }

    /// The number of stubs.
    fn count(&self) -> u32 {
        u32::try_from(self.stubs.len()).unwrap_or(u32::MAX)
    }

    /// Reserves the sections' numbers, in the order of their headers.
    fn sections(&self, out: &mut Writer) -> Sections {
        out.reserve_null_section_index();
        let dynsym = out.reserve_dynsym_section_index();
        out.reserve_dynstr_section_index();
        out.reserve_hash_section_index();
        if self.version.is_some() {
            out.reserve_gnu_versym_section_index();
            out.reserve_gnu_verdef_section_index();
        }
        let relocations_name = out.add_section_name(b".rela.dyn");
        out.reserve_section_index();
        let data_name = out.add_section_name(b".rodata");
        out.reserve_section_index();
        let text_name = out.add_section_name(b".text");
        let text = out.reserve_section_index();
        out.reserve_dynamic_section_index();
        let got_name = out.add_section_name(b".got");
        out.reserve_section_index();
        out.reserve_shstrtab_section_index();
        Sections { dynsym, text, relocations_name, data_name, text_name, got_name }
    }

    fn layout<'a>(&'a self, code: &Code, out: &mut Writer<'a>) -> Result<Layout> {
        out.reserve_file_header();
        out.reserve_program_headers(5);
        let sections = self.sections(out);

        let [soname, path] = [self.soname, "$ORIGIN"].map(|it| out.add_dynamic_string(it.as_bytes()));
        let needed: Vec<_> = self.needed.iter().map(|it| out.add_dynamic_string(it.as_bytes())).collect();
        let version = self.version.map(|it| out.add_dynamic_string(it.as_bytes()));
        out.reserve_null_dynamic_symbol_index();
        let target = (out.add_dynamic_string(self.target.as_bytes()), out.reserve_dynamic_symbol_index());
        let mut names = Vec::new();
        for (name, _) in &self.stubs {
            names.push(out.add_dynamic_string(name.as_bytes()));
            out.reserve_dynamic_symbol_index();
        }

        let dynsym = out.reserve_dynsym();
        let dynstr = out.reserve_dynstr()?;
        let hash = out.reserve_hash(self.count().max(1), self.count() + 2);
        let [versym, verdef] =
            if version.is_some() { [out.reserve_gnu_versym(), out.reserve_gnu_verdef(2, 2)] } else { [0, 0] };
        let relocations = out.reserve_relocations(1, true);
        let data = out.reserve(0, 16);
        let places = self.stubs.iter().map(|(_, data)| out.reserve(data.len() as u64, 16)).collect();
        let data = data..out.reserved_len();
        // No segment may be empty.
        let text = out.reserve(code.step * u64::from(self.count().max(1)), PAGE);
        let text = text..out.reserved_len();
        let writable = out.reserve(0, PAGE);
        let dynamic = out.reserve_dynamic(11 + needed.len() + if version.is_some() { 3 } else { 0 });
        let got = out.reserve(8, 8);
        let writable = writable..out.reserved_len();
        out.reserve_shstrtab()?;
        out.reserve_section_headers();
        Ok(Layout {
            sections,
            soname,
            needed,
            path,
            version,
            target,
            names,
            dynsym,
            dynstr,
            hash,
            versym,
            verdef,
            relocations,
            places,
            data,
            text,
            writable,
            dynamic,
            got,
        })
    }

    fn write_symbols(&self, code: &Code, it: &Layout, out: &mut Writer) {
        let symbol = |name, at: Option<u64>| Sym {
            section: at.map(|_| it.sections.text.0),
            st_name: name,
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
            st_other: elf::SymbolOther(0),
            st_shndx: elf::SHN_UNDEF,
            st_value: at.unwrap_or(0),
            st_size: at.map_or(0, |_| code.step),
        };
        out.write_null_dynamic_symbol();
        let name = out.dynamic_string_offset(Some(it.target.0));
        out.write_dynamic_symbol(&symbol(name, None));
        for (name, at) in it.names.iter().zip(it.functions(code)) {
            let name = out.dynamic_string_offset(Some(*name));
            out.write_dynamic_symbol(&symbol(name, Some(at)));
        }
        out.write_dynstr();
        let own = |index: u32| self.stubs.get(index.checked_sub(2)? as usize).map(|it| elf::hash(it.0.as_bytes()));
        out.write_hash(self.count().max(1), self.count() + 2, own);
    }

    fn write_versions(&self, it: &Layout, out: &mut Writer) {
        let (Some(version), Some(text)) = (it.version, self.version) else { return };
        out.write_null_gnu_versym();
        out.write_gnu_versym(elf::VersymIndex(UNVERSIONED));
        for _ in &it.names {
            out.write_gnu_versym(elf::VersymIndex(VERSIONED));
        }
        out.write_align_gnu_verdef();
        for (flags, index, name, text) in
            [(elf::VER_FLG_BASE, UNVERSIONED, it.soname, self.soname), (elf::VersionFlags(0), VERSIONED, version, text)]
        {
            out.write_gnu_verdef(&Verdef {
                version: elf::VER_DEF_CURRENT,
                flags,
                index: elf::VersionIndex(index),
                aux_count: 1,
                name: out.dynamic_string_offset(Some(name)),
                hash: elf::hash(text.as_bytes()),
            });
        }
    }

    /// Writes the relocation of the target's address, the stubs' data and their code.
    fn write_stubs(&self, code: &Code, it: &Layout, out: &mut Writer) {
        out.write_align_relocation();
        let r_sym = it.target.1.0;
        out.write_relocation(true, &Rel { r_offset: it.got, r_sym, r_type: code.relocation, r_addend: 0 });
        for ((_, data), at) in self.stubs.iter().zip(&it.places) {
            out.pad_until(*at);
            out.write(data);
        }
        for (data, at) in it.places.iter().zip(it.functions(code)) {
            out.pad_until(at);
            out.write(&(code.jump)(at, *data, it.got));
        }
    }
}

impl Layout {
    /// Returns the addresses of the stubs' code.
    fn functions(&self, code: &Code) -> impl Iterator<Item = u64> {
        let (first, step) = (self.text.start, code.step);
        (0..).map(move |it| first + it * step)
    }
}

fn write_headers(code: &Code, it: &Layout, out: &mut Writer) -> Result<()> {
    out.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_DYN,
        e_machine: code.machine,
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    })?;
    out.write_align_program_headers();
    let mut segment = |kind, flags, part: Range<u64>, align| {
        out.write_program_header(&ProgramHeader {
            p_type: kind,
            p_flags: flags,
            p_offset: part.start,
            p_vaddr: part.start,
            p_paddr: part.start,
            p_filesz: part.end - part.start,
            p_memsz: part.end - part.start,
            p_align: align,
        });
    };
    segment(elf::PT_LOAD, elf::PF_R, 0..it.data.end, PAGE);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, it.text.clone(), PAGE);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_W, it.writable.clone(), PAGE);
    segment(elf::PT_DYNAMIC, elf::PF_R | elf::PF_W, it.dynamic..it.got, 8);
    segment(elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, 0..0, 16);
    Ok(())
}

/// Writes the dynamic section and the global offset table.
fn write_dynamic(it: &Layout, out: &mut Writer) -> Result<()> {
    out.pad_until(it.dynamic);
    let strings = out.dynstr_len();
    out.write_align_dynamic();
    out.write_dynamic_string(elf::DT_SONAME, it.soname)?;
    for needed in &it.needed {
        out.write_dynamic_string(elf::DT_NEEDED, *needed)?;
    }
    out.write_dynamic_string(elf::DT_RUNPATH, it.path)?;
    let mut entry = |tag: DynamicTag, value| out.write_dynamic(tag, value);
    entry(elf::DT_HASH, it.hash)?;
    entry(elf::DT_SYMTAB, it.dynsym)?;
    entry(elf::DT_STRTAB, it.dynstr)?;
    entry(elf::DT_SYMENT, 24)?;
    entry(elf::DT_STRSZ, u64::from(strings))?;
    entry(elf::DT_RELA, it.relocations)?;
    entry(elf::DT_RELASZ, 24)?;
    entry(elf::DT_RELAENT, 24)?;
    if it.version.is_some() {
        entry(elf::DT_VERSYM, it.versym)?;
        entry(elf::DT_VERDEF, it.verdef)?;
        entry(elf::DT_VERDEFNUM, 2)?;
    }
    entry(elf::DT_NULL, 0)?;
    out.pad_until(it.got);
    out.write(&[0; 8]);
    Ok(())
}

fn write_section_headers(it: &Layout, out: &mut Writer) {
    out.write_null_section_header();
    out.write_dynsym_section_header(it.dynsym, 1);
    out.write_dynstr_section_header(it.dynstr);
    out.write_hash_section_header(it.hash);
    if it.version.is_some() {
        out.write_gnu_versym_section_header(it.versym);
        out.write_gnu_verdef_section_header(it.verdef);
    }
    let symbols = it.sections.dynsym;
    out.write_relocation_section_header(
        it.sections.relocations_name,
        SectionIndex(0),
        symbols,
        it.relocations,
        1,
        true,
    );
    write_section_header(it.sections.data_name, elf::SHF_ALLOC, it.data.clone(), out);
    write_section_header(it.sections.text_name, elf::SHF_ALLOC | elf::SHF_EXECINSTR, it.text.clone(), out);
    out.write_dynamic_section_header(it.dynamic);
    write_section_header(it.sections.got_name, elf::SHF_ALLOC | elf::SHF_WRITE, it.got..it.got + 8, out);
    out.write_shstrtab_section_header();
}

fn write_section_header(name: StringId, flags: elf::SectionFlags, part: Range<u64>, out: &mut Writer) {
    let sh_name = out.section_name_offset(Some(name));
    out.write_section_header(&SectionHeader {
        sh_name,
        sh_type: elf::SHT_PROGBITS,
        sh_flags: flags,
        sh_addr: part.start,
        sh_offset: part.start,
        sh_size: part.end - part.start,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: 8,
        sh_entsize: 0,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Object;

    #[test]
    fn the_file_is_a_library_with_its_names_and_version() {
        let dir = tempfile::tempdir().unwrap();
        for version in [None, Some("libit.so.1")] {
            let stubs = vec![("first", b"one".to_vec()), ("second", vec![0; 99])];
            let it = Shared {
                soname: "libit.so.1",
                version,
                needed: vec!["libother.so", "libthird.so"],
                target: "there",
                stubs,
            };
            let path = dir.path().join("libit.so.1");
            std::fs::write(&path, it.file().unwrap()).unwrap();
            let read = Object::read(&path).unwrap();
            assert_eq!(
                (read.needed, read.exports),
                (vec!["libother.so".into(), "libthird.so".into()], vec!["first".into(), "second".into()])
            );
            assert_eq!(read.imports.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["there"]);
        }
        // The device may have no functions.
        let none = Shared { soname: "libit.so.1", version: None, needed: vec!["a"], target: "b", stubs: Vec::new() };
        assert!(none.file().is_ok());
    }
}
