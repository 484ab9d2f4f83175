//! Caches the index of long recordings in the user's cache directory, so that they open at once.
//!
//! A cache entry is valid only for the same program and the same, unchanged files; otherwise the recordings are read
//! again. Losing the cache loses nothing.
//!
//! ```text
//! stop | stop | … | contents | where the contents begin, u64 | MAGIC
//! ```

use super::{
    checkpoints::{Checkpoints, Piece, Slot, read},
    index::Index,
    recording_set::{Identity, RecordingSet},
    run::LONG,
};
use crate::storage::own_folder::{is_own_file, make, own_folder};
use rustix::{
    fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, fstat, linkat, memfd_create, open},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    env,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

const MAGIC: [u8; 8] = *b"gpuwread";

/// Bytes after the contents.
const TAIL: u64 = 16;

/// Every entry's name ends in this.
const ENDING: &str = ".read";

/// Most bytes of all entries; the oldest are removed first.
const BYTES_MAX: u64 = 512 << 20;

/// The program and the files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key(Vec<Identity>);

/// Returns the user's directory: `$XDG_CACHE_HOME/gpuwatch/replay`, or one like it; `None` if other users could change
/// each, because what it has is read as this program's own.
pub fn directory() -> Option<PathBuf> {
    own_folder("replay", |_| Ok(())).ok()
}

/// What the file has after the stops.
type Contents = (Key, Index, Vec<Slot>);

/// The cache entry of a set of recordings, existing or not.
pub(super) struct Cache {
    directory: PathBuf,
    key: Key,
}

impl Cache {
    /// Returns the entry in a directory; `None` for short recordings, and if this program cannot be identified.
    pub(super) fn of(recordings: &RecordingSet, directory: &Path) -> Option<Self> {
        if recordings.bytes() < LONG {
            return None;
        }
        let program = File::open(env::current_exe().ok()?).and_then(|it| Identity::of(&it)).ok()?;
        let files = recordings.tracks.iter().map(|it| it.identity().ok()).collect::<Option<Vec<_>>>()?;
        Some(Self { directory: directory.to_owned(), key: Key(std::iter::once(program).chain(files).collect()) })
    }

    fn path(&self) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.key.hash(&mut hasher);
        self.directory.join(format!("{:016x}{ENDING}", hasher.finish()))
    }

    /// Returns the cached index and checkpoints.
    pub(super) fn find(&self) -> Option<(Index, Checkpoints)> {
        let kept = File::open(self.path()).ok().filter(|it| fstat(it).is_ok_and(|found| is_own_file(&found)))?;
        let end = kept.metadata().ok()?.len().checked_sub(TAIL)?;
        let (mut begins, mut magic) = ([0; 8], [0; 8]);
        kept.read_exact_at(&mut begins, end).ok()?;
        kept.read_exact_at(&mut magic, end + 8).ok()?;
        let offset = u64::from_le_bytes(begins);
        let contents = Piece { offset, bytes: end.checked_sub(offset)? };
        let (key, index, slots): Contents = read(&kept, contents).ok()?;
        (magic == MAGIC && key == self.key).then(|| (index, Checkpoints::filled(kept, slots)))
    }

    /// Creates an unnamed file in the directory: nothing is left behind if this program dies.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub(super) fn begin(&self) -> io::Result<File> {
        make(&self.directory)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(File::from(open(&self.directory, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Completes the file with the rest of the index, and names it.
    ///
    /// # Errors
    /// Fails if the file cannot be written or named; then nothing is cached, and everything else works.
    pub(super) fn keep(&self, index: &Index, stops: &mut Checkpoints) -> io::Result<()> {
        let piece = stops.write_contents(&self.key, index)?;
        stops.append(&piece.offset.to_le_bytes())?;
        stops.append(&MAGIC)?;
        self.prune();
        let name = format!("/proc/self/fd/{}", stops.file().as_raw_fd());
        match linkat(CWD, name, CWD, self.path(), AtFlags::SYMLINK_FOLLOW) {
            // Another viewer was faster.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes the oldest entries until all fit the limit.
    fn prune(&self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let ours = entries.filter(|it| it.file_name().to_string_lossy().ends_with(ENDING));
        let mut all: Vec<(SystemTime, u64, PathBuf)> = ours
            .filter_map(|it| {
                let metadata = it.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), it.path()))
            })
            .collect();
        all.sort();
        let mut bytes: u64 = all.iter().map(|it| it.1).sum();
        for (_, size, path) in all {
            if bytes <= BYTES_MAX {
                break;
            }
            // A program that has it open keeps it.
            bytes = bytes.saturating_sub(fs::remove_file(path).map_or(0, |()| size));
        }
    }
}

/// Creates a file in memory, if there is no cache.
pub(super) fn unkept() -> io::Result<File> {
    Ok(File::from(memfd_create("replay", MemfdFlags::CLOEXEC)?))
}
