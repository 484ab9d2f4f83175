//! What a command writes for its user: standard output, and files that it makes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

/// The name that stands for standard output.
const STDOUT: &str = "-";

/// Writes a text to standard output.
///
/// # Errors
/// As [`write`].
pub fn print(text: &str) -> io::Result<()> {
    write(|out| out.write_all(text.as_bytes()))
}

/// Lets `how` write to standard output, and flushes it.
///
/// # Errors
/// When it cannot be written; with the kind that the failed write had.
pub fn write<T>(how: impl FnOnce(&mut io::StdoutLock) -> io::Result<T>) -> io::Result<T> {
    let mut out = io::stdout().lock();
    let written = how(&mut out).and_then(|it| out.flush().map(|()| it));
    written.map_err(|e| io::Error::new(e.kind(), format!("cannot write to standard output: {e}")))
}

/// Whether a path stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == STDOUT
}

/// Opens what a user named for an output: `-` is standard output, everything else a new file.
///
/// # Errors
/// As [`open_new`].
pub fn create(path: &Path) -> io::Result<File> {
    if is_stdout(path) { Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)) } else { open_new(path) }
}

/// Writes a new file; where that fails, there is none.
///
/// # Errors
/// When it exists, cannot be made, or cannot be written whole.
pub fn save(path: &Path, text: &str) -> io::Result<()> {
    let mut file = open_new(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}

/// Opens a file that must not exist yet, readable by its owner only.
///
/// # Errors
/// When it exists or cannot be made.
pub fn open_new(path: &Path) -> io::Result<File> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(e.kind(), "it exists already and is not written over: name another file")
        }
        _ => e,
    })
}
