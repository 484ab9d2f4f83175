//! Whether the Python of a process runs: read from its `_PyRuntime`, before anything is asked of it. Only reads.

use super::maps::{read, word};
use std::fs::File;

/// What the table of offsets begins with, at the address of `_PyRuntime`.
pub(super) const COOKIE: &[u8] = b"xdebugpy";

/// The first minor version of Python 3 with that table.
const TABLE_MIN: u32 = 13;

/// Offsets in that table, of offsets that every release has: the thread that shuts Python down, and the list of
/// interpreters.
const FINALIZING: u64 = 32;
pub(super) const INTERPRETERS: u64 = 40;

/// The state of Python in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runtime {
    /// Where `_PyRuntime` is.
    pub(super) address: u64,
    /// 3.11 has 11.
    pub(super) minor: u32,
}

impl Runtime {
    /// Whether Python has started and not begun to shut down; `None` where its memory is not as known.
    pub(super) fn runs(self, memory: &File) -> Option<bool> {
        if self.minor < TABLE_MIN { self.is_flagged(memory) } else { self.is_listed(memory) }
    }

    /// The same where the state begins with `_initialized` (from 3.11 on), `preinitializing`, `preinitialized`,
    /// `core_initialized`, `initialized` and `_finalizing`.
    fn is_flagged(self, memory: &File) -> Option<bool> {
        let (initialized, finalizing) = if self.minor < 11 { (12, 16) } else { (16, 24) };
        let flags = read(memory, self.address + initialized - 8, 12)?;
        let flag = |at: usize| Some(u32::from_le_bytes(flags.get(4 * at..4 * at + 4)?.try_into().ok()?));
        match [flag(0)?, flag(1)?, flag(2)?] {
            [1, 1, 1] => Some(word(memory, self.address + finalizing)? == 0),
            [0 | 1, 0 | 1, 0] => Some(false),
            _ => None,
        }
    }

    /// The same where it begins with the table.
    fn is_listed(self, memory: &File) -> Option<bool> {
        if read(memory, self.address, COOKIE.len())? != COOKIE {
            return None;
        }
        let field = |at| word(memory, self.address.checked_add(word(memory, self.address + at)?)?);
        Some(field(FINALIZING)? == 0 && field(INTERPRETERS)? != 0)
    }
}
