//! Sockets in the directories that are the user's own, and why another directory is not looked into.

use crate::text::Foreign;
use gpuwatch_probe::socket::{Reason, check};
use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// More names than this in one directory are not looked at.
const NAMES_MAX: usize = 4096;

/// A socket and what tells it apart, whatever path leads to it.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    /// Device and inode number.
    pub(super) inode: (u64, u64),
}

/// Every socket, once; and in words for the user, which directories were not trusted.
pub(super) fn sockets(directories: &[PathBuf]) -> (Vec<Socket>, Vec<String>) {
    let mut seen = HashSet::new();
    let (mut found, mut troubles) = (Vec::new(), Vec::new());
    for directory in directories {
        match check(directory) {
            Ok(()) => {}
            Err(Reason::Missing) => continue,
            // The private /tmp of a process that is going, or that we may not enter.
            Err(Reason::Unreadable(_)) if directory.starts_with("/proc") => continue,
            Err(why) => {
                let path = Foreign::new(directory.to_string_lossy());
                troubles.push(format!(
                    "the socket directory {path} is not used: {why}; remove it, or set GPUWATCH_SOCKET_DIR to another"
                ));
                continue;
            }
        }
        let Some(inode) = inode(directory) else { continue };
        if seen.insert(inode) {
            found.extend(in_directory(directory));
        }
    }
    (found, troubles)
}

fn in_directory(directory: &Path) -> Vec<Socket> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut sockets: Vec<Socket> = entries
        .flatten()
        .take(NAMES_MAX)
        .filter(|it| it.path().extension().is_some_and(|it| it == "sock"))
        .filter(|it| it.file_type().is_ok_and(|it| it.is_socket()))
        .filter_map(|it| Some(Socket { inode: inode(&it.path())?, path: it.path() }))
        .collect();
    sockets.sort_by(|a, b| a.path.cmp(&b.path));
    sockets
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let about = fs::symlink_metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}
