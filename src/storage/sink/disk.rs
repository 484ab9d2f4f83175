//! A file that continues once its disk takes bytes again.
//!
//! It keeps room on the disk beyond its end, so that the last lines of a recording can be written although the disk is
//! full: they describe what is missing.

use crate::storage::output::open_new;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
    process::{Resource, getrlimit},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

/// Room kept beyond the end, in bytes.
const RESERVE: u64 = 16 << 10;

/// Room that a disk must have again before the file continues, in bytes: enough for a while.
const AGAIN: u64 = 256 << 10;

/// A file recognises itself by its first bytes.
const FIRST: usize = 256;

/// The file.
pub(super) struct Disk {
    /// `None` while it could not be made.
    file: Option<File>,
    /// Where it can be opened again; `None` of a pipe.
    path: Option<PathBuf>,
    /// Where the next byte goes; `None` in a pipe.
    at: Option<u64>,
    /// Whether a part of a failed write lies behind that.
    is_torn: bool,
    /// The end of the room that the disk keeps.
    reserved: u64,
    /// Its first bytes.
    first: Vec<u8>,
}

impl Disk {
    /// Continues at the end of a file.
    pub(super) fn of(file: File) -> Self {
        let about = file.metadata().ok().filter(fs::Metadata::is_file);
        let at = about.as_ref().map(fs::Metadata::len);
        // Not every caller knows a path.
        let path = at.and_then(|_| fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok());
        Self { file: Some(file), path, at, is_torn: false, reserved: 0, first: Vec::new() }
    }

    /// Makes the file at the first write for which there is room.
    pub(super) fn planned(path: PathBuf) -> Self {
        Self { file: None, path: Some(path), at: Some(0), is_torn: false, reserved: 0, first: Vec::new() }
    }

    /// Returns the file, if there is one.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Returns the file, if there is one, without the room beyond its end.
    pub(super) fn into_file(self) -> Option<File> {
        if let Some((file, at)) = self.file.as_ref().zip(self.at) {
            // Without it the file takes more room than it has bytes.
            let _ = file.set_len(at);
        }
        self.file
    }

    /// Appends bytes, and keeps room beyond them.
    ///
    /// # Errors
    /// Fails if not all could be written: then the next ones take their place.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.reserve(bytes.len()).and_then(|()| self.write(bytes));
        // A file system was mounted again: the descriptor is of the one before.
        if written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::StaleNetworkFileHandle) && self.open_again()? {
            return self.reserve(bytes.len()).and_then(|()| self.write(bytes));
        }
        written
    }

    /// Checks that the disk has room for more than a few bytes.
    ///
    /// # Errors
    /// Fails if it has not, or the file cannot be made.
    pub(super) fn has_room(&mut self) -> io::Result<()> {
        let most = getrlimit(Resource::Fsize).current;
        if self.at.zip(most).is_some_and(|(at, most)| at + AGAIN > most) {
            return Err(Errno::FBIG.into());
        }
        self.keep(AGAIN)
    }

    /// Appends the last bytes, also into the room that is kept for them.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(super) fn append_last(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)
    }

    /// Returns whether the file's name was removed.
    pub(super) fn is_removed(&self) -> bool {
        let about = self.file.as_ref().filter(|_| self.at.is_some()).and_then(|it| it.metadata().ok());
        about.is_some_and(|it| it.nlink() == 0)
    }

    /// Leaves a file that was removed; the next write makes another one in its place.
    pub(super) fn begin_again(&mut self) {
        if let Some(path) = self.path.take() {
            *self = Self::planned(path);
        }
    }

    fn open(&mut self) -> io::Result<&mut File> {
        if let (None, Some(path)) = (&self.file, &self.path) {
            self.file = Some(open_new(path)?);
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens the file again; false if another one has its name now.
    fn open_again(&mut self) -> io::Result<bool> {
        let (Some(path), Some(at)) = (&self.path, self.at) else { return Ok(false) };
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let mut first = vec![0; self.first.len()];
        file.read_exact_at(&mut first, 0)?;
        let is_same = first == self.first && file.metadata()?.len() >= at;
        if is_same {
            (self.file, self.reserved) = (Some(file), 0);
        }
        Ok(is_same)
    }

    /// Has the disk keep room for these bytes, and for the last ones.
    fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        let reserved = self.reserved;
        self.open()?;
        let Some(at) = self.at else { return Ok(()) };
        let needed = bytes as u64 + RESERVE;
        if at + needed <= reserved { Ok(()) } else { self.keep(needed + RESERVE) }
    }

    /// Has the disk keep so much room behind what is written.
    fn keep(&mut self, room: u64) -> io::Result<()> {
        let at = self.at;
        let file = self.open()?;
        let Some(at) = at else { return Ok(()) };
        match fallocate(&*file, FallocateFlags::KEEP_SIZE, at, room) {
            Ok(()) => self.reserved = at + room,
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::STALE)) => return Err(e.into()),
            // Not every file system can keep room. The write notices that its disk is full.
            Err(_) => {}
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (at, is_torn) = (self.at, self.is_torn);
        let file = self.open()?;
        let Some(at) = at else { return file.write_all(bytes) };
        if is_torn {
            file.set_len(at)?;
        }
        self.is_torn = true;
        let file = self.open()?;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        self.is_torn = false;
        if self.first.len() as u64 == at {
            let missing = FIRST.saturating_sub(self.first.len());
            self.first.extend(bytes.iter().take(missing));
        }
        self.at = Some(at + bytes.len() as u64);
        Ok(())
    }
}

/// Limit for the last sync: written data survives without it unless the machine itself crashes.
const LAST_SYNC: Duration = Duration::from_millis(500);

/// The thread.
pub(super) struct Syncer {
    ask: SyncSender<Vec<File>>,
    last: Receiver<io::Result<()>>,
}

impl Syncer {
    /// Starts it.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(super) fn start() -> io::Result<Self> {
        let (ask, asked) = sync_channel::<Vec<File>>(1);
        let (report, last) = sync_channel(1);
        thread::Builder::new().name("sync".into()).spawn(move || {
            let mut latest = Ok(());
            for files in asked {
                // Only the last sync is reported: the one-second guarantee covers killed processes.
                latest = files.iter().map(sync).fold(Ok(()), io::Result::and);
            }
            let _ = report.send(latest);
        })?;
        Ok(Self { ask, last })
    }

    /// Asks for a sync. While one waits already, that one is enough.
    ///
    /// # Errors
    /// Fails without a free descriptor.
    pub(super) fn ask<'a>(&self, files: impl IntoIterator<Item = &'a File>) -> io::Result<()> {
        let files = files.into_iter().map(File::try_clone).collect::<io::Result<_>>()?;
        let _ = self.ask.try_send(files);
        Ok(())
    }

    /// Syncs a last time. Does not wait for a slow disk, because a job's end waits for the recording's.
    ///
    /// # Errors
    /// Fails if a file cannot be synced.
    pub(super) fn finish(self, files: Vec<File>) -> io::Result<()> {
        let _ = self.ask.try_send(files);
        drop(self.ask);
        // An error is a wait that is over.
        self.last.recv_timeout(LAST_SYNC).unwrap_or(Ok(()))
    }
}

fn sync(file: &File) -> io::Result<()> {
    match file.sync_data() {
        // A pipe cannot be synced.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after a file system was mounted again, where the earlier descriptor is stale.
    #[test]
    fn a_file_is_opened_again_if_it_is_the_same() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("r");
        let mut disk = Disk::of(open_new(&path).unwrap());
        disk.append(b"first ").unwrap();
        let replace = |text: &str| {
            fs::write(home.path().join("new"), text).unwrap();
            fs::rename(home.path().join("new"), &path).unwrap();
        };
        replace("first ");
        assert!(disk.open_again().unwrap());
        disk.append(b"second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first second");
        replace("another's file");
        assert!(!disk.open_again().unwrap());
        replace("");
        assert!(disk.open_again().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "", "nothing is written over");
    }
}
