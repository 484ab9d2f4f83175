//! The spill: a file beside the socket with what may reach no reader otherwise, above all an out-of-memory error.
//!
//! A process can be gone microseconds after its error, before any reader hears of it, or before there is one. So the
//! thread that ran out of memory writes the error to a file itself. The file holds what a viewer would get from the
//! socket: hello, the latest samples, the error, and, once it is known, the end. Readers look for it where a probe
//! ended without a bye, or was never connected; sequence numbers tell them what they have.
//!
//! A file is the owner's alone, of bounded size, and written to by path each time: a job may close any descriptor that
//! it does not know. `gpuwatch run` removes the spills of its job; others go after [`KEPT`], with [`sweep`].

use crate::{
    history::{Cursor, History},
    socket::O_NOFOLLOW,
    sys,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The largest spill, in bytes: about 1,500 errors with their words. A job that retries for ever keeps its first errors
/// there.
pub const BYTES_MAX: usize = 2 << 20;

/// How long an unread spill stays.
pub const KEPT: Duration = Duration::from_secs(600);

/// Spills in one directory; past it, the oldest goes.
const FILES_MAX: usize = 256;

const O_NONBLOCK: i32 = 0o4000;

/// Lines before the first error that are written with it.
const LINES_BEFORE: u64 = 256;

pub(crate) struct Spill {
    path: PathBuf,
    inode: u64,
    cursor: Cursor,
    bytes: usize,
    text: String,
}

impl Spill {
    /// Makes the file in a directory that has been checked; its first line is `hello`.
    pub(crate) fn create(dir: &Path, name: &str, hello: String, history: &History) -> io::Result<Self> {
        sweep(dir);
        let path = dir.join(name);
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(O_NOFOLLOW).open(&path);
        let inode = open()?.metadata()?.ino();
        let cursor = Cursor::new(history.seq().saturating_sub(LINES_BEFORE), history);
        Ok(Self { path, inode, cursor, bytes: 0, text: hello })
    }

    /// Whether it still has its name.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode && it.is_file())
    }

    /// Removes the file, if it still has its name.
    pub(crate) fn remove(self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Appends what came since, in one write of whole lines, as far as there is room.
    pub(crate) fn append(&mut self, history: &History) -> io::Result<()> {
        loop {
            let before = self.text.len();
            if !self.cursor.write_next(history, &mut self.text) {
                break;
            }
            if self.bytes + self.text.len() > BYTES_MAX {
                self.text.truncate(before);
                self.bytes = BYTES_MAX;
                break;
            }
        }
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(text.len());
        let mut file = OpenOptions::new().append(true).custom_flags(O_NOFOLLOW).open(&self.path)?;
        file.write_all(text.as_bytes())
    }
}

/// The name of a probe's spill.
pub fn name(pid: u32, instance: &str) -> String {
    format!("{pid}.{instance}.spill")
}

/// Whether a spill may have this name.
pub fn is_name(name: &str) -> bool {
    let mut parts = name.split('.');
    let (pid, instance, kind, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
    pid.is_some_and(|it| it.parse::<u32>().is_ok())
        && instance.is_some_and(|it| it.len() == 32 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
        && kind == Some("spill")
        && rest.is_none()
}

/// Opens a spill for reading: a regular file that this user owns.
///
/// # Errors
/// When it is none, or is gone.
pub fn open(path: &Path) -> io::Result<File> {
    // A pipe in its place must not be waited for.
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    let own = found.uid() == sys::user() || sys::user() == 0;
    if found.is_file() && own && found.mode() & 0o777 == 0o600 {
        Ok(file)
    } else {
        Err(io::Error::other("it is no spill of this user's"))
    }
}

/// Removes unread spills, and the oldest if there are too many. The directory has been checked.
pub fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let now = SystemTime::now();
    let spill = |entry: fs::DirEntry| {
        let found = entry.metadata().ok()?;
        let is_ours = entry.file_name().to_str().is_some_and(is_name) && found.is_file() && found.uid() == sys::user();
        is_ours.then_some((found.modified().ok()?, entry.path()))
    };
    let mut spills: Vec<_> = entries.flatten().filter_map(spill).collect();
    spills.sort();
    let surplus = (spills.len() + 1).saturating_sub(FILES_MAX);
    for (at, (modified, path)) in spills.iter().enumerate() {
        let is_old = now.duration_since(*modified).is_ok_and(|it| it > KEPT);
        if is_old || at < surplus {
            // Another may have removed it meanwhile.
            let _ = fs::remove_file(path);
        }
    }
}
