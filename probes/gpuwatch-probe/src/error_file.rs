//! The error file: a file next to the socket for lines that no reader may receive otherwise, above all an out-of-memory
//! error.
//!
//! A process can be gone microseconds after its error, before any reader receives it or exists. So the thread that ran
//! out of memory writes the error to a file itself. The file has what a viewer would get from the socket: the hello,
//! the latest samples, the error, and the end once it is known. Readers check for it if a probe ended without a bye, or
//! was never connected; sequence numbers show which lines they have.
//!
//! Only its owner can read it, its size is bounded, and each write opens it by path, because a job may close any
//! unknown descriptor. `gpuwatch run` removes the error files of its job; [`sweep`] removes others after [`KEPT`].

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

/// The largest error file, in bytes: about 1,500 errors with their messages. For a job that retries forever it keeps
/// the first errors.
pub const BYTES_MAX: usize = 2 << 20;

/// How long an unread error files is kept.
pub const KEPT: Duration = Duration::from_secs(600);

/// Most error files in one directory; beyond that, the oldest is removed.
const FILES_MAX: usize = 256;

const O_NONBLOCK: i32 = 0o4000;

/// The lines before an error that are written with it: samples further back would take the room of later errors.
const LINES_BEFORE: u64 = 256;

pub(crate) struct ErrorFile {
    path: PathBuf,
    inode: u64,
    cursor: Cursor,
    bytes: usize,
    text: String,
}

impl ErrorFile {
    /// Creates the file in a checked directory; its first line is `hello`.
    pub(crate) fn create(dir: &Path, name: &str, hello: String, history: &History) -> io::Result<Self> {
        sweep(dir);
        let path = dir.join(name);
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(O_NOFOLLOW).open(&path);
        let inode = open()?.metadata()?.ino();
        let cursor = Cursor::new(history.seq().saturating_sub(LINES_BEFORE), history);
        Ok(Self { path, inode, cursor, bytes: 0, text: hello })
    }

    /// Returns whether it still has its name.
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
        self.cursor.skip_samples(history.seq().saturating_sub(LINES_BEFORE));
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

/// Returns the name of a probe's error file.
pub fn name(pid: u32, instance: &str) -> String {
    format!("{pid}.{instance}.spill")
}

/// Returns whether an error file may have this name.
pub fn is_name(name: &str) -> bool {
    instance(name).is_some()
}

/// Returns the probe whose error file would have this name; `None` if no error file has such a name.
pub fn instance(name: &str) -> Option<&str> {
    let (pid, rest) = name.split_once('.')?;
    let instance = rest.strip_suffix(".spill")?;
    let is_instance = instance.len() == 32 && instance.bytes().all(|byte| byte.is_ascii_hexdigit());
    (pid.parse::<u32>().is_ok() && is_instance).then_some(instance)
}

/// Opens an error file for reading: a regular file that this user owns.
///
/// # Errors
/// Fails if it is not one, or is gone.
pub fn open(path: &Path) -> io::Result<File> {
    // Must not block on a pipe in its place.
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    let own = found.uid() == sys::user() || sys::user() == 0;
    if found.is_file() && own && found.mode() & 0o777 == 0o600 {
        Ok(file)
    } else {
        Err(io::Error::other("it is no error file of this user's"))
    }
}

/// Removes unread error files, and the oldest if there are too many, from a checked directory.
pub fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let now = SystemTime::now();
    let error_file = |entry: fs::DirEntry| {
        let found = entry.metadata().ok()?;
        let is_ours = entry.file_name().to_str().is_some_and(is_name) && found.is_file() && found.uid() == sys::user();
        is_ours.then_some((found.modified().ok()?, entry.path()))
    };
    let mut files: Vec<_> = entries.flatten().filter_map(error_file).collect();
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(FILES_MAX);
    for (at, (modified, path)) in files.iter().enumerate() {
        let is_old = now.duration_since(*modified).is_ok_and(|it| it > KEPT);
        if is_old || at < surplus {
            // Another process may have removed it meanwhile.
            let _ = fs::remove_file(path);
        }
    }
}
