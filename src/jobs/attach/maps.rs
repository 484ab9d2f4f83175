//! The files that a process has mapped, and its memory.

use crate::sources::proc::{Mapping, beginning};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// The most that is read of a process's list of mappings, in bytes: a process can have 65,530 with long names.
const BYTES_MAX: u64 = 64 << 20;

/// Everything that a process has mapped.
#[derive(Debug, Default)]
pub(super) struct Maps {
    executable: PathBuf,
    all: Vec<Mapping>,
}

impl Maps {
    /// Nothing where it may not be read.
    pub(super) fn read(pid: u32) -> Self {
        let bytes = beginning(pid, "maps", BYTES_MAX);
        let text = String::from_utf8_lossy(&bytes);
        let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        Self { executable, all: text.lines().filter_map(Mapping::parse).collect() }
    }

    /// Whether a file of such a name is mapped.
    pub(super) fn has(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.all.iter().any(|it| is_meant(by_name(&it.path)))
    }

    /// Where the beginning of a file of such a name is mapped.
    pub(super) fn find(&self, is_meant: impl Fn(&str) -> bool) -> Option<&Mapping> {
        self.all.iter().find(|it| it.offset == 0 && is_meant(by_name(&it.path)))
    }

    /// Where the beginning of the program is mapped.
    pub(super) fn executable(&self) -> Option<&Mapping> {
        self.all.iter().find(|it| it.offset == 0 && self.is_executable(it))
    }

    /// Whether this is a mapping of the program.
    pub(super) fn is_executable(&self, mapping: &Mapping) -> bool {
        Path::new(&mapping.path) == self.executable
    }

    /// The version of Python, and whether it has no global lock: by the names of what it has loaded, as
    /// `_C.cpython-311-x86_64-linux-gnu.so` and `libpython3.11.so.1.0`.
    pub(super) fn python_version(&self, own: &str) -> (Option<(u32, u32)>, bool) {
        let files = self.all.iter().map(|it| by_name(&it.path));
        let mut tags = files.filter_map(|it| it.split_once(".cpython-")?.1.split('-').next());
        let named = |tag: &str| {
            let digits = tag.trim_end_matches(|it: char| !it.is_ascii_digit());
            let minor = digits.strip_prefix('3')?.parse().ok()?;
            Some(((3, minor), tag.contains('t')))
        };
        if let Some((version, is_free)) = tags.find_map(named) {
            return (Some(version), is_free);
        }
        let rest = own.strip_prefix("lib").unwrap_or(own).strip_prefix("python3.").unwrap_or_default();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (digits.parse().ok().map(|minor| (3, minor)), rest.get(digits.len()..).is_some_and(|it| it.starts_with('t')))
    }
}

/// The last part of a path.
pub(super) fn by_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Bytes of a process's memory.
pub(super) fn read(memory: &File, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// A number of 64 bits in a process's memory.
pub(super) fn word(memory: &File, at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(read(memory, at, 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_names() {
        let maps = |paths: &[&str]| Maps {
            all: paths.iter().map(|it| Mapping { start: 0, end: 0, offset: 0, path: (*it).to_owned() }).collect(),
            ..Maps::default()
        };
        let torch = maps(&["/v/torch/_C.cpython-311-x86_64-linux-gnu.so"]);
        assert_eq!(torch.python_version("python3"), (Some((3, 11)), false));
        let free = maps(&["/v/torch/_C.cpython-313t-x86_64-linux-gnu.so"]);
        assert_eq!(free.python_version("python3"), (Some((3, 13)), true));
        assert_eq!(maps(&[]).python_version("libpython3.9.so.1.0"), (Some((3, 9)), false));
        assert_eq!(maps(&[]).python_version("python3.14t"), (Some((3, 14)), true));
        assert_eq!(maps(&[]).python_version("python"), (None, false));
    }
}
