//! The listening socket: under a temporary name, listening, then renamed; found again when it vanished.

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

/// So many names of one process number may be taken, by other pid namespaces or by leftovers of others.
const NAMES_MAX: u32 = 64;

pub(crate) struct Endpoint {
    listener: Private<UnixListener>,
    path: PathBuf,
    inode: u64,
}

impl Endpoint {
    /// Listens in `dir`, which has been checked, as `<pid>.sock` or the first `<pid>.<n>.sock` that is free.
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

    /// Where viewers find it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Whether the job has left the descriptor alone.
    pub(crate) fn is_intact(&self) -> bool {
        self.listener.is_ours()
    }

    /// Whether the name still leads here.
    pub(crate) fn is_there(&self) -> bool {
        // The number of a file that is gone may be another file's.
        fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode && it.file_type().is_socket())
    }

    /// Takes the name away, if it still leads here.
    pub(crate) fn remove(&self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// The next connection, non-blocking.
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
