//! A file that continues once its disk takes bytes again.
//!
//! It keeps room on the disk beyond its end, so that the last lines of a recording can be written although the disk is
//! full: they describe what is missing.
//!
//! A disk may accept bytes and fail later to keep them, as NFS does beyond a quota: then a sync fails, and only once.
//! So the file remembers what no sync has confirmed, and writes it again.

use crate::storage::{output::open_new, sink::trace_sync::TraceSync};
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
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel},
    thread,
    time::{Duration, Instant},
};

/// Room kept beyond the end, in bytes.
const RESERVE: u64 = 16 << 10;

/// Room that a disk must have again before the file continues, in bytes: enough for a while.
const AGAIN: u64 = 256 << 10;

/// A file recognises itself by its first bytes.
const FIRST: usize = 256;

/// Most bytes that are remembered: beyond them a write waits for a sync.
const UNSYNCED_MAX: usize = 512 << 10;

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
    /// Its last bytes, which no sync has confirmed.
    unsynced: Vec<u8>,
    /// How many of them the current sync confirms, and its outcome.
    syncing: Option<(usize, Receiver<io::Result<()>>)>,
    /// Whether the disk may have lost them.
    is_lost: bool,
}

impl Disk {
    /// Continues at the end of a file.
    pub(super) fn of(file: File) -> Self {
        let about = file.metadata().ok().filter(fs::Metadata::is_file);
        let at = about.as_ref().map(fs::Metadata::len);
        // Not every caller knows a path.
        let path = at.and_then(|_| fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok());
        Self { file: Some(file), path, at, ..Self::empty() }
    }

    /// Makes the file at the first write for which there is room.
    pub(super) fn planned(path: PathBuf) -> Self {
        Self { path: Some(path), at: Some(0), ..Self::empty() }
    }

    fn empty() -> Self {
        Self {
            file: None,
            path: None,
            at: None,
            is_torn: false,
            reserved: 0,
            first: Vec::new(),
            unsynced: Vec::new(),
            syncing: None,
            is_lost: false,
        }
    }

    /// Returns where the file can be opened again; `None` of a pipe.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns a request to sync what is written; `None` if the last one is not done, or there is nothing to sync.
    pub(super) fn sync(&mut self) -> Option<Sync> {
        self.take_sync();
        // A file reports a failed sync only once: the next one would seem to succeed.
        if self.syncing.is_some() || self.unsynced.is_empty() || self.is_lost {
            return None;
        }
        // Without a free descriptor the disk has the bytes a little later.
        let file = self.file.as_ref()?.try_clone().ok()?;
        let (done, outcome) = channel();
        self.syncing = Some((self.unsynced.len(), outcome));
        Some(Sync { file, done })
    }

    /// Gives back the room beyond the end.
    pub(super) fn release(&mut self) {
        if let Some((file, at)) = self.file.as_ref().zip(self.at) {
            // Without it the file takes more room than it has bytes.
            let _ = file.set_len(at);
        }
    }

    /// Syncs a last time.
    ///
    /// # Errors
    /// Fails if the disk does not keep the bytes although they were written again.
    fn last_sync(mut self) -> io::Result<()> {
        if self.at.is_none() || self.file.is_none() {
            return Ok(());
        }
        let is_kept = !self.is_lost && self.confirm().is_ok();
        if is_kept { Ok(()) } else { self.append_last(&[]) }
    }

    /// Waits for the disk to keep everything that was written.
    ///
    /// # Errors
    /// Fails if it may have lost what is remembered.
    fn confirm(&mut self) -> io::Result<()> {
        // Only one of two syncs reports an error. One that was dropped reports nothing.
        let earlier = self.syncing.take().map_or(Ok(()), |(_, outcome)| outcome.recv().unwrap_or(Ok(())));
        let kept = earlier.and(sync(self.open()?));
        self.is_lost = kept.is_err();
        if kept.is_ok() {
            self.unsynced.clear();
        }
        kept
    }

    /// Takes the outcome of a sync, if there is one.
    fn take_sync(&mut self) {
        let Some((bytes, outcome)) = &self.syncing else { return };
        match outcome.try_recv() {
            Ok(Ok(())) => drop(self.unsynced.drain(..*bytes)),
            Ok(Err(_)) => self.is_lost = true,
            Err(TryRecvError::Empty) => return,
            // It was dropped.
            Err(TryRecvError::Disconnected) => {}
        }
        self.syncing = None;
    }

    /// Appends bytes, and keeps room beyond them.
    ///
    /// # Errors
    /// Fails if not all could be written: then the next ones take their place.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let was_lost = self.is_lost;
        let written = self.reserve(bytes.len()).and_then(|()| self.write(bytes));
        let Err(why) = written else { return Ok(()) };
        // A file system was mounted again: the descriptor is of the one before.
        let is_opened = why.kind() == io::ErrorKind::StaleNetworkFileHandle && self.open_again()?;
        let has_lost_now = self.is_lost && !was_lost;
        if !is_opened && !has_lost_now {
            return Err(why);
        }
        self.reserve(bytes.len()).and_then(|()| self.write(bytes))
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
        let is_same = first == self.first && file.metadata()?.len() >= at - self.unsynced.len() as u64;
        if is_same {
            (self.file, self.reserved) = (Some(file), 0);
            (self.is_lost, self.syncing) = (true, None);
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
        self.take_sync();
        let (at, is_torn) = (self.at, self.is_torn);
        let file = self.open()?;
        let Some(at) = at else { return file.write_all(bytes) };
        if is_torn {
            file.set_len(at)?;
        }
        self.is_torn = true;
        self.write_lost(at)?;
        let file = self.open()?;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        // Once a disk has lost bytes, it takes nothing more until it keeps what it accepts.
        let is_kept = self.is_lost || self.unsynced.len() + bytes.len() > UNSYNCED_MAX;
        if is_kept {
            self.confirm()?;
        } else {
            self.unsynced.extend(bytes);
        }
        self.is_torn = false;
        if self.first.len() as u64 == at {
            let missing = FIRST.saturating_sub(self.first.len());
            self.first.extend(bytes.iter().take(missing));
        }
        self.at = Some(at + bytes.len() as u64);
        Ok(())
    }

    /// Writes again what the disk may have lost, before this place.
    fn write_lost(&mut self, at: u64) -> io::Result<()> {
        if self.is_lost
            && let Some(file) = &mut self.file
        {
            file.seek(SeekFrom::Start(at - self.unsynced.len() as u64))?;
            file.write_all(&self.unsynced)?;
        }
        Ok(())
    }
}

/// Limit for the last sync: written data survives without it unless the machine itself crashes.
const LAST_SYNC: Duration = Duration::from_millis(500);

/// A request to sync a file.
pub(super) struct Sync {
    file: File,
    done: Sender<io::Result<()>>,
}

/// The thread that syncs.
pub(super) struct Syncer(SyncSender<Vec<Sync>>);

impl Syncer {
    /// Starts it. With each request it syncs the traces, too.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(super) fn start(mut traces: Option<TraceSync>) -> io::Result<Self> {
        let (ask, asked) = sync_channel::<Vec<Sync>>(1);
        thread::Builder::new().name("sync".into()).spawn(move || {
            for syncs in asked {
                for Sync { file, done } in syncs {
                    // A recording that has ended does not wait for it.
                    let _ = done.send(sync(&file));
                }
                // One that fails is tried again. What a trace lacks, its reader notices.
                let _ = traces.as_mut().map(TraceSync::sync);
            }
        })?;
        Ok(Self(ask))
    }

    /// Asks for syncs. While one waits already, that one is enough.
    pub(super) fn ask(&self, syncs: impl IntoIterator<Item = Sync>) {
        let _ = self.0.try_send(syncs.into_iter().collect());
    }
}

/// Syncs files and traces a last time. Does not wait for a slow disk, because a job's end waits for the recording's.
///
/// # Errors
/// Fails if a disk does not keep what was written.
pub(super) fn last_sync(disks: Vec<Disk>, traces: Option<TraceSync>) -> io::Result<()> {
    let (report, last) = channel();
    let of_thread = move || {
        let _ = report.send(disks.into_iter().map(Disk::last_sync).fold(Ok(()), io::Result::and));
        let _ = traces.map(|mut it| it.sync());
    };
    // Without a free thread, or beyond the limit, the kernel writes later.
    let _ = thread::Builder::new().name("last sync".into()).spawn(of_thread);
    let until = Instant::now() + LAST_SYNC;
    let synced = last.recv_timeout(LAST_SYNC).unwrap_or(Ok(()));
    // The thread ends with the traces.
    let _ = last.recv_timeout(until.saturating_duration_since(Instant::now()));
    synced
}

fn sync(file: &File) -> io::Result<()> {
    match file.sync_data() {
        // Not every file system has it.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a sync fail, after which the file is no longer than this.
    fn fail_sync(disk: &mut Disk, path: &std::path::Path, kept: u64) {
        let Sync { file, done } = disk.sync().unwrap();
        File::options().write(true).open(path).unwrap().set_len(kept).unwrap();
        done.send(Err(Errno::IO.into())).unwrap();
        drop(file);
        assert!(disk.sync().is_none(), "the next sync would seem to succeed");
    }

    fn synced(disk: &mut Disk) {
        let Sync { file, done } = disk.sync().unwrap();
        done.send(sync(&file)).unwrap();
    }

    #[test]
    fn what_no_sync_has_confirmed_is_written_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("r");
        let mut disk = Disk::planned(path.clone());
        let text = || fs::read_to_string(&path).unwrap();
        disk.append(b"confirmed ").unwrap();
        synced(&mut disk);
        disk.append(b"lost ").unwrap();
        fail_sync(&mut disk, &path, 10);
        disk.append(b"more ").unwrap();
        assert_eq!(text(), "confirmed lost more ");
        disk.append(b"while ").unwrap();
        let Sync { done, .. } = disk.sync().unwrap();
        disk.append(b"it syncs ").unwrap();
        done.send(Ok(())).unwrap();
        disk.append(b"").unwrap();
        assert_eq!(disk.unsynced, b"it syncs ", "that was written after the sync began");
        fail_sync(&mut disk, &path, 26);
        disk.release();
        disk.last_sync().unwrap();
        assert_eq!(text(), "confirmed lost more while it syncs ");
    }

    #[test]
    fn beyond_the_limit_a_write_waits_for_a_sync() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("r");
        let mut disk = Disk::planned(path.clone());
        let text = vec![1; UNSYNCED_MAX];
        disk.append(&text).unwrap();
        assert_eq!(disk.unsynced.len(), UNSYNCED_MAX);
        // The thread's sync has failed, and this one cannot know that.
        let Sync { done, .. } = disk.sync().unwrap();
        File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        done.send(Err(Errno::DQUOT.into())).unwrap();
        drop(done);
        disk.append(&[2; 7]).unwrap();
        assert_eq!((disk.unsynced.len(), disk.is_lost), (0, false));
        assert_eq!(fs::read(&path).unwrap(), [&text, [2; 7].as_slice()].concat());
        disk.append(b"more").unwrap();
        assert_eq!(disk.unsynced, b"more");
    }

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
