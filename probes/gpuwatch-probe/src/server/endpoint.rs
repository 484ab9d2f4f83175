//! The listening socket: created under a temporary name, listening, then renamed; created again if it vanishes.

use crate::{socket, sys, sys::Private};
use std::{
    fs, io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// Most names with one pid, which other pid namespaces or leftovers may have taken.
const NAMES_MAX: u32 = 64;

pub(crate) struct Endpoint {
    listener: Private<UnixListener>,
    path: PathBuf,
    inode: u64,
}

impl Endpoint {
    /// Listens in a checked directory as `<pid>.sock` or the first free `<pid>.<n>.sock`.
    pub(crate) fn bind(dir: &Path, pid: u32) -> io::Result<Self> {
        let temporary = dir.join(format!(".{pid}.{}.tmp", sys::monotonic_us()));
        let listener = Private::new(socket::with_address(&temporary, |it| UnixListener::bind(it))?);
        let named = || {
            listener.set_nonblocking(true)?;
            fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
            let inode = fs::symlink_metadata(&temporary)?.ino();
            let path = free_name(dir, pid)?;
            fs::rename(&temporary, &path)?;
            Ok((path, inode))
        };
        match named() {
            Ok((path, inode)) => Ok(Self { listener, path, inode }),
            Err(fault) => {
                let _ = fs::remove_file(&temporary);
                Err(fault)
            }
        }
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Returns whether the job has left the descriptor alone.
    pub(crate) fn is_intact(&self) -> bool {
        self.listener.is_ours()
    }

    /// Returns whether the name still leads here.
    pub(crate) fn is_there(&self) -> bool {
        // A removed file's inode may be reused.
        fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode && it.file_type().is_socket())
    }

    /// Removes the name, if it still leads here, and the file of figures beside it.
    pub(crate) fn remove(&self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(self.path.with_extension(socket::FIGURES));
        }
    }

    /// Returns the next connection, non-blocking.
    pub(crate) fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

fn free_name(dir: &Path, pid: u32) -> io::Result<PathBuf> {
    let names = (0..NAMES_MAX).map(|n| if n == 0 { format!("{pid}.sock") } else { format!("{pid}.{n}.sock") });
    for path in names.map(|it| dir.join(it)) {
        match fs::symlink_metadata(&path) {
            Err(_) => return Ok(path),
            Ok(_) if socket::is_stale(&path) => return Ok(path),
            Ok(_) => {}
        }
    }
    Err(io::Error::other(format!("{}: every name for process {pid} is taken", dir.display())))
}
