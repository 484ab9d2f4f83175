//! What a command writes for its user: standard output, and new files.

use crate::facts::text::Foreign;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    ffi::OsString,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Stands for standard output.
const STDOUT: &str = "-";

/// Writes a text to standard output.
///
/// # Errors
/// As [`write`].
pub fn print(text: &str) -> io::Result<()> {
    write(|out| out.write_all(text.as_bytes()))
}

/// Prints a message for the user on standard error, after the program's name. Escapes it, whatever it quotes.
pub fn message(text: fmt::Arguments) {
    let text = text.to_string();
    let lines: Vec<String> = text.split('\n').map(|it| Foreign::new(it).to_string()).collect();
    // Without stderr there is no place left for a message.
    let _ = writeln!(io::stderr(), "gpuwatch: {}", lines.join("\n"));
}

/// Lets `how` write to standard output, then flushes.
///
/// # Errors
/// Fails with the error kind of the failed write.
pub fn write<T>(how: impl FnOnce(&mut io::StdoutLock) -> io::Result<T>) -> io::Result<T> {
    let mut out = io::stdout().lock();
    let written = how(&mut out).and_then(|it| out.flush().map(|()| it));
    written.map_err(|e| io::Error::new(e.kind(), format!("cannot write to standard output: {e}")))
}

/// Returns whether a path stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == STDOUT
}

/// Returns whether standard output is a pipe whose reader is gone.
pub fn is_unread() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|_| asked[0].revents().contains(PollFlags::ERR))
}

/// Opens an output: `-` is standard output, everything else a new file.
///
/// # Errors
/// As [`open_new`].
pub fn create(path: &Path) -> io::Result<File> {
    if is_stdout(path) { Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)) } else { open_new(path) }
}

/// Writes a text into a new file.
///
/// # Errors
/// As [`save_with`].
pub fn save(path: &Path, text: &str) -> io::Result<()> {
    save_with(path, |out| out.write_all(text.as_bytes()))
}

/// Lets `how` write into a new file, and removes the file if that fails.
///
/// # Errors
/// Fails if the file exists, or cannot be created or written.
pub fn save_with<T>(path: &Path, how: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let mut out = BufWriter::new(open_new(path)?);
    let written = how(&mut out).and_then(|it| out.flush().map(|()| it));
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

/// Replaces a file at once: a reader gets the old or the new text.
///
/// # Errors
/// Fails if it cannot be written.
pub fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut beside = OsString::from(path);
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    // A process with the same number may have died here.
    let _ = fs::remove_file(&beside);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Creates a file that must not exist, readable by its owner only.
///
/// # Errors
/// Fails if it exists or cannot be created.
pub fn open_new(path: &Path) -> io::Result<File> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(e.kind(), "it exists already and is not written over: name another file")
        }
        _ => e,
    })
}
