//! Writes a shared object of stubs: each is a jump into the simulated device, with the address of what it stands for.

use object::{
    Endianness,
    elf::{self, DynamicTag},
    write::elf::{FileHeader, ProgramHeader, Rel, SectionHeader, Sym, Verdef, Writer},
};
use std::io::{self, Error};

/// Where segments begin: a multiple of every page's size.
const PAGE: u64 = 0x10000;
/// What a symbol without a version, and one of the library's only version, have for it.
const UNVERSIONED: u16 = 1;
const VERSIONED: u16 = 2;

/// A library of stubs.
pub(crate) struct Shared<'a> {
    pub(crate) soname: &'a str,
    /// The version of its symbols.
    pub(crate) version: Option<&'a str>,
    /// The library that it depends on, and looks for beside itself.
    pub(crate) needed: &'a str,
    /// What its functions jump to, in that library.
    pub(crate) target: &'a str,
    /// Names of functions, and what the target finds at the address that it gets.
    pub(crate) stubs: Vec<(&'a str, Vec<u8>)>,
}

/// Machine code, for which the system's libraries are compiled.
struct Code {
    machine: elf::Machine,
    relocation: elf::RelocationType,
    /// Bytes from one function to the next.
    step: u64,
    /// A function at an address that passes the second address on, and jumps to where the third one points.
    jump: fn(u64, u64, u64) -> Vec<u8>,
}

/// The code for this system's processors.
fn code() -> io::Result<Code> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(Code { machine: elf::EM_X86_64, relocation: elf::R_X86_64_GLOB_DAT, step: 16, jump: x86_64 }),
        "aarch64" => {
            Ok(Code { machine: elf::EM_AARCH64, relocation: elf::R_AARCH64_GLOB_DAT, step: 32, jump: aarch64 })
        }
        other => Err(Error::other(format!("no GPU can be simulated on {other}"))),
    }
}

/// `lea r11, [rip + what]; jmp [rip + pointer]`
fn x86_64(at: u64, what: u64, pointer: u64) -> Vec<u8> {
    let mut code = vec![0x4c, 0x8d, 0x1d];
    let relative = |to: u64, end: u64| to.wrapping_sub(end).to_le_bytes();
    code.extend(relative(what, at + 7).iter().take(4));
    code.extend([0xff, 0x25]);
    code.extend(relative(pointer, at + 13).iter().take(4));
    code
}

/// `adrp x16, what; add x16, x16, :lo12:what; adrp x17, pointer; ldr x17, [x17, :lo12:pointer]; br x17`
fn aarch64(at: u64, what: u64, pointer: u64) -> Vec<u8> {
    let pages = |to: u64, at: u64| {
        let pages = ((to >> 12).wrapping_sub(at >> 12) & 0x1f_ffff) as u32;
        (pages & 3) << 29 | (pages >> 2) << 5
    };
    let low = |to: u64| (to & 0xfff) as u32;
    let words = [
        0x9000_0010 | pages(what, at),
        0x9100_0210 | low(what) << 10,
        0x9000_0011 | pages(pointer, at + 8),
        0xf940_0231 | (low(pointer) / 8) << 10,
        0xd61f_0220,
    ];
    words.iter().flat_map(|it: &u32| it.to_le_bytes()).collect()
}

impl Shared<'_> {
    /// Returns the file.
    pub(crate) fn file(&self) -> io::Result<Vec<u8>> {
        let mut file = Vec::new();
        self.write(&mut file).map_err(|it: object::write::Error| Error::other(it.to_string()))??;
        Ok(file)
    }

    #[expect(clippy::too_many_lines, reason = "the file's parts, twice and in the same order: reserved, then written")]
    fn write(&self, file: &mut Vec<u8>) -> object::write::Result<io::Result<()>> {
        let code = match code() {
            Ok(it) => it,
            Err(error) => return Ok(Err(error)),
        };
        let mut out = Writer::new(Endianness::Little, true, file);
        let count = u32::try_from(self.stubs.len()).unwrap_or(u32::MAX);

        // What there is, and where.
        out.reserve_file_header();
        out.reserve_program_headers(5);
        out.reserve_null_section_index();
        let dynsym_section = out.reserve_dynsym_section_index();
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
        let text_section = out.reserve_section_index();
        out.reserve_dynamic_section_index();
        let got_name = out.add_section_name(b".got");
        out.reserve_section_index();
        out.reserve_shstrtab_section_index();
        let [soname, needed, path] =
            [self.soname, self.needed, "$ORIGIN"].map(|it| out.add_dynamic_string(it.as_bytes()));
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
        let hash = out.reserve_hash(count.max(1), count + 2);
        let [versym, verdef] =
            if version.is_some() { [out.reserve_gnu_versym(), out.reserve_gnu_verdef(2, 2)] } else { [0, 0] };
        let relocations = out.reserve_relocations(1, true);
        let mut places = Vec::new();
        let data = out.reserve(0, 16);
        for (_, what) in &self.stubs {
            places.push(out.reserve(what.len() as u64, 16));
        }
        let data_end = out.reserved_len();
        // No segment may be empty.
        let text = out.reserve(code.step * u64::from(count.max(1)), PAGE);
        let text_end = out.reserved_len();
        let written = out.reserve(0, PAGE);
        let entries = 12 + if version.is_some() { 3 } else { 0 };
        let dynamic = out.reserve_dynamic(entries);
        let got = out.reserve(8, 8);
        let end = out.reserved_len();
        out.reserve_shstrtab()?;
        out.reserve_section_headers();

        out.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: code.machine,
            e_entry: 0,
            e_flags: elf::FileFlags(0),
        })?;
        out.write_align_program_headers();
        let mut segment = |kind, flags, from: u64, to: u64, align| {
            out.write_program_header(&ProgramHeader {
                p_type: kind,
                p_flags: flags,
                p_offset: from,
                p_vaddr: from,
                p_paddr: from,
                p_filesz: to - from,
                p_memsz: to - from,
                p_align: align,
            });
        };
        segment(elf::PT_LOAD, elf::PF_R, 0, data_end, PAGE);
        segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, text, text_end, PAGE);
        segment(elf::PT_LOAD, elf::PF_R | elf::PF_W, written, end, PAGE);
        segment(elf::PT_DYNAMIC, elf::PF_R | elf::PF_W, dynamic, got, 8);
        segment(elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, 0, 0, 16);

        let info = elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC);
        let symbol = |name, at: Option<u64>| Sym {
            section: at.map(|_| text_section.0),
            st_name: name,
            st_info: info,
            st_other: elf::SymbolOther(0),
            st_shndx: elf::SHN_UNDEF,
            st_value: at.unwrap_or(0),
            st_size: at.map_or(0, |_| code.step),
        };
        let places_of_code = (0..).map(|it| text + it * code.step);
        out.write_null_dynamic_symbol();
        let name = out.dynamic_string_offset(Some(target.0));
        out.write_dynamic_symbol(&symbol(name, None));
        for (name, at) in names.iter().zip(places_of_code.clone()) {
            let name = out.dynamic_string_offset(Some(*name));
            out.write_dynamic_symbol(&symbol(name, Some(at)));
        }
        out.write_dynstr();
        let own = |index: u32| self.stubs.get(index.checked_sub(2)? as usize).map(|it| elf::hash(it.0.as_bytes()));
        out.write_hash(count.max(1), count + 2, own);
        if let Some(version) = version {
            out.write_null_gnu_versym();
            out.write_gnu_versym(elf::VersymIndex(UNVERSIONED));
            for _ in &names {
                out.write_gnu_versym(elf::VersymIndex(VERSIONED));
            }
            out.write_align_gnu_verdef();
            for (flags, index, name, text) in [
                (elf::VER_FLG_BASE, UNVERSIONED, soname, self.soname),
                (elf::VersionFlags(0), VERSIONED, version, self.version.unwrap_or_default()),
            ] {
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
        out.write_align_relocation();
        out.write_relocation(true, &Rel { r_offset: got, r_sym: target.1.0, r_type: code.relocation, r_addend: 0 });
        for ((_, what), at) in self.stubs.iter().zip(&places) {
            out.pad_until(*at);
            out.write(what);
        }
        for (what, at) in places.iter().zip(places_of_code) {
            out.pad_until(at);
            out.write(&(code.jump)(at, *what, got));
        }
        out.pad_until(dynamic);
        let strings = out.dynstr_len();
        out.write_align_dynamic();
        out.write_dynamic_string(elf::DT_SONAME, soname)?;
        out.write_dynamic_string(elf::DT_NEEDED, needed)?;
        out.write_dynamic_string(elf::DT_RUNPATH, path)?;
        let mut entry = |tag: DynamicTag, value| out.write_dynamic(tag, value);
        entry(elf::DT_HASH, hash)?;
        entry(elf::DT_SYMTAB, dynsym)?;
        entry(elf::DT_STRTAB, dynstr)?;
        entry(elf::DT_SYMENT, 24)?;
        entry(elf::DT_STRSZ, u64::from(strings))?;
        entry(elf::DT_RELA, relocations)?;
        entry(elf::DT_RELASZ, 24)?;
        entry(elf::DT_RELAENT, 24)?;
        if version.is_some() {
            entry(elf::DT_VERSYM, versym)?;
            entry(elf::DT_VERDEF, verdef)?;
            entry(elf::DT_VERDEFNUM, 2)?;
        }
        entry(elf::DT_NULL, 0)?;
        out.pad_until(got);
        out.write(&[0; 8]);
        out.write_shstrtab();

        out.write_null_section_header();
        out.write_dynsym_section_header(dynsym, 1);
        out.write_dynstr_section_header(dynstr);
        out.write_hash_section_header(hash);
        if version.is_some() {
            out.write_gnu_versym_section_header(versym);
            out.write_gnu_verdef_section_header(verdef);
        }
        out.write_relocation_section_header(
            relocations_name,
            object::write::elf::SectionIndex(0),
            dynsym_section,
            relocations,
            1,
            true,
        );
        let mut section = |name, flags, from, to: u64| {
            let sh_name = out.section_name_offset(Some(name));
            out.write_section_header(&SectionHeader {
                sh_name,
                sh_type: elf::SHT_PROGBITS,
                sh_flags: flags,
                sh_addr: from,
                sh_offset: from,
                sh_size: to - from,
                sh_link: 0,
                sh_info: 0,
                sh_addralign: 8,
                sh_entsize: 0,
            });
        };
        section(data_name, elf::SHF_ALLOC, data, data_end);
        section(text_name, elf::SHF_ALLOC | elf::SHF_EXECINSTR, text, text_end);
        out.write_dynamic_section_header(dynamic);
        let sh_name = out.section_name_offset(Some(got_name));
        out.write_section_header(&SectionHeader {
            sh_name,
            sh_type: elf::SHT_PROGBITS,
            sh_flags: elf::SHF_ALLOC | elf::SHF_WRITE,
            sh_addr: got,
            sh_offset: got,
            sh_size: 8,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 8,
            sh_entsize: 0,
        });
        out.write_shstrtab_section_header();
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Object;

    #[test]
    fn what_is_written_is_a_library_with_its_names_and_version() {
        let dir = tempfile::tempdir().unwrap();
        for version in [None, Some("libit.so.1")] {
            let stubs = vec![("first", b"one".to_vec()), ("second", vec![0; 99])];
            let it = Shared { soname: "libit.so.1", version, needed: "libother.so", target: "there", stubs };
            let path = dir.path().join("libit.so.1");
            std::fs::write(&path, it.file().unwrap()).unwrap();
            let read = Object::read(&path).unwrap();
            assert_eq!(
                (read.needed, read.exports),
                (vec!["libother.so".into()], vec!["first".into(), "second".into()])
            );
            assert_eq!(read.imports.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["there"]);
        }
        // A library whose functions are all the device's own.
        let none = Shared { soname: "libit.so.1", version: None, needed: "a", target: "b", stubs: Vec::new() };
        assert!(none.file().is_ok());
    }

    #[test]
    fn both_processors_find_what_lies_before_and_behind() {
        assert_eq!(
            x86_64(0x1000, 0x200, 0x2008),
            [0x4c, 0x8d, 0x1d, 0xf9, 0xf1, 0xff, 0xff, 0xff, 0x25, 0xfb, 0x0f, 0, 0]
        );
        let words = |at, what, pointer| -> Vec<u32> {
            aarch64(at, what, pointer).chunks(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect()
        };
        // As `llvm-mc` encodes them: the same page, one page on, three pages back.
        assert_eq!(words(0x1000, 0x1010, 0x2008), [0x9000_0010, 0x9100_4210, 0xb000_0011, 0xf940_0631, 0xd61f_0220]);
        assert_eq!(words(0x4000, 0x1000, 0x4000)[..2], [0xb0ff_fff0, 0x9100_0210]);
    }
}
