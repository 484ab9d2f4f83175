//! Syncs the traces of a recording. The job's processes write them, and none of their threads waits for a disk.

use crate::storage::traces;
use rustix::fs::OFlags;
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The traces beside a recording, and how far each is synced.
pub(super) struct TraceSync {
    recording: PathBuf,
    /// Lengths in bytes.
    synced: BTreeMap<PathBuf, u64>,
}

impl TraceSync {
    /// Returns the traces of a recording; none is synced yet.
    pub(super) fn of(recording: PathBuf) -> Self {
        Self { recording, synced: BTreeMap::new() }
    }

    /// Syncs those that have grown since the last call, and returns how many.
    ///
    /// # Errors
    /// Fails if a disk does not keep one of them; the next call tries that one again.
    pub(super) fn sync(&mut self) -> io::Result<usize> {
        let (mut count, mut outcome, mut is_new) = (0, Ok(()), false);
        for path in traces::files(&self.recording) {
            // Another process may have exchanged it meanwhile.
            let Ok((file, length)) = opened(&path) else { continue };
            let known = self.synced.get(&path).copied();
            if known.is_some_and(|it| it >= length) {
                continue;
            }
            match file.sync_data() {
                Ok(()) => {
                    is_new |= known.is_none();
                    self.synced.insert(path, length);
                    count += 1;
                }
                failed => outcome = failed,
            }
        }
        if is_new {
            // A new file has its name in its folder. Not every file system syncs one.
            let _ = File::open(traces::folder(&self.recording)).and_then(|it| it.sync_all());
        }
        outcome.map(|()| count)
    }
}

/// Opens a regular file, and returns its length.
fn opened(path: &Path) -> io::Result<(File, u64)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if about.is_file() { Ok((file, about.len())) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write, os::unix::fs::symlink};

    #[test]
    fn what_has_grown_is_synced_once_and_no_link_or_pipe_is_opened() {
        let home = tempfile::tempdir().unwrap();
        let recording = home.path().join("r.jsonl.zst");
        let mut all = TraceSync::of(recording.clone());
        assert_eq!(all.sync().unwrap(), 0, "there is no folder");
        let folder = traces::folder(&recording);
        fs::create_dir(&folder).unwrap();
        for name in ["7_1.trace", "8_1.trace", "9.part", "elsewhere"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        symlink("elsewhere", folder.join("9_1.trace")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("9_2.trace"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert_eq!([all.sync().unwrap(), all.sync().unwrap()], [2, 0]);
        OpenOptions::new().append(true).open(folder.join("8_1.trace")).unwrap().write_all(b"more").unwrap();
        assert_eq!([all.sync().unwrap(), all.sync().unwrap()], [1, 0]);
    }
}
