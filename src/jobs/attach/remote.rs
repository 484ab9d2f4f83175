//! Python's protocol for debuggers (PEP 768, Python 3.14 and newer): a script's path is written into the main
//! thread's state, and a bit asks Python to run it. Nothing is stopped.

use super::maps::{read, word};
use std::{fs::File, io, os::unix::fs::FileExt};

/// What the table of offsets begins with, at the address of `_PyRuntime`.
const COOKIE: &[u8] = b"xdebugpy";

/// Offsets in that table, of offsets that every release has: the list of interpreters, and an interpreter's main
/// thread.
const INTERPRETERS: u64 = 40;
const MAIN_THREAD: u64 = 80;

/// The bit of the "eval breaker" that requests the thread to check for a script.
const PLEASE_STOP: u64 = 1 << 5;

/// Where the table's fields begin, and how many of them are read.
const FIELDS: u64 = 24;
const FIELDS_MAX: usize = 256;

/// The fields for debuggers are the table's last six, and what is before them differs between releases. The last
/// three are the layout of a struct that is the same in all of them: a number of four bytes, and a path.
const STRUCT: [u64; 3] = [0, 4, 512];

/// Returns the six fields for debuggers of a table.
fn for_debuggers(table: &[u64]) -> Option<[u64; 6]> {
    table.windows(6).find(|it| it[3..] == STRUCT)?.try_into().ok()
}

/// Addresses and sizes of the fields.
struct Fields {
    interpreter: u64,
    thread: u64,
    eval_breaker: u64,
    support: u64,
    enabled: u64,
    pending: u64,
    path: u64,
    path_size: u64,
}

impl Fields {
    fn find(memory: &File, runtime: u64) -> Option<Self> {
        if read(memory, runtime, COOKIE.len())? != COOKIE {
            return None;
        }
        // 0x030E00F0 is 3.14.0.
        let [_, _, minor, major, ..] = word(memory, runtime + 8)?.to_le_bytes();
        let is_free_threaded = word(memory, runtime + 16)? != 0;
        if major != 3 || minor < 14 || is_free_threaded {
            return None;
        }
        let bytes = read(memory, runtime + FIELDS, 8 * FIELDS_MAX)?;
        let table: Vec<u64> =
            bytes.chunks_exact(8).filter_map(|it| Some(u64::from_le_bytes(it.try_into().ok()?))).collect();
        let [eval_breaker, support, enabled, pending, path, path_size] = for_debuggers(&table)?;
        let interpreter = word(memory, runtime + word(memory, runtime + INTERPRETERS)?)?;
        let thread = word(memory, interpreter + word(memory, runtime + MAIN_THREAD)?)?;
        let is_sane = thread != 0 && eval_breaker < 1 << 12 && support < 1 << 16 && enabled < 1 << 20;
        let found = Self { interpreter, thread, eval_breaker, support, enabled, pending, path, path_size };
        is_sane.then_some(found)
    }
}

/// Returns whether Python takes scripts; `None` if it does not report it.
pub(super) fn takes_scripts(memory: &File, runtime: u64) -> Option<bool> {
    let fields = Fields::find(memory, runtime)?;
    match read(memory, fields.interpreter + fields.enabled, 4)?[..] {
        [0, 0, 0, 0] => Some(false),
        [1, 0, 0, 0] => Some(true),
        _ => None,
    }
}

/// Has Python run a script.
///
/// # Errors
/// When its memory is not as expected, another script waits, or the path is too long.
pub(super) fn run(memory: &File, runtime: u64, script: &[u8]) -> io::Result<()> {
    let fields = Fields::find(memory, runtime).ok_or_else(|| io::Error::other("its state cannot be read"))?;
    let support = fields.thread + fields.support;
    if script.len() as u64 >= fields.path_size {
        return Err(io::Error::other("the path of its directory for temporary files is too long"));
    }
    let pending = read(memory, support + fields.pending, 4);
    if pending.is_none_or(|it| it.iter().any(|byte| *byte != 0)) {
        return Err(io::Error::other("a debugger's script waits in it"));
    }
    let path: Vec<u8> = script.iter().copied().chain([0]).collect();
    memory.write_all_at(&path, support + fields.path)?;
    memory.write_all_at(&1_i32.to_le_bytes(), support + fields.pending)?;
    let breaker = fields.thread + fields.eval_breaker;
    let now = word(memory, breaker).ok_or_else(|| io::Error::other("its state cannot be read"))?;
    memory.write_all_at(&(now | PLEASE_STOP).to_le_bytes(), breaker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_a_table_of_any_length() {
        // The end of Python 3.14.8's table, and what follows it.
        let end = [67, 24, 304, 8076, 0, 4, 512, 1, 4_294_967_297];
        for before in [86, 102] {
            let table: Vec<u64> = (0..before).map(|it| 8 * it).chain(end).collect();
            assert_eq!(for_debuggers(&table), Some([24, 304, 8076, 0, 4, 512]));
        }
        assert_eq!(for_debuggers(&[0; 86]), None);
    }
}
