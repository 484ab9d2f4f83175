//! Finds sockets, spills and answers in directories that belong to the user, explains why others are skipped, and
//! notifies of changes there: a probe may live for less time than lies between two scans.

use super::answers;
use crate::facts::text::Foreign;
use gpuwatch_probe::{
    error_file::is_name,
    socket::{Reason, check},
};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use std::{
    collections::HashSet,
    fs,
    future::pending,
    mem::MaybeUninit,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};
use tokio::io::unix::AsyncFd;

/// Most sockets, and most names, that are read of one directory.
const SOCKETS_MAX: usize = 4096;
const NAMES_MAX: usize = 1 << 16;

/// Identifies a socket by any path: device, inode, and creation time in ns, because inodes are reused.
pub(super) type SocketId = (u64, u64, i64);

/// A socket.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    pub(super) id: SocketId,
}

/// A spill or a file of answers that may be read.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) id: SocketId,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

/// The contents of the directories.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The trusted directories.
    pub(super) trusted: Vec<PathBuf>,
    pub(super) sockets: Vec<Socket>,
    pub(super) spills: Vec<Found>,
    /// Answers of replays.
    pub(super) answers: Vec<Found>,
    /// Why other directories are not trusted, for the user.
    pub(super) troubles: Vec<String>,
    /// Names beyond the limit.
    pub(super) names_left: u64,
}

impl Socket {
    pub(super) fn at(path: PathBuf) -> Option<Self> {
        let about = fs::symlink_metadata(&path).ok().filter(|it| it.file_type().is_socket())?;
        Some(Self { id: id(&about), path })
    }

    /// Returns whether its path still leads to it.
    pub(super) fn has_its_name(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|it| id(&it) == self.id)
    }
}

/// Returns every socket and every file, once.
pub(super) fn contents(directories: &[PathBuf]) -> Contents {
    let mut seen = HashSet::new();
    let mut out = Contents::default();
    for directory in directories {
        match check(directory) {
            Ok(()) => {}
            Err(Reason::Missing) => continue,
            // The private /tmp of a process that is ending, or that gpuwatch may not enter.
            Err(Reason::Unreadable(_)) if directory.starts_with("/proc") => continue,
            Err(why) => {
                let path = Foreign::new(directory.to_string_lossy());
                out.troubles.push(format!(
                    "the socket directory {path} is not used: {why}; remove it, or set GPUWATCH_SOCKET_DIR to another"
                ));
                continue;
            }
        }
        let Ok(about) = fs::symlink_metadata(directory) else { continue };
        if seen.insert((about.dev(), about.ino())) {
            out.trusted.push(directory.clone());
            out.add(directory);
        }
    }
    out.sockets.sort_by(|a, b| a.path.cmp(&b.path));
    out.spills.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
    out
}

impl Contents {
    fn add(&mut self, directory: &Path) {
        let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let before = self.sockets.len();
        for entry in entries.by_ref().take(NAMES_MAX) {
            let path = entry.path();
            if path.extension().is_some_and(|it| it == "sock") {
                if self.sockets.len() - before == SOCKETS_MAX {
                    self.names_left += 1;
                } else {
                    self.sockets.extend(Socket::at(path));
                }
            } else if entry.file_name().to_str().is_some_and(is_name) {
                self.spills.extend(found(path));
            } else if entry.file_name().to_str().is_some_and(answers::has_name) {
                self.answers.extend(found(path));
            }
        }
        self.names_left += entries.count() as u64;
    }
}

fn found(path: PathBuf) -> Option<Found> {
    let about = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
    // Files change, so their modification time does not identify them.
    let id = (about.dev(), about.ino(), 0);
    Some(Found { path, id, bytes: about.len(), modified: about.modified().ok()? })
}

fn id(about: &fs::Metadata) -> SocketId {
    (about.dev(), about.ino(), about.mtime() * 1_000_000_000 + about.mtime_nsec())
}

/// Notifies when a socket gets its name or a spill is written. If the kernel has no watches left, it never notifies,
/// and the directories are only scanned at intervals.
pub(super) struct Notifications(Option<AsyncFd<OwnedFd>>);

impl Notifications {
    #[expect(deprecated, reason = "deprecated for types that lie about their descriptor, which this one does not")]
    pub(super) fn new() -> Self {
        let kernel = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self(kernel.and_then(|it| AsyncFd::new(it).ok()))
    }

    /// Adds watches for these directories; keeps existing ones.
    pub(super) fn watch<'a>(&self, directories: impl Iterator<Item = &'a PathBuf>) {
        let Some(kernel) = &self.0 else { return };
        let wanted = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        for directory in directories {
            let directory: &Path = directory;
            // A directory that is missing or not ours is scanned or skipped as before.
            let _ = add_watch(kernel.get_ref(), directory, wanted);
        }
    }

    /// Waits for a notification and takes it.
    pub(super) async fn next(&self) {
        let Some(kernel) = &self.0 else { return pending().await };
        let Ok(mut ready) = kernel.readable().await else { return pending().await };
        let mut taken = [MaybeUninit::<u8>::uninit(); 4096];
        while rustix::io::read(kernel.get_ref(), &mut taken).is_ok_and(|(read, _)| !read.is_empty()) {}
        ready.clear_ready();
    }
}
