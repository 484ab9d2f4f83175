//! Writes files' data to the disk on a thread of its own, because `fdatasync` may take seconds.

use std::{
    fs::File,
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

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
