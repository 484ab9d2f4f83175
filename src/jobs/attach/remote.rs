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

/// The bit of the "eval breaker" that asks the thread to look.
const PLEASE_STOP: u64 = 1 << 5;

/// Where the fields for debuggers stand in the table of a release: they are its last, and what is before them grows.
fn support_at(minor: u8) -> Option<u64> {
    match minor {
        14 => Some(720),
        15 => Some(848),
        _ => None,
    }
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
        let at = support_at(minor).filter(|_| major == 3 && !is_free_threaded)?;
        let field = |number: u64| word(memory, runtime + at + 8 * number);
        let interpreter = word(memory, runtime + word(memory, runtime + INTERPRETERS)?)?;
        let thread = word(memory, interpreter + word(memory, runtime + MAIN_THREAD)?)?;
        let found = Self {
            interpreter,
            thread,
            eval_breaker: field(0)?,
            support: field(1)?,
            enabled: field(2)?,
            pending: field(3)?,
            path: field(4)?,
            path_size: field(5)?,
        };
        let is_sane = thread != 0 && (16..1 << 16).contains(&found.path_size) && found.support < 1 << 20;
        is_sane.then_some(found)
    }
}

/// Whether Python takes scripts; `None` where it does not say.
pub(super) fn takes_scripts(memory: &File, runtime: u64) -> Option<bool> {
    let fields = Fields::find(memory, runtime)?;
    let enabled = read(memory, fields.interpreter + fields.enabled, 4)?;
    Some(enabled.iter().any(|it| *it != 0))
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
