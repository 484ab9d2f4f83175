//! Directories for sockets, who may own them, and paths longer than a socket address.
//!
//! Probes and viewers share these rules, so that another user's socket can mislead neither.

use crate::sys;
use std::{
    env, fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt},
            net::{UnixDatagram, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// The longest path that fits into a socket's address, in bytes.
const ADDRESS_MAX: usize = 107;

/// The ending of the file beside a socket in which a recorder writes figures of the job, once the job has made it.
pub const FIGURES: &str = "figures";

const O_DIRECTORY: i32 = if cfg!(target_arch = "aarch64") { 0o40_000 } else { 0o200_000 };
pub(crate) const O_NOFOLLOW: i32 = if cfg!(target_arch = "aarch64") { 0o100_000 } else { 0o400_000 };

/// Why a directory is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It does not exist.
    Missing,
    /// It is a link: its owner chooses where it leads.
    Symlink,
    /// It is not a directory.
    NotADirectory,
    /// It belongs to the user with this uid.
    Foreign(u32),
    /// Other users may enter; the number is its mode.
    Mode(u32),
    /// The system's error.
    Unreadable(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it does not exist"),
            Self::Symlink => f.write_str("it is a symbolic link"),
            Self::NotADirectory => f.write_str("it is not a directory"),
            Self::Foreign(user) => write!(f, "it belongs to user {user}"),
            Self::Mode(mode) => write!(f, "its mode is {mode:04o}, and must be 0700"),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// Returns the directories for sockets, in the order that a probe tries them; viewers scan all.
pub fn directories() -> Vec<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    if let Some(chosen) = set("GPUWATCH_SOCKET_DIR") {
        return vec![chosen];
    }
    let mut candidates = vec![PathBuf::from(format!("/tmp/gpuwatch-{}", sys::user()))];
    // The login manager creates this one.
    if let Some(runtime) = set("XDG_RUNTIME_DIR").filter(|it| it.is_dir()) {
        candidates.push(runtime.join("gpuwatch"));
    }
    if let Some(home) = set("HOME") {
        candidates.push(home.join(".local/state/gpuwatch").join(format!("sock-{}", crate::identity::host())));
    }
    candidates
}

/// Checks that a directory is the user's own, has mode 0700 and is not a link.
pub fn check(dir: &Path) -> Result<(), Reason> {
    check_owner(dir, sys::user())
}

/// The same for another user's directory, for viewers that may read it.
pub fn check_owner(dir: &Path, user: u32) -> Result<(), Reason> {
    let found = match fs::symlink_metadata(dir) {
        Ok(found) => found,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Err(Reason::Missing),
        Err(fault) => return Err(Reason::Unreadable(fault.to_string())),
    };
    if found.file_type().is_symlink() {
        Err(Reason::Symlink)
    } else if !found.is_dir() {
        Err(Reason::NotADirectory)
    } else if found.uid() != user {
        Err(Reason::Foreign(found.uid()))
    } else if found.mode() & 0o777 != 0o700 {
        Err(Reason::Mode(found.mode() & 0o7777))
    } else {
        Ok(())
    }
}

/// Calls `act` with the first of `candidates` that is the user's own and in which it succeeds, creating directories if
/// necessary; returns the reasons if there is none.
pub(crate) fn take<T>(candidates: &[PathBuf], mut act: impl FnMut(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut reasons = Vec::new();
    for dir in candidates {
        // A directory that cannot be created fails the check, which names the reason.
        let _ = make(dir);
        let taken = check(dir).map_err(|why| why.to_string()).and_then(|()| act(dir).map_err(|it| it.to_string()));
        match taken {
            Ok(taken) => return Ok(taken),
            Err(why) => reasons.push(format!("{}: {why}", dir.display())),
        }
    }
    let reasons = reasons.join("; ");
    Err(io::Error::other(format!(
        "no directory for the socket ({reasons}): set GPUWATCH_SOCKET_DIR to one of mode 0700"
    )))
}

/// Creates the directory that a probe of this user would use, so that it can be watched before there is a probe.
pub fn prepare() {
    let _ = take(&directories(), |_| Ok(()));
}

fn make(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir).is_ok() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    DirBuilder::new().mode(0o700).create(dir)
}

/// Calls `act` with a path to the same socket that fits into an address, whatever the length of `path`.
pub fn with_address<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= ADDRESS_MAX {
        return act(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let dir: File = OpenOptions::new().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(dir)?;
    act(&Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// Connects to a probe's socket.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_address(path, |it| UnixStream::connect(it))
}

/// Returns whether this is a socket without a listener. Other kinds of files are not.
///
/// Connects with a datagram socket: a dead socket refuses it, and a live one, listening or about to, has the wrong
/// type, so the test neither waits nor disturbs the probe.
pub fn is_stale(path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        return false;
    }
    let asked = UnixDatagram::unbound().and_then(|it| with_address(path, |address| it.connect(address)));
    asked.is_err_and(|fault| fault.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the sockets of ended probes from a checked directory.
///
/// Removes nothing else: other sockets belong to other programs, and one whose process runs may still be in use.
pub fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|it| !sys::is_running(it)) && is_stale(&entry.path()) {
            // Another process may have removed it meanwhile.
            let _ = fs::remove_file(entry.path());
            let _ = fs::remove_file(entry.path().with_extension(FIGURES));
        }
    }
}

/// Returns the pid in a socket's name: `<pid>.sock`, `<pid>.<n>.sock`, or `.<pid>.<µs>.tmp` until it listens.
fn owner(name: &str) -> Option<u32> {
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    let words = match name.strip_prefix('.') {
        Some(hidden) => hidden.strip_suffix(".tmp").filter(|it| it.contains('.')),
        None => name.strip_suffix(".sock"),
    }?;
    let (pid, rest) = words.split_once('.').map_or((words, None), |(pid, rest)| (pid, Some(rest)));
    let is_ours = is_number(pid) && rest.is_none_or(is_number);
    pid.parse().ok().filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn only_names_that_probes_make_have_an_owner() {
        let cases = [("42.sock", Some(42)), ("42.1.sock", Some(42)), (".42.1700.tmp", Some(42))];
        let others = [
            "notes.sock",
            "42.sock.bak",
            "42..sock",
            "42.a.sock",
            ".42.tmp",
            "42.1700.tmp",
            "4_2.sock",
            ".sock",
            "+4.sock",
        ];
        for (name, pid) in cases.into_iter().chain(others.map(|it| (it, None))) {
            assert_eq!(owner(name), pid, "{name}");
        }
    }
}
