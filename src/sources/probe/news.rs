//! The kernel's notifications about the socket directories: a probe may live for less time than lies between two scans.

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use std::{
    future::pending,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use tokio::io::unix::AsyncFd;

/// Notifies when a socket gets its name or a spill is written. If the kernel has no watches left, it never notifies,
/// and the directories are only scanned at intervals.
pub(super) struct News(Option<AsyncFd<OwnedFd>>);

impl News {
    #[expect(deprecated, reason = "deprecated for types that lie about their descriptor, which this one does not")]
    pub(super) fn new() -> Self {
        let kernel = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self(kernel.and_then(|it| AsyncFd::new(it).ok()))
    }

    /// Adds watches for these directories; keeps existing ones.
    pub(super) fn of<'a>(&self, directories: impl Iterator<Item = &'a PathBuf>) {
        let Some(kernel) = &self.0 else { return };
        let wanted = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        for directory in directories {
            let directory: &Path = directory;
            // A directory that is missing or not ours is scanned or skipped as before.
            let _ = add_watch(kernel.get_ref(), directory, wanted);
        }
    }

    /// Waits for a notification and takes it.
    pub(super) async fn come(&self) {
        let Some(kernel) = &self.0 else { return pending().await };
        let Ok(mut ready) = kernel.readable().await else { return pending().await };
        let mut taken = [MaybeUninit::<u8>::uninit(); 4096];
        while rustix::io::read(kernel.get_ref(), &mut taken).is_ok_and(|(read, _)| !read.is_empty()) {}
        ready.clear_ready();
    }
}
